"""The 22 queries of TPC-H return the same rows over the Postgres protocol as DuckDB on the same data.

    FAIRLANE_BIN=target/release/fairlane python tests/clients/tpch.py [--scale 0.1] [--only q03,q07] [--decimals double]

1. `fairlane load tpch --csv` writes the tables as files, and DuckDB reads them.
2. `fairlane load tpch` writes the same tables over CQL into a server of this test. CQL counts the rows.
3. Each query runs in both. Numbers may differ by a millionth, because some averages and quotients have other types. All other
   values are equal, and so is the order of a query with ORDER BY.

`--duckdb` runs DuckDB only, and prints its answers.
"""

import argparse
import datetime
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import duckdb

from _server import Server

HERE = Path(__file__).resolve().parent
QUERIES = HERE.parent.parent / "crates/load/queries/tpch"

# Columns of each query's ORDER BY, from 0. Queries with one row have none.
ORDER = {
    "q01": [0, 1], "q02": [0, 2, 1, 3], "q03": [1, 2], "q04": [0], "q05": [1], "q07": [0, 1, 2], "q08": [0], "q09": [0, 1],
    "q10": [2], "q11": [1], "q12": [0], "q13": [1, 0], "q15": [0], "q16": [3, 0, 1, 2], "q18": [4, 3], "q20": [0], "q21": [1, 0],
    "q22": [0],
}  # fmt: skip
TOLERANCE = 1e-6


def is_number(value):
    return not isinstance(value, (str, datetime.date, type(None)))


def same(ours, theirs):
    if is_number(ours) and is_number(theirs):
        return abs(float(ours) - float(theirs)) <= TOLERANCE * max(1, abs(float(theirs)))
    return ours == theirs


def place(row, reference):
    """Returns the sort key of a row: its texts, dates and whole numbers."""
    exact = [value for value, other in zip(row, reference) if not is_number(other) or isinstance(other, int)]
    return [str(float(value)) if is_number(value) else str(value) for value in exact]


def difference(name, ours, theirs):
    """Returns the difference of two results, or None."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, DuckDB {len(theirs)}"
    if not theirs:
        return None
    if len(ours[0]) != len(theirs[0]):
        return f"{len(ours[0])} columns, DuckDB {len(theirs[0])}"
    for index, (row, other) in enumerate(zip(ours, theirs)):
        if not all(same(row[column], other[column]) for column in ORDER.get(name, [])):
            return f"row {index} is out of order: {row}, DuckDB {other}"
    reference = theirs[0]
    for row, other in zip(*(sorted(rows, key=lambda row: place(row, reference)) for rows in (ours, theirs))):
        if not all(map(same, row, other)):
            return f"{row}, DuckDB {other}"
    return None


def load(binary, *arguments, **options):
    subprocess.run([binary, "load", "tpch", *arguments, "--quiet"], check=True, stdout=subprocess.DEVNULL, **options)


def in_duckdb(binary, scale, decimals):
    """Returns a DuckDB with the tables."""
    with tempfile.TemporaryDirectory(prefix="fairlane-tpch-") as folder:
        load(binary, "--scale", scale, "--decimals", decimals, "--csv", folder)
        database = duckdb.connect(config={"threads": 2})
        before = os.getcwd()
        os.chdir(folder)
        try:
            database.execute(Path("schema.sql").read_text())
        finally:
            os.chdir(before)
    return database


def compare(server, database, binary, arguments, queries):
    """Returns the failed queries. Prints every query with both times."""
    import psycopg

    host = f"{server.host}:{server.port}"
    with tempfile.NamedTemporaryFile() as report:
        environment = dict(os.environ, FAIRLANE_PASSWORD=server.password)
        flags = ["--scale", arguments.scale, "--decimals", arguments.decimals, "--hosts", host, "--user", "admin"]
        load(binary, *flags, "--json", report.name, env=environment)
        written = json.load(report)
    print(f"      scale {arguments.scale}: {written['rows_per_s']:.0f} rows/s through CQL")
    failed = []
    for table in written["tables"]:
        (rows,) = database.execute(f"SELECT count(*) FROM {table['table']}").fetchone()
        if rows != table["rows"]:
            failed.append(f"{table['table']}: {table['rows']} rows written, {rows} in DuckDB")
    options = dict(host=server.host, port=server.sql_port, user="admin", password=server.password, dbname="tpch")
    for name, text in queries:
        begun = time.monotonic()
        theirs = database.execute(text).fetchall()
        between = time.monotonic()
        try:
            with psycopg.connect(autocommit=True, **options) as session:
                session.execute("SET search_path TO tpch")
                wrong = difference(name, session.execute(text).fetchall(), theirs)
        except psycopg.Error as error:
            wrong = f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        print(f"      {name}: {ended - between:.2f} s, DuckDB {between - begun:.2f} s, {len(theirs)} rows{', WRONG' if wrong else ''}")
        if wrong:
            failed.append(f"{name}: {wrong}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="0.1")
    parser.add_argument("--only", default="")
    parser.add_argument("--decimals", default="decimal")
    parser.add_argument("--duckdb", action="store_true")
    arguments = parser.parse_args()
    binary = os.environ["FAIRLANE_BIN"]
    only = [name for name in arguments.only.split(",") if name]
    queries = [(path.stem, path.read_text()) for path in sorted(QUERIES.glob("q*.sql")) if not only or path.stem in only]
    database = in_duckdb(binary, arguments.scale, arguments.decimals)
    if arguments.duckdb:
        for name, text in queries:
            rows = database.execute(text).fetchall()
            print(f"{name}: {len(rows)} rows, first {rows[0] if rows else None}")
        return
    with Server(memory="2GiB") as server:
        failed = compare(server, database, binary, arguments, queries)
    if failed:
        raise SystemExit("\n".join(f"FAILED {line}" for line in failed))


if __name__ == "__main__":
    main()
