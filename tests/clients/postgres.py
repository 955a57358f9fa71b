"""psycopg, and psql if installed: types, parameters, metadata, permissions, service levels, errors, cancel."""

import datetime
import decimal
import shutil
import socket
import struct
import subprocess
import threading
import urllib.request
import uuid
from pathlib import Path

import psycopg
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from _server import PASSWORD, PATIENCE_S, Server

ROWS = 2000
# A self-signed certificate of 127.0.0.1, for these tests only.
TLS = Path(__file__).resolve().parent / "tls"
TIME = uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f")
ID = uuid.UUID("8f14e45f-ceea-467f-a8b6-15d2a0c9c9c4")


def connect(server, user="admin", password=PASSWORD, **options):
    return psycopg.connect(
        host=server.host, port=server.sql_port, user=user, password=password, dbname="shop", autocommit=True,
        connect_timeout=PATIENCE_S, **options,
    )  # fmt: skip


def fill(server):
    """Creates over CQL a table with every type, one with many rows, two roles and a level."""
    login = PlainTextAuthProvider("admin", PASSWORD)
    cluster = Cluster([server.host], port=server.port, auth_provider=login, connect_timeout=60)
    session = cluster.connect()
    session.default_timeout = 60
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    for statement in [
        f"CREATE KEYSPACE shop WITH replication = {replication}",
        "CREATE TYPE shop.coin (metal text, cents int)",
        "CREATE TABLE shop.kinds (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, "
        "h float, i inet, j int, k smallint, l text, m time, n timestamp, o tinyint, p uuid, q varint, "
        "r list<int>, s map<text, int>, t set<text>, u frozen<coin>)",
        "INSERT INTO shop.kinds (id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u) VALUES (1, 'plain', "
        "-5000000000, 0x00ff, true, '2026-01-31', -1.5, 0.1, 0.5, '127.0.0.1', -1, 32767, 'straße', '12:30:00', "
        f"'2026-01-31 12:00:00.001Z', -128, {ID}, 1267650600228229401496703205376, [3, 1, 2], {{'x': 1}}, "
        "{'b', 'a'}, {metal: 'tin', cents: 5})",
        "INSERT INTO shop.kinds (id) VALUES (2)",
        "CREATE TABLE shop.more (id int PRIMARY KEY, a timeuuid, b duration, c frozen<tuple<int, text>>, d list<frozen<coin>>)",
        f"INSERT INTO shop.more (id, a, b, c, d) VALUES (1, {TIME}, 1mo2d3h, (7, 'x'), [{{metal: 'tin', cents: 5}}])",
        "CREATE TABLE shop.visits (page text PRIMARY KEY, seen counter)",
        "UPDATE shop.visits SET seen = seen + 5 WHERE page = 'a'",
        "CREATE TABLE shop.orders (customer int, id int, price int, note text, PRIMARY KEY (customer, id))",
        "CREATE MATERIALIZED VIEW shop.by_price AS SELECT price, customer, id, note FROM shop.orders "
        "WHERE price IS NOT NULL AND customer IS NOT NULL AND id >= 100 PRIMARY KEY (price, customer, id)",
        "CREATE TABLE shop.secrets (id int PRIMARY KEY)",
        "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true",
        "GRANT SELECT ON shop.orders TO ann",
        "CREATE SERVICE LEVEL reports WITH shares = 100",
        "CREATE SERVICE LEVEL hasty WITH timeout = 1ms",
    ]:
        session.execute(statement)
    insert = session.prepare("INSERT INTO shop.orders (customer, id, price, note) VALUES (?, ?, ?, ?)")
    written = [session.execute_async(insert, (n % 10, n, n * 3, f"n{n}")) for n in range(ROWS)]
    for one in written:
        one.result()
    cluster.shutdown()


def refused(run, code, *words):
    try:
        run()
    except psycopg.Error as error:
        assert error.sqlstate == code, (code, error.sqlstate, error)
        for word in words:
            assert word in str(error), (word, error)
        return
    raise AssertionError(f"{code} was expected")


def types(db):
    names = "a b c d e f g h i j k l m n o p q r t"
    row = db.execute(f"SELECT {', '.join(names.split())} FROM shop.kinds WHERE id = 1").fetchone()
    noon = datetime.datetime(2026, 1, 31, 12, 0, 0, 1000, tzinfo=datetime.timezone.utc)
    expected = (
        "plain", -5000000000, b"\x00\xff", True, datetime.date(2026, 1, 31), decimal.Decimal("-1.5"), 0.1, 0.5,
        "127.0.0.1", -1, 32767, "straße", datetime.time(12, 30), noon, -128, str(ID), str(2**100), [3, 1, 2], ["a", "b"],
    )  # fmt: skip
    assert row == expected, row
    assert db.execute("SELECT s FROM shop.kinds WHERE id = 1").fetchone() == ({"x": 1},)
    coin = db.execute("SELECT u, u['metal'] FROM shop.kinds WHERE id = 1").fetchone()
    assert coin[1] == "tin", coin
    nothing = db.execute(f"SELECT {', '.join(names.split())}, s, u FROM shop.kinds WHERE id = 2").fetchone()
    assert set(nothing) == {None}, nothing
    for binary in (False, True):
        with db.cursor(binary=binary) as cursor:
            row = cursor.execute("SELECT a, b, c, d, c['f1'] FROM shop.more").fetchone()
            # A month of psycopg has 30 days. In text format, it returns the fields of a row as text.
            lasts = datetime.timedelta(days=32, hours=3)
            assert row == (str(TIME), lasts, (7 if binary else "7", "x"), [{"metal": "tin", "cents": 5}], 7), row
            row = cursor.execute("SELECT page, seen, seen + 1 FROM shop.visits").fetchone()
            assert row == ("a", 5, 6), row
    with db.cursor(binary=True) as cursor:
        row = cursor.execute("SELECT b, d, e, f, g, l, n FROM shop.kinds WHERE id = 1").fetchone()
        assert row == (-5000000000, True, datetime.date(2026, 1, 31), decimal.Decimal("-1.5"), 0.1, "straße", noon), row
        wide = "-99999999999999999999.999999999999999999"
        kinds = f"CAST('{wide}' AS decimal(38, 18)), CAST(0 AS decimal(5, 2)), CAST(NULL AS decimal(5, 2))"
        row = cursor.execute(f"SELECT {kinds}").fetchone()
        assert row == (decimal.Decimal(wide), decimal.Decimal(0), None), row
        (array,) = cursor.execute(f"SELECT make_array(CAST('{wide}' AS decimal(38, 18)), NULL)").fetchone()
        assert array == [decimal.Decimal(wide), None], array
        for text, expected in [("-1.5", 1), ("-1.50000000001", 0), ("80000000000.000000000000000001", 0), (wide, 0)]:
            (same,) = cursor.execute("SELECT count(*) FROM shop.kinds WHERE f = %s", (decimal.Decimal(text),)).fetchone()
            assert same == expected, (text, same)
            (less,) = cursor.execute("SELECT count(*) FROM shop.kinds WHERE f > %s", (decimal.Decimal(text),)).fetchone()
            assert less == (decimal.Decimal("-1.5") > decimal.Decimal(text)), (text, less)


def queries(db):
    total = db.execute("SELECT count(*), sum(price), min(note) FROM shop.orders").fetchone()
    assert total == (ROWS, 3 * ROWS * (ROWS - 1) // 2, "n0"), total
    # The database of the session is shop, so that names without a keyspace are in shop.
    rows = db.execute("SELECT customer, count(*) FROM orders GROUP BY customer ORDER BY customer").fetchall()
    assert rows == [(n, ROWS // 10) for n in range(10)], rows
    rows = db.execute("SELECT id FROM orders WHERE customer = %s AND price > %s ORDER BY id", (7, 5900)).fetchall()
    assert rows == [(n,) for n in range(ROWS) if n % 10 == 7 and n * 3 > 5900], rows
    rows = db.execute("SELECT note FROM orders WHERE note = %s", ("n42",)).fetchall()
    assert rows == [("n42",)], rows
    rows = db.execute("SELECT id FROM orders ORDER BY price DESC LIMIT 3").fetchall()
    assert rows == [(ROWS - 1,), (ROWS - 2,), (ROWS - 3,)], rows
    joined = db.execute(
        "SELECT a.id, k.l FROM orders a JOIN kinds k ON a.customer = k.id WHERE a.id = 1 OR k.id = 9"
    ).fetchall()
    assert joined == [(1, "straße")], joined
    assert db.execute("SELECT count(*) FROM orders WHERE customer IN (SELECT id FROM kinds)").fetchone() == (400,)
    assert len(db.execute("SELECT * FROM orders").fetchall()) == ROWS
    assert len(db.execute("SELECT * FROM orders LIMIT 17").fetchall()) == 17
    seen = db.execute("SELECT * FROM by_price ORDER BY price").fetchall()
    assert seen == [(n * 3, n % 10, n, f"n{n}") for n in range(100, ROWS)], seen[:3]
    seen = db.execute("SELECT count(*), count(v.id) FROM orders o LEFT JOIN by_price v USING (customer, id)").fetchone()
    assert seen == (ROWS, ROWS - 100), seen
    assert db.execute("SELECT n FROM generate_series(1, 3) AS t(n)").fetchall() == [(1,), (2,), (3,)]
    held = dict(db.execute("SELECT purpose, sum(bytes) FROM system.memory GROUP BY purpose").fetchall())
    assert len(held) == 11 and held["memtables"] > 10 * ROWS, held
    plan = "\n".join(str(row) for row in db.execute("EXPLAIN ANALYZE SELECT count(*) FROM orders").fetchall())
    assert "ScanExec" in plan and "LaneExchange" in plan, plan
    with db.cursor() as cursor:
        streamed = sum(1 for _ in cursor.stream("SELECT * FROM orders"))
        assert streamed == ROWS, streamed


def metadata(db):
    found = db.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' AND table_type = 'BASE TABLE' "
        "ORDER BY table_name"
    ).fetchall()
    assert found == [("kinds",), ("more",), ("orders",), ("secrets",), ("visits",)], found
    found = db.execute(
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'shop' AND c.relkind IN ('r', 'p') ORDER BY 1"
    ).fetchall()
    assert found == [("kinds",), ("more",), ("orders",), ("secrets",), ("visits",)], found
    views = db.execute("SELECT table_name FROM information_schema.views WHERE table_schema = 'shop'").fetchall()
    assert views == [("by_price",)], views
    assert db.execute("SELECT current_user").fetchone() == ("admin",)
    assert db.execute("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'shop'").fetchone()


def errors(db):
    refused(lambda: db.execute("SELECT * FROM shop.nothing"), "42P01", "nothing")
    refused(lambda: db.execute("SELECT nothing FROM shop.orders"), "42703", "nothing")
    refused(lambda: db.execute("SELEC 1"), "42601", "syntax")
    refused(lambda: db.execute("INSERT INTO shop.orders VALUES (1, 1, 1, 'x')"), "25006", "read-only", "CQL")
    refused(lambda: db.execute("EXPLAIN DELETE FROM shop.orders"), "25006")
    refused(lambda: db.execute("CREATE TABLE shop.t (id int)"), "25006")
    refused(lambda: db.execute("SELECT 1 / (price - price) FROM shop.orders"), "22012")
    assert db.execute("SELECT 1").fetchone() == (1,)
    with db.transaction():
        assert db.execute("SELECT 2").fetchone() == (2,)
    db.execute("BEGIN")
    refused(lambda: db.execute("SELECT nothing"), "42703")
    refused(lambda: db.execute("SELECT 1"), "25P02")
    db.execute("ROLLBACK")
    assert db.execute("SELECT 3").fetchone() == (3,)


def rights(server):
    refused(lambda: connect(server, password="wrong"), None, "incorrect")
    refused(lambda: connect(server, user="nobody"), None, "incorrect")
    with connect(server, user="ann", password="annspassword") as ann:
        assert ann.execute("SELECT count(*) FROM shop.orders").fetchone() == (ROWS,)
        assert ann.execute("SELECT current_user").fetchone() == ("ann",)
        refused(lambda: ann.execute("SELECT * FROM shop.secrets"), "42501", "ann", "SELECT")
        refused(lambda: ann.execute("SELECT 1 WHERE EXISTS (SELECT * FROM shop.kinds)"), "42501")
        refused(lambda: ann.execute("WITH s AS (SELECT * FROM shop.secrets) SELECT count(*) FROM s"), "42501")
        refused(lambda: ann.execute("SET service_level = 'reports'"), "42501", "reports")
        refused(lambda: ann.execute("CREATE SERVICE LEVEL mine"), "42501")


def levels(server, db):
    assert db.execute("SHOW service_level").fetchone() == ("default",)
    db.execute("SET service_level = 'reports'")
    assert db.execute("SHOW service_level").fetchone() == ("reports",)
    before = cpu(server, "reports")
    for _ in range(3):
        db.execute("SELECT note, sum(price) FROM shop.orders GROUP BY note ORDER BY 2").fetchall()
    assert cpu(server, "reports") > before
    db.execute("SET service_level = 'hasty'")
    refused(lambda: db.execute("SELECT count(*) FROM shop.orders a, shop.orders b"), "57014", "hasty")
    db.execute("RESET service_level")
    refused(lambda: db.execute("SET service_level = 'none'"), "22023", "none")
    db.execute("ALTER SERVICE LEVEL reports WITH shares = 200")
    listed = db.execute("LIST ALL SERVICE LEVELS").fetchall()
    assert any("reports" in row and 200 in row for row in listed), listed
    db.execute("SET bypass_cache = on")
    assert db.execute("SHOW bypass_cache").fetchone() == ("on",)
    assert db.execute("SELECT count(*) FROM shop.orders").fetchone() == (ROWS,)


def cpu(server, level):
    """Returns the CPU time of a level, seconds, from /metrics."""
    text = urllib.request.urlopen(f"http://{server.http}/metrics", timeout=PATIENCE_S).read().decode()
    lines = [line for line in text.splitlines() if "cpu" in line and f'level="{level}"' in line]
    assert lines, f"no CPU of {level} in:\n{text}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


LONG = "SELECT count(*) FROM shop.orders a, shop.orders b, shop.orders c WHERE a.price + b.price + c.price = -1"


def cancel(db):
    timer = threading.Timer(0.3, db.cancel)
    timer.start()
    refused(lambda: db.execute(LONG), "57014", "user request")
    timer.join()
    assert db.execute("SELECT 1").fetchone() == (1,)
    db.execute("SET statement_timeout = '100ms'")
    refused(lambda: db.execute(LONG), "57014", "timeout", "100 ms")
    db.execute("RESET statement_timeout")
    assert db.execute("SELECT 1").fetchone() == (1,)


def together(server):
    """Concurrent sessions get the same answers. A client that disconnects does not affect the others."""
    leaver = connect(server)
    leaver.pgconn.send_query(LONG.encode())
    failures = []

    def ask():
        try:
            with connect(server) as db:
                for _ in range(5):
                    rows = db.execute("SELECT customer, sum(price) FROM shop.orders GROUP BY 1 ORDER BY 1").fetchall()
                    assert len(rows) == 10 and sum(row[1] for row in rows) == 3 * ROWS * (ROWS - 1) // 2, rows
        except Exception as error:  # reported below by the main thread
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    leaver.close()
    for thread in threads:
        thread.join()
    assert not failures, failures


def encrypted(server):
    """A client can verify the certificate, and large answers are complete."""
    trusted = {"sslmode": "verify-full", "sslrootcert": str(TLS / "certificate.pem")}
    for least in ("TLSv1.2", "TLSv1.3"):
        with connect(server, ssl_min_protocol_version=least, ssl_max_protocol_version=least, **trusted) as db:
            assert db.pgconn.ssl_in_use
            rows = db.execute("SELECT note FROM shop.orders, generate_series(1, 20) AS t(n)").fetchall()
            assert len(rows) == 20 * ROWS, len(rows)
    with connect(server, sslmode="disable") as db:
        assert not db.pgconn.ssl_in_use and db.execute("SELECT 1").fetchone() == (1,)
    with socket.create_connection((server.host, server.sql_port), timeout=PATIENCE_S) as stream:
        # The request for encryption, followed by bytes that an attacker in between would inject.
        stream.sendall(struct.pack("!ii", 8, 80877103) + b"Q")
        assert stream.recv(1) == b"S"
        assert b"unencrypted data" in stream.recv(1000)


PSQL = [
    ("\\dt shop.*", ["orders", "secrets", "5 rows"]),
    ("\\d shop.orders", ["customer", "integer", "note", "text"]),
    ("\\dv shop.*", ["by_price", "1 row"]),
    ("\\d shop.by_price", ["View", "customer", "integer", "note", "text"]),
    ("\\dn", ["shop", "system_schema"]),
    ("\\l", ["fairlane"]),
    ("SELECT count(*) AS many FROM shop.orders;", ["many", str(ROWS)]),
    ("LIST ALL SERVICE LEVELS;", ["reports"]),
    ("\\du", ["admin", "Superuser", "ann"]),
    ("\\df", ["0 rows"]),
    ("\\d+ shop.orders", ["customer", "integer", "not null", "note", "text"]),
    ("\\dn+", ["shop", "system_schema"]),
    ("\\dp shop.*", ["orders", "table", "6 rows"]),
    ("\\z shop.orders", ["orders", "1 row"]),
    ("\\dT", ["0 rows"]),
    ("SELECT version();", ["PostgreSQL", "fairlane"]),
]


def psql(server):
    if shutil.which("psql") is None:
        print("      psql is not installed: not tested")
        return
    where = f"host={server.host} port={server.sql_port} user=admin password='{PASSWORD}' dbname=fairlane"
    for command, expected in PSQL:
        done = subprocess.run(
            ["psql", "-X", "-v", "ON_ERROR_STOP=1", where, "-c", command], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (command, done.stderr)
        for words in expected:
            assert words in done.stdout, f"{words!r} is missing for {command}:\n{done.stdout}\n{done.stderr}"


def main():
    flags = ["--tls-certificate", str(TLS / "certificate.pem"), "--tls-key", str(TLS / "key.pem")]
    with Server(flags=flags) as server:
        fill(server)
        with connect(server) as db:
            types(db)
            queries(db)
            metadata(db)
            errors(db)
            levels(server, db)
            cancel(db)
        rights(server)
        together(server)
        encrypted(server)
        psql(server)


if __name__ == "__main__":
    main()
