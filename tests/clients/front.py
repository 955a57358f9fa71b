"""A server in front of a cluster, here of one node: another fairlane. Drivers, cqlsh and raw messages get through it what they get
from the node. Prepared statements survive a restart of the node and of the front."""

import socket
import struct
import subprocess
import time
import urllib.request

from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy
from cassandra.query import BatchStatement, SimpleStatement

from _server import PASSWORD, PATIENCE_S, Server

STARTUP, QUERY, RESULT, PREPARE, EXECUTE, AUTH_RESPONSE = 1, 7, 8, 9, 10, 15


def front_of(node, more=(), **options):
    flags = ("--engine", "cluster", "--contact", f"{node.host}:{node.port}", "--cluster-user", "admin", *more)
    return Server(password=None, flags=flags, variables={"FAIRLANE_CLUSTER_PASSWORD": PASSWORD}, **options)


def cluster(server, role="admin", password=PASSWORD, version=5):
    """Returns a driver that repeats nothing. Its reads see its writes, on several nodes too."""
    profile = ExecutionProfile(
        consistency_level=ConsistencyLevel.QUORUM, retry_policy=FallthroughRetryPolicy(), request_timeout=PATIENCE_S
    )
    return Cluster(
        [server.host], port=server.port, auth_provider=PlainTextAuthProvider(role, password), connect_timeout=PATIENCE_S,
        protocol_version=version, reconnection_policy=ConstantReconnectionPolicy(0.1, None),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )  # fmt: skip


def statements(front, version, replication="{'class': 'SimpleStrategy', 'replication_factor': 1}"):
    with cluster(front, version=version) as clients:
        session = clients.connect()
        name = f"shop{version}"
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
        session.set_keyspace(name)
        session.execute("CREATE TABLE orders (customer text, id int, items list<text>, PRIMARY KEY (customer, id))")
        session.execute("CREATE TABLE hits (page text PRIMARY KEY, n counter)")
        insert = session.prepare("INSERT INTO orders (customer, id, items) VALUES (?, ?, ?)")
        for id in range(250):
            session.execute(insert, ("ann", id, [f"item {id}"]))
        batch = BatchStatement()
        for id in range(3):
            batch.add(insert, ("bob", id, None))
        batch.add(SimpleStatement("INSERT INTO orders (customer, id) VALUES ('bob', 3)"))
        session.execute(batch)
        pages = session.execute(SimpleStatement("SELECT id FROM orders WHERE customer = 'ann'", fetch_size=40))
        assert [row.id for row in pages] == list(range(250))
        assert session.execute("SELECT count(*) FROM orders WHERE customer = 'bob'").one()[0] == 4
        assert not session.execute("INSERT INTO orders (customer, id) VALUES ('bob', 3) IF NOT EXISTS").one().applied
        session.execute("UPDATE hits SET n = n + 2 WHERE page = '/'")
        assert session.execute("SELECT n FROM hits").one().n == 2
        large = "x" * 300_000
        session.execute(insert, ("large", 1, [large]))
        assert session.execute("SELECT items FROM orders WHERE customer = 'large'").one().items == [large]
        local = session.execute("SELECT host_id, rpc_port FROM system.local").one()
        assert local.rpc_port == front.port, "drivers find the front, not the node"
        # Sessions of one role share connections to nodes, and each keeps its keyspace.
        other = clients.connect()
        try:
            other.execute("SELECT * FROM orders")
            raise AssertionError("no keyspace is in use")
        except InvalidRequest as error:
            assert "No keyspace" in str(error), error
        try:
            other.set_keyspace("missing")
            raise AssertionError("the keyspace does not exist")
        except InvalidRequest as error:
            assert "'missing' does not exist" in str(error), error


def roles(node, front):
    with cluster(front) as clients:
        session = clients.connect()
        session.execute("CREATE ROLE ann WITH PASSWORD = 'ann' AND LOGIN = true")
        session.execute("GRANT SELECT ON shop5.orders TO ann")
    with cluster(front, "ann", "ann") as clients:
        session = clients.connect()
        assert session.execute("SELECT id FROM shop5.orders WHERE customer = 'ann' LIMIT 1").one().id == 0
        try:
            session.execute("INSERT INTO shop5.orders (customer, id) VALUES ('x', 1)")
            raise AssertionError("ann may read only")
        except Unauthorized:
            pass
    for wrong in ("admin", "nobody"):
        for server in (node, front):
            try:
                cluster(server, wrong, "wrong").connect()
                raise AssertionError("the password is wrong")
            except NoHostAvailable as error:
                assert "Provided username" in str(error), error


def levels(node, front):
    """Levels of the front for roles of the cluster, which knows nothing of them."""
    with cluster(front) as clients:
        admin = clients.connect()
        admin.execute("CREATE ROLE team")
        admin.execute("CREATE ROLE bob WITH PASSWORD = 'bob' AND LOGIN = true")
        admin.execute("GRANT team TO bob")
        admin.execute("GRANT SELECT ON shop5.orders TO team")
        admin.execute("CREATE SERVICE LEVEL reports WITH shares = 100 AND workload_type = 'batch' AND cpu_limit = '50%'")
        admin.execute("ATTACH SERVICE LEVEL reports TO team")
        for refused in ("io_limit = '1MB/s'", "query_limit = 'cpu 1s'"):
            try:
                admin.execute(f"ALTER SERVICE LEVEL reports WITH {refused}")
                raise AssertionError("it would have no effect")
            except InvalidRequest as error:
                assert "no effect in front of a cluster" in str(error), error
        try:
            admin.execute("ATTACH SERVICE LEVEL reports TO missing")
            raise AssertionError("the cluster has no such role")
        except InvalidRequest as error:
            assert "missing" in str(error), error
        with cluster(front, "bob", "bob") as others:
            session = others.connect()
            for _ in range(20):
                session.execute("SELECT id FROM shop5.orders WHERE customer = 'ann' LIMIT 1")
            try:
                session.execute("ALTER SERVICE LEVEL reports WITH shares = 1000")
                raise AssertionError("only superusers of the cluster change levels")
            except Unauthorized:
                pass
        effective = admin.execute("LIST EFFECTIVE SERVICE LEVEL OF bob").all()
        assert any(row.effective_service_level == "reports" for row in effective), effective
        until = time.monotonic() + PATIENCE_S
        while True:
            rows = admin.execute("SELECT * FROM system.nodes").all()
            served = [row for row in rows if row.service_level == "reports" and row.requests >= 20]
            if served:
                break
            assert time.monotonic() < until, rows
        assert served[0].node == f"{node.host}:{node.port}" and served[0].occupancy_us > 0, served
        assert served[0].window == 128, served
        usage = admin.execute("SELECT statements FROM system.level_usage WHERE service_level = 'reports'").one()
        assert usage.statements >= 20, usage
    with cluster(node) as direct:
        listed = direct.connect().execute("LIST ALL SERVICE LEVELS").all()
        assert not [row for row in listed if row.service_level == "reports"], "levels are the front's"
    metrics = urllib.request.urlopen(f"http://{front.http}/metrics", timeout=PATIENCE_S).read().decode()
    assert f'fairlane_node_requests_total{{node="{node.host}:{node.port}",level="reports"}}' in metrics


class Raw:
    """A connection of protocol v4 that shows messages as they are."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.port), PATIENCE_S)
        self.send(STARTUP, struct.pack(">H", 1) + text("CQL_VERSION") + text("3.0.0"))
        assert self.receive()[2] == 3, "AUTHENTICATE"
        token = f"\0admin\0{PASSWORD}".encode()
        self.send(AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
        assert self.receive()[2] == 16, "AUTH_SUCCESS"

    def send(self, opcode, body, flags=0):
        self.socket.sendall(struct.pack(">BBhBi", 4, flags, 7, opcode, len(body)) + body)

    def receive(self):
        head = self.read(9)
        _, flags, stream, opcode, length = struct.unpack(">BBhBi", head)
        assert stream == (7 if opcode != 12 else -1)
        return flags, stream, opcode, self.read(length)

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the connection ended"
            data += more
        return data

    def ask(self, opcode, body, flags=0):
        self.send(opcode, body, flags)
        return self.receive()


def text(value):
    return struct.pack(">H", len(value)) + value.encode()


def query(statement):
    return struct.pack(">i", len(statement)) + statement.encode() + struct.pack(">HB", 1, 0)


PAYLOAD = struct.pack(">H", 1) + text("key") + struct.pack(">i", 3) + b"abc"
# A QUERY that ends within the length of its text.
TEXTLESS = b"\xff\xff"
# Opcode, body and flags.
MESSAGES = [
    (QUERY, query("SELECT customer, id, items, writetime(items) FROM shop5.orders LIMIT 3"), 0),
    (QUERY, query("SELECT * FROM system_schema.keyspaces"), 0),
    (QUERY, query("SELEKT 1"), 0),
    (QUERY, query(""), 0),
    (QUERY, query("SELECT * FROM missing.t"), 0),
    (QUERY, query("LIST ROLES"), 0),
    (QUERY, query("DESCRIBE TABLE shop5.orders"), 0),
    (QUERY, PAYLOAD + query("SELECT id FROM shop5.orders LIMIT 1"), 4),
    (QUERY, TEXTLESS, 0),
    (QUERY, query("USE shop5"), 0),
    (QUERY, query("SELECT id FROM orders LIMIT 1"), 0),
    (QUERY, query("USE nowhere"), 0),
    (PREPARE, struct.pack(">i", 38) + b"SELECT id FROM orders WHERE customer=?"[:38], 0),
    (EXECUTE, struct.pack(">H", 16) + b"0123456789abcdef" + struct.pack(">HB", 1, 0), 0),
]


def bodies(node, front, messages=MESSAGES):
    """Messages and their answers are the same, byte for byte, errors and malformed ones too."""
    direct, through = Raw(node), Raw(front)
    for opcode, body, flags in messages:
        expected, got = direct.ask(opcode, body, flags), through.ask(opcode, body, flags)
        assert got == expected, (body, expected, got)


def cqlsh(front):
    shell = subprocess.run(
        ["cqlsh", "-u", "admin", "-p", PASSWORD, "-e", "USE shop5; SELECT * FROM hits; DESCRIBE TABLES;", front.host, str(front.port)],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert shell.returncode == 0 and "orders" in shell.stdout and "2" in shell.stdout, shell


def restarts(node, front):
    with cluster(front) as clients:
        session = clients.connect()
        read = session.prepare("SELECT id FROM shop5.orders WHERE customer = ? AND id = ?")

        def reads():
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    return session.execute(read, ("ann", 5)).one().id
                except Exception as error:
                    # In flight when the node or the front ended, or before it is back.
                    assert time.monotonic() < until, error
                    time.sleep(0.1)

        assert reads() == 5
        for server in (node, front):
            server.listen = f"{server.host}:{server.port}"
            server.crash()
            server.start()
            assert reads() == 5, "a node that forgot the statement is asked to prepare it again"


def main():
    with Server() as node, front_of(node) as front:
        statements(front, 5)
        statements(front, 4)
        roles(node, front)
        levels(node, front)
        bodies(node, front)
        cqlsh(front)
        restarts(node, front)


if __name__ == "__main__":
    main()
