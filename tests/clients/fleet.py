"""Two servers in front of one cluster, here of one node, act as one: levels that are made at one hold at the other and after a
restart, `max_concurrency` holds over both, drivers find both, and a server that dies leaves its places to the other."""

import os
import select
import subprocess
import threading
import time

from cassandra import InvalidRequest, OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.connection import ConnectionException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy, HostFilterPolicy, RoundRobinPolicy

from _server import PASSWORD, PATIENCE_S, Server
from front import front_of


def cluster(server, role="admin", password=PASSWORD):
    """Returns a driver that asks this server only."""
    here = HostFilterPolicy(RoundRobinPolicy(), lambda host: host.endpoint.port == server.port)
    profile = ExecutionProfile(here, retry_policy=FallthroughRetryPolicy(), request_timeout=PATIENCE_S)
    return Cluster(
        [server.host], port=server.port, auth_provider=PlainTextAuthProvider(role, password), connect_timeout=PATIENCE_S,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5, control_connection_timeout=PATIENCE_S,
    )  # fmt: skip


NODE_FLAGS = ("--concurrency-limit", "off")


def until(what, done):
    """Waits until `done` returns something true, and returns it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = done()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


def levels(session):
    return {row.service_level: row for row in session.execute("LIST ALL SERVICE LEVELS")}


def attached(session, role):
    return [row.service_level for row in session.execute(f"LIST ATTACHED SERVICE LEVEL OF {role}")]


def levels_are_shared(first, second):
    """`first` and `second` are sessions of superusers at the two servers."""
    first.execute("CREATE ROLE team WITH PASSWORD = 'team' AND LOGIN = true")
    first.execute("CREATE SERVICE LEVEL etl WITH shares = 100 AND max_concurrency = 4")
    first.execute("ATTACH SERVICE LEVEL etl TO team")
    until("the level at the other server", lambda: "etl" in levels(second))
    until("the attachment at the other server", lambda: attached(second, "team") == ["etl"])
    second.execute("ALTER SERVICE LEVEL etl WITH shares = 300")
    until("the change at the first server", lambda: levels(first)["etl"].shares == 300)
    # A statement about a level that the other server has just made, altered or dropped.
    first.execute("CREATE SERVICE LEVEL fresh WITH shares = 10")
    second.execute("ATTACH SERVICE LEVEL fresh TO team")
    first.execute("ATTACH SERVICE LEVEL etl TO team")
    second.execute("DROP SERVICE LEVEL fresh")
    first.execute("CREATE SERVICE LEVEL IF NOT EXISTS fresh WITH shares = 20")
    second.execute("DROP SERVICE LEVEL IF EXISTS fresh")
    first.execute("CREATE SERVICE LEVEL fresh WITH shares = 30")
    second.execute("ALTER SERVICE LEVEL fresh WITH shares = 40")
    first.execute("DROP SERVICE LEVEL fresh")
    # The same level is made at both at once: one of them is told that it is there.
    outcomes = []

    def create(session):
        try:
            session.execute("CREATE SERVICE LEVEL both WITH shares = 50")
            outcomes.append("made")
        except InvalidRequest as error:
            outcomes.append("exists" if "already exists" in str(error) else str(error))

    threads = [threading.Thread(target=create, args=(session,)) for session in (first, second)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(outcomes) == ["exists", "made"], outcomes
    # Changes at both at once, none of which is lost.
    def change(session, name):
        for number in range(5):
            session.execute(f"CREATE SERVICE LEVEL {name}{number} WITH shares = 10")

    threads = [threading.Thread(target=change, args=args) for args in ((first, "a"), (second, "b"))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    made = {f"{name}{number}" for name in "ab" for number in range(5)}
    for session in (first, second):
        until("all levels", lambda: made <= set(levels(session)))
    first.execute("DROP SERVICE LEVEL both")
    until("the level to be gone", lambda: "both" not in levels(second))


def drivers_find_both(front, other):
    with cluster(front) as clients:
        session = clients.connect()
        rows = lambda: session.execute("SELECT peer_port, native_port, tokens FROM system.peers_v2").all()
        peers = until("the other server among the peers", rows)
        assert [row.native_port for row in peers] == [other.port], peers
        own = session.execute("SELECT tokens FROM system.local").one().tokens
        assert len(own) == 16 and not set(own) & set(peers[0].tokens)


def concurrency_is_never_exceeded(node, front, other):
    """`etl` may run 4 statements over both servers. The node counts them; there they are slow."""
    with cluster(node) as clients:
        session = clients.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (id int PRIMARY KEY, v text)")
        session.execute("GRANT SELECT ON ks.t TO team")
        insert = session.prepare("INSERT INTO ks.t (id, v) VALUES (?, ?)")
        for future in [session.execute_async(insert, (id, "x" * 50)) for id in range(3000)]:
            future.result()
        session.execute("CREATE SERVICE LEVEL slow WITH cpu_limit = '10%'")
        session.execute("ATTACH SERVICE LEVEL slow TO team")
        running = session.prepare("SELECT role FROM system.running_statements")

        def count():
            return sum(row.role == "team" for row in session.execute(running))

        ends, done = threading.Event(), []

        def ask(server):
            with cluster(server, "team", "team") as clients:
                session = clients.connect()
                while not ends.is_set():
                    try:
                        for future in [session.execute_async("SELECT count(*) FROM ks.t") for _ in range(6)]:
                            future.result()
                    except (NoHostAvailable, OperationTimedOut, ConnectionException):
                        return  # The server was killed.
                    done.append(server.port)

        threads = [threading.Thread(target=ask, args=(server,)) for server in (front, other)]
        [thread.start() for thread in threads]
        try:
            until("statements through both servers", lambda: {front.port, other.port} <= set(done))
            most = 0
            for _ in range(100):
                # One that has just ended may be counted beside its successor.
                most = max(most, min(count() for _ in range(3)))
                time.sleep(0.02)
            assert 3 <= most <= 4, f"{most} statements of 4 ran at once"
            other.crash()
            before = len(done)
            until("all places at the server that is left", lambda: min(count() for _ in range(3)) == 4)
            assert all(port == front.port for port in done[before:][-3:])
        finally:
            ends.set()
            [thread.join() for thread in threads]


def role_without_rights_is_told_what_to_run(node):
    """A role of the front that is no superuser needs a keyspace of its own."""

    def start():
        command = [os.environ["FAIRLANE_BIN"], "serve", "--cores", "1", "--overprovisioned", "--memory", "256MiB"]
        command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--engine", "cluster"]
        command += ["--contact", f"{node.host}:{node.port}", "--cluster-user", "fronts", "--fleet-keyspace", "own_fleet"]
        environment = dict(os.environ, FAIRLANE_CLUSTER_PASSWORD="fronts")
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with cluster(node) as clients:
        session = clients.connect()
        session.execute("CREATE ROLE fronts WITH PASSWORD = 'fronts' AND LOGIN = true")
        with start() as refused:
            _, text = refused.communicate(timeout=PATIENCE_S)
        assert refused.returncode != 0 and "let a superuser of the cluster run " in text, text
        for statement in text.split("let a superuser of the cluster run ")[1].split("\n")[0].rstrip(".").split(";"):
            session.execute(statement)
    with start() as started:
        try:
            assert select.select([started.stdout], [], [], PATIENCE_S)[0] and "is ready" in started.stdout.readline()
        finally:
            started.terminate()


def main():
    with Server(flags=NODE_FLAGS) as node, front_of(node) as front:
        role_without_rights_is_told_what_to_run(node)
        with front_of(node) as other:
            with cluster(front) as one, cluster(other) as two:
                first, second = one.connect(), two.connect()
                levels_are_shared(first, second)
            drivers_find_both(front, other)
            drivers_find_both(other, front)
            concurrency_is_never_exceeded(node, front, other)
            with cluster(front) as one:
                first = one.connect()
                gone = lambda: not first.execute("SELECT peer FROM system.peers_v2").all()
                until("the killed server to be gone", gone)
            other.start()
        with front_of(node) as again, cluster(again) as clients:
            session = clients.connect()
            assert levels(session)["etl"].shares == 300 and attached(session, "team") == ["etl"], "kept by the cluster"
    print("fleet: ok")


if __name__ == "__main__":
    main()
