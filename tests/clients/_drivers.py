"""Programs in `drivers`, each with another driver of CQL. All take the same steps, with the types and values of `types.json`.

A program is started with the host and port of a server and the path of that file, and the password of `admin` in `PASSWORD`. The
table `shop.kinds` has a column of each type, and two rows that were written as text, with the ids 0 and 1. The program

1. reads both rows, writes them with bound values as rows 10 and 11, and reads these. Null deletes values and unset keeps them;
2. reads 1,000 rows in pages, writes batches of each kind, and reads answers of conditional statements;
3. reads the definition of the table, and sees the changes that another client makes to a table, by events;
4. reconnects after a restart of the server at the same port, where its prepared statement is unknown and events arrive again.

For another client's part the program prints a line, `restart` or a statement. The line that it then reads tells that this is done.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import zlib
from pathlib import Path

from _ring import free_port, jars
from _server import PASSWORD, PATIENCE_S, Server
import python_driver

HERE = Path(__file__).resolve().parent / "drivers"
TABLE = HERE / "types.json"
# Longest time of a program. They take seconds on a quiet machine.
PROGRAM_S = 3 * PATIENCE_S


def connect(server, **options):
    return python_driver.connect(server, control_connection_timeout=PATIENCE_S, **options)


def columns():
    return json.loads(TABLE.read_text())["columns"]


def create(session):
    """Creates the keyspace `shop` and the table `kinds`, with two rows written as text."""
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for statement in json.loads(TABLE.read_text())["types"]:
        session.execute(statement)
    definitions = ", ".join(f"{column['name']} {column['type']}" for column in columns())
    session.execute(f"CREATE TABLE shop.kinds (id int PRIMARY KEY, {definitions})")
    names = ", ".join(column["name"] for column in columns())
    for row in range(2):
        values = ", ".join(column["values"][row][0] for column in columns())
        session.execute(f"INSERT INTO shop.kinds (id, {names}) VALUES ({row}, {values})")


def cache(name, file):
    """Returns the folder for what this file asks to be downloaded, beside the target folder."""
    return Path(sys.executable).parent.parent.parent.parent / f"{name}-{zlib.crc32(file.read_bytes()):08x}"


def run(command, **variables):
    """Runs a program against a server of its own, and compares the rows that it wrote with those written as text."""
    server = Server()
    # The port stays free during a restart: the kernel gives it to no connection.
    server.listen = f"127.0.0.1:{free_port(['127.0.0.1'])}"
    with server:
        with connect(server) as cluster:
            create(cluster.connect())
        command = [*map(str, command), server.host, str(server.port), str(TABLE)]
        environment = dict(os.environ, PASSWORD=PASSWORD, **variables)
        program = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        limit = threading.Timer(PROGRAM_S, program.kill)
        limit.start()
        try:
            for line in program.stdout:
                request(server, line.strip())
                program.stdin.write("done\n")
                program.stdin.flush()
            code = program.wait()
        finally:
            limit.cancel()
            program.kill()
            program.wait()
        assert code == 0, f"{command[0]} ended with {code}"
        with connect(server) as cluster:
            compare(cluster.connect())


def request(server, line):
    if line == "restart":
        server.restart()
        return
    with connect(server, schema_metadata_enabled=False) as cluster:
        cluster.connect().execute(line)


def compare(session):
    names = [column["name"] for column in columns()]
    rows = {row.id: row for row in session.execute(f"SELECT id, {', '.join(names)} FROM shop.kinds")}
    for row in range(2):
        for name in names:
            written, bound = getattr(rows[row], name), getattr(rows[10 + row], name)
            # That of Node.js binds null for an empty list.
            is_empty = bound is None and written == []
            assert is_empty or written == bound, f"{name} is {written!r} as text, and {bound!r} as the program wrote it"


def is_missing(*programs):
    """Returns true, and prints the reason, if one of these programs is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"      not tried: {' and '.join(missing)} not installed")
    return bool(missing)


def run_java(name):
    """Runs `Client.java` of a folder, with the files that its `pom.xml` names. Maven downloads them once."""
    if is_missing("javac", "mvn"):
        return
    pom = HERE / name / "pom.xml"
    lib = jars(cache(f"{name}-driver", pom).name, pom.read_text())
    # A test ends before the second compiler has paid for itself.
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    # Logs of the driver: none, but for a note that there is no logger.
    run([*command, "-cp", f"{lib}/*", HERE / name / "Client.java"])
