"""Apache Spark with its Cassandra connector, through two fronts before three nodes of Apache Cassandra. `cargo xtask spark` runs this
program, which needs Java and Maven. Spark runs in a level of its own, also while one of the fronts is killed, and its answers equal
those of the fronts' SQL. The recipe is in docs/cluster.md."""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import zlib
from decimal import Decimal
from pathlib import Path

import psycopg
from cassandra.concurrent import execute_concurrent_with_args

from _ring import Ring, free_port, jars, missing, pinned
from _server import PASSWORD, PATIENCE_S
from fleet import until
from ring import LIMIT_S, expired, front_of

HERE = Path(__file__).resolve().parent
# Fronts of a fleet have addresses of their own, and one port.
HOSTS = ("127.0.0.11", "127.0.0.12")
ROLE, LEVEL = "spark", "etl"
END = "-- end of the answer"
CUSTOMERS, ORDERS, NOTE_BYTES = 200, 40, 3000
# The last customer has no orders.
ROWS = (CUSTOMERS - 1) * ORDERS
# Interval at which nodes estimate the sizes of tables. Their default is five minutes.
ESTIMATES_S = 5
# Spark reads at least 1 + 2 × threads splits. By estimates of the size there are more, of 1 MiB.
SPLITS = ROWS * NOTE_BYTES // 2**20 // 2
SCHEMA = [
    "CREATE TABLE shop.customers (id int PRIMARY KEY, name text)",
    # Only flushed rows are in the nodes' estimates.
    "CREATE TABLE shop.orders (customer int, id int, price decimal, paid boolean, weight double, note text, "
    "PRIMARY KEY (customer, id)) WITH memtable_flush_period_in_ms = 1000",
    "CREATE TABLE shop.totals (customer int PRIMARY KEY, orders bigint, price decimal)",
    "CREATE TABLE shop.copies (customer int, id int, note text, PRIMARY KEY (customer, id))",
    f"CREATE ROLE {ROLE} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true",
    f"GRANT SELECT ON KEYSPACE shop TO {ROLE}",
    f"GRANT MODIFY ON TABLE shop.totals TO {ROLE}",
    f"GRANT MODIFY ON TABLE shop.copies TO {ROLE}",
    f"CREATE SERVICE LEVEL {LEVEL} WITH shares = 100 AND workload_type = 'batch' AND timeout = '60s'",
    f"ATTACH SERVICE LEVEL {LEVEL} TO {ROLE}",
]
ONE_CUSTOMER = "SELECT id, price, paid, weight FROM shop.orders WHERE customer = 7 ORDER BY id"
TOTALS = "SELECT customer, count(*) AS orders, sum(price) AS price FROM shop.orders GROUP BY customer"
WHOLE = "SELECT count(*), count(DISTINCT customer * 1000 + id), sum(id), sum(length(note)) FROM shop.orders"
COPY = "INSERT INTO shop.copies SELECT customer, id, note FROM shop.orders"
# Settings of the connector with which a statement takes seconds: rows of a page, and writes of one row without concurrency.
SMALL_PAGES = {"input.fetch.sizeInRows": 5}
SINGLE_WRITES = {"output.batch.size.rows": 1, "output.concurrent.writes": 1}
QUERIES = [
    "SELECT count(*) FROM shop.orders",
    WHOLE,
    "SELECT paid, count(*), sum(price), avg(weight) FROM shop.orders GROUP BY paid ORDER BY paid NULLS LAST",
    "SELECT customer, count(*), min(price), max(weight) FROM shop.orders WHERE id > 10 GROUP BY customer ORDER BY customer",
    "SELECT c.name, count(*), sum(o.price) FROM shop.orders o JOIN shop.customers c ON c.id = o.customer "
    "WHERE o.weight > 1 GROUP BY c.name ORDER BY c.name",
    "SELECT c.id, c.name, o.id FROM shop.customers c LEFT JOIN shop.orders o ON c.id = o.customer "
    f"WHERE c.id >= {CUSTOMERS - 2} ORDER BY c.id, o.id",
    ONE_CUSTOMER,
    "SELECT customer, id FROM shop.orders WHERE customer IN (3, 5, 1000) AND id > 30 ORDER BY customer, id",
]  # fmt: skip


class Spark:
    """`with Spark(port) as spark:` starts Spark, and `spark.ask(statement)` returns rows of texts. `Spark(port)` alone downloads its
    files once (240 MB)."""

    def __init__(self, port):
        pom = (HERE / "pom.xml").read_text()
        folder = jars(f"spark-{zlib.crc32(pom.encode()):08x}", pom)
        # The kernel ends Spark with the test, even if the test is killed.
        self.command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.command += ["java", f"@{HERE / 'java.options'}"]
        properties = {
            "spark.cassandra.connection.host": ",".join(HOSTS),
            "spark.cassandra.connection.port": port,
            "spark.cassandra.auth.username": ROLE,
            "spark.cassandra.auth.password": PASSWORD,
            "spark.driver.host": "127.0.0.1",
            # Few rows are joined and grouped.
            "spark.sql.shuffle.partitions": 2,
        }
        self.command += [f"-D{name}={value}" for name, value in properties.items()]
        self.command += ["-cp", f"{folder}/*", str(HERE / "Spark.java")]

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlane-spark-", ignore_cleanup_errors=True)
        self.log = Path(self.folder.name, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder.name, env=dict(os.environ, SPARK_LOCAL_IP="127.0.0.1"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        return self

    def ask(self, statement):
        self.process.stdin.write(f"{statement}\n")
        self.process.stdin.flush()
        rows = []
        for line in self.process.stdout:
            if line.rstrip("\n") == END:
                return rows
            rows.append(line.rstrip("\n").split("\t"))
        raise AssertionError(f"Spark ended with {self.process.wait()} at {statement!r}")

    @contextlib.contextmanager
    def asking(self, statement):
        """Runs the statement during the block. The list has its rows after the block."""
        rows = []
        asking = threading.Thread(target=lambda: rows.extend(self.ask(statement)))
        asking.start()
        yield rows
        assert asking.is_alive(), f"Spark had ended {statement!r} before"
        asking.join()

    def __exit__(self, *failure):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Ends with its input.
            self.process.wait(PATIENCE_S if failure[0] is None else 1)
        self.process.kill()
        code = self.process.wait()
        if failure[0] is not None:
            print("the log of Spark:", *self.log.read_text(errors="replace").splitlines()[-60:], sep="\n  ")
        self.folder.cleanup()
        assert failure[0] is not None or code == 0, f"Spark ended with {code}"


def sql(front):
    return psycopg.connect(
        host="127.0.0.1", port=front.sql_port, user="admin", password=PASSWORD, dbname="fairlane", autocommit=True
    )


def fill(ring, fronts):
    with pinned(fronts[0]) as clients:
        session = clients.connect()
        session.execute(f"CREATE KEYSPACE shop WITH replication = {ring.replication()}")
        for statement in SCHEMA:
            session.execute(statement)
        # Each replica gets all rows, so that reads of one replica find them.
        customer = session.prepare("INSERT INTO shop.customers (id, name) VALUES (?, ?)")
        order = session.prepare("INSERT INTO shop.orders (customer, id, price, paid, weight, note) VALUES (?, ?, ?, ?, ?, ?)")
        customers = [(c, f"name {c}") for c in range(CUSTOMERS)]
        orders = [
            (c, n, Decimal(c * n) / 4, n % 3 == 0 if n else None, n / 8, "x" * (NOTE_BYTES + n))
            for c in range(CUSTOMERS - 1)
            for n in range(ORDERS)
        ]
        for statement, rows in ((customer, customers), (order, orders)):
            assert all(result.success for result in execute_concurrent_with_args(session, statement, rows))
    for front in fronts:
        with sql(front) as db:
            known = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'shop'"
            until("the tables", lambda: db.execute(known).fetchone()[0] == 4)


def same(text, value):
    """Returns true if Spark's text stands for a value of ours."""
    if value is None:
        return text == "null"
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, float):
        return float(text) == value
    return Decimal(text) == value if isinstance(value, (int, Decimal)) else text == value


def agree(query, got, expected):
    equal = len(got) == len(expected) and all(len(a) == len(b) and all(map(same, a, b)) for a, b in zip(got, expected))
    assert equal, (query, got[:3], expected[:3])


def documented(spark, fronts):
    """The document has these files and this level."""
    recipe = (HERE.parents[2] / "docs" / "cluster.md").read_text()
    for text in ((HERE / "pom.xml").read_text(), *SCHEMA[-2:]):
        assert text in recipe, text


def answers(spark, fronts):
    """Answers of Spark equal those of each front's SQL."""
    for query in QUERIES:
        got = spark.ask(query)
        assert got, query
        for front in fronts:
            with sql(front) as db:
                agree(query, got, db.execute(query).fetchall())


def pushed_down(spark, fronts):
    plan = "\n".join("\t".join(row) for row in spark.ask(f"EXPLAIN {ONE_CUSTOMER}"))
    assert 'Cassandra Filters: [["customer" = ?, 7]]' in plan, plan


def written(spark, fronts):
    """Spark writes rows that the fronts' SQL reads, at the consistency at which the connector writes."""
    with pinned(fronts[0]) as clients:
        clients.connect().execute("TRUNCATE shop.totals")
    spark.ask(f"INSERT INTO shop.totals {TOTALS}")
    order = "ORDER BY customer"
    for front in fronts:
        with sql(front) as db:
            db.execute("SET consistency = 'LOCAL_QUORUM'")
            got = db.execute(f"SELECT customer, orders, price FROM shop.totals {order}").fetchall()
            assert len(got) == CUSTOMERS - 1 and got == db.execute(f"{TOTALS} {order}").fetchall(), got[:3]


def splits(spark, fronts):
    """The ranges of the fronts' tokens, cut by the nodes' estimates, are all rows once."""
    spark.ask("SET spark.cassandra.input.split.sizeInMB=1")

    def parts():
        rows = spark.ask("SELECT spark_partition_id(), count(*) FROM shop.orders GROUP BY 1")
        assert sum(int(count) for _, count in rows) == ROWS, rows
        return rows if len(rows) >= SPLITS else None

    rows = until(f"{SPLITS} splits by estimates of the size", parts)
    print(f"      {len(rows)} splits of {min(int(n) for _, n in rows)} to {max(int(n) for _, n in rows)} rows")
    agree(WHOLE, spark.ask(WHOLE), whole(fronts[0]))
    spark.ask("RESET spark.cassandra.input.split.sizeInMB")


def whole(front):
    with sql(front) as db:
        return db.execute(WHOLE).fetchall()


def requests(db):
    """Returns the requests of Spark's level that nodes have answered to a front."""
    rows = db.execute("SELECT coalesce(sum(requests), 0) FROM system.nodes WHERE service_level = %s", [LEVEL]).fetchall()
    return int(rows[0][0])


def charged(spark, fronts):
    """Spark has sessions at each front, in its level, and its requests are requests of that level."""
    agree(WHOLE, spark.ask(WHOLE), whole(fronts[0]))
    for front in fronts:
        with sql(front) as db:
            sessions = db.execute("SELECT service_level, count(*) FROM system.connections WHERE role = %s GROUP BY 1", [ROLE]).fetchall()
            assert [level for level, _ in sessions] == [LEVEL], sessions
            before = requests(db)
            for _ in range(3):
                spark.ask(WHOLE)
            until("requests of the level", lambda: requests(db) > before)
            print(f"      {front.host}: {sessions[0][1]} sessions, {requests(db) - before} requests of level {LEVEL}")


@contextlib.contextmanager
def running(spark, fronts, statement, settings):
    """Spark has begun with the statement when the block begins. With the settings it takes longer than the block. The list has its
    rows after the block."""
    for name, value in settings.items():
        spark.ask(f"SET spark.cassandra.{name}={value}")
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(sql(front)) for front in fronts]
        before = sum(map(requests, databases))
        with spark.asking(statement) as rows:
            until("requests of the statement", lambda: sum(map(requests, databases)) > before + 200)
            yield rows
    for name in settings:
        spark.ask(f"RESET spark.cassandra.{name}")


def altered(spark, fronts):
    """The shares of the level change at both fronts while Spark reads."""
    shares = "SELECT shares_now FROM system.level_usage WHERE service_level = %s"
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(sql(front)) for front in fronts]
        with running(spark, fronts, WHOLE, SMALL_PAGES) as rows:
            began = time.monotonic()
            databases[0].execute(f"ALTER SERVICE LEVEL {LEVEL} WITH shares = 300")
            for db in databases:
                until("the new shares", lambda: db.execute(shares, [LEVEL]).fetchone()[0] == 300)
            print(f"      new shares at both fronts after {time.monotonic() - began:.1f} s")
        agree(WHOLE, rows, whole(fronts[0]))


def killed(spark, fronts):
    """One front is killed while Spark reads, and the other one while it writes. Each time Spark goes on through the other one, and
    once the first is back, Spark uses it again."""
    front, other = fronts
    with running(spark, fronts, WHOLE, SMALL_PAGES) as rows:
        front.crash()
    agree(WHOLE, rows, whole(other))
    written(spark, [other])
    front.start()
    with sql(front) as db:

        def is_used():
            agree(WHOLE, spark.ask(WHOLE), whole(other))
            return requests(db) > 0

        until("requests of Spark at the front that is back", is_used)
    with running(spark, fronts, COPY, SINGLE_WRITES):
        other.crash()
    with sql(front) as db:
        db.execute("SET consistency = 'LOCAL_QUORUM'")
        copied = db.execute(WHOLE.replace("orders", "copies")).fetchall()
        assert copied == whole(front), copied
    other.start()


CHECKS = {check.__name__: check for check in [documented, answers, pushed_down, written, splits, charged, altered, killed]}


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask spark", description=__doc__)
    parser.add_argument("--only", action="append", choices=CHECKS, help="this check; may be repeated")
    chosen = parser.parse_args().only or CHECKS
    reason = missing()
    if reason is not None:
        print(f"      not tried: {reason}")
        return
    ring = Ring(properties={"cassandra.size_recorder_interval": ESTIMATES_S})
    port = free_port(HOSTS)
    spark = Spark(port)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(LIMIT_S)
    with ring, contextlib.ExitStack() as stack:
        fronts = [front_of(ring) for _ in HOSTS]
        for front, host in zip(fronts, HOSTS):
            front.listen = f"{host}:{port}"
            stack.enter_context(front)
        fill(ring, fronts)
        stack.enter_context(spark)
        for name in chosen:
            started = time.monotonic()
            CHECKS[name](spark, fronts)
            print(f"      {name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
