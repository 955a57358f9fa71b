"""A ring that is asked for more than it can do: the window that the limiter finds, and goodput beyond the capacity."""

import statistics
import time
from contextlib import nullcontext

from bench import CONNECTIONS, Front
from results import Row, judged, machine, pair
from shares import readings

# Requests in flight that keep every window full.
BACKLOG = 768
WINDOWS = (4, 8, 16, 32, 64, 128)
# A fixed window that is smaller than the 128 request threads of a node.
SMALL = 8
TIME_LIMIT_MS = 500
OVERLOADS = (1, 2, 10)


def ladder(bench, _rate):
    """Closed loops that keep the window full, with fixed windows up and down, and with the limiter before and after."""
    seconds, found_by = bench.seconds(8), {window: [] for window in (*WINDOWS, "auto")}
    for window in ("auto", *WINDOWS, *reversed(WINDOWS), "auto"):
        warmup = bench.seconds(20 if window == "auto" else 2)
        flags = ("--in-flight", BACKLOG, "--warmup", f"{warmup}s", "--duration", f"{seconds}s", "--drain", "2s")
        with Front(bench, window=window) as front, bench.cell("ladder", str(window)) as found:
            load = bench.start("read", *flags)
            time.sleep(warmup + 1)
            found["readings"] = readings([front], seconds - 2, [load])
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
        verdict = judged(parts, cells, least=0.95)
        rows.append(Row("throughput with the limiter over that with the best fixed window", f"{pair(parts)} {machine(cells)}", "", "≥ 0.95", verdict))
        least = min(window for window in WINDOWS if per_s[window] >= 0.95 * best)
        medians = [statistics.median(cell["windows"]) for cell in cells]
        ranges = " and ".join(f"{min(cell['windows'])} to {max(cell['windows'])}" for cell in cells)
        measured = f"{pair(medians, '{:.0f}')} ({ranges} in a cell), over {least} {machine(cells)}"
        verdict = judged(medians, cells, most=2 * least)
        rows.append(Row("window found over the least fixed one with 95 % of the best throughput", measured, "", "≤ 2", verdict))
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
        verdict = judged([min(cell["goodput"]) for cell in cells], cells, least=0.95) if has_goal else ""
        busy = max(cell["report"]["generator_cpu"] for cell in cells)
        measured = f"{' · '.join(texts)} {machine(cells)}; the load used up to {busy:.0%} of CPU 0"
        what = f"goodput at 1 · 2 · 10 times the capacity over the capacity, {name}"
        rows.append(Row(what, measured, "", "≥ 95 %, flat" if has_goal else "", verdict))
    return rows
