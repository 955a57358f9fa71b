"""Costs of a front: its CPU for a request, and the latency that it adds.

    ~/.cache/fairlane/target/venv/bin/python tests/bench/front.py [BINARY] [--node BINARY] [--seconds S] [--runs N] [--rate RATE] [--json FILE]

Without BINARY, that of `FAIRLANE_BIN` is measured. The node is our own server on CPU 1, of the same binary or of that of --node, built with SQL. The front and the load are on CPU 0. Loads are reads and writes by key with prepared statements over 16 connections, in the order
direct, through, through, direct, so that a drift of the machine falls on both alike. --runs repeats that order. Two parts:

1. A closed loop of 16 requests on each connection: requests a second, and the CPU (user and system) of the processes for a request.
2. An open loop at --rate, or at half of what both ways answered in part 1: p50 and p99.

Each line is one load, and medians follow. `cargo xtask clients` makes the environment with the driver.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
from pathlib import Path

from _bench import Server, ended_well

CONNECTIONS, DEPTH = 16, 16
ORDER = ("direct", "through", "through", "direct")
# Time before latencies count, in which plans and connections to nodes are made.
WARMUP = "1s"


class Front(Server):
    """`fairlane serve --engine cluster` before a server, with its roles."""

    def __init__(self, binary, node):
        self.node = node
        super().__init__(binary, "--cores", "0-0")

    def start(self, flags):
        self.password = self.node.password
        command = [self.binary, "serve", "--engine", "cluster", "--contact", self.node.cql, "--cluster-user", "admin"]
        command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        environment["FAIRLANE_CLUSTER_PASSWORD"] = self.password
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen([*command, *flags], env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"CQL (\S+:\d+), HTTP (\S+:\d+)", line)
        if not found:
            raise SystemExit(f"the front said {line!r}: {Path(self.folder, 'log').read_text()}")
        self.cql, self.http = found.groups()


def cpu_s(server):
    """User and system CPU that a process has used, seconds."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]]


def cost(options, servers, kind, way):
    """A closed loop: requests a second, and the CPU of each server for a request, us."""
    before = {name: cpu_s(server) for name, server in servers.items()}
    flags = [kind, "--no-create", "--keys", options.keys, "--connections", str(CONNECTIONS), "--streams", str(DEPTH)]
    load = servers["node" if way == "direct" else "front"].load("admin", *flags, "--in-flight", str(CONNECTIONS * DEPTH), "--duration", f"{options.seconds}s")
    step = ended_well(load)["steps"][0]
    seen = {"kind": kind, "way": way, "per_s": step["throughput_per_s"], "load_us": step["generator_us_per_request"]}
    for name, server in servers.items():
        user, system = ((now - then) / step["answered"] * 1e6 for then, now in zip(before[name], cpu_s(server)))
        seen |= {f"{name}_user_us": user, f"{name}_system_us": system, f"{name}_us": user + system}
    front = f"front {seen['front_us']:5.2f} us (user {seen['front_user_us']:.2f}, system {seen['front_system_us']:.2f})"
    print(
        f"{kind:5} {way:7} {seen['per_s']:8.0f}/s  {front if way == 'through' else '':41}"
        f"  node {seen['node_us']:5.2f} us  load {seen['load_us']:5.2f} us",
        flush=True,
    )
    return seen


def latency(options, servers, kind, way, rate):
    """An open loop: p50 and p99, us."""
    flags = [kind, "--no-create", "--keys", options.keys, "--connections", str(CONNECTIONS), "--rate", f"{rate:.0f}"]
    load = servers["node" if way == "direct" else "front"].load("admin", *flags, "--warmup", WARMUP, "--duration", f"{options.seconds}s")
    step = ended_well(load)["steps"][0]
    found = step[f"{kind}s"]["latency"]
    seen = {"kind": kind, "way": way, "rate": rate, "answered": step["answered"] / step["due"]}
    seen |= {"p50_us": found["p50_us"], "p99_us": found["p99_us"]}
    print(
        f"{kind:5} {way:7} {rate:8.0f}/s  p50 {seen['p50_us']:6.0f} us  p99 {seen['p99_us']:7.0f} us  {seen['answered'] * 100:.2f} % answered",
        flush=True,
    )
    return seen


def median(loads, what, **those):
    return statistics.median(load[what] for load in loads if all(load[name] == value for name, value in those.items()))


def measured(options, servers):
    costs = [cost(options, servers, kind, way) for kind in ("read", "write") for way in ORDER * options.runs]
    latencies = []
    for kind in ("read", "write"):
        capacity = min(median(costs, "per_s", kind=kind, way=way) for way in set(ORDER))
        rate = options.rate or capacity / 2
        latencies += [latency(options, servers, kind, way, rate) for way in ORDER * options.runs]
    for kind in ("read", "write"):
        through = {what: median(costs, what, kind=kind, way="through") for what in ("front_us", "per_s")}
        spread = [load["front_us"] for load in costs if load["kind"] == kind and load["way"] == "through"]
        direct, p = median(costs, "per_s", kind=kind, way="direct"), {}
        for what in ("p50_us", "p99_us"):
            p[what] = [median(latencies, what, kind=kind, way=way) for way in ("direct", "through")]
        print(
            f"{kind}: front {through['front_us']:.2f} us ({min(spread):.2f} to {max(spread):.2f}) of {len(spread)} loads, "
            f"{through['per_s']:.0f}/s through, {direct:.0f}/s direct; p50 {p['p50_us'][1] - p['p50_us'][0]:+.0f} us, "
            f"p99 {p['p99_us'][1]:.0f} over {p['p99_us'][0]:.0f} us = {p['p99_us'][1] / p['p99_us'][0]:.2f}"
        )
    return {"costs": costs, "latencies": latencies}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default=os.environ.get("FAIRLANE_BIN"))
    parser.add_argument("--node")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keys", default="100000")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.binary is None:
        parser.error("expected BINARY, or FAIRLANE_BIN")
    # Neither a setting nor a variable of the servers.
    os.environ.pop("FAIRLANE_BIN", None)
    servers = {}
    try:
        servers["node"] = node = Server(options.node or options.binary, "--cores", "1-1")
        # What is started from here on is on CPU 0, with one load generator for both ways.
        os.sched_setaffinity(0, {0})
        node.binary = options.binary
        servers["front"] = Front(options.binary, node)
        node.run("admin", "prefill", "--keys", options.keys, "--in-flight", "128")
        seen = measured(options, servers)
    finally:
        for server in reversed(servers.values()):
            server.end()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(seen, file, indent=2)


if __name__ == "__main__":
    main()
