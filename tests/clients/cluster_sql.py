"""psycopg in front of a cluster, here of one node: another fairlane. The answers equal those of the node's own SQL. The cluster
checks passwords and rights."""

import threading
import time

import psycopg
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster
from psycopg import sql

from _server import PASSWORD, PATIENCE_S, Server
from front import front_of

CUSTOMERS, ORDERS = 40, 150
REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
SCHEMA = [
    f"CREATE KEYSPACE shop WITH replication = {REPLICATION}",
    "CREATE TABLE shop.customers (id int PRIMARY KEY, name text, born date, tags set<text>)",
    "CREATE TABLE shop.orders (customer int, id int, price decimal, note text, at timestamp, paid boolean, weight double, "
    "key uuid, data blob, PRIMARY KEY (customer, id)) WITH CLUSTERING ORDER BY (id DESC)",
    "CREATE MATERIALIZED VIEW shop.by_note AS SELECT * FROM shop.orders WHERE note IS NOT NULL AND customer IS NOT NULL AND "
    "id IS NOT NULL PRIMARY KEY (note, customer, id)",
    "CREATE TABLE shop.secrets (id int PRIMARY KEY, word text)",
    "INSERT INTO shop.secrets (id, word) VALUES (1, 'hidden')",
    "CREATE ROLE ann WITH PASSWORD = 'ann' AND LOGIN = true",
    "GRANT SELECT ON shop.orders TO ann",
    "CREATE ROLE analysts",
    "CREATE ROLE bob WITH PASSWORD = 'bob' AND LOGIN = true",
    "GRANT analysts TO bob",
    "GRANT SELECT ON KEYSPACE shop TO analysts",
    "CREATE SERVICE LEVEL reports WITH shares = 100 AND cpu_limit = '50%'",
    "ATTACH SERVICE LEVEL reports TO analysts",
]
QUERIES = [
    "SELECT count(*) FROM shop.orders",
    "SELECT count(*), sum(price), min(note), max(at), avg(weight) FROM shop.orders",
    "SELECT paid, count(*), sum(price) FROM shop.orders GROUP BY paid ORDER BY paid",
    "SELECT customer, count(DISTINCT key) FROM shop.orders GROUP BY customer ORDER BY customer",
    "SELECT * FROM shop.orders ORDER BY customer, id",
    "SELECT * FROM shop.customers ORDER BY id",
    "SELECT id, price, note FROM shop.orders WHERE customer = 7 ORDER BY id",
    "SELECT customer, id FROM shop.orders WHERE customer IN (3, 5, 1000) AND id > 100 ORDER BY customer, id",
    "SELECT count(*) FROM shop.orders WHERE customer = 7 AND id BETWEEN 10 AND 20",
    "SELECT count(*) FROM shop.orders WHERE price > 1000.5 AND note LIKE 'n%1'",
    "SELECT c.name, count(*), sum(o.price) FROM shop.orders o JOIN shop.customers c ON c.id = o.customer "
    "WHERE c.name < 'name 3' GROUP BY c.name ORDER BY c.name",
    "SELECT name FROM shop.customers c WHERE NOT EXISTS (SELECT 1 FROM shop.orders o WHERE o.customer = c.id) ORDER BY name",
    "SELECT a.id FROM shop.orders a JOIN shop.orders b ON a.customer = b.customer AND a.id = b.id + 1 "
    "WHERE a.customer = 2 ORDER BY a.id LIMIT 10",
    "SELECT * FROM shop.by_note ORDER BY note, customer, id",
    "SELECT note, count(*) FROM shop.by_note WHERE note IN ('n1', 'n2', '') AND customer = 7 GROUP BY note ORDER BY note",
    "SELECT count(*), count(v.id) FROM shop.orders o LEFT JOIN shop.by_note v ON v.customer = o.customer AND v.id = o.id",
    "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'shop' ORDER BY 1, 2",
]  # fmt: skip
OWN_TABLES = [
    "connections", "guardrails", "level_usage", "local", "memory", "nodes", "peers", "peers_v2", "running_statements",
]  # fmt: skip
LONG = "SELECT count(*) FROM shop.orders a, shop.orders b, shop.orders c WHERE a.weight + b.weight + c.weight = -1"


def connect(server, user="admin", password=PASSWORD):
    return psycopg.connect(
        host=server.host, port=server.sql_port, user=user, password=password, dbname="fairlane", autocommit=True,
        connect_timeout=PATIENCE_S,
    )  # fmt: skip


def cql(server):
    login = PlainTextAuthProvider("admin", PASSWORD)
    return Cluster([server.host], port=server.port, auth_provider=login, connect_timeout=PATIENCE_S)


def refused(run, code, *words):
    try:
        run()
    except psycopg.Error as error:
        assert code in (error.sqlstate, None), (code, error.sqlstate, error)
        for word in words:
            assert word in str(error), (word, error)
        return
    raise AssertionError(f"{code} was expected")


def eventually(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "nothing changed"
        time.sleep(0.1)


def fill(front):
    """Creates tables, roles and a level through the front. Each table has more partitions and rows than a page."""
    with cql(front) as clients:
        session = clients.connect()
        session.default_timeout = PATIENCE_S
        for statement in SCHEMA:
            session.execute(statement)
        customer = session.prepare("INSERT INTO shop.customers (id, name, born, tags) VALUES (?, ?, ?, ?)")
        order = session.prepare(
            "INSERT INTO shop.orders (customer, id, price, note, at, paid, weight, key, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 8f14e45f-ceea-467f-a8b6-15d2a0c9c9c4, ?)"
        )
        for c in range(CUSTOMERS):
            session.execute(customer, (c, f"name {c}", f"19{c + 10}-01-31", {"a", f"t{c % 3}"} if c % 2 else None))
            # The last customer has no orders, and each has some of several KiB.
            rows = [
                (c, n, n * c + n // 2, f"n{n}", 1_700_000_000_000 + n, n % 3 == 0, n / 8, bytes(n % 10 * 700))
                for n in range(ORDERS if c < CUSTOMERS - 1 else 0)
            ]
            for written in [session.execute_async(order, row) for row in rows]:
                written.result()


def tables_are_known(front):
    """Waits until the front has read the schema of the tables just made."""
    with connect(front) as db:
        count = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'shop'"
        eventually(lambda: db.execute(count).fetchone() == (4,))


def answers(node, front):
    with connect(node) as direct, connect(front) as through:
        for query in QUERIES:
            expected, got = direct.execute(query).fetchall(), through.execute(query).fetchall()
            assert got == expected, (query, expected[:3], got[:3])
        with through.cursor() as cursor:
            assert sum(1 for _ in cursor.stream("SELECT * FROM shop.orders")) == (CUSTOMERS - 1) * ORDERS
        plan = "\n".join(str(row) for row in through.execute("EXPLAIN SELECT note FROM shop.orders").fetchall())
        assert "no snapshot" in plan, plan
        plan = "\n".join(str(row) for row in direct.execute("EXPLAIN SELECT note FROM shop.orders").fetchall())
        assert "no snapshot" not in plan, plan
        nodes = through.execute("SELECT DISTINCT node FROM system.nodes").fetchall()
        assert nodes == [(f"{node.host}:{node.port}",)], nodes


def level_of_new_role(node, front):
    """A role that was made at a node gets its level over SQL, before it has logged in here."""
    with cql(node) as clients:
        clients.connect().execute("CREATE ROLE planners")
    with connect(front) as admin, connect(front, "ann", "ann") as ann:
        attach = "ATTACH SERVICE LEVEL reports TO "
        refused(lambda: ann.execute(f"{attach} planners"), "42501")
        refused(lambda: admin.execute(f"{attach} missing"), "22023", "missing")
        admin.execute(f"{attach} planners")
        attached = admin.execute("LIST ATTACHED SERVICE LEVEL OF planners").fetchall()
        assert attached == [("planners", "reports")], attached


def system_tables(front):
    """Tables of the front show the front. Those of which each node has its own are refused, not read from the front."""
    with connect(front) as admin, connect(front, "ann", "ann") as ann:
        local = "SELECT rpc_port FROM system.local"
        for db in (admin, ann):
            assert db.execute(local).fetchone() == (front.port,)
            for table in (
                "system_schema.tables", "system_schema.nothing", "system_auth.roles", "system_traces.sessions",
                "system_distributed.service_levels", "system_virtual_schema.tables", "system_views.clients",
                "system.table_stats", "system.size_estimates",
            ):  # fmt: skip
                refused(lambda: db.execute(f"SELECT * FROM {table}"), "0A000", table, "CQL", "information_schema")
            schemas = db.execute("SELECT DISTINCT table_schema FROM information_schema.tables").fetchall()
            assert not [name for (name,) in schemas if name.startswith("system_")], schemas
            shown = db.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'system' ORDER BY 1")
            assert [name for (name,) in shown] == OWN_TABLES
    with cql(front) as clients:
        tables = clients.connect().execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shop'")
        assert sorted(row.table_name for row in tables) == ["customers", "orders", "secrets"]


def settings(node, front):
    with connect(front) as db, connect(node) as direct:
        assert db.execute("SHOW consistency").fetchone() == ("LOCAL_ONE",)
        for level in ("LOCAL_QUORUM", "all"):
            db.execute(sql.SQL("SET consistency = {}").format(level))
            assert db.execute("SHOW consistency").fetchone() == (level.upper(),)
            assert db.execute("SELECT count(*) FROM shop.customers").fetchone() == (CUSTOMERS,)
        db.execute("RESET consistency")
        assert db.execute("SHOW consistency").fetchone() == ("LOCAL_ONE",)
        refused(lambda: db.execute("SET consistency = 'SERIAL'"), "22023", "LOCAL_QUORUM")
        refused(lambda: direct.execute("SET consistency = 'ONE'"), "42704", "consistency")


def logins(front):
    refused(lambda: connect(front, password="wrong"), None, "admin")
    refused(lambda: connect(front, "nobody", "wrong"), None, "nobody")
    with connect(front, "ann", "ann") as ann:
        assert ann.execute("SELECT current_user").fetchone() == ("ann",)
        assert ann.execute("SELECT count(*) FROM shop.orders").fetchone() == ((CUSTOMERS - 1) * ORDERS,)
        assert ann.execute("SELECT count(*) FROM shop.by_note").fetchone() == ((CUSTOMERS - 1) * ORDERS,)
        refused(lambda: ann.execute("SELECT * FROM shop.secrets"), "42501", "ann", "secrets")
        # Names are visible, as in the cluster.
        names = ann.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' ORDER BY 1")
        assert names.fetchall() == [("by_note",), ("customers",), ("orders",), ("secrets",)]
        refused(lambda: ann.execute("SET service_level = 'reports'"), "42501", "reports")
        refused(lambda: ann.execute("ALTER SERVICE LEVEL reports WITH shares = 1000"), "42501")
        with connect(front) as admin:
            roles = "SELECT DISTINCT role FROM system.connections WHERE protocol = 'sql' ORDER BY 1"
            assert ann.execute(roles).fetchall() == [("ann",)], "other roles' sessions are hidden"
            assert admin.execute(roles).fetchall() == [("admin",), ("ann",)]


def levels(front):
    with connect(front, "bob", "bob") as bob, connect(front) as admin:
        assert bob.execute("SHOW service_level").fetchone() == ("reports",)
        assert bob.execute("SELECT word FROM shop.secrets").fetchone() == ("hidden",)
        admitted = "SELECT sum(requests) FROM system.nodes WHERE service_level = 'reports'"
        before = admin.execute(admitted).fetchone()[0] or 0
        assert bob.execute("SELECT count(*) FROM shop.orders").fetchone() == ((CUSTOMERS - 1) * ORDERS,)
        eventually(lambda: (admin.execute(admitted).fetchone()[0] or 0) > before)
        running = "SELECT service_level, statement FROM system.running_statements WHERE role = 'bob'"
        seen = []

        def watch():
            eventually(lambda: seen.extend(admin.execute(running).fetchall()) or seen)
            bob.cancel()

        watcher = threading.Thread(target=watch)
        watcher.start()
        refused(lambda: bob.execute(LONG), "57014", "user request")
        watcher.join()
        assert seen[0][0] == "reports" and "shop.orders" in seen[0][1], seen
        assert bob.execute("SELECT 1").fetchone() == (1,)


def changed_password(front):
    """A session ends once a node refuses its password, and others of the role go on."""
    with connect(front, "ann", "ann") as old, cql(front) as clients:
        clients.connect().execute("ALTER ROLE ann WITH PASSWORD = 'new'")
        with connect(front, "ann", "new") as new:

            def is_ended():
                try:
                    old.execute("SELECT 1")
                except psycopg.OperationalError as error:
                    assert error.sqlstate == "57P01", error
                    return True
                return False

            eventually(is_ended)
            assert new.execute("SELECT count(*) FROM shop.orders").fetchone() == ((CUSTOMERS - 1) * ORDERS,)


def main():
    with Server() as node, front_of(node, more=("--sql-listen", "127.0.0.1:0")) as front:
        fill(front)
        tables_are_known(front)
        answers(node, front)
        level_of_new_role(node, front)
        system_tables(front)
        settings(node, front)
        logins(front)
        levels(front)
        changed_password(front)


if __name__ == "__main__":
    main()
