"""Reads beside scans of the whole table: by paging and by SQL. And scans by SQL beside scans by paging."""

import statistics
import time
from contextlib import nullcontext

from bench import KEYSPACE, ROWS, Front
from results import Row, judged, latency, machine, pair, spread, step

# Rate of the interactive load, as a part of the capacity.
INTERACTIVE = 0.2
# A fixed window that is smaller than the 128 request threads of a node.
SMALL = 8
BOTH = [("a", "shares = 1000"), ("b", "shares = 100 AND workload_type = 'batch'")]
SQL = ("--sql-listen", "127.0.0.1:0")
# Reads all columns, as paging does.
QUERY = f"""SELECT count(*), {', '.join(f'sum(length("C{n}"))' for n in range(5))} FROM {KEYSPACE}.standard1"""
# SQL queries beside the reads.
QUERIES = 2


def beside_paging(bench, rate):
    """Interactive reads at a fifth of the capacity beside eight readers of the whole table."""

    def start(front, seconds):
        return bench.start("scan", "--duration", f"{seconds}s", user="b", connections=8)

    # Name, window (`None`: no front), levels, and whether the table is read beside.
    variants = [
        ("alone, direct", None, (), False),
        ("alone, through", 128, (), False),
        ("direct", None, (), True),
        ("one level, window 128", 128, (), True),
        ("levels, window 128", 128, BOTH, True),
        (f"levels, window {SMALL}", SMALL, BOTH, True),
        ("levels, window auto", "auto", BOTH, True),
    ]
    return beside(bench, rate, "scans", "eight scans by paging", variants, start)


def beside_sql(bench, rate):
    """Interactive reads at a fifth of the capacity beside SQL queries that read the whole table. They run in the front."""

    def start(front, seconds):
        return bench.start_sql(front, QUERY, "--concurrency", QUERIES, "--duration", f"{seconds}s", user="b")

    variants = [
        ("alone, through", 128, (), False),
        ("one level, window 128", 128, (), True),
        ("levels, window 128", 128, BOTH, True),
        (f"levels, window {SMALL}", SMALL, BOTH, True),
        ("levels, window auto", "auto", BOTH, True),
    ]
    return beside(bench, rate, "sql scans", f"{QUERIES} SQL queries", variants, start)


def amount_per_s(report):
    """Returns pages or queries a second."""
    return report["pages"] / report["seconds"] if "pages" in report else step({"report": report})["throughput_per_s"]


def beside(bench, rate, experiment, load, variants, start):
    seconds = bench.seconds(10)
    by = {name: [] for name, *_ in variants}
    for name, window, options, is_beside in (*variants, *reversed(variants)):
        with nullcontext() if window is None else Front(bench, window=window, levels=options, more=SQL) as front:
            with bench.cell(experiment, name) as found:
                # The scan runs from before the reads until after them. The limiter finds its window in the first seconds.
                lead = 2 + (bench.seconds(8) if window == "auto" else 0)
                scan = start(front, lead + seconds + 3) if is_beside else None
                time.sleep(lead - 1)
                flags = ("--rate", f"{rate * INTERACTIVE:.0f}", "--warmup", "1s", "--duration", f"{seconds}s", "--drain", "2s")
                found["report"] = bench.finish(bench.start("read", *flags, user="a"), seconds)
                found["shown"] = f"p99 {latency(found, 'p99') / 1000:.1f} ms"
                if front:
                    found["nodes"] = front.nodes()
                if scan:
                    found["scan"] = bench.finish(scan, seconds)
                    found["amount_per_s"] = amount_per_s(found["scan"])
                    found["shown"] += f", {found['amount_per_s']:.2f} pages or queries a second"
        by[name].append(found)
    alone = {name: statistics.mean(latency(cell, "p99") for cell in by[name]) for name in by if name.startswith("alone")}
    rows = []
    for name, window, *_ in variants:
        cells = by[name]
        p99 = [latency(cell, "p99") / 1000 for cell in cells]
        if name in alone:
            rows.append(Row(f"p99 of reads at a fifth of the capacity, {name}", f"{pair(p99, '{:.1f}')} {machine(cells)}", "ms"))
            continue
        over = [1000 * value / alone["alone, direct" if window is None else "alone, through"] for value in p99]
        amount = pair([cell["amount_per_s"] for cell in cells])
        kept = pair([step(cell)["throughput_per_s"] / (rate * INTERACTIVE) for cell in cells], "{:.0%}")
        measured = f"{pair(over)} ({pair(p99, '{:.1f}')} ms, {amount} of them a second, {kept} of the reads) {machine(cells)}"
        has_goal = name.startswith("levels")
        verdict = judged(over, cells, most=1.5) if has_goal else ""
        rows.append(Row(f"p99 of reads beside {load} over alone, {name}", measured, "", "≤ 1.5" if has_goal else "", verdict))
    return rows


def sql_rows(bench, _rate):
    """Rows a second of one SQL query over the whole table, beside those of one reader by pages of 5,000 rows, direct and through."""
    seconds, by = bench.seconds(15), {"paging, direct": [], "paging, through": [], "SQL": []}
    with Front(bench, more=SQL) as front:
        for name in (*by, *reversed(by)) * 2:
            with bench.cell("sql rows", name) as found:
                if name == "SQL":
                    load = bench.start_sql(front, QUERY, "--concurrency", 1, "--warmup", "2s", "--duration", f"{seconds}s")
                else:
                    hosts = front.hosts if name == "paging, through" else bench.ring.nodes[0].address()
                    load = bench.start("scan", "--duration", f"{seconds}s", connections=1, hosts=hosts)
                found["report"] = report = bench.finish(load, seconds)
                is_sql = "steps" in report
                found["rows_per_s"] = ROWS * amount_per_s(report) if is_sql else report["rows"] / report["seconds"]
                errors = step(found)["errors"] if is_sql else report["errors"]
                found["shown"] = f"{found['rows_per_s']:.0f} rows/s, {errors} errors"
            by[name].append(found)
    rates = {name: [cell["rows_per_s"] for cell in cells] for name, cells in by.items()}
    rows = [Row(f"rows a second of {name}", f"{spread(found, '{:.0f}')} {machine(by[name])}") for name, found in rates.items()]
    for name in ("paging, direct", "paging, through"):
        cells = by["SQL"] + by[name]
        over = [sql / max(paged, 1) for sql, paged in zip(rates["SQL"], rates[name])]
        rows.append(Row(f"rows a second of SQL over {name}", f"{spread(over)} {machine(cells)}", "", "≥ 1.0", judged(over, cells, least=1)))
    return rows
