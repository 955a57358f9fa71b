#!/usr/bin/env python3
"""Records what PostgreSQL answers to the statements of `*.sql`, as `*.expected` beside them.

Starts a PostgreSQL of its own on a Unix socket in a temporary folder, fills the tables of `tables.txt`, and stops
it again. Needs the Debian package `postgresql` (15 was used) and the Python package `psycopg`. As root it runs
the server as the user `postgres`.

    python3 crates/sql/tests/corpus/record.py

A statement is a line. A line that begins with `--` is a comment, or a mark of the statement below it:

    -- refused 0A000: kind       fairlane refuses it with this SQLSTATE, as docs/sql.md states
    -- differs kind              fairlane gives what the next line has, in the format of the expected results
    -- gives: = sqrt float8 ; > 1.4142135623730951

An expected result repeats the statement. Then come `= name type|name type` and a line `> value|value` for each
row, or `! SQLSTATE message`. NULL is `\\N`; backslash, bar and line feed within a value are `\\\\`, `\\|` and `\\n`.
"""

import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id int PRIMARY KEY, name text, kind text, price numeric(38, 6), qty int, big bigint,
    small smallint, ratio float8, weight real, sold boolean, at timestamptz, day date);
CREATE TABLE shop.sales (item int, day date, amount int, price numeric(38, 6), PRIMARY KEY (item, day));
CREATE TABLE shop.r1 (id int PRIMARY KEY, g text, x int, b boolean, w int, d numeric(38, 6), at timestamptz);
CREATE TABLE shop.r2 (id int PRIMARY KEY, k int);
CREATE TABLE shop.r3 (id int PRIMARY KEY, k int, v int);
"""


def escaped(value):
    if value is None:
        return "\\N"
    return value.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "\\n")


def answer(connection, types, statement):
    """The lines of the result of the last statement of a text."""
    from psycopg.pq import DiagnosticField, ExecStatus

    result = connection.pgconn.exec_(statement.encode())
    if result.status == ExecStatus.TUPLES_OK:
        names = [result.fname(column).decode() for column in range(result.nfields)]
        kinds = [types.get(result.ftype(column), str(result.ftype(column))) for column in range(result.nfields)]
        lines = ["= " + "|".join(f"{escaped(name)} {kind}" for name, kind in zip(names, kinds))]
        for row in range(result.ntuples):
            cells = [result.get_value(row, column) for column in range(result.nfields)]
            lines.append("> " + "|".join(escaped(None if cell is None else cell.decode()) for cell in cells))
        return lines
    state = result.error_field(DiagnosticField.SQLSTATE)
    message = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b""
    return [f"! {(state or b'?').decode()} {message.decode()}".replace("\n", " ")]


def statements(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    return [line for line in lines if line and not line.startswith("--")]


def record(connect):
    """Writes the expected results. Each statement has a session of its own."""
    with connect() as connection:
        types = dict(connection.execute("SELECT oid::int, typname FROM pg_type").fetchall())
    for path in sorted(glob.glob(os.path.join(HERE, "*.sql"))):
        results = []
        for statement in statements(path):
            with connect() as connection:
                results.append("\n".join([statement, *answer(connection, types, statement)]) + "\n")
        with open(path.removesuffix(".sql") + ".expected", "w", encoding="utf-8") as file:
            file.write("\n".join(results))
        print(f"{len(results):4} {os.path.basename(path)}")


def with_server(run):
    """Calls `run` with a function that opens a session of a server that stops afterwards."""
    import psycopg

    binaries = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]), default=None)
    if binaries is None:
        sys.exit("expected PostgreSQL in /usr/lib/postgresql: apt-get install postgresql")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        if user:
            subprocess.run(["chown", "postgres", folder], check=True)
        data = os.path.join(folder, "data")
        init = ["initdb", "--pgdata", data, "--username=corpus", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run([*user, os.path.join(binaries, init[0]), *init[1:]], check=True, stdout=subprocess.DEVNULL)
        serve = [os.path.join(binaries, "postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c",
                 "timezone=UTC", "-c", "fsync=off"]
        log = open(os.path.join(folder, "log"), "w")
        server = subprocess.Popen([*user, *serve], stdout=log, stderr=log)
        try:
            def connect():
                return psycopg.connect(host=folder, user="corpus", dbname="postgres", autocommit=True)

            for attempt in range(100):
                try:
                    connect().close()
                    break
                except psycopg.OperationalError:
                    if attempt == 99 or server.poll() is not None:
                        raise
                    import time
                    time.sleep(0.1)
            run(connect)
        finally:
            server.terminate()
            server.wait()


def main():
    def run(connect):
        with connect() as connection:
            connection.execute(TABLES)
            for statement in statements(os.path.join(HERE, "tables.txt")):
                connection.execute(statement)
        record(connect)

    with_server(run)


if __name__ == "__main__":
    main()
