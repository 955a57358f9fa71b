"""A ring, fronts before it, and loads on it. The nodes share CPU 1; fronts, loads and this program share CPU 0. A *cell* is one
measurement, with the use of the CPUs meanwhile."""

import contextlib
import json
import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

from _ring import Ring
from _server import PASSWORD, Server
from fleet import cluster as pinned
from machine import Use

BINARY = os.environ["FAIRLANE_BIN"]
NODES_CPU, LOADS_CPU = 1, 0
# Connections of a load: eight a node, as many through the front.
CONNECTIONS = 24
ROWS = 50_000
KEYSPACE = "keyspace1"
# Roles beside `admin`, each with a service level of its name in experiments that say so.
ROLES = ("a", "b", "c")
START_S = 30
# Phrases of the log of a front whose machine is busy.
BUSY = ("starved:", "late wake-ups", "slow statement", "open files", "files may be open")
# Time for a load beyond its own: connecting, and waiting for late answers.
LOAD_EXTRA_S = 60


class Front:
    """A front before the ring on CPU 0, until the end of the block. Fronts of one `fleet` act as one. After [`Front.crash`],
    [`Front.start`] serves at the same address."""

    def __init__(self, bench, window=128, timeout_ms=10_000, levels=(), fleet=None, more=()):
        self.bench, self.window, self.levels, self.hosts = bench, window, levels, "127.0.0.1:0"
        self.log = Path(bench.folder, f"front{time.monotonic_ns()}.log")
        self.command = ["taskset", "-c", str(LOADS_CPU), BINARY, "serve", "--engine", "cluster", "--contact", bench.ring.contacts()]
        # Levels outlive a front in the keyspace of its fleet: each has one of its own.
        self.command += ["--fleet-keyspace", fleet or f"fleet_{time.monotonic_ns()}", "--cluster-user", "admin"]
        self.command += ["--cores", f"{LOADS_CPU}-{LOADS_CPU}", "--memory", "512MiB", "--http-listen", "127.0.0.1:0"]
        self.command += ["--node-window", str(window), "--request-timeout-ms", str(timeout_ms), *more]

    def __enter__(self):
        self.bench.fronts.append(self)
        try:
            self.start()
            self.cluster = pinned(self)
            self.session = self.cluster.connect()
            for name, options in self.levels:
                self.session.execute(f"CREATE SERVICE LEVEL {name} WITH {options}")
                self.session.execute(f"ATTACH SERVICE LEVEL {name} TO {name}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        environment["FAIRLANE_CLUSTER_PASSWORD"] = PASSWORD
        command = [*self.command, "--listen", self.hosts]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.bench.folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], START_S)[0] else ""
        found = re.search(r"is ready: CQL (\S+:\d+), HTTP (\S+:\d+)(?:, SQL (\S+:\d+))?", line)
        if not found:
            raise AssertionError(f"expected the line of a ready front within {START_S} s, got {line!r}: {self.log.read_text()}")
        self.hosts, self.http, self.sql = found.groups()
        self.host, port = self.hosts.rsplit(":", 1)
        self.port = int(port)

    crash = Server.crash

    def nodes(self):
        """Returns requests, occupancy and waiting requests of each level over all nodes, the windows, and the rows behind them."""
        levels, windows, rows = {}, {}, list(self.session.execute("SELECT * FROM system.nodes"))
        for row in rows:
            windows[row.node] = row.window
            sums = levels.get(row.service_level, (0, 0, 0))
            levels[row.service_level] = tuple(map(sum, zip(sums, (row.requests, row.occupancy_us, row.queued))))
        return {"s": time.monotonic(), "levels": levels, "windows": sorted(windows.values()), "rows": [row._asdict() for row in rows]}

    def complaints(self):
        """Returns the warnings and errors in the log, without those of a busy machine."""
        lines = [line for line in self.log.read_text().splitlines() if " warn " in line or " error " in line or "panic" in line]
        return [line for line in lines if not any(phrase in line for phrase in BUSY)]

    def __exit__(self, *_):
        self.bench.fronts.remove(self)
        with contextlib.suppress(AttributeError):
            self.cluster.shutdown()
        with contextlib.suppress(AttributeError):
            self.process.terminate()
            try:
                self.process.wait(START_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()


@contextlib.contextmanager
def two_fronts(bench, levels=(), **options):
    """Two fronts that act as one."""
    fleet = f"fleet_{time.monotonic_ns()}"
    with Front(bench, levels=levels, fleet=fleet, **options) as first, Front(bench, fleet=fleet, **options) as second:
        yield [first, second]


class Bench:
    """A ring of one node for each letter of `datacenters`, with its table. Its nodes share a CPU if times are measured. `scale`
    shortens all times. `began`: start of the run. `minutes`: time of a soak."""

    def __init__(self, datacenters, is_timed, scale, began, minutes):
        self.datacenters, self.is_timed, self.scale, self.began, self.minutes = datacenters, is_timed, scale, began, minutes
        self.cells, self.fronts, self.loads = [], [], []

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        try:
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-ring-loads-"))
            self.use = Use([])
            if self.datacenters:
                self.say(f"starting nodes in datacenters {', '.join(self.datacenters)}")
                cpu = NODES_CPU if self.is_timed else None
                self.ring = self.stack.enter_context(Ring(tuple(self.datacenters), cpu=cpu))
                self.use = Use(self.ring.nodes)
                self.create()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *failure):
        for process in self.loads:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self.stack.__exit__(*failure)

    def say(self, text):
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def create(self):
        with self.ring.nodes[0].cluster() as cluster:
            session = cluster.connect()
            session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {self.ring.replication()}")
            columns = ", ".join(f'"C{n}" blob' for n in range(5))
            session.execute(f"CREATE TABLE {KEYSPACE}.standard1 (key blob PRIMARY KEY, {columns})")
            for role in ROLES:
                session.execute(f"CREATE ROLE {role} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true")
                for permission in ("SELECT", "MODIFY"):
                    session.execute(f"GRANT {permission} ON KEYSPACE {KEYSPACE} TO {role}")

    def seconds(self, full):
        return max(4, round(full * self.scale))

    def start(self, workload, *flags, user="admin", connections=CONNECTIONS, hosts=None):
        """Starts a load on the fronts if there are any, else on the nodes. Returns its process and the file of its report."""
        hosts = hosts or ",".join(front.hosts for front in self.fronts) or self.ring.contacts()
        words = [workload, "--connections", str(connections)]
        if workload != "scan":
            words += ["--keys", str(ROWS), "--consistency", "LOCAL_ONE", "--no-create"]
        return self.launch([*words, "--hosts", hosts, "--user", user, *map(str, flags)])

    def start_sql(self, front, query, *flags, user="admin"):
        """Starts a load of one SQL query on a front."""
        path = Path(self.folder, f"query{time.monotonic_ns()}.sql")
        path.write_text(query)
        return self.launch(["sql", "--queries", str(path), "--hosts", front.sql, "--user", user, *map(str, flags)])

    def launch(self, words):
        handle, path = tempfile.mkstemp(suffix=".json", dir=self.folder)
        os.close(handle)
        command = ["taskset", "-c", str(LOADS_CPU), BINARY, "load", *words, "--json", path, "--quiet"]
        environment = dict(os.environ, FAIRLANE_PASSWORD=PASSWORD)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.loads.append(process)
        return process, path

    def finish(self, started, seconds):
        """Waits for a load and returns its report. A report with a generator above 80 % of the CPU says `invalid`."""
        process, path = started
        try:
            _, complaint = process.communicate(timeout=seconds + LOAD_EXTRA_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"a load took longer than {seconds + LOAD_EXTRA_S} s") from None
        if process.returncode not in (0, 3):
            raise AssertionError(f"a load ended with {process.returncode}: {complaint}")
        return json.loads(Path(path).read_text())

    @contextlib.contextmanager
    def cell(self, experiment, variant):
        """A measurement. The block puts its results into the yielded dictionary."""
        found = {"experiment": experiment, "variant": variant}
        self.use.begin(time.monotonic(), self.fronts)
        yield found
        found["use"] = self.use.end(time.monotonic(), self.fronts)
        self.cells.append(found)
        use = found["use"]
        shown = found.get("shown", "")
        self.say(
            f"{experiment}, {variant}: {shown}  [CPU: nodes {use['nodes']:.0%}, front {use['front']:.0%}, loads {use['loads']:.0%}, "
            f"others {use['others']:.0%}, steal {use['steal']:.0%}; load average {use['load_average']:.1f}]"
        )

    def run(self, experiment, variant, workload, *flags, seconds, **more):
        """Runs one load as a cell and returns the cell with its `report`."""
        with self.cell(experiment, variant) as found:
            found["report"] = self.finish(self.start(workload, *flags, **more), seconds)
            found["shown"] = shown(found["report"])
        return found


def shown(report):
    step = report["steps"][-1]
    latency = (step["reads"] or step["writes"] or {}).get("latency", {})
    text = f"{step['throughput_per_s']:.0f}/s"
    if latency:
        text += f", p50 {latency['p50_us'] / 1000:.2f} ms, p99 {latency['p99_us'] / 1000:.2f} ms"
    return text + (", invalid" if report["invalid"] else "")
