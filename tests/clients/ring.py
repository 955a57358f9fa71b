"""A server in front of three nodes of Apache Cassandra, if Java and Maven are installed. Maven downloads the nodes.

Drivers of both protocol versions, cqlsh and raw messages get through it what they get from the nodes, while tables are altered,
and while a node is killed and starts again. Checks get the ring and its fronts, and spread their clients over the fronts."""

import contextlib
import signal
import struct
import threading
import time

import psycopg
from cassandra import ConsistencyLevel, ReadFailure, WriteFailure, WriteTimeout
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.protocol import ErrorMessage
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from _ring import Ring, missing, retried
from _server import PASSWORD, PATIENCE_S, Server
from fleet import cluster as pinned
from fleet import drivers_find_both, levels_are_shared, until
from front import EXECUTE, MESSAGES, PREPARE, QUERY, RESULT, TEXTLESS, Raw, bodies, cluster, cqlsh, query, roles, statements

FRONTS = 2
LIMIT_S = 8 * 60
# Codes of errors.
CAS_WRITE_UNKNOWN, UNPREPARED = 0x1700, 0x2500
# Flags of EXECUTE, and of its answer.
VALUES, SKIP_METADATA = 1, 2
NO_METADATA = 4
# Statements that a client under load completes before and after each event.
COMPLETED = 100


def front_of(ring):
    # A server waits longer than the nodes do, so that a timeout seen by a client is theirs.
    flags = ("--engine", "cluster", "--contact", ring.contacts(), "--cluster-user", "admin")
    flags += ("--request-timeout-ms", str(PATIENCE_S * 500), "--sql-listen", "127.0.0.1:0")
    return Server(password=None, flags=flags, variables={"FAIRLANE_CLUSTER_PASSWORD": PASSWORD})


@contextlib.contextmanager
def sessions(fronts, version=5):
    """One session through each front."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(cluster(front, version=version)).connect() for front in fronts]


def keyspace(ring, session, name, *tables):
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {ring.replication()}")
    for table in tables:
        session.execute(f"CREATE TABLE {name}.{table}")


def clients(ring, fronts):
    for front, version in ((fronts[0], 5), (fronts[-1], 4)):
        statements(front, version, ring.replication())
    roles(ring.nodes[0], fronts[0])
    cqlsh(fronts[-1])


def objects(ring, fronts):
    """Types, functions and indexes."""
    with sessions(fronts) as (session, *_):
        keyspace(ring, session, "objects")
        session.set_keyspace("objects")
        session.execute("CREATE TYPE place (street text, number int)")
        session.execute("CREATE TABLE people (id int PRIMARY KEY, name text, home frozen<place>)")
        session.execute("CREATE INDEX ON people (name) USING 'sai'")
        session.execute(
            "CREATE FUNCTION twice (n int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE java AS 'return 2 * n;'"
        )
        session.execute("INSERT INTO people (id, name, home) VALUES (7, 'ann', {street: 'High Street', number: 3})")
        row = session.execute("SELECT twice(id) AS n, home FROM people WHERE name = 'ann'").one()
        assert row.n == 14 and row.home.number == 3, row


def pages(ring, fronts):
    """A page goes on where another one ended, at another node and another front."""
    for version in (4, 5):
        with sessions(fronts, version) as through:
            name = f"pages{version}"
            keyspace(ring, through[0], name, "numbers (k int, n int, PRIMARY KEY (k, n))")
            rows = [(k, n) for k in range(5) for n in range(40)]
            insert = through[0].prepare(f"INSERT INTO {name}.numbers (k, n) VALUES (?, ?)")
            execute_concurrent_with_args(through[0], insert, rows)
            reads = [session.prepare(f"SELECT k, n FROM {name}.numbers") for session in through]
            found, state, turn = [], None, 0
            while turn == 0 or state:
                session, read = through[turn % len(through)], reads[turn % len(through)]
                read.fetch_size = 30
                page = session.execute(read, paging_state=state)
                found += [(row.k, row.n) for row in page.current_rows]
                state, turn = page.paging_state, turn + 1
            assert sorted(found) == rows and turn >= 7, (turn, found)


def conditions(ring, fronts):
    """Of concurrent conditional inserts one is applied, though nodes under contention may not know which one. Conditional updates
    are applied one after the other."""
    with sessions(fronts) as through:
        keyspace(ring, through[0], "conditions", "locks (k int PRIMARY KEY, owner int)")
        insert = SimpleStatement("INSERT INTO conditions.locks (k, owner) VALUES (%s, %s) IF NOT EXISTS")
        for k in range(5):
            asked = [(through[n % len(through)].execute_async(insert, (k, n)), n) for n in range(4)]
            # Each owner that a client knows, and those that clients do not know from their answers.
            owners, unknown = set(), set()
            for future, n in asked:
                try:
                    row = future.result().one()
                    owners.add(n if row.applied else row.owner)
                except (ErrorMessage, WriteTimeout) as error:
                    assert isinstance(error, WriteTimeout) or error.code == CAS_WRITE_UNKNOWN, error
                    unknown.add(n)
            read = SimpleStatement("SELECT owner FROM conditions.locks WHERE k = %s", consistency_level=ConsistencyLevel.SERIAL)
            row = through[-1].execute(read, (k,)).one()
            assert len(owners) <= 1 and (row.owner in owners if owners else row is None or row.owner in unknown), (row, owners, unknown)
        updates = [session.prepare("UPDATE conditions.locks SET owner = ? WHERE k = 9 IF owner = ?") for session in through]
        through[0].execute(insert, (9, 0))
        owner = 0
        for n in range(100, 110):
            assert through[n % len(through)].execute(updates[n % len(through)], (n, owner)).one().applied
            owner = n
        refused = through[0].execute(updates[0], (0, 0)).one()
        assert not refused.applied and refused.owner == owner, refused


def counters(ring, fronts):
    with sessions(fronts) as through:
        keyspace(ring, through[0], "counters", "hits (page text PRIMARY KEY, n counter)")
        hits = [session.prepare("UPDATE counters.hits SET n = n + ? WHERE page = ?") for session in through]
        for turn in range(30):
            through[turn % len(through)].execute(hits[turn % len(through)], (turn, "/"))
        batch = BatchStatement(BatchType.COUNTER)
        for page in ("/", "/about"):
            batch.add(hits[0], (1000, page))
        through[0].execute(batch)
        found = {row.page: row.n for row in through[-1].execute("SELECT page, n FROM counters.hits")}
        assert found == {"/": sum(range(30)) + 1000, "/about": 1000}, found


def batches(ring, fronts):
    """Nodes that do not know the statements of a batch are asked to prepare them."""
    with sessions(fronts) as through:
        tables = [f"t{n} (k int PRIMARY KEY, v int)" for n in range(3)]
        keyspace(ring, through[0], "batches", *tables)
        inserts = [through[0].prepare(f"INSERT INTO batches.t{n} (k, v) VALUES (?, ?)") for n in range(3)]
        for k in range(2 * len(ring.nodes)):
            batch = BatchStatement(BatchType.LOGGED if k % 2 else BatchType.UNLOGGED)
            for insert in inserts:
                batch.add(insert, (k, k))
            through[k % len(through)].execute(batch)
        for n in range(3):
            assert through[-1].execute(f"SELECT count(*) FROM batches.t{n}").one()[0] == 2 * len(ring.nodes)


def tracing(ring, fronts):
    with sessions(fronts) as through:
        for session in through:
            future = session.execute_async("SELECT * FROM shop5.orders WHERE customer = 'ann' LIMIT 1", trace=True)
            future.result()
            trace = future.get_query_trace(max_wait=PATIENCE_S)
            assert trace.events and trace.coordinator in [node.host for node in ring.nodes], trace


def answers(ring, fronts):
    """Answers are the same, byte for byte, at whichever node a front asks for them."""
    with sessions(fronts) as (session, *_):
        keyspace(ring, session, "raw", "t (k int, c int, v text, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO raw.t (k, c, v) VALUES (?, ?, ?)")
        execute_concurrent_with_args(session, insert, [(k, c, f"value {c}") for k in range(3) for c in range(20)])
    asked = [
        "SELECT k, c, v, writetime(v), ttl(v) FROM raw.t WHERE k = 1",
        "SELECT JSON * FROM raw.t WHERE k = 2 ORDER BY c DESC",
        "SELECT count(*) FROM raw.t",
        "SELECT token(k), k FROM raw.t PER PARTITION LIMIT 1",
        "SELECT * FROM raw.t WHERE v = 'value 1'",
        "SELECT * FROM raw.t WHERE v = 'value 1' ALLOW FILTERING",
        "SELECT missing FROM raw.t",
        "SELECT * FROM system_schema.columns WHERE keyspace_name = 'raw'",
        "INSERT INTO raw.t (k) VALUES (1)",
        "INSERT INTO raw.t (k, c, v) VALUES (0, 0, 'x') IF NOT EXISTS",
        "CREATE TABLE raw.t (k int PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS raw.t (k int PRIMARY KEY)",
        "DROP KEYSPACE missing",
        "GRANT SELECT ON KEYSPACE missing TO admin",
        "DESCRIBE KEYSPACE raw",
        "LIST ALL PERMISSIONS OF ann",
    ]
    # Of the others, the front refuses messages without a text and unknown statements in its own words. The nodes warn once a
    # connection, which clients share, of statements that are prepared in the keyspace of USE.
    messages = [(opcode, body, flags) for opcode, body, flags in MESSAGES if opcode == QUERY and body != TEXTLESS]
    messages += [(QUERY, query(statement), 0) for statement in asked]
    # One value, and one too few.
    messages += prepared(ring.nodes[0], "SELECT k, c, v FROM raw.t WHERE k = ?", struct.pack(">Hii", 1, 4, 2))
    messages += prepared(ring.nodes[0], "SELECT v FROM raw.t WHERE k = ? AND c = :c", struct.pack(">Hii", 1, 4, 2))
    messages.append((PREPARE, struct.pack(">i", 8) + b"SELECT ?", 0))
    # A page of three rows.
    messages.append((QUERY, query("SELECT k, c FROM raw.t")[:-1] + struct.pack(">Bi", 4, 3), 0))
    for front in fronts:
        for _ in ring.nodes:
            bodies(ring.nodes[0], front, messages)


def prepared(node, statement, values, flags=VALUES):
    """Returns the messages that prepare a statement and execute it with these values. A node knows its id."""
    prepare = struct.pack(">i", len(statement)) + statement.encode()
    _, _, opcode, answer = Raw(node).ask(PREPARE, prepare)
    assert opcode == RESULT, answer
    length = struct.unpack(">H", answer[4:6])[0]
    # At ONE.
    execute = answer[4 : 6 + length] + struct.pack(">HB", 1, flags) + values
    return [(PREPARE, prepare, 0), (EXECUTE, execute, 0)]


class Client(threading.Thread):
    """A closed loop of one prepared statement: `next()` returns its values, and `check` gets its rows. One statement is in flight."""

    def __init__(self, session, statement, next, check=lambda rows: None, name=None):
        super().__init__(daemon=True, name=name or statement.query_string)
        self.session, self.statement, self.next, self.check = session, statement, next, check
        self.completed, self.failures, self.ended = 0, [], False

    def run(self):
        while not self.ended:
            try:
                self.check(list(self.session.execute(self.statement, self.next())))
            except Exception as error:
                self.failures.append(error)
                time.sleep(0.01)
            self.completed += 1


@contextlib.contextmanager
def under(load, seconds=PATIENCE_S):
    """Runs clients until the end of the block, from when all have completed some statements, within `seconds`."""
    for client in load:
        client.start()
    try:
        completed(load, seconds=seconds)
        yield
    finally:
        for client in load:
            client.ended = True
        for client in load:
            client.join(PATIENCE_S)


def completed(load, statements=COMPLETED, seconds=PATIENCE_S):
    """Waits until every client has completed this number of further statements."""
    until = time.monotonic() + seconds
    goals = [client.completed + statements for client in load]
    while any(client.completed < goal for client, goal in zip(load, goals)):
        assert time.monotonic() < until, [(client.name, client.failures[-1:]) for client in load]
        time.sleep(0.02)


def numbers(first):
    """Returns a function that returns the next number, twice, at each call."""
    count = iter(range(first, 1 << 31))
    return lambda: [next(count)] * 2


def altered(ring, fronts):
    """Statements prepared before a change of their table have the columns after it. None fails once the change is answered: until
    then, nodes with different schemas refuse each other's reads."""
    with sessions(fronts, 5) as fives, sessions(fronts, 4) as fours:
        keyspace(ring, fives[0], "altered", "t (k int PRIMARY KEY, v int)")
        fives[0].execute("INSERT INTO altered.t (k, v) VALUES (1, 1)")

        def sound(rows):
            assert [(row.k, row.v) for row in rows] == [(1, 1)], rows

        load, stars = [], []
        for session in fives + fours:
            stars.append((session, session.prepare("SELECT * FROM altered.t WHERE k = ?")))
            load.append(Client(session, session.prepare("SELECT k, v FROM altered.t WHERE k = ?"), lambda: [1], sound))
            insert = session.prepare("INSERT INTO altered.t (k, v) VALUES (?, ?)")
            load.append(Client(session, insert, numbers(1000 * len(load) + 1000)))
        with under(load):
            for change in ("ADD a text", "ADD b text", "ADD z text", "DROP a", "ADD y text"):
                fives[0].execute(f"ALTER TABLE altered.t {change}")
                # Those in flight meanwhile.
                completed(load, 1)
                failures = [error for client in load for error in client.failures]
                assert all(isinstance(error, (ReadFailure, WriteFailure)) for error in failures), failures[:3]
                word, column = change.split()[:2]
                if word == "ADD":
                    fives[0].execute(f"UPDATE altered.t SET {column} = 'new' WHERE k = 1")
                for session, star in stars:
                    row = session.execute(star, [1]).one()
                    assert (row.k, row.v) == (1, 1), row
                    assert getattr(row, column, None) == ("new" if word == "ADD" else None), row
                completed(load)
                later = sum(len(client.failures) for client in load) - len(failures)
                assert later == 0, (change, [client.failures[-1:] for client in load])


def undescribed(ring, fronts):
    """A client of v4 may ask for rows without a description of their columns. After a change of the table it has to prepare
    its statement again, and gets no rows of columns that it does not know."""
    with sessions(fronts) as (session, *_):
        keyspace(ring, session, "undescribed", "t (k int PRIMARY KEY, v int)")
        session.execute("INSERT INTO undescribed.t (k, v) VALUES (1, 1)")
        statement, values = "SELECT * FROM undescribed.t WHERE k = ?", struct.pack(">Hii", 1, 4, 1)
        (_, prepare, _), (_, execute, _) = prepared(ring.nodes[0], statement, values, VALUES | SKIP_METADATA)
        client = Raw(fronts[0])

        def columns():
            """Returns the number of columns without a description. `None`: the client has to prepare the statement."""
            _, _, opcode, answer = client.ask(EXECUTE, execute)
            if opcode == RESULT:
                flags, count = struct.unpack(">ii", answer[4:12])
                return count if flags & NO_METADATA else 0
            assert struct.unpack(">i", answer[:4])[0] == UNPREPARED, answer
            return None

        client.ask(PREPARE, prepare)
        for _ in ring.nodes:
            assert columns() == 2
        session.execute("ALTER TABLE undescribed.t ADD a text")
        assert columns() in (0, None)
        client.ask(PREPARE, prepare)
        for _ in ring.nodes:
            assert columns() == 3


def killed(ring, fronts):
    """Of a node that is killed, no read fails, and of writes only those in flight. It is used again after its start."""
    with sessions(fronts) as through:
        table = "t (k int PRIMARY KEY, v int) WITH speculative_retry = '50ms'"
        keyspace(ring, through[0], "kept", table)
        every = SimpleStatement("INSERT INTO kept.t (k, v) VALUES (%s, %s)", consistency_level=ConsistencyLevel.ALL)
        through[0].execute(every, (7, 7))
        one, quorum, local_quorum = ConsistencyLevel.LOCAL_ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.LOCAL_QUORUM
        # Until the nodes of the other datacenter know that a node is down, they send it writes for its neighbour too: those at
        # QUORUM would fail without a front as well.
        killed_under_load(ring.nodes[1], through, reads=(one, quorum), writes=(one,))
        # The nodes of datacenter a answer without the third one, which no request is sent to. LOCAL_QUORUM needs both.
        consistencies = (one, local_quorum)
        killed_under_load(ring.nodes[2], through, reads=consistencies, writes=consistencies, is_used=False)


def killed_under_load(node, through, reads, writes, is_used=True):
    def sound(rows):
        assert [row.v for row in rows] == [7], rows

    readers, writers = [], []
    for session in through:
        for consistency in reads:
            read = session.prepare("SELECT v FROM kept.t WHERE k = ?")
            read.consistency_level = consistency
            readers += [Client(session, read, lambda: [7], sound) for _ in range(2)]
        for consistency in writes:
            write = session.prepare("INSERT INTO kept.t (k, v) VALUES (?, ?)")
            write.consistency_level = consistency
            writers += [Client(session, write, numbers(1000)) for _ in range(2)]
    load = readers + writers
    with under(load):
        node.crash()
        completed(load)
        node.start()
        node.wait()
        for session, reader in zip(through, readers[:: len(readers) // len(through)]):
            if not is_used:
                break
            retried(f"the front uses {node.host} again", lambda: coordinated(session, reader.statement, node))
        completed(load)
    for reader in readers:
        assert not reader.failures, reader.failures[:3]
    for writer in writers:
        in_flight = len(writer.failures) <= 1 and all(isinstance(error, WriteTimeout) for error in writer.failures)
        assert in_flight, writer.failures


def coordinated(session, statement, node):
    future = session.execute_async(statement, [7], trace=True)
    future.result()
    coordinator = future.get_query_trace(max_wait=PATIENCE_S).coordinator
    assert coordinator == node.host, coordinator


def fleet(ring, fronts):
    """The fronts share their levels, and drivers find all of them."""
    with pinned(fronts[0]) as one, pinned(fronts[1]) as two:
        levels_are_shared(one.connect(), two.connect())
    drivers_find_both(*fronts)


def scans(ring, fronts):
    """SQL answers equal those that a client computes of all rows, at each consistency of one and of many replicas."""
    rows = [(k, k * k % 1000, "x" * (k % 50)) for k in range(3000)]
    with sessions(fronts) as both:
        keyspace(ring, both[0], "scans", "t (k int PRIMARY KEY, n int, v text)")
        insert = both[0].prepare("INSERT INTO scans.t (k, n, v) VALUES (?, ?, ?)")
        insert.consistency_level = ConsistencyLevel.ALL
        results = execute_concurrent_with_args(both[0], insert, rows)
        assert all(result.success for result in results)
    expected = (len(rows), sum(n for _, n, _ in rows), sum(len(v) for _, _, v in rows))
    for front in fronts:
        with psycopg.connect(host=front.host, port=front.sql_port, user="admin", password=PASSWORD, dbname="fairlane", autocommit=True) as db:
            known = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'scans'"
            until("the table", lambda: db.execute(known).fetchone()[0] == 1)
            for consistency in ("LOCAL_ONE", "LOCAL_QUORUM", "ALL"):
                db.execute(f"SET consistency = '{consistency}'")
                read = db.execute("SELECT count(*), sum(n), sum(length(v)) FROM scans.t").fetchone()
                assert tuple(map(int, read)) == expected, (consistency, read, expected)
            assert db.execute("SELECT n FROM scans.t WHERE k IN (7, 11, 90000) ORDER BY k").fetchall() == [(49,), (121,)]


CHECKS = [clients, objects, pages, conditions, counters, batches, tracing, answers, altered, undescribed, fleet, scans, killed]


def expired(*_):
    raise TimeoutError(f"the checks took longer than {LIMIT_S} s")


def main():
    reason = missing()
    if reason is not None:
        print(f"      not tried: {reason}")
        return
    ring = Ring()
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(LIMIT_S)
    with ring, contextlib.ExitStack() as stack:
        fronts = [stack.enter_context(front_of(ring)) for _ in range(FRONTS)]
        for check in CHECKS:
            started = time.monotonic()
            check(ring, fronts)
            print(f"      {check.__name__}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
