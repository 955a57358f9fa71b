"""The JDBC driver of PostgreSQL with `Jdbc.java`, if Java and Maven are installed. Maven downloads the driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from _server import PASSWORD, PATIENCE_S, Server
from postgres import fill

VERSION = "42.7.4"
HERE = Path(__file__).resolve().parent


def driver():
    """Returns the file of the driver. Downloads it once."""
    folder = Path(sys.executable).parent.parent.parent / "jdbc"
    file = folder / f"postgresql-{VERSION}.jar"
    if not file.exists():
        artifact = f"org.postgresql:postgresql:{VERSION}"
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, timeout=4 * PATIENCE_S)
    return file


def main():
    missing = [program for program in ("javac", "mvn") if shutil.which(program) is None]
    if missing:
        print(f"      {' and '.join(missing)} not installed: not tested")
        return
    with Server() as server:
        fill(server)
        url = f"jdbc:postgresql://{server.host}:{server.sql_port}/shop"
        command = ["java", "-cp", str(driver()), str(HERE / "Jdbc.java"), url]
        # The driver returns times in the zone of the machine.
        environment = dict(os.environ, PASSWORD=PASSWORD, TZ="UTC")
        subprocess.run(command, check=True, env=environment, timeout=2 * PATIENCE_S)


if __name__ == "__main__":
    main()
