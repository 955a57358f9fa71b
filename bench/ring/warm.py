"""A warm ring: the table is filled, and the nodes' code is compiled while they run, so that measurements begin when their times no
longer fall. What is measured is measured in the order A B B A, so that a drift of the nodes meets both."""

import math

from results import Row, latency, machine, per_s, step

WRITES = 0.2
# Windows of a warm-up, seconds, and how many of them must agree within which part. The limit is for machines on which they never do.
WINDOW_S, AGREEING, WITHIN = 10, 3, 0.1
LEAST_S, MOST_S = 60, 300


def is_steady(values):
    last = values[-AGREEING:]
    return len(last) == AGREEING and math.isfinite(max(last)) and max(last) <= (1 + WITHIN) * min(last)


def until_steady(bench, experiment, loads):
    """Runs loads in turn, windows of ten seconds each, until the p50 of three consecutive windows of each agree within 10 %. `loads`:
    functions by name that run one for a number of seconds and return its cell. Returns false if they never agreed."""
    p50, seconds, spent = {name: [] for name in loads}, bench.seconds(WINDOW_S), 0
    while spent < bench.scale * MOST_S:
        for name, run in loads.items():
            p50[name].append(latency(run(seconds), "p50"))
            spent += seconds
        if spent >= bench.scale * LEAST_S and all(map(is_steady, p50.values())):
            return True
    bench.say(f"{experiment}: not steady after {spent} s")
    return False


def warm(bench):
    """Fills the table, and warms the nodes up. Returns false if they were not."""
    bench.run("warm-up", "fill", "prefill", "--in-flight", 96, seconds=240)
    mixed = ("--in-flight", 96, "--write-ratio", WRITES)
    load = lambda seconds: bench.run("warm-up", "mixed", "mixed", *mixed, "--duration", f"{seconds}s", seconds=seconds)
    is_warm = until_steady(bench, "warm-up", {"mixed": load})
    with bench.cell("warm-up", "pages") as found:
        found["report"] = bench.finish(bench.start("scan", "--duration", f"{bench.seconds(6)}s", connections=2), 60)
        found["shown"] = f"{found['report']['page_ms_mean']:.0f} ms a page"
    return is_warm


def capacity(bench):
    """Returns the best throughput of the ring without a front, requests a second, and its row."""
    is_warm = warm(bench)
    seconds, cells = bench.seconds(6), []
    for in_flight in (48, 192, 768, 1536, 768, 192):
        flags = ("--in-flight", in_flight, "--warmup", "1s", "--duration", f"{seconds}s")
        cells.append(bench.run("capacity", f"direct, {in_flight} in flight", "read", *flags, seconds=seconds))
    best = max(cells, key=lambda cell: per_s(cell["report"]))
    rate = per_s(best["report"])
    unit = f"reads/s with {step(best)['in_flight_max']} in flight" + ("" if is_warm else ", the ring was not warm")
    return rate, [Row("capacity of the ring without a front, prepared reads", f"{rate:.0f} {machine(cells)}", unit)]
