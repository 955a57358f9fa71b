"""The Python scylla-driver with `drivers/python/client.py`. It has the name of the cassandra-driver, hence a folder of its own."""

import subprocess
import sys

from _drivers import HERE, cache, run
from _server import PATIENCE_S


def driver():
    """Returns the folder with the driver. Installs it once."""
    requirements = HERE / "python" / "requirements.txt"
    folder = cache("scylla-driver", requirements)
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        command += ["--target", str(partial), "-r", str(requirements)]
        subprocess.run(command, check=True, timeout=4 * PATIENCE_S)
        partial.rename(folder)
    return folder


if __name__ == "__main__":
    run([sys.executable, HERE / "python" / "client.py"], PYTHONPATH=str(driver()))
