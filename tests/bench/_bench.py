"""A server and loads for one experiment."""

import json
import os
import re
import secrets
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster


class Server:
    """`fairlane serve` on a temporary folder, ended and removed by [`Server.end`]. With `on_cpu_0` it has CPU 0 to itself and loads run on CPU 1."""

    def __init__(self, binary, *flags, on_cpu_0=False):
        self.binary, self.folder, self.password = binary, tempfile.mkdtemp(prefix="fairlane-bench-"), secrets.token_hex(16)
        self.loads, self.on_cpu_0 = [], on_cpu_0
        try:
            self.start([*flags, "--cores", "0-0"] if on_cpu_0 else flags)
        except BaseException:
            self.end()
            raise

    def start(self, flags):
        command = [self.binary, "serve", "--data-dir", os.path.join(self.folder, "data"), "--shard-aware-port", "off"]
        command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sql-listen", "127.0.0.1:0"]
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen(
            [*command, *flags], env=self.environment("ADMIN_PASSWORD"), stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        found = re.search(r"CQL (\S+:\d+), HTTP (\S+:\d+), SQL (\S+:\d+)", line)
        if not found:
            raise SystemExit(f"the server said {line!r}")
        self.cql, self.http, self.sql = found.groups()
        self.cluster = self.connect("admin")
        self.session = self.cluster.connect()

    def environment(self, variable="PASSWORD"):
        return dict(os.environ, **{f"FAIRLANE_{variable}": self.password})

    def connect(self, user):
        host, port = self.cql.rsplit(":", 1)
        return Cluster([host], port=int(port), auth_provider=PlainTextAuthProvider(user, self.password))

    def level(self, name, options=""):
        """A role and a service level of that name, one attached to the other."""
        self.session.execute(f"CREATE ROLE {name} WITH PASSWORD = '{self.password}' AND LOGIN = true AND SUPERUSER = true")
        self.session.execute(f"CREATE SERVICE LEVEL {name} {options and 'WITH'} {options}")
        self.session.execute(f"ATTACH SERVICE LEVEL {name} TO {name}")

    def load(self, user, *arguments, idle=False):
        """Begins `fairlane load`, with the idle policy if wanted; [`ended`] gives its report."""
        report = os.path.join(self.folder, f"{user}-{len(self.loads)}.json")
        hosts = self.sql if arguments[0] == "sql" else self.cql
        command = ["taskset", "-c", "1"] if self.on_cpu_0 else []
        command += ["chrt", "-i", "0"] if idle else []
        command += [self.binary, "load", *arguments, "--hosts", hosts, "--user", user, "--quiet", "--json", report]
        child = subprocess.Popen(command, env=self.environment(), stdout=subprocess.DEVNULL)
        child.report = report
        self.loads.append(child)
        return child

    def run(self, user, *arguments):
        return ended(self.load(user, *arguments))

    def fill(self, *arguments):
        """Writes the tables of `fairlane load hits` or `tpch`."""
        command = [self.binary, "load", *arguments, "--hosts", self.cql, "--user", "admin", "--quiet"]
        subprocess.run(command, env=self.environment(), stdout=subprocess.DEVNULL, check=True)

    def metrics(self):
        """Each metric with each of its sets of labels, cores summed."""
        sums = {}
        for line in urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10).read().decode().splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                series = re.sub(r'\{core="\d+"\}', "", series)
                sums[series] = sums.get(series, 0) + float(value)
        return sums

    def settle(self):
        """Waits until nothing is flushed or compacted any more, so that what is measured is measured alone. 16 MiB and more of memory that is
        not written to any more are flushed after ten seconds at most."""
        last, since = None, time.time()
        while time.time() - since < 13:
            metrics = self.metrics()
            now = [written(metrics, group) for group in ("flush", "compaction")]
            if now != last:
                last, since = now, time.time()
            time.sleep(0.25)

    def cpu_s(self):
        """CPU the server has used, seconds: the 14th and 15th field of its stat, the name behind which may have blanks."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        for child in self.loads:
            if child.poll() is None:
                child.kill()
                child.wait()
        if hasattr(self, "cluster"):
            self.cluster.shutdown()
        if hasattr(self, "process"):
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def written(metrics, group):
    """Bytes that a group has written to the disk."""
    return metrics.get(f'fairlane_disk_bytes_total{{group="{group}",direction="write"}}', 0)


def ended(load, stop=False):
    """The report of a load, waited for or stopped."""
    if stop and load.poll() is None:
        load.send_signal(signal.SIGINT)
    # 3: it was measured, and the generator was busier than it should be.
    if load.wait() not in (0, 3) and not stop:
        raise SystemExit(f"a load ended with {load.returncode}")
    with open(load.report) as file:
        report = json.load(file)
    if report.get("invalid"):
        print(f"  not to be relied on: the generator used {report['generator_cpu'] * 100:.0f} % of its CPU")
    return report


def ended_well(load, stop=False):
    """The report of a load that must have been answered in each of its steps, without errors; see [`ended`]."""
    report = ended(load, stop)
    for step in report["steps"]:
        if step["answered"] == 0 or step["errors"]:
            raise SystemExit(f"requests failed: {step['error_codes']}, {report['warnings']}")
    return report


def stopped(load):
    """Stops a load, and returns how many of its requests were answered."""
    return sum(step["answered"] for step in ended_well(load, stop=True)["steps"])


def interleaved(server, user, reads, rate, begin_other, end_other=stopped, guard_s=2, phase_s=6, rounds=5):
    """One open loop of `reads` at this rate throughout, alone (A) and beside another load (B) in short phases, A B B A A B …: of each only the time
    after the guard counts. Prints and returns each phase, and the ratios beside over alone of neighbours: pauses of the host, which make one
    p99 alone vary by a factor of ten, then fall on both alike."""
    phases = ["A", "B", "B", "A"] * rounds
    steps = ",".join(f"{rate}:{guard_s}s,{rate}:{phase_s}s" for _ in phases)
    steady = server.load(user, *reads, "--rate", steps)
    other, asked, at = None, 0, time.time()
    for phase in phases:
        if phase == "B" and other is None:
            other = begin_other()
        if phase == "A" and other is not None:
            asked += end_other(other)
            other = None
        at += guard_s + phase_s
        time.sleep(max(0, at - time.time()))
    outcome = ended_well(steady)

    measured = []
    for phase, step in zip(phases, outcome["steps"][1::2]):
        latency = step["reads"]["latency"]
        seen = {name: latency[f"{name}_us"] for name in ("p50", "p95", "p99", "p999")} | {"answered": step["answered"] / step["due"]}
        measured.append({"phase": phase, **seen})
        print(phase, *(f"{name} {seen[name]:.0f} us" for name in ("p50", "p95", "p99", "p999")), f"{seen['answered'] * 100:.2f} % answered", flush=True)
    pairs = [(x, y) if x["phase"] == "A" else (y, x) for x, y in zip(measured, measured[1:]) if x["phase"] != y["phase"]]
    ratios = {}
    for what in ("p50", "p95", "p99", "p999", "answered"):
        ratios[what] = [beside[what] / alone[what] for alone, beside in pairs]
        alone, beside = (statistics.median(seen[what] for seen in measured if seen["phase"] == phase) for phase in "AB")
        print(
            f"{what}, beside over alone: median {statistics.median(ratios[what]):.4f} of {len(pairs)} pairs, "
            f"{min(ratios[what]):.2f} to {max(ratios[what]):.2f}; medians {beside:.4g} over {alone:.4g}"
        )
    print(f"the sender used {outcome['generator_cpu'] * 100:.0f} % of its core; the other load was answered {asked} times")
    return {"phases": measured, "ratios": ratios, "others_answered": asked, "generator_cpu": outcome["generator_cpu"]}
