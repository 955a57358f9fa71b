"""Interactive latency beside an unlimited batch load, over alone, in short interleaved phases (A B B A …).

    cargo run --release -- serve --cores 0, --listen 127.0.0.1:9142 --shard-aware-port off      # on a fresh folder
    target/venv/bin/python tests/bench/interleaved.py target/release/fairlane 127.0.0.1:9142 ADMIN_PASSWORD 20000

The server has CPU 0, both loads CPU 1, the batch load there with the idle policy. One open loop of single-row reads runs throughout, at the rate
given; a closed loop of 256 slices of 100 rows comes and goes. Of each phase only the last six seconds count. Printed: each phase, and the median
and spread of the ratios of neighbouring phases. `cargo xtask clients` makes the environment with the driver.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

GUARD_S, PHASE_S, ROUNDS = 2, 6, 5
SLICES = ["slice", "--keys", "2000", "--rows-per-partition", "100", "--columns", "1"]
SETUP = [
    "CREATE ROLE interactive WITH PASSWORD = '{0}' AND LOGIN = true AND SUPERUSER = true",
    "CREATE ROLE analytics WITH PASSWORD = '{0}' AND LOGIN = true AND SUPERUSER = true",
    "CREATE SERVICE LEVEL interactive WITH shares = 1000",
    "CREATE SERVICE LEVEL analytics WITH shares = 10",
    "ATTACH SERVICE LEVEL interactive TO interactive",
    "ATTACH SERVICE LEVEL analytics TO analytics",
]


def main(binary, address, password, rate):
    env = dict(os.environ, FAIRLANE_PASSWORD=password)
    folder = tempfile.mkdtemp()

    def command(user, *arguments, idle=False):
        policy = ["chrt", "-i", "0"] if idle else []
        return ["taskset", "-c", "1", *policy, binary, "load", *arguments, "--hosts", address, "--user", user, "--quiet"]

    def run(*arguments):
        subprocess.run(command("admin", *arguments), env=env, check=True, stdout=subprocess.DEVNULL)

    host, port = address.rsplit(":", 1)
    cluster = Cluster([host], port=int(port), auth_provider=PlainTextAuthProvider("admin", password))
    session = cluster.connect()
    for statement in SETUP:
        session.execute(statement.format(password))
    cluster.shutdown()
    run("prefill", "--keys", "100000")
    run("prefill", *SLICES[1:])

    phases = ["A", "B", "B", "A"] * ROUNDS
    steps = ",".join(f"{rate}:{GUARD_S}s,{rate}:{PHASE_S}s" for _ in phases)
    report = os.path.join(folder, "interactive.json")
    interactive = subprocess.Popen(command("interactive", "read", "--rate", steps, "--json", report), env=env, stdout=subprocess.DEVNULL)
    batch, at = None, time.time()
    try:
        for phase in phases:
            if phase == "B" and batch is None:
                batch = subprocess.Popen(
                    command("analytics", *SLICES, "--no-create", "--in-flight", "256", "--duration", "600s", idle=True),
                    env=env, stdout=subprocess.DEVNULL,
                )  # fmt: skip
            if phase == "A" and batch is not None:
                batch.send_signal(signal.SIGINT)
                batch.wait(30)
                batch = None
            at += GUARD_S + PHASE_S
            time.sleep(max(0, at - time.time()))
        interactive.wait(60)
    finally:
        for child in (batch, interactive):
            if child is not None and child.poll() is None:
                child.kill()

    with open(report) as file:
        outcome = json.load(file)
    measured = list(zip(phases, outcome["steps"][1::2]))
    for phase, step in measured:
        latency = step["reads"]["latency"]
        print(phase, *(f"{name} {latency[name + '_us']:.0f} us" for name in ("p50", "p95", "p99")), f"{step['throughput_per_s']:.0f}/s")
    pairs = [(x, y) if x[0] == "A" else (y, x) for x, y in zip(measured, measured[1:]) if x[0] != y[0]]
    for what, value in (
        ("p50", lambda step: step["reads"]["latency"]["p50_us"]),
        ("p99", lambda step: step["reads"]["latency"]["p99_us"]),
        ("throughput", lambda step: step["throughput_per_s"]),
    ):
        ratios = [value(beside) / value(alone) for (_, alone), (_, beside) in pairs]
        print(f"{what}, beside over alone: median {statistics.median(ratios):.4f} of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"the sender used {outcome['generator_cpu'] * 100:.0f} % of its core")


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
