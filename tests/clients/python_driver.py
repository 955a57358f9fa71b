"""The Python cassandra-driver: types, prepared statements, batches, paging, roles and service levels."""

import datetime
import decimal
import uuid
from collections import namedtuple

from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from _server import PASSWORD, Server


def connect(server, user="admin", password=PASSWORD, **options):
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    return Cluster(
        [server.host],
        port=server.port,
        auth_provider=PlainTextAuthProvider(user, password),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=60,
        **options,
    )


def refused(kind, run):
    try:
        run()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was expected")


def schema(session):
    session.execute(
        "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    )
    session.set_keyspace("shop")
    session.execute(
        "CREATE TABLE orders (customer int, day date, id timeuuid, total decimal, tags frozen<set<text>>, "
        "PRIMARY KEY ((customer, day), id)) WITH CLUSTERING ORDER BY (id DESC)"
    )
    session.execute(
        "CREATE TABLE kinds (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, "
        "h float, i inet, j int, k smallint, l text, m time, n timestamp, o tinyint, p uuid, q varint, "
        "r frozen<list<int>>, s frozen<map<text, int>>)"
    )


def types(session):
    values = {
        "a": "plain", "b": -(2**63), "c": b"\x00\xff", "d": True, "f": decimal.Decimal("-1.50"), "g": 0.1,
        "h": 0.5, "i": "127.0.0.1", "j": -1, "k": 32767, "l": "straße", "o": -128, "p": uuid.uuid4(), "q": 2**100,
        "n": datetime.datetime(2026, 1, 31, 12, 0, 0, 1000), "r": [3, 1, 2], "s": {"x": 1},
    }  # fmt: skip
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    insert = session.prepare(f"INSERT INTO kinds (id, {names}) VALUES (1, {marks})")
    session.execute(insert, list(values.values()))
    row = session.execute(f"SELECT {names} FROM kinds WHERE id = 1").one()
    for name, value in values.items():
        assert getattr(row, name) == value, (name, value, getattr(row, name))
    assert session.execute("SELECT e, m FROM kinds WHERE id = 1").one() == (None, None)


def user_types(cluster, session):
    session.execute("CREATE TYPE coin (metal text, cents int)")
    session.execute("CREATE TYPE purse (coins frozen<list<coin>>, owner tuple<text, int>)")
    session.execute("CREATE TABLE purses (id int PRIMARY KEY, purse frozen<purse>, spare frozen<map<text, coin>>)")
    coin, purse = namedtuple("coin", "metal cents"), namedtuple("purse", "coins owner")
    cluster.register_user_type("shop", "coin", coin)
    cluster.register_user_type("shop", "purse", purse)
    insert = session.prepare("INSERT INTO purses (id, purse, spare) VALUES (?, ?, ?)")
    full = purse([coin("copper", 1), coin("zinc", None)], ("Ann", 7))
    session.execute(insert, (1, full, {"a": coin("gold", 100)}))
    row = session.execute("SELECT purse, spare FROM purses WHERE id = 1").one()
    assert (row.purse, row.spare) == (full, {"a": coin("gold", 100)}), row
    session.execute("ALTER TYPE coin ADD year int")
    session.execute("INSERT INTO purses (id, purse) VALUES (2, {coins: [{year: 1900}], owner: ('Bob', null)})")
    cluster.refresh_keyspace_metadata("shop")
    types = cluster.metadata.keyspaces["shop"].user_types
    assert (types["coin"].field_names, types["coin"].field_types) == (
        ["metal", "cents", "year"], ["text", "int", "int"]), types["coin"]  # fmt: skip
    assert "coins frozen<list<frozen<coin>>>" in types["purse"].as_cql_query(), types["purse"].as_cql_query()
    message = refused(InvalidRequest, lambda: session.execute("DROP TYPE coin"))
    assert "still used by user types purse" in message, message


def vectors(session):
    session.execute(
        "CREATE TABLE points (id int PRIMARY KEY, v vector<float, 3>, w vector<text, 2>, "
        "x list<frozen<vector<int, 2>>>, y vector<vector<smallint, 1>, 2>)"
    )
    insert = session.prepare("INSERT INTO points (id, v, w, x, y) VALUES (?, ?, ?, ?, ?)")
    values = ([0.5, -1.0, 2.25], ["a", "straße"], [[1, 2], [3, 4]], [[1], [-2]])
    session.execute(insert, (1, *values))
    assert session.execute("SELECT v, w, x, y FROM points WHERE id = 1").one() == values
    session.execute("UPDATE points SET v = [1, 2, 3.5] WHERE id = 1")
    (v,) = session.execute("SELECT v FROM points WHERE id = 1").one()
    assert v == [1.0, 2.0, 3.5], v
    error = refused(InvalidRequest, lambda: session.execute("UPDATE points SET v = [1, 2] WHERE id = 1"))
    assert "expected 3 elements, but given 2" in error, error


def collections(session):
    session.execute("CREATE TYPE pin (metal text, cents int, year int)")
    session.execute(
        "CREATE TABLE boxes (id int PRIMARY KEY, l list<text>, s set<int>, m map<text, timestamp>, c pin)"
    )
    insert = session.prepare("INSERT INTO boxes (id, l, s, m, c) VALUES (1, ?, ?, ?, ?)")
    noon = datetime.datetime(2026, 1, 31, 12)
    session.execute(insert, (["a", "b"], {3, 1}, {"x": noon}, ("tin", 5, None)))
    add = session.prepare("UPDATE boxes SET l = l + ?, s = s - ?, m[?] = ?, c.cents = ? WHERE id = 1")
    session.execute(add, (["c"], {1}, "y", noon, 6))
    session.execute(session.prepare("UPDATE boxes SET l[?] = ? WHERE id = 1"), (0, "A"))
    row = session.execute(session.prepare("SELECT l, s, m, c, m[?] AS y FROM boxes WHERE id = ?"), ("y", 1)).one()
    assert (row.l, row.s, dict(row.m), row.y) == (["A", "b", "c"], {3}, {"x": noon, "y": noon}, noon), row
    assert (row.c.metal, row.c.cents) == ("tin", 6), row
    session.execute("UPDATE boxes SET s = {}, l = null WHERE id = 1")
    assert session.execute("SELECT l, s FROM boxes WHERE id = 1").one() == (None, None)


def counters(session):
    session.execute("CREATE TABLE hits (page text PRIMARY KEY, hits counter)")
    count = session.prepare("UPDATE hits SET hits = hits + ? WHERE page = ?")
    futures = [session.execute_async(count, (n, page)) for n in range(100) for page in "ab"]
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    for page in "abc":
        batch.add(count, (1000, page))
    session.execute(batch)
    for future in futures:
        future.result()
    found = {row.page: row.hits for row in session.execute("SELECT page, hits FROM hits")}
    assert found == {"a": 5950, "b": 5950, "c": 1000}, found


def conditions(session):
    session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner int)")
    take = session.prepare("INSERT INTO locks (name, owner) VALUES ('one', ?) IF NOT EXISTS")
    taken = [session.execute_async(take, (n,)) for n in range(20)]
    won = [n for n, future in enumerate(taken) if future.result().was_applied]
    assert len(won) == 1, won
    owner = session.execute("SELECT owner FROM locks WHERE name = 'one'").one().owner
    assert owner == won[0], (owner, won)
    give = session.prepare("UPDATE locks SET owner = ? WHERE name = 'one' IF owner = ?")
    give.serial_consistency_level = ConsistencyLevel.LOCAL_SERIAL
    refusal = session.execute(give, (99, owner + 1))
    assert not refusal.was_applied and refusal.one().owner == owner
    assert session.execute(give, (99, owner)).was_applied


def rows(session):
    insert = session.prepare("INSERT INTO orders (customer, day, id, total, tags) VALUES (?, '2026-01-31', ?, ?, ?)")
    ids = [uuid.uuid1() for _ in range(250)]
    done = [session.execute_async(insert, (7, id, decimal.Decimal(n), {"new"})) for n, id in enumerate(ids)]
    for future in done:
        future.result()
    page = SimpleStatement("SELECT id FROM orders WHERE customer = 7 AND day = '2026-01-31'", fetch_size=40)
    found = [row.id for row in session.execute(page)]
    assert found == sorted(ids, key=lambda id: id.time, reverse=True), "paged, newest first"
    assert session.execute("SELECT count(*) FROM orders").one()[0] == 250
    batch = BatchStatement()
    for id in ids[:3]:
        batch.add(insert, (7, id, decimal.Decimal(-1), set()))
    session.execute(batch)
    read = session.prepare("SELECT total, tags FROM orders WHERE customer = ? AND day = ? AND id = ?")
    assert session.execute(read, (7, datetime.date(2026, 1, 31), ids[0])).one() == (decimal.Decimal(-1), set())
    session.execute("DELETE FROM orders WHERE customer = 7 AND day = '2026-01-31'")
    assert session.execute("SELECT count(*) FROM orders").one()[0] == 0
    message = refused(InvalidRequest, lambda: session.execute("SELECT * FROM orders WHERE total = 1"))
    assert "ALLOW FILTERING" in message, message


def roles_and_levels(server, session):
    for statement in [
        "CREATE ROLE analyst WITH PASSWORD = 'word' AND LOGIN = true",
        "GRANT SELECT ON KEYSPACE shop TO analyst",
        "CREATE SERVICE LEVEL olap WITH shares = 100 AND cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL olap TO analyst",
    ]:
        session.execute(statement)
    cluster = connect(server, "analyst", "word")
    analyst = cluster.connect("shop")
    assert analyst.execute("SELECT count(*) FROM kinds").one()[0] == 1
    refused(Unauthorized, lambda: analyst.execute("DELETE FROM kinds WHERE id = 1"))
    session.execute("ALTER SERVICE LEVEL olap WITH shares = 10")
    options = {row.service_level_option: row for row in session.execute("LIST EFFECTIVE SERVICE LEVEL OF analyst")}
    assert (options["shares"].effective_service_level, options["shares"].value) == ("olap", "10"), options
    session.execute("DROP SERVICE LEVEL olap")
    assert analyst.execute("SELECT count(*) FROM kinds").one()[0] == 1
    cluster.shutdown()
    wrong = connect(server, "analyst", "wrong")
    refused(NoHostAvailable, wrong.connect)
    wrong.shutdown()


def metadata(cluster):
    orders = cluster.metadata.keyspaces["shop"].tables["orders"]
    assert [column.name for column in orders.partition_key] == ["customer", "day"]
    assert [column.name for column in orders.clustering_key] == ["id"]
    assert orders.columns["tags"].cql_type == "frozen<set<text>>"
    assert "CLUSTERING ORDER BY (id DESC)" in orders.export_as_string()


def main():
    with Server() as server:
        cluster = connect(server)
        session = cluster.connect()
        schema(session)
        types(session)
        user_types(cluster, session)
        vectors(session)
        collections(session)
        counters(session)
        conditions(session)
        rows(session)
        roles_and_levels(server, session)
        metadata(cluster)
        assert cluster.protocol_version == 5, cluster.protocol_version
        cluster.shutdown()
        older = connect(server, protocol_version=4)
        assert older.connect("shop").execute("SELECT j FROM kinds").one().j == -1
        older.shutdown()


if __name__ == "__main__":
    main()
