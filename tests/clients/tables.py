"""`fairlane load tpch` and `fairlane load hits`: the tables in CQL equal the files of the same commands, cell by cell."""

import csv
import datetime
import os
import re
import subprocess
import tempfile
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from _server import PASSWORD, Server

LOADS = {
    "tpch": ["tpch", "--scale", "0.01", "--tables", "region,nation,supplier,part,partsupp,customer"],
    "small": ["tpch", "--scale", "0.001", "--tables", "orders,lineitem", "--keyspace", "small"],
    "doubles": ["tpch", "--scale", "0.001", "--tables", "supplier", "--keyspace", "doubles", "--decimals", "double"],
    "clickbench": ["hits", "--rows", "500", "--seed", "3"],
}


def load(*arguments):
    environment = dict(os.environ, FAIRLANE_PASSWORD=PASSWORD)
    command = [os.environ["FAIRLANE_BIN"], "load", *arguments, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def text(value):
    """Returns a value in the form of the files."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return value.strftime("%Y-%m-%d %H:%M:%S") if isinstance(value, datetime.datetime) else str(value)


def check(session, keyspace, path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *expected = csv.reader(file)
    rows = session.execute(f"SELECT {', '.join(header)} FROM {keyspace}.{path.stem}")
    found = [[text(value) for value in row] for row in rows]
    assert len(found) == len(expected), f"{path.stem}: {len(found)} rows, {len(expected)} in the file"
    for ours, theirs in zip(sorted(found), sorted(expected)):
        assert ours == theirs, f"{path.stem}: {ours}, in the file {theirs}"
    print(f"      {keyspace}.{path.stem}: {len(found)} rows")


def main():
    with Server() as server, tempfile.TemporaryDirectory(prefix="fairlane-tables-") as folder:
        login = PlainTextAuthProvider("admin", PASSWORD)
        cluster = Cluster([server.host], port=server.port, auth_provider=login, connect_timeout=60)
        session = cluster.connect()
        session.default_timeout = 60
        for keyspace, arguments in LOADS.items():
            files = Path(folder) / keyspace
            load(*arguments, "--csv", str(files))
            load(*arguments, "--hosts", f"{server.host}:{server.port}", "--user", "admin")
            schema = (files / "schema.sql").read_text()
            assert set(re.findall(r"CREATE TABLE (\w+)", schema)) == {path.stem for path in files.glob("*.csv")}
            for path in sorted(files.glob("*.csv")):
                check(session, keyspace, path)
        cluster.shutdown()


if __name__ == "__main__":
    main()
