"""Instructions of the server for a prepared read and a durable write, where the clock of a busy machine cannot tell two builds apart.

    python3 tests/bench/instructions.py BINARY [OTHER] [--runs N] [--requests N] [--profiles FOLDER] [--also KIND,…]

Kinds for --also: `indexed` and `viewed`, the write to a table with an index on a column, and with a view by it; `by_index` and `by_view`, a query
that finds ten rows.
With two binaries, the runs are in the order A B B A, and the last column is the median of OTHER over that of BINARY. Each run starts a server of
one core under callgrind, on a temporary folder ($TMPDIR; /dev/shm makes syncs quick). Needed are valgrind, and `cc` for the clock described below.

What makes counts of two runs alike:

1. The server is stopped by a signal while a round of requests is written to all its sockets, so that it finds all of them at once.
2. Its clocks run slower, by about what callgrind takes longer. Otherwise a single request would use up a time slice, and the scheduler would
   do for each request what it does for fifty. The real-time clock, of which write times are made, is as it is.
3. Only the thread of the fast lane counts: that with the most instructions. System calls are not seen, but happen in each task poll.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
from pathlib import Path

# Connections and requests in flight on each. The goals of docs/benchmarks.md are for the first.
FORMS = [(16, 16), (64, 1), (1, 1)]
KEYS = 4096
VALUE_BYTES, VALUES = 34, 5
# Rows of a query by an index or by a view.
FOUND = 10
INDEX = "CREATE INDEX ON k.{table} (c0)"
VIEW = "CREATE MATERIALIZED VIEW k.{table}_view AS SELECT * FROM k.{table} WHERE c0 IS NOT NULL AND key IS NOT NULL PRIMARY KEY (c0, key)"
# Kinds beside reads and writes: what is made of the table, and the query of rows by `c0`. Without one, the requests are writes.
ALSO = {
    "indexed": (INDEX, None),
    "viewed": (VIEW, None),
    "by_index": (INDEX, "SELECT * FROM k.by_index WHERE c0 = ?"),
    "by_view": (VIEW, "SELECT * FROM k.by_view_view WHERE c0 = ?"),
}
# Longest wait for an answer, seconds.
TIMEOUT_S = 60
SLOWER = 40
CLOCK = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    if (syscall(SYS_clock_gettime, clock, time)) return -1;
    if (clock == CLOCK_REALTIME) return 0;
    unsigned long long ns = (time->tv_sec * 1000000000ull + time->tv_nsec) / SLOWER;
    time->tv_sec = ns / 1000000000, time->tv_nsec = ns % 1000000000;
    return 0;
}
"""


def frame(opcode, body, stream=0):
    return struct.pack(">BBhBI", 4, 0, stream, opcode, len(body)) + body


def sized(width, text):
    return struct.pack(width, len(text)) + text


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(1, struct.pack(">H", 1) + sized(">H", b"CQL_VERSION") + sized(">H", b"3.0.0"))

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise SystemExit("the server closed a connection")
            data += part
        return bytes(data)

    def answer(self):
        head = self.read(9)
        body = self.read(struct.unpack(">I", head[5:])[0])
        if head[4] == 0:
            raise SystemExit(f"the server answered with an error: {body[6:].decode()}")
        return body

    def ask(self, opcode, body):
        self.socket.sendall(frame(opcode, body))
        return self.answer()

    def query(self, text):
        return self.ask(7, sized(">I", text.encode()) + struct.pack(">HB", 1, 0))

    def prepare(self, text):
        body = self.ask(9, sized(">I", text.encode()))
        return body[6 : 6 + struct.unpack(">H", body[4:6])[0]]


def execute(statement, values, stream, flags=1):
    bound = b"".join(sized(">i", value) for value in values)
    return frame(10, sized(">H", statement) + struct.pack(">HBH", 1, flags, len(values)) + bound, stream)


class Server:
    """A server under callgrind, with a table of which all rows are in memory."""

    def __init__(self, binary, folder, clock, also):
        self.folder = folder
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", f"--callgrind-out-file={folder}/out"]
        command += [binary, "serve", "--cores", "0", "--overprovisioned", "--memory", "1GiB", "--disk-probe", "off", "--data-dir", f"{folder}/data"]
        command += ["--listen", "127.0.0.1:0", "--shard-aware-port", "off", "--http-listen", "off", "--sql-listen", "off", "--authenticate", "false"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        self.log = open(f"{folder}/log", "w")
        self.process = subprocess.Popen(command, env=environment | {"LD_PRELOAD": clock}, stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if not ready:
            raise SystemExit(f"the server did not start: {Path(folder, 'log').read_text()}")
        self.connections = [Connection(int(ready[1])) for _ in range(max(connections for connections, _ in FORMS))]
        first = self.connections[0]
        first.query("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        columns = [f"c{column}" for column in range(VALUES)]
        self.writes, self.queries = {}, {}
        for kind in ["write", *also]:
            made, query = ALSO.get(kind, (None, None))
            first.query(f"CREATE TABLE k.{kind} (key blob PRIMARY KEY, {', '.join(f'{column} blob' for column in columns)})")
            if made:
                first.query(made.format(table=kind))
            self.writes[kind] = first.prepare(f"INSERT INTO k.{kind} (key, {', '.join(columns)}) VALUES (?{', ?' * VALUES})")
            if query:
                self.queries[kind] = first.prepare(query)
        self.reads = first.prepare("SELECT * FROM k.write WHERE key = ?")
        self.key, self.is_filling = 0, True
        self.control("-i", "on")
        for kind in ["write", *self.queries]:
            self.rounds(kind, 16, 16, KEYS)
        self.is_filling = False

    def request(self, kind, stream):
        self.key = (self.key + 1) % KEYS
        key = struct.pack(">Q", self.key)
        if kind == "read":
            return execute(self.reads, [key], stream)
        found_by = struct.pack(">Q", self.key // FOUND)
        if kind in self.queries and not self.is_filling:
            return execute(self.queries[kind], [found_by], stream)
        values = [os.urandom(VALUE_BYTES) for _ in range(VALUES)]
        if kind in self.queries:
            values[0] = found_by
        return execute(self.writes[kind], [key, *values], stream)

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        while Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            pass

    def rounds(self, kind, connections, in_flight, requests):
        """Returns the number of requests made, in whole rounds of one batch on each connection."""
        each = self.connections[:connections]
        rounds = max(1, requests // (connections * in_flight))
        for _ in range(rounds):
            batches = [b"".join(self.request(kind, stream) for stream in range(in_flight)) for _ in each]
            self.stop()
            for connection, batch in zip(each, batches):
                connection.socket.sendall(batch)
            os.kill(self.process.pid, signal.SIGCONT)
            for connection in each:
                for _ in range(in_flight):
                    connection.answer()
        return rounds * connections * in_flight

    def control(self, *flags):
        subprocess.run(["callgrind_control", *flags, str(self.process.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def measure(self, kind, form, requests, keep):
        """Returns instructions and task polls of the fast lane for a request."""
        self.rounds(kind, *form, requests // 4)
        for old in Path(self.folder).glob("out*"):
            old.unlink()
        self.control("-z")
        done = self.rounds(kind, *form, requests)
        self.control("-d")
        instructions, profile = max((total(path.read_text()), path) for path in Path(self.folder).glob("out*"))
        polls = calls(profile.read_text(), "async_task::raw::RawTask", "::run")
        if keep:
            shutil.copy(profile, keep)
        return instructions / done, polls / done

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def total(profile):
    return int(re.search(r"^totals: (\d+)", profile, re.MULTILINE)[1])


def calls(profile, begins, contains):
    """Returns how often functions were called whose names begin and contain so."""
    names = dict(re.findall(r"c?fn=\((\d+)\) (.+)", profile))
    found = re.findall(r"^cfn=\((\d+)\).*\ncalls=(\d+)", profile, re.MULTILINE)
    return sum(int(count) for number, count in found if names[number].startswith(begins) and contains in names[number])


def run(binary, requests, keep, also):
    """Returns what one server needs, by kind of request and form."""
    folder = tempfile.mkdtemp(prefix="fairlane-instructions-")
    server = None
    try:
        Path(folder, "clock.c").write_text(CLOCK)
        clock = f"{folder}/clock.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-DSLOWER={SLOWER}", f"{folder}/clock.c", "-o", clock], check=True)
        server = Server(binary, folder, clock, also)
        cases = [(kind, form) for kind in ("read", "write", *also) for form in FORMS]
        named = {case: keep and f"{keep}.{case[0]}.{case[1][0]}x{case[1][1]}" for case in cases}
        return {case: server.measure(*case, requests if case[1] != (1, 1) else requests // 16, named[case]) for case in cases}
    finally:
        if server:
            server.end()
        shutil.rmtree(folder)


def shown(results, case, index):
    values = [result[case][index] for result in results]
    digits = 0 if index == 0 else 3
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--requests", type=int, default=16384)
    parser.add_argument("--profiles")
    parser.add_argument("--also", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    if unknown := set(options.also) - set(ALSO):
        parser.error(f"unknown kinds {unknown}: there are {', '.join(ALSO)}")
    binaries = options.binaries
    # A, or A B B A A B B A …
    order = [index for run in range(options.runs) for index in (range(len(binaries)) if run % 2 == 0 else reversed(range(len(binaries))))]
    results = [[] for _ in binaries]
    for index in order:
        keep = options.profiles and f"{options.profiles}/{'ab'[index]}{len(results[index])}"
        results[index].append(run(binaries[index], options.requests, keep, options.also))
    for case in results[0][0]:
        kind, (connections, in_flight) = case
        cells = [f"{shown(result, case, 0)} instructions, {shown(result, case, 1)} polls" for result in results]
        if len(binaries) == 2:
            before, after = (statistics.median(one[case][0] for one in result) for result in results)
            cells.append(f"{100 * (after / before - 1):+.1f} %")
        print(f"{kind}, {connections} x {in_flight} in flight:", " | ".join(cells))


if __name__ == "__main__":
    main()
