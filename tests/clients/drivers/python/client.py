"""A client with the Python driver, which `cassandra-driver` and `scylla-driver` both install as `cassandra`: see `_drivers.py`."""

import datetime
import decimal
import json
import os
import sys
import time
import uuid

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, tuple_factory
from cassandra.util import Date, Duration, Time

PATIENCE_S = 60


def connect(host, port):
    profile = ExecutionProfile(request_timeout=PATIENCE_S, row_factory=tuple_factory)
    return Cluster(
        [host],
        port=int(port),
        auth_provider=PlainTextAuthProvider("admin", os.environ["PASSWORD"]),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=PATIENCE_S,
        control_connection_timeout=PATIENCE_S,
        reconnection_policy=ConstantReconnectionPolicy(0.2, None),
        # The driver notices by a heartbeat that the connection for events was closed.
        idle_heartbeat_interval=1,
        # Changes of the schema are read at once.
        schema_event_refresh_window=0,
    )


def ask(request):
    print(request, flush=True)
    assert sys.stdin.readline() == "done\n"


def check(seen, expected):
    assert seen == expected, f"expected {expected!r}, got {seen!r}"


def until(purpose, attempt):
    """Repeats `attempt` until it returns something true and raises nothing. Returns that."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found, reason = attempt(), None
        except Exception as error:
            found, reason = None, error
        if found:
            return found
        assert time.monotonic() < deadline, f"{purpose}: {reason!r}"
        time.sleep(0.02)


SCALARS = {
    "bigint": int, "blob": bytes.fromhex, "date": Date, "decimal": decimal.Decimal,
    "duration": lambda parts: Duration(parts[0], parts[1], int(parts[2])), "time": lambda ns: Time(int(ns)),
    "timestamp": lambda ms: datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=ms),
    "timeuuid": uuid.UUID, "uuid": uuid.UUID, "varint": int,
}  # fmt: skip


def native(kind, value):
    """Returns a value of `types.json` as the driver returns it. `kind` is the driver's type."""
    if value is None:
        return None
    parts = getattr(kind, "subtypes", ())
    if kind.typename == "list":
        return [native(parts[0], item) for item in value]
    if kind.typename == "set":
        return {native(parts[0], item) for item in value}
    if kind.typename == "map":
        return {native(parts[0], key): native(parts[1], item) for key, item in value}
    if hasattr(kind, "fieldnames") or kind.typename == "tuple":
        return tuple(native(part, item) for part, item in zip(parts, value))
    return SCALARS.get(kind.typename, lambda same: same)(value)


def types(session, columns):
    names = ", ".join(column["name"] for column in columns)
    marks = ", ".join("?" * len(columns))
    insert = session.prepare(f"INSERT INTO shop.kinds (id, {names}) VALUES (?, {marks})")
    select = session.prepare(f"SELECT {names} FROM shop.kinds WHERE id = ?")
    kinds = [column.type for column in insert.column_metadata[1:]]

    def read(id):
        return tuple(session.execute(select, [id]).one())

    for row in range(2):
        expected = tuple(native(kind, column["values"][row][1]) for kind, column in zip(kinds, columns))
        check(read(row), expected)
        session.execute(insert, (10 + row, *expected))
        check(read(10 + row), expected)
        session.execute(insert, (12, *expected))
    session.execute(insert, (12, *[UNSET_VALUE] * len(columns)))
    check(read(12), expected)
    session.execute(insert, (12, *[None] * len(columns)))
    check(read(12), (None,) * len(columns))


def pages(session):
    session.execute(
        "CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) "
        "WITH CLUSTERING ORDER BY (at DESC)"
    )
    insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)")
    for first in range(0, 1000, 100):
        batch = BatchStatement(BatchType.UNLOGGED)
        for at in range(first, first + 100):
            batch.add(insert, ("clock", at, f"note {at}"))
        session.execute(batch)
    select = session.prepare("SELECT at, note FROM shop.readings WHERE device = ?")
    select.fetch_size = 100
    answer = session.execute(select, ["clock"])
    found, fetched = list(answer.current_rows), 1
    while answer.has_more_pages:
        answer.fetch_next_page()
        found.extend(answer.current_rows)
        fetched += 1
    check([tuple(row) for row in found], [(at, f"note {at}") for at in reversed(range(1000))])
    assert fetched in (10, 11), f"{fetched} pages"
    check(len(list(session.execute(select, ["clock"]))), 1000)


def batches(session):
    session.execute("CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)")
    insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)")
    batch = BatchStatement(BatchType.LOGGED)
    batch.add(insert, ("one", 1, "a"))
    batch.add(insert, ("two", 2, None))
    batch.add("INSERT INTO shop.readings (device, at) VALUES ('three', 3)")
    session.execute(batch)
    rows = session.execute("SELECT device, at, note FROM shop.readings WHERE device IN ('one', 'two', 'three')")
    check(sorted(tuple(row) for row in rows), [("one", 1, "a"), ("three", 3, None), ("two", 2, None)])
    count = session.prepare("UPDATE shop.hits SET hits = hits + ? WHERE page = ?")
    batch = BatchStatement(BatchType.COUNTER)
    batch.add(count, (5, "a"))
    batch.add(count, (-7, "b"))
    session.execute(batch)
    check(sorted(map(tuple, session.execute("SELECT page, hits FROM shop.hits"))), [("a", 5), ("b", -7)])


def conditions(session):
    session.execute("CREATE TABLE shop.locks (name text PRIMARY KEY, owner int)")
    take = session.prepare("INSERT INTO shop.locks (name, owner) VALUES (?, ?) IF NOT EXISTS")
    check(session.execute(take, ("door", 1)).was_applied, True)
    refused = session.execute(take, ("door", 2))
    check((refused.was_applied, tuple(refused.one())), (False, (False, "door", 1)))
    give = session.prepare("UPDATE shop.locks SET owner = ? WHERE name = ? IF owner = ?")
    refused = session.execute(give, (3, "door", 2))
    check((refused.was_applied, tuple(refused.one())), (False, (False, 1)))
    check(session.execute(give, (3, "door", 1)).was_applied, True)
    check(tuple(session.execute("SELECT owner FROM shop.locks WHERE name = 'door'").one()), (3,))


def metadata(cluster, columns):
    shop = cluster.metadata.keyspaces["shop"]
    seen = {name: column.cql_type for name, column in shop.tables["kinds"].columns.items()}
    check(seen, {"id": "int", **{column["name"]: column["type"] for column in columns}})
    check(shop.user_types["place"].field_names, ["street", "number"])
    readings = shop.tables["readings"]
    keys = [column.name for column in (*readings.partition_key, *readings.clustering_key)]
    check((keys, readings.clustering_key[0].is_reversed), (["device", "at"], True))


def events(cluster, table):
    def tables():
        return cluster.metadata.keyspaces["shop"].tables

    ask(f"CREATE TABLE shop.{table} (id int PRIMARY KEY)")
    until("a created table", lambda: table in tables())
    ask(f"ALTER TABLE shop.{table} ADD note text")
    until("an added column", lambda: "note" in tables()[table].columns)
    ask(f"DROP TABLE shop.{table}")
    until("a dropped table", lambda: table not in tables())


def restart(session):
    select = session.prepare("SELECT owner FROM shop.locks WHERE name = ?")
    check(session.execute(select, ["door"]).one()[0], 3)
    ask("restart")
    check(until("a connection", lambda: session.execute(select, ["door"])).one()[0], 3)


def main():
    host, port, table = sys.argv[1:]
    with open(table) as file:
        columns = json.load(file)["columns"]
    with connect(host, port) as cluster:
        session = cluster.connect()
        types(session, columns)
        pages(session)
        batches(session)
        conditions(session)
        metadata(cluster, columns)
        events(cluster, "announced")
        restart(session)
        events(cluster, "announced_again")


if __name__ == "__main__":
    main()
