"""The Node.js cassandra-driver with `drivers/node/client.js`, if Node.js is installed. npm downloads the driver."""

import shutil
import subprocess

from _drivers import HERE, cache, is_missing, run
from _server import PATIENCE_S


def driver():
    """Returns the folder with the driver. Installs it once."""
    source = HERE / "node"
    folder = cache("node-driver", source / "package-lock.json")
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, partial)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--omit=dev"]
        subprocess.run(command, cwd=partial, check=True, timeout=4 * PATIENCE_S)
        partial.rename(folder)
    return folder / "node_modules"


if __name__ == "__main__":
    if not is_missing("node", "npm"):
        run(["node", HERE / "node" / "client.js"], NODE_PATH=str(driver()))
