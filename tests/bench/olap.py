"""What levels do for SQL beside SQL, one experiment a command; see docs/benchmarks.md.

    target/venv/bin/python tests/bench/olap.py target/release/fairlane EXPERIMENT [--rows N] [--scale S] [--seconds S] [--json FILE]

EXPERIMENT is one of

    shares       two clients that run ClickBench's Q23 without pause, shares 2:1 and then in one level: the ratio of their throughputs
    cap          Q10 without pause by 1, 2 and 4 connections in a level with cpu_limit = '50%': the server's CPU, as a share of its cores
    latency      a client of short queries beside another whose concurrency goes 1, 2, 4, 8, each in a level of its own and then both
                 in one: how its latency grows

Each starts a server of its own on a temporary folder, which is removed in the end, and fills it with `fairlane load hits` (made-up rows) and
`fairlane load tpch`. The clients are `fairlane load sql`. `cargo xtask clients` makes the environment with the driver.
"""

import argparse
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
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

QUERIES = Path(__file__).resolve().parent.parent.parent / "crates/load/queries"
CLICKBENCH = (str(QUERIES / "clickbench"), "clickbench")
TPCH = (str(QUERIES / "tpch"), "tpch")
# Left out at the beginning of every run: connections, plans and caches.
WARMUP_S = 5


class Server:
    """`fairlane serve` on all CPUs and a temporary folder, with two roles, `first` and `second`."""

    def __init__(self, binary, *flags):
        self.binary, self.folder, self.password = binary, tempfile.mkdtemp(prefix="fairlane-bench-"), secrets.token_hex(16)
        self.loads = []
        try:
            self.start(flags)
        except BaseException:
            self.end()
            raise

    def start(self, flags):
        command = [self.binary, "serve", "--data-dir", os.path.join(self.folder, "data"), "--shard-aware-port", "off"]
        command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sql-listen", "127.0.0.1:0"]
        self.log = open(os.path.join(self.folder, "log"), "w")
        env = dict(os.environ, FAIRLANE_ADMIN_PASSWORD=self.password)
        self.process = subprocess.Popen([*command, *flags], env=env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"CQL (\S+:\d+), .*SQL (\S+:\d+)", line)
        if not found:
            raise SystemExit(f"the server said {line!r}")
        self.cql, self.sql = found.groups()
        host, port = self.cql.rsplit(":", 1)
        self.cluster = Cluster([host], port=int(port), auth_provider=PlainTextAuthProvider("admin", self.password))
        self.session = self.cluster.connect()
        for role in ("first", "second"):
            self.session.execute(f"CREATE ROLE {role} WITH PASSWORD = '{self.password}' AND LOGIN = true AND SUPERUSER = true")
            self.session.execute(f"CREATE SERVICE LEVEL {role}")

    def levels(self, first="shares = 1000", second="shares = 1000"):
        """Each role in a level of its own, with these options."""
        for role, options in (("first", first), ("second", second)):
            self.session.execute(f"ALTER SERVICE LEVEL {role} WITH {options}")
            self.session.execute(f"ATTACH SERVICE LEVEL {role} TO {role}")

    def one_level(self):
        for role in ("first", "second"):
            self.session.execute(f"DETACH SERVICE LEVEL FROM {role}")

    def fill(self, *arguments):
        command = [self.binary, "load", *arguments, "--hosts", self.cql, "--user", "admin", "--quiet"]
        subprocess.run(command, env=dict(os.environ, FAIRLANE_PASSWORD=self.password), stdout=subprocess.DEVNULL, check=True)

    def load(self, user, source, only, concurrency, seconds):
        """Begins a load; [`ended`] gives its report."""
        report = os.path.join(self.folder, f"{user}-{len(self.loads)}.json")
        command = [self.binary, "load", "sql", "--hosts", self.sql, "--user", user, "--quiet", "--json", report]
        command += ["--queries", source[0], "--search-path", source[1], "--only", only, "--concurrency", str(concurrency)]
        command += ["--warmup", str(WARMUP_S), "--duration", str(seconds)]
        child = subprocess.Popen(command, env=dict(os.environ, FAIRLANE_PASSWORD=self.password), stdout=subprocess.DEVNULL)
        child.report = report
        self.loads.append(child)
        return child

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


def ended(load, stop=False):
    if stop and load.poll() is None:
        load.send_signal(signal.SIGINT)
    if load.wait() != 0 and not stop:
        raise SystemExit(f"a load ended with {load.returncode}")
    with open(load.report) as file:
        report = json.load(file)
    (step,) = report["steps"]
    if step["answered"] == 0 or step["errors"]:
        raise SystemExit(f"queries failed: {step['error_codes']}, {report['warnings']}")
    return step


def shares(server, arguments):
    def ratio():
        both = [server.load(role, CLICKBENCH, "q23", 1, arguments.seconds) for role in ("first", "second")]
        first, second = (ended(load)["throughput_per_s"] for load in both)
        return {"first_per_s": first, "second_per_s": second, "ratio": first / second}

    server.levels("shares = 1000", "shares = 500")
    with_levels = ratio()
    server.one_level()
    without = ratio()
    print(f"shares 2:1: {with_levels['ratio']:.3f}; in one level: {without['ratio']:.3f}")
    return {"levels": with_levels, "one_level": without}


def cap(server, arguments):
    server.levels("shares = 1000 AND cpu_limit = '50%'")
    found = {}
    for concurrency in (1, 2, 4):
        load = server.load("first", CLICKBENCH, "q10", concurrency, arguments.seconds)
        time.sleep(WARMUP_S)
        begun, used = time.monotonic(), server.cpu_s()
        time.sleep(arguments.seconds - 1)
        share = (server.cpu_s() - used) / (time.monotonic() - begun) / len(os.sched_getaffinity(server.process.pid))
        found[concurrency] = {"server_cpu": share, "queries_per_s": ended(load)["throughput_per_s"]}
        print(f"{concurrency} connections: {share * 100:.1f} % of the server's CPU")
    return found


def latency(server, arguments):
    def short(source, only):
        return ended(server.load("first", source, only, 1, arguments.seconds))["queries"]

    def grown(source, only):
        alone, rows = {query["name"]: query["latency"]["p50_us"] for query in short(source, only)}, []
        for concurrency in (1, 2, 4, 8):
            other = server.load("second", source, only, concurrency, 100 * arguments.seconds)
            time.sleep(WARMUP_S)
            now = {query["name"]: query["latency"]["p50_us"] for query in short(source, only)}
            ended(other, stop=True)
            rows.append({"concurrency": concurrency, "over_alone": {name: now[name] / alone[name] for name in alone}})
        median = [statistics.median(row["over_alone"].values()) for row in rows]
        text = ", ".join(f"{row['concurrency']}: {value:.2f}" for row, value in zip(rows, median))
        print(f"  {only}: over alone, beside {text}; grown by {median[-1] / median[0]:.2f} from 1 to 8")
        return rows

    found = {}
    for name, begin in (("levels", server.levels), ("one level", server.one_level)):
        begin()
        print(name)
        found[name] = {only: grown(source, only) for source, only in ((CLICKBENCH, "q15,q17,q23"), (TPCH, "q03,q07,q19"))}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("experiment", choices=["shares", "cap", "latency"])
    parser.add_argument("--rows", type=int, default=500_000, help="rows of hits")
    parser.add_argument("--scale", default="0.1", help="scale of TPC-H")
    parser.add_argument("--seconds", type=int, default=30, help="of each run")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    server = Server(arguments.binary)
    try:
        server.fill("hits", "--rows", str(arguments.rows))
        if arguments.experiment == "latency":
            server.fill("tpch", "--scale", arguments.scale)
        found = {"shares": shares, "cap": cap, "latency": latency}[arguments.experiment](server, arguments)
    finally:
        server.end()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
