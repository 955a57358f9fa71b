"""A level with `max_concurrency`: ten thousand statements of CQL and SQL share its slots and its wait queue, and each is
answered. A statement of one language is cancelled by the other."""

import threading
import time
import urllib.request

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.protocol import OverloadedErrorMessage
from psycopg.rows import scalar_row

from _server import PASSWORD, PATIENCE_S, Server
from postgres import LONG, ROWS, connect, fill, refused

SLOTS = 4
SQL_SESSIONS, SQL_EACH = 24, 250
CQL_STATEMENTS = 4000
WORKER = ("worker", "workerspassword")


def expected(customer):
    return sum(n * 3 for n in range(ROWS) if n % 10 == customer)


def slots(server):
    """Returns the numbers of running and waiting statements of the level, from /metrics."""
    text = urllib.request.urlopen(f"http://{server.http}/metrics", timeout=PATIENCE_S).read().decode()

    def value(name):
        lines = [line for line in text.splitlines() if line.startswith(f'{name}{{level="few"')]
        return int(float(lines[0].rsplit(" ", 1)[1])) if lines else 0

    return value("fairlane_slots_running"), value("fairlane_slots_waiting")


def shared(server, session):
    """At most `SLOTS` statements run at once, and none is lost."""
    failures, answered = [], []

    def ask():
        try:
            with connect(server, *WORKER) as db:
                cursor = db.cursor(row_factory=scalar_row)
                for n in range(SQL_EACH):
                    cursor.execute("SELECT sum(price) FROM shop.orders WHERE customer = %s", (n % 10,))
                    assert cursor.fetchone() == expected(n % 10)
                    answered.append(n)
        except Exception as error:  # reported below by the main thread
            failures.append(error)

    def ask_by_cql():
        try:
            count = session.prepare("SELECT count(*) FROM shop.orders WHERE customer = ?")
            asked = [(n % 10,) for n in range(CQL_STATEMENTS)]
            for (success, rows), (customer,) in zip(execute_concurrent_with_args(session, count, asked), asked):
                assert success and rows.one()[0] == ROWS // 10, rows
                answered.append(customer)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(SQL_SESSIONS)] + [threading.Thread(target=ask_by_cql)]
    for thread in threads:
        thread.start()
    most, queued = 0, 0
    while any(thread.is_alive() for thread in threads):
        running, waiting = slots(server)
        most, queued = max(most, running), max(queued, waiting)
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    assert len(answered) == SQL_SESSIONS * SQL_EACH + CQL_STATEMENTS, len(answered)
    assert most == SLOTS and queued > SLOTS, (most, queued)
    assert slots(server) == (0, 0)


def queue(server, session):
    """CQL and SQL have one queue: long SQL queries keep CQL statements waiting until they time out."""
    with connect(server) as admin:
        admin.execute("ALTER SERVICE LEVEL few WITH max_concurrency = 1 AND queue_timeout = 200ms")
        with connect(server, *WORKER) as db:
            running = threading.Thread(target=lambda: refused(lambda: db.execute(LONG), "57014", "user request"))
            running.start()
            shown = "SELECT id FROM system.running_statements WHERE service_level = 'few' AND state = 'running'"
            found = []
            while not found:
                found = admin.execute(shown).fetchall()
            try:
                session.execute("SELECT id FROM shop.orders WHERE customer = 7")
                raise AssertionError("it should not have had a slot")
            except (NoHostAvailable, OverloadedErrorMessage) as error:
                assert "few" in str(error), error
            # From CQL.
            cancel(server, found[0][0])
            running.join()


def cancel(server, statement):
    cluster = Cluster([server.host], port=server.port, auth_provider=PlainTextAuthProvider("admin", PASSWORD))
    cluster.connect().execute(f"CANCEL STATEMENT '{statement}'")
    cluster.shutdown()


def main():
    with Server() as server:
        fill(server)
        with connect(server) as admin:
            for statement in [
                # On a busy machine a statement waits for longer than the default time limit of 10 s.
                f"CREATE SERVICE LEVEL few WITH max_concurrency = {SLOTS} AND max_queue_size = 100000 "
                f"AND timeout = {PATIENCE_S}s",
                f"CREATE ROLE {WORKER[0]} WITH PASSWORD = '{WORKER[1]}' AND LOGIN = true",
                f"GRANT SELECT ON KEYSPACE shop TO {WORKER[0]}",
                f"ATTACH SERVICE LEVEL few TO {WORKER[0]}",
            ]:
                admin.execute(statement)
        cluster = Cluster([server.host], port=server.port, auth_provider=PlainTextAuthProvider(*WORKER))
        session = cluster.connect()
        session.default_timeout = PATIENCE_S
        shared(server, session)
        queue(server, session)
        cluster.shutdown()


if __name__ == "__main__":
    main()
