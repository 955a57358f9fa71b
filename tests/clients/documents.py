"""The commands of README.md and of the pages in `docs`, as they are written. A page runs from its first block to its
last, in one shell and one folder, on an address of its own.

| block | what happens |
|---|---|
| `sh` | runs in the shell; a command that fails ends the test |
| `sql` | runs in cqlsh, with the page's last command line of it, without `-e`, or that of README.md |
| `python` | runs |
| `rust` | is the end of an example's source, which runs; pages that rustdoc tests are left to it |
| `console` | runs the lines after `$ `, with those after a prompt as input, and compares the lines between |
| `text` after one of these | is compared with its output |
| others | are drawings, formats and output |

Lines that are shown must be lines of the output, in their order; `…` is any text. A command fails if and only if its
last shown line is an error. A block that is not run has its reason after the language: "sh not run: it builds the
program". Messages (a table's column `message`) and names of metrics must be in a source.

A page finds a server, as job 1 of its shell, unless it starts one before it needs one. Servers have their default
settings, but for the address, two cores and 256 MiB. `fairlane load` measures for less time than in the page.
"""

import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 120
PORTS = (9042, 19042, 9180, 5432)
RUN = ("sh", "sql", "python", "rust", "console")
# Begins a line that a program has ended with an error.
FAILURE = re.compile(r"fairlane: |<stdin>:|Connection error|psql: error|.*: FAILED$")
PROMPT = re.compile(r"\w+(@cqlsh|=)> ")
# Begins a command that a block of no language hides.
COMMAND = re.compile(r"\$ |(fairlane|cqlsh|psql|curl|openssl) ")
SERVER = 'fairlane serve 2>log &\ncurl -s --retry 60 --retry-delay 1 --retry-all-errors 127.0.0.1:9180/health/ready'
# The first use of a server: its start, or a client.
USE = re.compile(r"fairlane (serve|load|snapshot)|\bcqlsh\b|^(sql|python|rust)$", re.MULTILINE)
# Flags of `fairlane load`, by command, that make it end within seconds on any machine.
SHORT = {
    "usl": "--ladder 1,2,4,8 --ladder-rounds 1 --duration 2s --warmup 0s",
    "sweep": "--sweep-runs 1 --duration 4s --warmup 0s",
    "prefill": "",
    "tpch": "--scale 0.001",
    "hits": "--rows 100",
}
FEW_KEYS = ("read", "write", "mixed", "slice", "prefill")


def load(arguments, address):
    """Runs `fairlane load`, shortened. Code 3 stands for a measurement that a busy machine has made invalid."""
    words = arguments[:2]
    if "plan" not in words and "merge" not in words:
        hosts = f"{address}:5432" if "sql" in words else f"{address}:9042"
        short = next((SHORT[word] for word in words if word in SHORT), "--duration 500ms")
        keys = " --keys 1000" if any(word in FEW_KEYS for word in words) else ""
        arguments = [*arguments, "--hosts", hosts, *f"{short}{keys}".split()]
    code = subprocess.run([os.environ["FAIRLANE_BIN"], "load", *arguments], timeout=PATIENCE_S).returncode
    sys.exit(0 if code == 3 else code)


def free_address():
    """Returns an address of the loopback network on which the ports of a server are free."""
    for number in range(os.getpid(), os.getpid() + 1000):
        address = f"127.{number // 62500 % 200 + 1}.{number // 250 % 250 + 1}.{number % 250 + 1}"
        sockets = []
        try:
            for port in PORTS:
                sockets.append(socket.socket())
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind((address, port))
            return address
        except OSError:
            pass
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no address of 127.0.0.0/8 has free ports")


class Shell:
    """A shell in a folder of its own. `fairlane` in it is the built program, at `address`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlane-page-")
        self.address = free_address()
        self.blocks = 0
        home = pathlib.Path(self.folder.name, "home")
        pathlib.Path(home, ".cassandra").mkdir(parents=True)
        # Time for busy machines.
        pathlib.Path(home, ".cassandra/cqlshrc").write_text("[connection]\ntimeout = 60\nrequest_timeout = 60\n")
        program, wrapper = os.environ["FAIRLANE_BIN"], home / "fairlane"
        wrapper.write_text(
            f'#!/bin/sh\ncase "$1" in\n'
            f'load) shift; exec "{sys.executable}" "{__file__}" --load {self.address} "$@";;\n'
            f'compact|flush|scrub) exec "{program}" "$@" --host {self.address}:9042;;\n'
            f'*) exec "{program}" "$@";;\nesac\n'
        )
        wrapper.chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FAIRLANE_", "PG"))}
        environment |= {
            "FAIRLANE_BIN": program,
            "FAIRLANE_LISTEN": f"{self.address}:9042",
            "FAIRLANE_HTTP_LISTEN": f"{self.address}:9180",
            "FAIRLANE_SQL_LISTEN": f"{self.address}:5432",
            "FAIRLANE_CORES": "2",
            "FAIRLANE_OVERPROVISIONED": "true",
            "FAIRLANE_MEMORY": "256MiB",
            "FAIRLANE_DISK_PROBE": "off",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PATH": f"{home}:{os.environ['PATH']}",
        }
        os.symlink(ROOT / "crates", pathlib.Path(self.folder.name, "crates"))
        self.process = subprocess.Popen(
            ["bash"], cwd=self.folder.name, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.process.stdin.write("set -euo pipefail\n")

    def run(self, script, may_fail=False):
        """Runs a script in the shell. Returns its status and its output."""
        self.blocks += 1
        output = pathlib.Path(self.folder.name, f"home/output-{self.blocks}")
        script = script.replace("127.0.0.1", self.address).replace("0.0.0.0", self.address)
        script = f"{{\n{script}\n}} </dev/null >{output} 2>&1"
        script = f"if {script}; then echo 0; else echo $?; fi" if may_fail else f"{script}\necho 0"
        self.process.stdin.write(script + "\n")
        self.process.stdin.flush()
        ended = select.select([self.process.stdout], [], [], PATIENCE_S)[0]
        status = self.process.stdout.readline().strip() if ended else f"no end within {PATIENCE_S} s"
        printed = re.sub(r"\x1b\[[0-9;]*m", "", output.read_text(errors="replace"))
        return status or "a failed command", printed.replace(self.address, "127.0.0.1")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        try:
            if failure[0] is None:
                status, printed = self.run("for job in $(jobs -pr); do kill $job; wait $job; done")
                assert status == "0", f"a server did not stop:\n{printed}"
        finally:
            try:
                os.killpg(self.process.pid, 9)
            except ProcessLookupError:
                pass
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.folder.cleanup()


def blocks(text):
    """Returns the fenced blocks of a page: line, language, the rest of the first line, and the text."""
    found, lines = [], iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            language, _, rest = line[3:].strip().partition(" ")
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            found.append((number, language, rest, "\n".join(body)))
    return found


def compare(shown, printed):
    """Asserts that the lines are lines of the output, in their order."""
    rest = iter([line.rstrip() for line in printed.splitlines()])
    for line in filter(None, map(str.rstrip, shown)):
        pattern = re.compile(".*".join(re.escape(part) for part in line.strip().split("…")))
        assert any(pattern.fullmatch(got.strip()) for got in rest), f"expected the line {line!r}, got:\n{printed}"


def console(shell, body):
    """Runs the commands of a transcript."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = lines.pop(0)
        while command.endswith("\\"):
            command = command.removesuffix("\\") + lines.pop(0)
        if re.search(r"\bpsql\b", command) and shutil.which("psql") is None:
            print("      psql is not installed: not tested")
            continue
        typed = [PROMPT.sub("", line, count=1) for line in lines if PROMPT.match(line)]
        shown = [line for line in lines if line and not PROMPT.match(line)]
        if typed:
            command += " <<'END'\n" + "\n".join(typed) + "\nEND"
        status, printed = shell.run(command, may_fail=True)
        is_error = bool(shown) and FAILURE.match(shown[-1]) is not None
        assert (status != "0") == is_error, f"{command}\nended with {status}:\n{printed}"
        compare(shown, printed)


def rust(body):
    """Returns a command for the example that ends with the block."""
    named = [file for file in ROOT.glob("crates/*/examples/*.rs") if file.read_text().endswith("\n\n" + body + "\n")]
    assert len(named) == 1, f"expected one example that ends with the block, got {named}"
    return f"{os.environ['FAIRLANE_EXAMPLES']}/{named[0].stem} 127.0.0.1:9042"


def quotes(text):
    """Returns the parts of the program's messages in a page, between `…`, and the names of metrics."""
    found, is_quoting = re.findall(r"`(fairlane_\w+)`", text), False
    for line in text.splitlines():
        is_quoting = line.startswith("| message |") or (is_quoting and line.startswith("|"))
        for span in re.findall(r"`([^`]+)`", line.split("|")[1]) if is_quoting else ():
            found += filter(None, map(str.strip, span.split("…")))
    return found


def check_quotes(pages):
    """Asserts that all that pages quote is in a source."""
    texts = [path.read_text() for path in ROOT.glob("crates/*/src/**/*.rs")]
    sources = re.sub(r"\\\n\s*", "", "\n".join(texts)).replace('\\"', '"')
    sources = re.sub(r"\{[^{}\n]*\}", "{}", sources)
    for page in pages:
        for quoted in quotes((ROOT / page).read_text()):
            assert quoted in sources, f"{page}: no source contains {quoted!r}"


def check(page, cqlsh):
    """Runs a page. Returns the number of blocks that were run."""
    heads = [path.read_text() for path in ROOT.glob("crates/*/src/lib.rs")]
    is_rustdoc = any(f'include_str!("../../../{page}")' in head for head in heads)
    found, count = [], 0
    for number, language, rest, body in blocks((ROOT / page).read_text()):
        place, why = f"{page}:{number}", rest.removeprefix("not run: ")
        assert not rest or (language in RUN and rest != why and why), f"{place}: expected `not run: REASON`"
        assert language in (*RUN, "", "text", "rust,no_run"), f"{place}: unknown language {language}"
        is_hidden = language not in RUN and any(map(COMMAND.match, body.splitlines()))
        assert not is_hidden, f"{place}: a block of commands has no language"
        runs = language in RUN and not rest and not (language == "rust" and is_rustdoc)
        found.append((place, language, body, runs))
    if not any(runs for *_, runs in found):
        return 0
    with Shell() as shell:
        commands = "\n".join(f"{language}\n{body}" for _, language, body, runs in found if runs)
        first = USE.search(commands)
        if first is None or first[0] != "fairlane serve":
            status, printed = shell.run(SERVER)
            assert status == "0", f"{page}: the server is not ready:\n{printed}"
        printed = None
        for place, language, body, runs in found:
            try:
                logins = re.findall(r"^(?:\$ )?(cqlsh .*?)(?: -e .*)?$", body, re.MULTILINE)
                cqlsh = (logins or [cqlsh])[-1]
                if language == "text" and printed is not None:
                    compare(body.splitlines(), printed)
                printed = None
                if not runs:
                    continue
                count += 1
                if language == "console":
                    console(shell, body)
                    continue
                script = {
                    "sh": lambda: body,
                    "sql": lambda: f"{cqlsh} <<'END'\n{body}\nEND",
                    "python": lambda: f"{sys.executable} - <<'END'\n{body}\nEND",
                    "rust": lambda: rust(body),
                }[language]()
                status, printed = shell.run(script)
                assert status == "0", f"{script}\nended with {status}:\n{printed}"
            except AssertionError as error:
                raise AssertionError(f"{place}: {error}") from error
    return count


def main():
    if sys.argv[1:2] == ["--load"]:
        load(sys.argv[3:], sys.argv[2])
    readme = (ROOT / "README.md").read_text()
    cqlsh = re.search(r"^cqlsh .*$", readme, re.MULTILINE)[0]
    pages = sys.argv[1:] or ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
    check_quotes(pages)
    for page in pages:
        count = check(page, cqlsh)
        if count:
            print(f"      {page}: {count} blocks")


if __name__ == "__main__":
    main()
