"""Shares of levels, as operations and as occupancy, on one front and on two."""

import time
from contextlib import ExitStack, nullcontext

from bench import Front, two_fronts
from results import Row, judged, machine, pair, per_s, together
from warm import WRITES

# Requests in flight of each level, which keep every window full.
LEVEL_BACKLOG = 512
# Longest wait for a backlog, seconds.
BACKLOG_S = 20
SETS = {"1:2": {"a": 200, "b": 400}, "1:4": {"a": 200, "b": 800}, "200:400:800": {"a": 200, "b": 400, "c": 800}}


def totals(fronts):
    """Returns the counters of fronts together, as [`Front.nodes`] does those of one."""
    found = [front.nodes() for front in fronts]
    levels = {}
    for one in found:
        for name, counts in one["levels"].items():
            levels[name] = tuple(map(sum, zip(levels.get(name, (0, 0, 0)), counts)))
    return {"s": found[-1]["s"], "levels": levels, "windows": found[0]["windows"], "rows": [row for one in found for row in one["rows"]]}


def backlogged(fronts, shares):
    """Waits until requests of every level wait, and two seconds more. Returns false if they do not: clients log in slowly on a busy
    machine."""
    until = time.monotonic() + BACKLOG_S
    while time.monotonic() < until:
        levels = totals(fronts)["levels"]
        if all(levels.get(name, (0, 0, 0))[2] > 0 for name in shares):
            time.sleep(2)
            return True
        time.sleep(0.2)
    return False


def readings(fronts, seconds, loads):
    """Reads the counters of nodes once a second while loads run."""
    found, until = [totals(fronts)], time.monotonic() + seconds
    while time.monotonic() < until and all(process.poll() is None for process, _ in loads):
        time.sleep(1)
        found.append(totals(fronts))
    return found


def deviation(readings, shares, index):
    """Returns the largest deviation of a level's part of requests (index 0) or of occupancy (1) from its entitlement, as a part of
    it: in all readings, and in the worst five seconds."""

    def between(first, last):
        parts = {name: last["levels"][name][index] - first["levels"][name][index] for name in shares}
        whole = sum(parts.values())
        if whole == 0:
            return float("inf")
        return max(abs(parts[name] / whole * sum(shares.values()) / shares[name] - 1) for name in shares)

    worst = [between(first, last) for first, last in zip(readings, readings[5:])]
    return between(readings[0], readings[-1]), max(worst, default=0.0)


def ratio(readings, shares, index):
    """Returns requests or occupancy of levels, over those of the first level, as text."""
    parts = [readings[-1]["levels"][name][index] - readings[0]["levels"][name][index] for name in shares]
    return " : ".join(f"{part / parts[0]:.2f}" for part in parts)


def part(bench, experiment, name, shares, fronts, hosts, seconds):
    """Runs a backlog of each level as a cell. `hosts`: those of each level."""
    # Twice the time to log in, and what the readings need.
    flags = ("--in-flight", LEVEL_BACKLOG, "--write-ratio", WRITES, "--warmup", "3s", "--duration", f"{seconds + 4}s", "--drain", "2s")
    with bench.cell(experiment, name) as found:
        loads = [
            bench.start("mixed", *flags, "--seed", seed, user=user, connections=16, hosts=hosts[user])
            for seed, user in enumerate(shares, 1)
        ]
        if fronts:
            found["is_backlogged"] = backlogged(fronts, shares)
        found["readings"] = readings(fronts, seconds, loads) if fronts else []
        found["reports"] = [bench.finish(load, seconds) for load in loads]
        found["shown"] = " : ".join(f"{per_s(report):.0f}" for report in found["reports"]) + "/s"
        if fronts:
            found["shown"] += ", occupancy " + ratio(found["readings"], shares, 1)
    return found


def rows_of(name, shares, cells):
    """Returns the rows of operations and of occupancy."""
    rows = []
    for index, what in ((0, "operations"), (1, "occupancy, which is charged")):
        texts = " and ".join(ratio(cell["readings"], shares, index) for cell in cells)
        whole, worst = zip(*(deviation(cell["readings"], shares, index) for cell in cells))
        verdict = together(judged(whole, cells, most=0.05), judged(worst, cells, most=0.1))
        measured = f"{texts}; off by {pair(whole, '{:.1%}')}, worst 5 s {pair(worst, '{:.1%}')} {machine(cells)}"
        idle = [level for level in shares if any(reading["levels"][level][2] == 0 for cell in cells for reading in cell["readings"])]
        if idle:
            measured, verdict = f"{measured}; nothing of {' and '.join(idle)} waited at times", "undecided"
        rows.append(Row(f"shares {name}, {what}", measured, "", "5 %, worst 5 s 10 %", verdict))
    return rows


def on_one(bench, _rate):
    """Shares on one front, and two equal loads without one."""
    seconds, by = bench.seconds(16), {name: [] for name in ("direct", *SETS)}
    for name in (*by, *reversed(by)):
        shares = SETS.get(name, {"a": 1, "b": 1})
        options = [(level, f"shares = {n}") for level, n in shares.items()]
        with nullcontext() if name == "direct" else Front(bench, levels=options) as front:
            fronts = [front] if front else []
            by[name].append(part(bench, "levels", name, shares, fronts, dict.fromkeys(shares), seconds))
    over = [per_s(b) / per_s(a) for a, b in (cell["reports"] for cell in by["direct"])]
    rows = [Row("two equal loads without a front, operations of the second over the first", f"{pair(over)} {machine(by['direct'])}")]
    for name, shares in SETS.items():
        rows += rows_of(f"{name} on one front", shares, by[name])
    return rows


def on_two(bench, _rate):
    """Shares on two fronts: each level through both, and each through a front of its own."""
    seconds, variants = bench.seconds(16), [(name, False) for name in SETS] + [("1:2", True), ("1:4", True)]
    by = {variant: [] for variant in variants}
    for variant in (*variants, *reversed(variants)):
        name, is_apart = variant
        shares = SETS[name]
        with two_fronts(bench, levels=[(level, f"shares = {n}") for level, n in shares.items()]) as fronts:
            both = ",".join(front.hosts for front in fronts)
            hosts = {level: fronts[number].hosts if is_apart else both for number, level in enumerate(shares)}
            title = f"{name}{', each on its own front' if is_apart else ', both on both'}"
            by[variant].append(part(bench, "levels on two fronts", title, shares, fronts, hosts, seconds))
    rows = []
    for name, is_apart in variants:
        title = f"{name} on two fronts{', each level on its own' if is_apart else ''}"
        rows += rows_of(title, SETS[name], by[name, is_apart])
    return rows


def front_gone(bench, _rate):
    """Shares at the front that is left, from five seconds after the other one is killed. Each front has loads of its own, because
    those of the dead one end."""
    seconds, shares, cells = bench.seconds(16), SETS["1:2"], []
    for run in (1, 2):
        with two_fronts(bench, levels=[(level, f"shares = {n}") for level, n in shares.items()]) as fronts, ExitStack() as stack:
            flags = ("--in-flight", LEVEL_BACKLOG, "--write-ratio", WRITES, "--duration", f"{2 * seconds + 10}s", "--drain", "2s")
            with bench.cell("front gone", f"run {run}") as found:
                loads = [[bench.start("mixed", *flags, user=user, connections=16, hosts=front.hosts) for user in shares] for front in fronts]
                backlogged(fronts, shares)
                fronts[0].crash()
                for process, _ in loads[0]:
                    process.kill()
                time.sleep(5)
                found["readings"] = readings([fronts[1]], seconds, loads[1])
                for load in loads[1]:
                    bench.finish(load, 3 * seconds)
                found["shown"] = "operations " + ratio(found["readings"], shares, 0) + ", occupancy " + ratio(found["readings"], shares, 1)
                stack.callback(fronts[0].start)
            cells.append(found)
    return rows_of("1:2, from 5 s after the other front was killed", shares, cells)
