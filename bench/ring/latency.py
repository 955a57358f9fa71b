"""CPU of a front for a request, and the latency that it adds."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench import BINARY, Front
from results import Row, judged, latency, machine, spread
from warm import until_steady

# Rate of the probe, as a part of the capacity.
HALF = 0.5
SCRIPT = Path(__file__).resolve().parent.parent.parent / "tests" / "bench" / "front.py"
# Longest run of the script, seconds.
SCRIPT_S = 600


def cpu(bench, _rate):
    """The front's CPU for a request, with our own server as the node: 16 connections, 16 requests in flight on each."""
    path = Path(bench.folder, "front.json")
    command = [sys.executable, str(SCRIPT), BINARY, "--node", BINARY, "--seconds", str(bench.seconds(6)), "--runs", "2", "--json", str(path)]
    with bench.cell("cpu", "our own server as the node") as found:
        subprocess.run(command, check=True, timeout=SCRIPT_S, stdout=subprocess.DEVNULL)
        found["costs"] = json.loads(path.read_text())["costs"]
        by = {kind: [cost["front_us"] for cost in found["costs"] if cost["kind"] == kind and cost["way"] == "through"] for kind in ("read", "write")}
        found["shown"] = ", ".join(f"{kind} {spread(values)} us" for kind, values in by.items())
    # The server is not a node of the ring: its CPU is that of *others*, so that nothing of this machine's use decides. CPU time
    # of the front is no wall clock.
    found["use"] = {name: 0.0 for name in found["use"]}
    return [Row(f"CPU of the front a prepared {kind}", spread(values), "µs", "≤ 5", judged(values, [found], most=5)) for kind, values in by.items()]


def added_latency(bench, rate):
    """p50 and p99 through the front beside direct, at half of the capacity, once both are warm."""
    seconds, by = bench.seconds(12), {"direct": [], "through": []}
    with Front(bench) as front:
        hosts = {"direct": bench.ring.contacts(), "through": front.hosts}

        def run(variant, seconds, name="added latency"):
            flags = ("--rate", f"{rate * HALF:.0f}", "--warmup", "2s", "--duration", f"{seconds}s")
            return bench.run(name, variant, "read", *flags, seconds=seconds + 2, hosts=hosts[variant])

        ways = {variant: lambda seconds, variant=variant: run(variant, seconds, "added latency, warm-up") for variant in hosts}
        is_warm = until_steady(bench, "added latency", ways)
        for variant in ("direct", "through", "through", "direct") * 2:
            by[variant].append(run(variant, seconds))
    cells = by["direct"] + by["through"]
    pairs, cold = list(zip(by["direct"], by["through"])), "" if is_warm else ", not steady before"
    added = [latency(through, "p50") - latency(direct, "p50") for direct, through in pairs]
    ratios = [latency(through, "p99") / latency(direct, "p99") for direct, through in pairs]
    p50, p99 = (statistics.median(latency(cell, name) for cell in by["direct"]) / 1000 for name in ("p50", "p99"))
    return [
        Row(
            f"latency that the front adds at half of the capacity ({rate * HALF:.0f} reads/s; direct {p50:.2f} ms{cold}), p50",
            f"{spread(added, '{:.0f}')} {machine(cells)}", "µs", "≤ 150", judged(added, cells, most=150) if is_warm else "undecided",
        ),
        Row(
            f"p99 through the front over direct ({p99:.1f} ms), at half of the capacity",
            f"{spread(ratios)} {machine(cells)}", "", "≤ 1.1", judged(ratios, cells, most=1.1) if is_warm else "undecided",
        ),
    ]  # fmt: skip
