#!/usr/bin/env python3
"""Records what PostgreSQL answers to the statements of `tests/listener/queries/random`, as `random.expected`.

Needs what `record.py` needs. With `--show STATEMENT…` it prints the rows of statements instead.

    python3 crates/sql/tests/corpus/record_random.py

A statement with parameters ends in their values, ` -- int4=5|text=x`, or ` -- =5|=x` without declared types.
The first line is a hash of all statements. Then comes a line for each: a hash of its rows, or its SQLSTATE.
"""

import os
import subprocess
import sys
import tempfile

import record

# PostgreSQL's ids of the declared types.
TYPES = {"int4": 23, "text": 25, "float8": 701, "date": 1082, "timestamptz": 1184, "numeric": 1700}

HERE = os.path.dirname(os.path.abspath(__file__))


def hashed(texts):
    value = 0x811C9DC5
    for text in texts:
        for byte in text.encode() + b"\0":
            value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def plain(value):
    if value is None:
        return "-"
    if "." in value and all(c in "0123456789.-" for c in value):
        value = value.rstrip("0").rstrip(".")
    return "=" + value


def rows_of(connection, statement):
    from psycopg.pq import DiagnosticField, ExecStatus

    text, *values = statement.split(" -- ")
    if values:
        values = [value.split("=", 1) for value in values[0].split("|")]
        types = [TYPES.get(name, 0) for name, _ in values]
        result = connection.pgconn.exec_params(text.encode(), [value.encode() for _, value in values], types)
    else:
        result = connection.pgconn.exec_(text.encode())
    if result.status != ExecStatus.TUPLES_OK:
        return None, (result.error_field(DiagnosticField.SQLSTATE) or b"?").decode()
    cells = lambda row: [result.get_value(row, column) for column in range(result.nfields)]
    rows = ["|".join(plain(None if cell is None else cell.decode()) for cell in cells(row)) for row in range(result.ntuples)]
    return sorted(rows, key=str.encode), None


def main():
    shown = sys.argv[2:] if sys.argv[1:2] == ["--show"] else []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "statements")
        cargo = os.environ.get("CARGO", "cargo")
        command = [cargo, "test", "--release", "-p", "sql", "--test", "listener", "statements_are_written", "--", "--ignored"]
        subprocess.run(command, check=True, env={**os.environ, "STATEMENTS": path}, stdout=subprocess.DEVNULL)
        setup, statements = open(path, encoding="utf-8").read().split("\n\n")
        setup, statements = setup.split("\n"), statements.split("\n")

        def run(connect):
            with connect() as connection:
                for statement in setup:
                    connection.execute(statement)
                for statement in shown:
                    print(*rows_of(connection, statement), sep="\n")
                if shown:
                    return
                lines = [hashed(statements)]
                for statement in statements:
                    rows, code = rows_of(connection, statement)
                    lines.append(hashed(rows) if code is None else code)
            with open(os.path.join(HERE, "random.expected"), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            print(f"{len(statements)} statements, {sum(len(line) == 5 for line in lines)} errors")

        record.with_server(run)


if __name__ == "__main__":
    main()
