"""The example `cql` of the crate `batcher`: transfers between accounts, with the total conserved. It is built beforehand and
found in the folder `FAIRLANE_EXAMPLES`.
"""

import os
import pathlib
import subprocess

from _server import Server

PATIENCE_S = 120


def main():
    example = pathlib.Path(os.environ["FAIRLANE_EXAMPLES"], "cql")
    with Server(password=None) as server:
        command = [example, f"{server.host}:{server.port}"]
        done = subprocess.run(
            command, cwd=server.folder.name, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert "total 100000, expected 100000" in done.stdout, done.stdout
        # Some transfers fail for lack of money, and most do not.
        changes = int(done.stdout.split(" of ")[0])
        assert 5000 < changes < 10100, done.stdout


if __name__ == "__main__":
    main()
