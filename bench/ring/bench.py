"""The ring, fronts before it, and loads on it. The nodes share CPU 1; fronts, loads and this program share CPU 0. A *cell* is one
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

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from _ring import Ring
from _server import PASSWORD
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
# Time for a load beyond its own: connecting, and waiting for late answers.
LOAD_EXTRA_S = 60


class Front:
    """A front before the ring on CPU 0, until the end of the block."""

    def __init__(self, bench, window=128, timeout_ms=10_000, levels=()):
        self.bench, self.window, self.levels = bench, window, levels
        self.command = ["taskset", "-c", str(LOADS_CPU), BINARY, "serve", "--engine", "cluster", "--contact", bench.ring.contacts()]
        # Levels outlive a front in the keyspace of its fleet: each has one of its own.
        self.command += ["--fleet-keyspace", f"fleet_{time.monotonic_ns()}", "--cluster-user", "admin", "--cores", f"{LOADS_CPU}-{LOADS_CPU}", "--memory", "512MiB"]
        self.command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        self.command += ["--node-window", str(window), "--request-timeout-ms", str(timeout_ms)]

    def __enter__(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        environment["FAIRLANE_CLUSTER_PASSWORD"] = PASSWORD
        folder = self.bench.folder
        with open(Path(folder, "front.log"), "a") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], START_S)[0] else ""
            found = re.search(r"is ready: CQL (\S+?),", line)
            if not found:
                raise AssertionError(f"expected the line of a ready front within {START_S} s, got {line!r}")
            self.hosts = found[1]
            host, port = self.hosts.rsplit(":", 1)
            self.cluster = Cluster([host], port=int(port), auth_provider=PlainTextAuthProvider("admin", PASSWORD), protocol_version=5)
            self.session = self.cluster.connect()
            for name, options in self.levels:
                self.session.execute(f"CREATE SERVICE LEVEL {name} WITH {options}")
                self.session.execute(f"ATTACH SERVICE LEVEL {name} TO {name}")
        except BaseException:
            self.__exit__()
            raise
        self.bench.front = self
        return self

    def nodes(self):
        """Returns requests, occupancy and waiting requests of each level over all nodes, the windows, and the rows behind them."""
        levels, windows, rows = {}, {}, list(self.session.execute("SELECT * FROM system.nodes"))
        for row in rows:
            windows[row.node] = row.window
            sums = levels.get(row.service_level, (0, 0, 0))
            levels[row.service_level] = tuple(map(sum, zip(sums, (row.requests, row.occupancy_us, row.queued))))
        return {"s": time.monotonic(), "levels": levels, "windows": sorted(windows.values()), "rows": [row._asdict() for row in rows]}

    def __exit__(self, *_):
        self.bench.front = None
        with contextlib.suppress(AttributeError):
            self.cluster.shutdown()
        self.process.terminate()
        try:
            self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Bench:
    """The ring with its table. `scale` shortens all times."""

    def __init__(self, scale):
        self.scale, self.cells, self.front, self.began = scale, [], None, time.monotonic()
        self.loads = []

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        try:
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-ring-loads-"))
            self.say("starting three nodes")
            self.ring = self.stack.enter_context(Ring(("a", "a", "a"), cpu=NODES_CPU))
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

    def start(self, workload, *flags, user="admin", connections=CONNECTIONS):
        """Starts a load on the front if there is one, else on the nodes. Returns its process and the file of its report."""
        hosts = self.front.hosts if self.front else self.ring.contacts()
        handle, path = tempfile.mkstemp(suffix=".json", dir=self.folder)
        os.close(handle)
        command = ["taskset", "-c", str(LOADS_CPU), BINARY, "load", workload, "--hosts", hosts, "--user", user, "--json", path, "--quiet"]
        command += ["--connections", str(connections)]
        if workload != "scan":
            command += ["--keys", str(ROWS), "--consistency", "LOCAL_ONE", "--no-create"]
        command += map(str, flags)
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
        self.use.begin(time.monotonic(), self.front)
        yield found
        found["use"] = self.use.end(time.monotonic(), self.front)
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
