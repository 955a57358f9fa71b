"""Experiments with the ring: each returns the rows of its results. Variants are measured in one order and then in the other
(A B B A), so that a drift of the nodes meets all of them. Section 12 of the specification has the goals."""

import statistics
import time
from contextlib import nullcontext

from bench import CONNECTIONS, Front

# Programs of others may use this part of one CPU during a cell. Above it, results decide nothing.
OTHERS_MAX = 0.1
# Rates of the interactive load and of the probe for added latency, as parts of the capacity.
INTERACTIVE, HALF = 0.2, 0.5
# Requests in flight that keep every window full, of all levels together and of each level.
BACKLOG, LEVEL_BACKLOG = 768, 512
WRITES = 0.2
# Longest wait for a backlog, seconds.
BACKLOG_S = 20
WINDOWS = (4, 8, 16, 32, 64, 128)
# A fixed window that is smaller than the 128 request threads of a node.
SMALL = 8
TIME_LIMIT_MS = 500
OVERLOADS = (1, 2, 10)


class Row(tuple):
    """A line of a result file: what, measured, unit, goal, verdict."""

    def __new__(cls, what, measured, unit="", goal="", verdict=""):
        return super().__new__(cls, (what, measured, unit, goal, verdict))


def machine(cells):
    """Returns the use of CPUs beside results, as text: that of other programs and of the host, and the load average, at worst."""
    most = {name: max(cell["use"][name] for cell in cells) for name in ("others", "steal", "load_average")}
    return f"(others {most['others']:.0%}, steal {most['steal']:.0%}, load {most['load_average']:.1f})"


def judged(values, is_met, cells):
    """Returns the verdict on repeated results: undecided if they disagree, or if others used the CPUs."""
    if max(cell["use"]["others"] + cell["use"]["steal"] for cell in cells) > OTHERS_MAX:
        return "undecided"
    verdicts = {is_met(value) for value in values}
    return "undecided" if len(verdicts) > 1 else "met" if verdicts == {True} else "missed"


def spread(values, form="{:.2f}"):
    """Returns the median of values and their range, as text."""
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def pair(values, form="{:.2f}"):
    return " and ".join(form.format(value) for value in values)


def step(cell, index=-1):
    return cell["report"]["steps"][index]


def latency(cell, name):
    return step(cell)["reads"]["latency"][f"{name}_us"]


def warm(bench):
    """Fills the table, and warms the nodes up: their code is compiled while they run."""
    seconds = bench.seconds(120)
    bench.run("warm-up", "fill", "prefill", "--in-flight", 96, seconds=120)
    for part in range(3):
        flags = ("--in-flight", 96, "--write-ratio", WRITES, "--duration", f"{seconds / 3:.0f}s")
        bench.run("warm-up", f"{part + 1} of 3", "mixed", *flags, seconds=seconds)
    flags = ("--connections", 2, "--duration", f"{bench.seconds(6)}s")
    with bench.cell("warm-up", "pages") as found:
        found["report"] = bench.finish(bench.start("scan", *flags[2:], connections=2), 60)
        found["shown"] = f"{found['report']['page_ms_mean']:.0f} ms a page"


def capacity(bench):
    """Returns the best throughput of the ring without a front, requests a second, and its row."""
    seconds, cells = bench.seconds(6), []
    for in_flight in (48, 192, 768, 1536, 768, 192):
        flags = ("--in-flight", in_flight, "--warmup", "1s", "--duration", f"{seconds}s")
        cells.append(bench.run("capacity", f"direct, {in_flight} in flight", "read", *flags, seconds=seconds))
    best = max(cells, key=lambda cell: step(cell)["throughput_per_s"])
    rate = step(best)["throughput_per_s"]
    unit = f"reads/s with {step(best)['in_flight_max']} in flight"
    return rate, [Row("capacity of the ring without a front, prepared reads", f"{rate:.0f} {machine(cells)}", unit)]


def added_latency(bench, rate):
    seconds, by = bench.seconds(12), {"direct": [], "through": []}
    flags = ("--rate", f"{rate * HALF:.0f}", "--warmup", "2s", "--duration", f"{seconds}s")
    with Front(bench) as front:
        for variant in ("direct", "through", "through", "direct") * 2:
            bench.front = front if variant == "through" else None
            by[variant].append(bench.run("added latency", variant, "read", *flags, seconds=seconds + 2))
        bench.front = front
    cells = by["direct"] + by["through"]
    pairs = list(zip(by["direct"], by["through"]))
    rows = []
    added = [latency(through, "p50") - latency(direct, "p50") for direct, through in pairs]
    what = f"latency that the front adds at half of the capacity ({rate * HALF:.0f} reads/s), p50"
    rows.append(Row(what, f"{spread(added, '{:.0f}')} {machine(cells)}", "µs", "≤ 150", judged(added, lambda n: n <= 150, cells)))
    ratios = [latency(through, "p99") / latency(direct, "p99") for direct, through in pairs]
    direct = statistics.median(latency(cell, "p99") for cell in by["direct"]) / 1000
    what = f"p99 through the front over direct ({direct:.1f} ms), at half of the capacity"
    rows.append(Row(what, f"{spread(ratios)} {machine(cells)}", "", "≤ 1.1", judged(ratios, lambda n: n <= 1.1, cells)))
    return rows


def backlogged(front, shares):
    """Waits until requests of every level wait, and two seconds more. Returns false if they do not: clients log in slowly on a busy
    machine."""
    until = time.monotonic() + BACKLOG_S
    while time.monotonic() < until:
        levels = front.nodes()["levels"]
        if all(levels.get(name, (0, 0, 0))[2] > 0 for name in shares):
            time.sleep(2)
            return True
        time.sleep(0.2)
    return False


def counted(front, seconds, loads):
    """Reads the counters of nodes once a second while loads run."""
    readings, until = [front.nodes()], time.monotonic() + seconds
    while time.monotonic() < until and all(process.poll() is None for process, _ in loads):
        time.sleep(1)
        readings.append(front.nodes())
    return readings


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


def levels(bench, _rate):
    seconds, rows = bench.seconds(16), []
    sets = {"1:2": {"a": 200, "b": 400}, "1:4": {"a": 200, "b": 800}, "200:400:800": {"a": 200, "b": 400, "c": 800}}
    flags = ("--in-flight", LEVEL_BACKLOG, "--write-ratio", WRITES, "--warmup", "3s", "--duration", f"{seconds + 4}s", "--drain", "2s")
    by = {name: [] for name in ("direct", *sets)}
    for name in (*by, *reversed(by)):
        shares = sets.get(name, {"a": 1, "b": 1})
        options = [(level, f"shares = {n}") for level, n in shares.items()]
        with nullcontext() if name == "direct" else Front(bench, levels=options) as front:
            with bench.cell("levels", name) as found:
                loads = [bench.start("mixed", *flags, "--seed", seed, user=user, connections=16) for seed, user in enumerate(shares, 1)]
                if front:
                    found["is_backlogged"] = backlogged(front, shares)
                found["readings"] = counted(front, seconds, loads) if front else []
                found["reports"] = [bench.finish(load, seconds) for load in loads]
                per_s = [report["steps"][-1]["throughput_per_s"] for report in found["reports"]]
                found["shown"] = " : ".join(f"{n:.0f}" for n in per_s) + "/s"
                if front:
                    found["shown"] += ", occupancy " + ratio(found["readings"], shares, 1)
        by[name].append(found)
    per_s = [[report["steps"][-1]["throughput_per_s"] for report in cell["reports"]] for cell in by["direct"]]
    rows.append(Row("two equal loads without a front, operations of the second over the first", f"{pair([b / a for a, b in per_s])} {machine(by['direct'])}"))
    for name, shares in sets.items():
        cells = by[name]
        for index, what in ((0, "operations"), (1, "occupancy, which is charged")):
            texts = " and ".join(ratio(cell["readings"], shares, index) for cell in cells)
            whole, worst = zip(*(deviation(cell["readings"], shares, index) for cell in cells))
            verdict = judged(list(zip(whole, worst)), lambda found: found[0] <= 0.05 and found[1] <= 0.1, cells)
            measured = f"{texts}; off by {pair(whole, '{:.1%}')}, worst 5 s {pair(worst, '{:.1%}')} {machine(cells)}"
            idle = [level for level in shares if any(reading["levels"][level][2] == 0 for cell in cells for reading in cell["readings"])]
            if idle:
                measured, verdict = f"{measured}; nothing of {' and '.join(idle)} waited at times", "undecided"
            rows.append(Row(f"shares {name}, {what}", measured, "", "5 %, worst 5 s 10 %", verdict))
    return rows


def scans(bench, rate):
    """Interactive reads at a fifth of the capacity beside eight readers of the whole table."""
    seconds = bench.seconds(10)
    both = [("a", "shares = 1000"), ("b", "shares = 100 AND workload_type = 'batch'")]
    # Name, window (`None`: no front), levels, and readers of the whole table.
    variants = [
        ("alone, direct", None, (), False),
        ("alone, through", 128, (), False),
        ("direct", None, (), True),
        ("one level, window 128", 128, (), True),
        ("levels, window 128", 128, both, True),
        (f"levels, window {SMALL}", SMALL, both, True),
        ("levels, window auto", "auto", both, True),
    ]
    by = {name: [] for name, *_ in variants}
    for name, window, options, is_beside in (*variants, *reversed(variants)):
        with nullcontext() if window is None else Front(bench, window=window, levels=options) as front:
            with bench.cell("scans", name) as found:
                # The scan runs from before the reads until after them. The limiter finds its window in the first seconds.
                lead = 2 + (bench.seconds(8) if window == "auto" else 0)
                flags = ("--duration", f"{lead + seconds + 3}s")
                scan = bench.start("scan", *flags, user="b", connections=8) if is_beside else None
                time.sleep(lead - 1)
                flags = ("--rate", f"{rate * INTERACTIVE:.0f}", "--warmup", "1s", "--duration", f"{seconds}s", "--drain", "2s")
                found["report"] = bench.finish(bench.start("read", *flags, user="a"), seconds)
                found["shown"] = f"p99 {latency(found, 'p99') / 1000:.1f} ms"
                if front:
                    found["nodes"] = front.nodes()
                if scan:
                    found["scan"] = bench.finish(scan, seconds)
                    found["pages_per_s"] = found["scan"]["pages"] / found["scan"]["seconds"]
                    found["shown"] += f", {found['pages_per_s']:.1f} pages/s"
        by[name].append(found)
    alone = {kind: statistics.mean(latency(cell, "p99") for cell in by[f"alone, {kind}"]) for kind in ("direct", "through")}
    rows = []
    for name, window, *_ in variants:
        cells = by[name]
        p99 = [latency(cell, "p99") / 1000 for cell in cells]
        measured = f"{pair(p99, '{:.1f}')}"
        if name.startswith("alone"):
            rows.append(Row(f"p99 of interactive reads at a fifth of the capacity, {name}", f"{measured} {machine(cells)}", "ms"))
            continue
        over = [1000 * value / alone["direct" if window is None else "through"] for value in p99]
        pages = pair([cell["pages_per_s"] for cell in cells], "{:.1f}")
        kept = pair([step(cell)["throughput_per_s"] / (rate * INTERACTIVE) for cell in cells], "{:.0%}")
        measured = f"{pair(over)} ({measured} ms, {pages} pages/s, {kept} of the reads) {machine(cells)}"
        has_goal = name.startswith("levels")
        verdict = judged(over, lambda n: n <= 1.5, cells) if has_goal else ""
        rows.append(Row(f"p99 beside eight scans by paging over alone, {name}", measured, "", "≤ 1.5" if has_goal else "", verdict))
    return rows


def goodput(bench, rate):
    """Open loops beyond the capacity. An answer counts within half a second from when its request was due."""
    seconds, warmup = bench.seconds(8), bench.seconds(8)
    rates = ",".join(f"{rate * factor:.0f}:{seconds}s" for factor in OVERLOADS)
    flags = ("--rate", rates, "--warmup", f"{warmup}s", "--time-limit", f"{TIME_LIMIT_MS}ms", "--max-in-flight", 4096, "--drain", "3s")
    variants = ("direct", 128, SMALL, "auto")
    by = {variant: [] for variant in variants}
    for window in (*variants, *reversed(variants)):
        with nullcontext() if window == "direct" else Front(bench, window=window, timeout_ms=TIME_LIMIT_MS) as front:
            with bench.cell("goodput", str(window)) as found:
                load = bench.start("read", *flags, connections=4 * CONNECTIONS)
                found["report"] = bench.finish(load, warmup + len(OVERLOADS) * seconds)
                found["goodput"] = [step["in_time"] / step["seconds"] / rate for step in found["report"]["steps"]]
                found["shown"] = " · ".join(f"{part:.0%}" for part in found["goodput"])
                if found["report"]["invalid"]:
                    found["shown"] += ", invalid"
                if front:
                    found["nodes"] = front.nodes()
        by[window].append(found)
        # Requests that their clients gave up are still in the nodes.
        time.sleep(2)
    rows = []
    for window, cells in by.items():
        texts = [pair([cell["goodput"][index] for cell in cells], "{:.0%}") for index in range(len(OVERLOADS))]
        name = "without a front" if window == "direct" else f"with --node-window {window}"
        if window == "auto":
            name += f" ({', '.join(str(n) for cell in cells for n in cell['nodes']['windows'])} found)"
        has_goal = window == "auto"
        verdict = judged([min(cell["goodput"]) for cell in cells], lambda n: n >= 0.95, cells) if has_goal else ""
        busy = max(cell["report"]["generator_cpu"] for cell in cells)
        measured = f"{' · '.join(texts)} {machine(cells)}; the load used up to {busy:.0%} of CPU 0"
        what = f"goodput at 1 · 2 · 10 times the capacity over the capacity, {name}"
        rows.append(Row(what, measured, "", "≥ 95 %, flat" if has_goal else "", verdict))
    return rows


def ladder(bench, _rate):
    """Closed loops that keep the window full, with fixed windows up and down, and with the limiter before and after."""
    seconds, found_by = bench.seconds(8), {window: [] for window in (*WINDOWS, "auto")}
    for window in ("auto", *WINDOWS, *reversed(WINDOWS), "auto"):
        warmup = bench.seconds(20 if window == "auto" else 2)
        flags = ("--in-flight", BACKLOG, "--warmup", f"{warmup}s", "--duration", f"{seconds}s", "--drain", "2s")
        with Front(bench, window=window) as front, bench.cell("ladder", str(window)) as found:
            load = bench.start("read", *flags)
            time.sleep(warmup + 1)
            found["readings"] = counted(front, seconds - 2, [load])
            found["report"] = bench.finish(load, warmup + seconds)
            first, last = found["readings"][0], found["readings"][-1]
            sums = [sum(level[index] for level in last["levels"].values()) - sum(level[index] for level in first["levels"].values()) for index in (0, 1)]
            found["per_s"] = sums[0] / (last["s"] - first["s"])
            found["node_ms"] = sums[1] / max(sums[0], 1) / 1000
            found["windows"] = [window for reading in found["readings"] for window in reading["windows"]]
            found["shown"] = f"{found['per_s']:.0f}/s, {found['node_ms']:.2f} ms at the node, windows {min(found['windows'])} to {max(found['windows'])}"
        found_by[window].append(found)
    per_s = {window: statistics.mean(cell["per_s"] for cell in cells) for window, cells in found_by.items()}
    best = max(per_s[window] for window in WINDOWS)
    rows = []
    for window, cells in found_by.items():
        measured = f"{pair([cell['per_s'] for cell in cells], '{:.0f}')} reads/s, {pair([cell['node_ms'] for cell in cells])} ms {machine(cells)}"
        what = f"throughput, and mean time of a read at a node, with --node-window {window}"
        if window != "auto":
            rows.append(Row(what, measured))
            continue
        parts = [cell["per_s"] / best for cell in cells]
        rows.append(Row(what, measured))
        verdict = judged(parts, lambda n: n >= 0.95, cells)
        rows.append(Row("throughput with the limiter over that with the best fixed window", f"{pair(parts)} {machine(cells)}", "", "≥ 0.95", verdict))
        least = min(window for window in WINDOWS if per_s[window] >= 0.95 * best)
        medians = [statistics.median(cell["windows"]) for cell in cells]
        ranges = " and ".join(f"{min(cell['windows'])} to {max(cell['windows'])}" for cell in cells)
        measured = f"{pair(medians, '{:.0f}')} ({ranges} in a cell), over {least} {machine(cells)}"
        verdict = judged(medians, lambda n: n <= 2 * least, cells)
        rows.append(Row("window found over the least fixed one with 95 % of the best throughput", measured, "", "≤ 2", verdict))
    return rows


EXPERIMENTS = {"latency": added_latency, "ladder": ladder, "levels": levels, "scans": scans, "goodput": goodput}
