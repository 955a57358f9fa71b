"""The examples of docs/getting-started.md, verbatim: the cqlsh session, the Python block, the psql session (if psql is
installed), the SQL block in cqlsh, and the Rust block. The Rust block is the example `orders` of the crate `fairlane`, which
is built before the test, in the folder `FAIRLANE_EXAMPLES`.

The server is started as in the page, with other ports than 9042 and 5432.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from _server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = "admin@cqlsh> "
PATIENCE_S = 120


def block(page, language):
    """Returns the only block of a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"the page has {len(found)} blocks of {language}"
    return found[0]


def run(command, server, text=None, **options):
    """Runs a command in the server's folder. Returns its output."""
    done = subprocess.run(
        command, input=text, cwd=server.folder.name, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def cqlsh(page, server):
    session = re.search(r"^```\n\$ (cqlsh .*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    command, lines = session[1].replace("9042", str(server.port)), session[2].splitlines()
    typed = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
    shown = [line for line in lines if line and not line.startswith(PROMPT)]
    assert typed and shown, session[0]
    # The timeout is for busy machines. The page has none.
    options = " --no-color --request-timeout 60 --connect-timeout 60"
    printed = run(command + options, server, "\n".join(typed) + "\n", shell=True).splitlines()
    for line in shown:
        assert line in printed, f"expected {line!r} from cqlsh, got {printed}"


def psql(page, server):
    if shutil.which("psql") is None:
        print("      psql is not installed: not tested")
        return
    session = re.search(r"^```\n\$ (PGPASSWORD=.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    command, lines = session[1].replace("5432", str(server.sql_port)), session[2].splitlines()
    typed = [line.removeprefix("shop=> ") for line in lines if line.startswith("shop=> ")]
    shown = [line for line in lines if line and not line.startswith("shop=> ")]
    assert typed and shown, session[0]
    printed = [line.rstrip() for line in run(command, server, "\n".join(typed) + "\n", shell=True).splitlines()]
    for line in shown:
        assert line in printed, f"expected {line!r} from psql, got {printed}"


def levels(page, server):
    session = re.search(r"^```\n\$ (cqlsh .*?)\n", page, re.MULTILINE)
    command = session[1].replace("9042", str(server.port)) + " --no-color --request-timeout 60 --connect-timeout 60"
    run(command, server, block(page, "sql"), shell=True)
    shown = run(command, server, "LIST ALL SERVICE LEVELS;\n", shell=True)
    assert "oltp" in shown and "olap" in shown, shown


def python(page, server):
    program = block(page, "python").replace("9042", str(server.port))
    assert run([sys.executable, "-c", program], server).splitlines() == ["bread", "salt"]


def rust(page, server):
    source = (ROOT / "crates/fairlane/examples/orders.rs").read_text()
    assert source.endswith("\n\n" + block(page, "rust")), "the page's Rust block differs from the example's source"
    example = pathlib.Path(os.environ["FAIRLANE_EXAMPLES"], "orders")
    assert run([example, f"{server.host}:{server.port}"], server).splitlines() == ["milk", "honey"]


def main():
    page = (ROOT / "docs/getting-started.md").read_text()
    with Server(password=None) as server:
        cqlsh(page, server)
        python(page, server)
        psql(page, server)
        levels(page, server)
        rust(page, server)


if __name__ == "__main__":
    main()
