"""What secondary indexes cost where a table is large, one experiment a command; see docs/benchmarks.md.

    ~/.cache/fairlane/target/venv/bin/python tests/bench/indexes.py target/release/fairlane EXPERIMENT [--rows N] [--rate RATE]

EXPERIMENT is one of

    query    server CPU and latency of a query that finds ten rows by an index, over those of a read of one row, of 10 million
    build    p99 of point reads alone and beside the build of an index of 10 million rows, and how long a build takes
    nearest  p99 of point reads alone and beside searches of the nearest of 100,000 vectors of 128 dimensions

Each starts a server of its own on CPU 0 and a temporary folder, which is removed in the end; loads run on CPU 1. `cargo xtask clients`
makes the environment with the driver.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import struct
import time

from _bench import Server, interleaved
from instructions import Connection, execute, sized

# Rows that have the same value.
FOUND = 10
# Requests in flight while a table is filled or queried.
PIPELINED = 256
POINTS = ["--keys", "100000"]
DIMENSION, CLUSTERS = 128, 1000
# Of an EXECUTE: values are given, and the answer needs no metadata.
WITHOUT_METADATA = 3
KEYSPACE = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
VALUES = "CREATE TABLE k.t (key bigint PRIMARY KEY, value bigint, body blob)"
INDEX = "CREATE INDEX t_by_value ON k.t (value)"


class LoggedIn(Connection):
    def __init__(self, server, user):
        super().__init__(int(server.cql.rsplit(":", 1)[1]))
        self.ask(15, sized(">i", f"\0{user}\0{server.password}".encode()))

    def answers(self, requests):
        """Sends these requests at once, and reads an answer for each."""
        self.socket.sendall(b"".join(requests))
        return [self.answer() for _ in requests]


def each(connection, statement, rows):
    """Executes a statement for each of these rows of values; prints how long that took."""
    begun, requests = time.time(), []
    for values in rows:
        requests.append(execute(statement, values, len(requests)))
        if len(requests) == PIPELINED:
            connection.answers(requests)
            requests = []
    connection.answers(requests)
    print(f"  filled in {time.time() - begun:.0f} s", flush=True)


def fill(server, rows):
    server.session.execute(VALUES)
    connection, body = LoggedIn(server, "admin"), os.urandom(64)
    values = rows // FOUND
    write = connection.prepare("INSERT INTO k.t (key, value, body) VALUES (?, ?, ?)")
    each(connection, write, ((struct.pack(">q", key), struct.pack(">q", key % values), body) for key in range(rows)))
    return connection


def build_index(server):
    """Returns how many seconds it took."""
    begun = time.time()
    server.session.execute(INDEX)
    while not server.session.execute("SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = 'k'").one():
        time.sleep(0.1)
    return time.time() - begun


def query(server, options):
    connection = fill(server, options.rows)
    print(f"  index built in {build_index(server):.1f} s", flush=True)
    server.settle()
    picked = random.Random(1)
    kinds = {
        "row": (connection.prepare("SELECT * FROM k.t WHERE key = ?"), options.rows, 1),
        "index": (connection.prepare("SELECT * FROM k.t WHERE value = ?"), options.rows // FOUND, FOUND),
    }

    def requests(kind, count):
        statement, values, _ = kinds[kind]
        return [execute(statement, [struct.pack(">q", picked.randrange(values))], stream, WITHOUT_METADATA) for stream in range(count)]

    cpu = {kind: [] for kind in kinds}
    for kind in ("row", "index", "index", "row") * 3:
        count = 400 if kind == "row" else 40
        rounds = [requests(kind, PIPELINED) for _ in range(count)]
        before = server.cpu_s()
        for sent in rounds:
            for answer in connection.answers(sent):
                found = rows_of(answer)
                if found != kinds[kind][2]:
                    raise SystemExit(f"{found} rows by {kind}")
        cpu[kind].append((server.cpu_s() - before) / (count * PIPELINED) * 1e6)
        print(f"{kind}: {cpu[kind][-1]:.2f} us of CPU", flush=True)
    for kind in kinds:
        latencies = []
        for request in requests(kind, 5000):
            begun = time.perf_counter()
            connection.answers([request])
            latencies.append((time.perf_counter() - begun) * 1e6)
        print(f"{kind}, one in flight: p50 {statistics.median(latencies):.0f} us, p99 {statistics.quantiles(latencies, n=100)[98]:.0f} us")
    # The first pair reads what is not in the cache yet.
    print(f"CPU of a query over a read: {statistics.median(cpu['index'][2:]) / statistics.median(cpu['row'][2:]):.1f}; first {cpu['index'][0] / cpu['row'][0]:.1f}")


def rows_of(answer):
    """Returns the number of rows of an answer without metadata: it stands behind the kind, the flags, and the number of columns."""
    return struct.unpack(">i", answer[12:16])[0]


def build(server, options):
    fill(server, options.rows)
    server.run("admin", "prefill", *POINTS)
    server.settle()
    print(f"a build alone takes {build_index(server):.1f} s", flush=True)
    server.session.execute("DROP INDEX k.t_by_value")
    server.settle()

    def begin():
        server.session.execute(INDEX)
        return INDEX

    def end(_):
        was_built = bool(server.session.execute("SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = 'k'").one())
        if was_built:
            print("  the build ended before its phase: use more rows")
        server.session.execute("DROP INDEX k.t_by_value")
        return 1

    interleaved(server, "admin", ["read", *POINTS, "--no-create"], options.rate, begin, end)


def vectors(count):
    picked = random.Random(47)
    centres = [[picked.uniform(-1, 1) for _ in range(DIMENSION)] for _ in range(CLUSTERS)]
    for at in range(count):
        yield struct.pack(f">{DIMENSION}f", *(value + picked.random() - 0.5 for value in centres[at % CLUSTERS]))


def search(server, user, told):
    """Searches, four in flight, until told to stop; then tells how many were answered."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    connection = LoggedIn(server, user)
    statement = connection.prepare("SELECT key FROM k.v ORDER BY value ANN OF ? LIMIT 10")
    sent, answered = [execute(statement, [value], at % 4) for at, value in enumerate(vectors(1000))], 0
    told.send("ready")
    told.recv()
    while not told.poll():
        answered += len(connection.answers([sent[(answered + at) % 1000] for at in range(4)]))
    told.send(answered)


class Searches:
    def __init__(self, server, user):
        self.told, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=search, args=(server, user, other))
        self.process.start()
        self.told.recv()

    def begin(self):
        self.told.send("begin")
        return self

    def end(self):
        self.told.send("stop")
        answered = self.told.recv()
        self.process.join()
        return answered


def nearest(server, options):
    server.level("reads", "shares = 1000")
    server.level("searches", "shares = 100")
    server.session.execute(f"CREATE TABLE k.v (key bigint PRIMARY KEY, value vector<float, {DIMENSION}>)")
    connection = LoggedIn(server, "admin")
    write = connection.prepare("INSERT INTO k.v (key, value) VALUES (?, ?)")
    each(connection, write, ((struct.pack(">q", key), value) for key, value in enumerate(vectors(min(options.rows, 100_000)))))
    server.session.execute("CREATE INDEX v_nearest ON k.v (value) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}")
    server.run("admin", "prefill", *POINTS)
    begun = time.time()
    exact = "fairlane_vector_searches_exact_total"
    probe = f"SELECT key FROM k.v ORDER BY value ANN OF {[0.5] * DIMENSION} LIMIT 10"
    while True:
        before = server.metrics().get(exact, 0)
        try:
            server.session.execute(probe)
            if server.metrics().get(exact, 0) == before:
                break
        except Exception as error:
            print(error)
        time.sleep(1)
    print(f"searched by the graph after {time.time() - begun:.0f} s", flush=True)
    server.settle()
    begin = lambda: Searches(server, "searches").begin()
    interleaved(server, "reads", ["read", *POINTS, "--no-create"], options.rate, begin, Searches.end)


EXPERIMENTS = {"query": query, "build": build, "nearest": nearest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rate", type=int, default=10_000)
    options = parser.parse_args()
    server = Server(options.binary, "--request-timeout-ms", "600000", on_cpu_0=True)
    os.sched_setaffinity(0, {1})
    try:
        server.session.execute(KEYSPACE)
        EXPERIMENTS[options.experiment](server, options)
    finally:
        server.end()


if __name__ == "__main__":
    main()
