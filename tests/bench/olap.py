"""What levels do for SQL, one experiment a command; see docs/benchmarks.md.

    ~/.cache/fairlane/target/venv/bin/python tests/bench/olap.py target/release/fairlane EXPERIMENT [--rows N] [--scale S] [--seconds S] [--json FILE]

EXPERIMENT is one of

    shares       two clients that run ClickBench's Q23 without pause, shares 2:1 and then in one level: the ratio of their throughputs
    cap          Q10 without pause by 1, 2 and 4 connections in a level with cpu_limit = '50%': the CPU of the server and of each level, as a
                 share of the server's cores
    latency      a client of short queries beside another whose concurrency goes 1, 2, 4, 8, each in a level of its own and then both
                 in one: how its latency grows
    points       prepared point reads over CQL, one by one at random times, at half of the rate that one core can answer so (or what the generator is good
                 for, if that is less; or --rate), alone and beside all queries of TPC-H without pause, in short phases in turn, in levels of 1000
                 and 100 shares and then in one level: their latency and how many were answered
    tpch         the 22 queries of TPC-H, one after the other, the best of three, here and by DataFusion and DuckDB on Parquet files of the same rows
                 (`pip install datafusion duckdb`): seconds of each
    slots        10,000 statements by 64 connections in a level with max_concurrency = 4: how many ran at once, and what became of all

Each starts a server of its own on a temporary folder, which is removed in the end, and fills it with `fairlane load hits` (made-up rows) and
`fairlane load tpch`. The clients are `fairlane load`. `cargo xtask clients` makes the environment with the drivers.
"""

import argparse
import collections
import json
import os
import statistics
import threading
import time
from pathlib import Path

import psycopg
from _bench import Server, ended_well, interleaved

QUERIES = Path(__file__).resolve().parent.parent.parent / "crates/load/queries"
CLICKBENCH = (str(QUERIES / "clickbench"), "clickbench")
TPCH = (str(QUERIES / "tpch"), "tpch")
# Left out at the beginning of every run: connections, plans and caches.
WARMUP_S = 5
ROLES = ("first", "second")
KEYS = 100_000


def levels(server, first="shares = 1000", second="shares = 1000"):
    """Each role in a level of its own, with these options."""
    for role, options in zip(ROLES, (first, second)):
        server.session.execute(f"ALTER SERVICE LEVEL {role} WITH {options}")
        server.session.execute(f"ATTACH SERVICE LEVEL {role} TO {role}")


def one_level(server):
    for role in ROLES:
        server.session.execute(f"DETACH SERVICE LEVEL FROM {role}")


def queries(server, user, source, only, concurrency, seconds, warmup_s=WARMUP_S, idle=False):
    arguments = ["--queries", source[0], "--search-path", source[1], *(["--only", only] if only else [])]
    arguments += ["--concurrency", str(concurrency), "--warmup", str(warmup_s), "--duration", str(seconds)]
    return server.load(user, "sql", *arguments, idle=idle)


def session(server, keyspace):
    host, port = server.sql.rsplit(":", 1)
    return psycopg.connect(host=host, port=port, user="first", password=server.password, dbname=keyspace, autocommit=True)


def step_of(load, stop=False):
    (step,) = ended_well(load, stop)["steps"]
    return step


def shares(server, arguments):
    def ratio():
        both = [queries(server, role, CLICKBENCH, "q23", 1, arguments.seconds) for role in ROLES]
        first, second = (step_of(load)["throughput_per_s"] for load in both)
        return {"first_per_s": first, "second_per_s": second, "ratio": first / second}

    levels(server, "shares = 1000", "shares = 500")
    with_levels = ratio()
    one_level(server)
    without = ratio()
    print(f"shares 2:1: {with_levels['ratio']:.3f}; in one level: {without['ratio']:.3f}")
    return {"levels": with_levels, "one_level": without}


def cap(server, arguments):
    def used():
        """Seconds of CPU of the server, and of each group."""
        of_groups = collections.Counter()
        for series, value in server.metrics().items():
            if series.startswith("fairlane_cpu_seconds_total{"):
                of_groups[series.split('"')[1]] += value
        return server.cpu_s(), of_groups

    levels(server, "shares = 1000 AND cpu_limit = '50%'")
    found = {}
    for concurrency in (1, 2, 4):
        load = queries(server, "first", CLICKBENCH, "q10", concurrency, arguments.seconds)
        time.sleep(WARMUP_S)
        begun, (before, groups_before) = time.monotonic(), used()
        time.sleep(arguments.seconds - 1)
        after, groups = used()
        whole = (time.monotonic() - begun) * len(os.sched_getaffinity(server.process.pid))
        share = (after - before) / whole
        of_groups = {group: (value - groups_before[group]) / whole for group, value in groups.items()}
        found[concurrency] = {"server_cpu": share, "groups_cpu": of_groups, "queries_per_s": step_of(load)["throughput_per_s"]}
        text = ", ".join(f"{group} {part * 100:.2f}" for group, part in of_groups.items() if part > 0.0005)
        print(f"{concurrency} connections: {share * 100:.1f} % of the server's CPU; by groups: {text}")
    return found


def latency(server, arguments):
    def short(source, only):
        return step_of(queries(server, "first", source, only, 1, arguments.seconds))["queries"]

    def grown(source, only):
        alone, rows = {query["name"]: query["latency"]["p50_us"] for query in short(source, only)}, []
        for concurrency in (1, 2, 4, 8):
            other = queries(server, "second", source, only, concurrency, 100 * arguments.seconds)
            time.sleep(WARMUP_S)
            now = {query["name"]: query["latency"]["p50_us"] for query in short(source, only)}
            step_of(other, stop=True)
            rows.append({"concurrency": concurrency, "over_alone": {name: now[name] / alone[name] for name in alone}})
        median = [statistics.median(row["over_alone"].values()) for row in rows]
        text = ", ".join(f"{row['concurrency']}: {value:.2f}" for row, value in zip(rows, median))
        print(f"  {only}: over alone, beside {text}; grown by {median[-1] / median[0]:.2f} from 1 to 8")
        return rows

    found = {}
    for name, begin in (("levels", levels), ("one level", one_level)):
        begin(server)
        print(name)
        found[name] = {only: grown(source, only) for source, only in ((CLICKBENCH, "q15,q17,q23"), (TPCH, "q03,q07,q19"))}
    return found


def capacity(server, reads):
    """The highest rate of an open loop, in steps of a tenth, that is answered in full, and the highest at which the generator used three quarters of its
    core at most. (In a closed loop requests come in bunches, which cost less.)"""
    rate, sure = 20_000, 20_000
    while True:
        step = step_of(server.load("first", *reads, "--rate", str(rate), "--duration", "5s"))
        answered = step["answered"] / step["due"]
        print(f"  {rate}/s: {answered * 100:.1f} % answered, p50 {step['reads']['latency']['p50_us']:.0f} us, generator {step['generator_cpu'] * 100:.0f} %")
        if answered < 0.99:
            return int(rate / 1.1), sure
        sure = rate if step["generator_cpu"] <= 0.75 and sure * 1.2 > rate else sure
        rate = int(rate * 1.1)


def points(server, arguments):
    reads = ["read", "--keys", str(KEYS), "--no-create"]
    server.run("admin", "prefill", "--keys", str(KEYS))
    most, sure = capacity(server, [*reads, "--warmup", "2s"])
    rate = arguments.rate or min(most // 2, sure)
    print(f"{most} reads a second at most, {sure} that the generator is good for: {rate} from here on")

    def others():
        return queries(server, "second", TPCH, None, 1, 1000, warmup_s=0, idle=True)

    found = {}
    for name, begin in (("levels", lambda: levels(server, "shares = 1000", "shares = 100")), ("one level", lambda: one_level(server))):
        begin()
        print(name)
        found[name] = interleaved(server, "first", reads, rate, others, guard_s=3)
    return {"capacity_per_s": most, "rate_per_s": rate, **found}


def best_of(runs, run):
    times = []
    for _ in range(runs):
        begun = time.monotonic()
        run()
        times.append(time.monotonic() - begun)
    return min(times)


def on_parquet(server, arguments):
    """Two engines with the same rows in Parquet files, both cores: what runs a query, by name."""
    import datafusion
    import duckdb

    folder, cores = Path(server.folder) / "parquet", len(os.sched_getaffinity(0))
    server.fill("tpch", "--scale", arguments.scale, "--parquet", str(folder))
    duck = duckdb.connect(config={"threads": cores})
    fusion = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(cores))
    for file in folder.glob("*.parquet"):
        duck.execute(f"CREATE VIEW {file.stem} AS SELECT * FROM '{file}'")
        fusion.register_parquet(file.stem, str(file))
    return {"DataFusion": lambda text: fusion.sql(text).collect(), "DuckDB": lambda text: duck.execute(text).fetchall()}


def tpch(server, arguments):
    db = session(server, "tpch")
    engines = {"fairlane": lambda text: db.execute(text).fetchall(), **on_parquet(server, arguments)}
    rows, sums = {}, collections.Counter()
    print(f"{'':6}{''.join(f'{name:>12}' for name in engines)}   over DataFusion, over DuckDB")
    for file in sorted(Path(TPCH[0]).glob("q*.sql")):
        text = file.read_text().rstrip().rstrip(";")
        times = {name: best_of(3, lambda: run(text)) for name, run in engines.items()}
        rows[file.stem] = times
        sums.update(times)
        shown = "".join(f"{seconds:12.3f}" for seconds in times.values())
        print(f"{file.stem:6}{shown}   {times['fairlane'] / times['DataFusion']:.2f}, {times['fairlane'] / times['DuckDB']:.2f}", flush=True)
    print(f"{'all':6}{''.join(f'{sums[name]:12.3f}' for name in engines)}   {sums['fairlane'] / sums['DataFusion']:.2f}, {sums['fairlane'] / sums['DuckDB']:.2f}")
    return {"queries": rows, "sums": sums}


def slots(server, arguments):
    levels(server, "max_concurrency = 4 AND max_queue_size = 100")
    outcomes, left, lock = collections.Counter(), [10_000], threading.Lock()

    def ask():
        with session(server, "clickbench") as db:
            while True:
                with lock:
                    if left[0] == 0:
                        return
                    left[0] -= 1
                try:
                    (count,) = db.execute("SELECT count(*) FROM hits WHERE counterid > 100").fetchone()
                    outcomes["answered" if count is not None else "nothing"] += 1
                except psycopg.Error as error:
                    outcomes[error.sqlstate] += 1

    threads = [threading.Thread(target=ask) for _ in range(64)]
    begun, most, looks = time.monotonic(), 0, 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, int(server.metrics().get('fairlane_slots_running{level="first"}', 0)))
        looks += 1
        time.sleep(0.02)
    found = {"outcomes": outcomes, "most_at_once": most, "looks": looks, "seconds": time.monotonic() - begun}
    print(f"{dict(outcomes)} in {found['seconds']:.0f} s; at most {most} at once in {looks} looks")
    return found


EXPERIMENTS = {"shares": shares, "cap": cap, "latency": latency, "points": points, "tpch": tpch, "slots": slots}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("experiment", choices=list(EXPERIMENTS))
    parser.add_argument("--rows", type=int, default=500_000, help="rows of hits")
    parser.add_argument("--scale", default="0.1", help="scale of TPC-H")
    parser.add_argument("--seconds", type=int, default=30, help="of each run")
    parser.add_argument("--rate", type=int, help="reads a second, of points")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    server = Server(arguments.binary, on_cpu_0=arguments.experiment == "points")
    try:
        for role in ROLES:
            server.level(role)
        if arguments.experiment not in ("points", "tpch"):
            server.fill("hits", "--rows", str(arguments.rows))
        if arguments.experiment in ("latency", "points", "tpch"):
            server.fill("tpch", "--scale", arguments.scale)
        server.settle()
        found = EXPERIMENTS[arguments.experiment](server, arguments)
    finally:
        server.end()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
