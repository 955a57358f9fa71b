"""gocql with the program in `drivers/go`, if Go is installed. Go downloads the driver."""

import os
import subprocess
import sys
from pathlib import Path

from _drivers import HERE, is_missing, run
from _server import PATIENCE_S


def main():
    if is_missing("go"):
        return
    program = Path(sys.executable).parent.parent.parent / "go" / "client"
    # The installed tool chain compiles, whatever version a module names.
    environment = dict(os.environ, GOTOOLCHAIN="local")
    command = ["go", "build", "-o", str(program), "."]
    subprocess.run(command, cwd=HERE / "go", env=environment, check=True, timeout=10 * PATIENCE_S)
    run([program])


if __name__ == "__main__":
    main()
