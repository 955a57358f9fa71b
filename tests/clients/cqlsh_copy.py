"""COPY TO and COPY FROM of cqlsh: every type of `drivers/types.json`, null, counters, and names and values with quotes.

A table is written to a file, read into a second table, and written again: both files have the same bytes, and the driver reads the
same values from both tables. Texts have no newline, tab or backslash: cqlsh writes `\\n` for a newline, and does not read it as one. Tuples have no null, which it
reads as a value.
"""

import subprocess
import tempfile
from pathlib import Path

from _drivers import columns, connect, create
from _server import PASSWORD, PATIENCE_S, Server

# Digits with which floating-point numbers are exact, one process so that rows have an order, and a mark for null that is no value.
EXACT = "NUMPROCESSES = 1 AND MAXREQUESTS = 1 AND FLOATPRECISION = 9 AND DOUBLEPRECISION = 17"
OPTIONS = "HEADER = true AND NULL = '(null)'"
# Names that need quotes, among the columns of the key.
ODD = '"Id of a ""row""" int, "select" text'
ODD_ROWS = ["(1, 'one')", "(2, 'two, \"2\"')", "(3, '\"')", "(4, '')", "(5, ' '' | ; ')", "(6, 'null')"]
TABLES = ("kinds", "odd", "counts")


def fill(session):
    create(session)
    session.execute("UPDATE shop.kinds SET v_text = 'it''s \"quoted\", a | bar', a_tuple = (-1, '(', false) WHERE id = 1")
    session.execute("INSERT INTO shop.kinds (id) VALUES (2)")
    definitions = ", ".join(f"{column['name']} {column['type']}" for column in columns())
    session.execute(f"CREATE TABLE shop.copied_kinds (id int PRIMARY KEY, {definitions})")
    for table in ("odd", "copied_odd"):
        key = '("Id of a ""row""", "select")'
        session.execute(f"CREATE TABLE shop.{table} ({ODD}, note text, PRIMARY KEY {key})")
    for row in ODD_ROWS:
        session.execute(f'INSERT INTO shop.odd ("Id of a ""row""", "select") VALUES {row}')
    for table in ("counts", "copied_counts"):
        session.execute(f"CREATE TABLE shop.{table} (page text, day date, a counter, b counter, PRIMARY KEY (page, day))")
    session.execute("UPDATE shop.counts SET a = a + 5, b = b - 7 WHERE page = 'x' AND day = '2026-01-31'")
    session.execute("UPDATE shop.counts SET a = a + 9223372036854775807, b = b + 0 WHERE page = 'y' AND day = '1969-12-31'")


def cqlsh(server, script):
    command = ["cqlsh", "--no-color", "-u", "admin", "-p", PASSWORD, "--request-timeout", str(PATIENCE_S)]
    command += ["--connect-timeout", str(PATIENCE_S), server.host, str(server.port)]
    # Its working directory gets files with the rows that it could not write.
    done = subprocess.run(command, input=script, capture_output=True, text=True, cwd=server.folder.name, timeout=3 * PATIENCE_S)
    printed = f"{done.stdout}\n{done.stderr}"
    failed = any(word in printed for word in ("Error", "Exception", "Failed"))
    assert done.returncode == 0 and not failed, printed
    return printed


def copies():
    """Returns the tables to copy, with the columns and more options of COPY FROM."""
    names = ["id", *(column["name"] for column in columns() if column["type"] != "duration")]
    # cqlsh binds a duration as text, which no server takes. In the text of a statement it is right.
    durations = ["id", *(column["name"] for column in columns() if column["type"] == "duration")]
    yield "kinds", f"({', '.join(names)})", ""
    yield "kinds", f"({', '.join(durations)})", " AND PREPAREDSTATEMENTS = false"
    yield "odd", "", ""
    yield "counts", "", ""


def main():
    with Server() as server, tempfile.TemporaryDirectory(prefix="fairlane-copy-") as folder:
        with connect(server) as cluster:
            fill(cluster.connect())
        script, files = [], []
        for number, (table, names, more) in enumerate(copies()):
            first, second = (Path(folder, f"{number}{name}.csv") for name in ("first", "second"))
            script.append(f"COPY shop.{table} {names} TO '{first}' WITH {OPTIONS} AND {EXACT};")
            script.append(f"COPY shop.copied_{table} {names} FROM '{first}' WITH {OPTIONS} AND NUMPROCESSES = 1{more};")
            script.append(f"COPY shop.copied_{table} {names} TO '{second}' WITH {OPTIONS} AND {EXACT};")
            files.append((first, second))
        printed = cqlsh(server, "\n".join(script))
        for first, second in files:
            assert first.read_bytes() == second.read_bytes(), f"{first.read_text()}\n{second.read_text()}\n{printed}"
        with connect(server) as cluster:
            session = cluster.connect()
            for table in TABLES:
                rows = [list(session.execute(f"SELECT * FROM shop.{name}")) for name in (table, f"copied_{table}")]
                assert rows[0] and rows[0] == rows[1], f"{table}:\n{rows[0]}\n{rows[1]}"


if __name__ == "__main__":
    main()
