"""README's examples, as they are written there: the cqlsh session, the Python block, the psql session (where psql is installed), and the Rust block, which is the example
`orders` of the crate `fairlane`, built beforehand and found in the folder `FAIRLANE_EXAMPLES`.

The server is started as README says, but for its ports; so 9042 and 5432 are replaced by its ports.
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


def block(readme, language):
    """The only block of this language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"README has {len(found)} blocks of {language}"
    return found[0]


def run(command, server, text=None, **options):
    """Runs a command in the server's folder; what it printed."""
    done = subprocess.run(
        command, input=text, cwd=server.folder.name, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def cqlsh(readme, server):
    session = re.search(r"^```\n\$ (cqlsh .*?)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    command, lines = session[1].replace("9042", str(server.port)), session[2].splitlines()
    typed = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
    shown = [line for line in lines if line and not line.startswith(PROMPT)]
    assert typed and shown, session[0]
    # Time enough for a busy machine, which is not README's business.
    options = " --no-color --request-timeout 60 --connect-timeout 60"
    printed = run(command + options, server, "\n".join(typed) + "\n", shell=True).splitlines()
    for line in shown:
        assert line in printed, f"{line!r} is not in what cqlsh printed: {printed}"


def psql(readme, server):
    if shutil.which("psql") is None:
        print("      psql is not installed: not tried")
        return
    session = re.search(r"^```\n\$ (PGPASSWORD=.*?)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    command, lines = session[1].replace("5432", str(server.sql_port)), session[2].splitlines()
    typed = [line.removeprefix("shop=> ") for line in lines if line.startswith("shop=> ")]
    shown = [line for line in lines if line and not line.startswith("shop=> ")]
    assert typed and shown, session[0]
    printed = [line.rstrip() for line in run(command, server, "\n".join(typed) + "\n", shell=True).splitlines()]
    for line in shown:
        assert line in printed, f"{line!r} is not in what psql printed: {printed}"


def python(readme, server):
    program = block(readme, "python").replace("9042", str(server.port))
    assert run([sys.executable, "-c", program], server).splitlines() == ["bread", "salt"]


def rust(readme, server):
    source = (ROOT / "crates/fairlane/examples/orders.rs").read_text()
    assert source.endswith("\n\n" + block(readme, "rust")), "README's Rust block differs from the example's source"
    example = pathlib.Path(os.environ["FAIRLANE_EXAMPLES"], "orders")
    assert run([example, f"{server.host}:{server.port}"], server).splitlines() == ["milk", "honey"]


def main():
    readme = (ROOT / "README.md").read_text()
    with Server(password=None) as server:
        cqlsh(readme, server)
        python(readme, server)
        psql(readme, server)
        rust(readme, server)


if __name__ == "__main__":
    main()
