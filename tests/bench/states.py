"""CPU that point reads cost in the states of a table; see docs/benchmarks.md.

    ~/.cache/fairlane/target/venv/bin/python tests/bench/states.py target/release/fairlane [--keys N] [--in-flight N] [--seconds S] [--json FILE]

    fresh          rows in the memtable
    flushed        rows in one run
    steady         after six rounds of overwriting, with the flushes and compactions that follow
    beside writes  the same, while another level overwrites 10,000 rows a second

Each state is read twice, because the first pass fills the cache of rows. Prints the reads a second, the CPU of the level that reads and of the
whole server for each read, and p99. The server runs on CPU 0 with 1 GiB of memory and memtables of 64 MiB in all, loads on CPU 1.
"""

import argparse
import json

from _bench import Server, ended_well


def read(server, state, options):
    before, cpu_s = server.metrics(), server.cpu_s()
    flags = ["read", "--no-create", "--keys", options.keys, "--in-flight", options.in_flight, "--duration", f"{options.seconds}s"]
    step = ended_well(server.load("reads", *flags))["steps"][0]
    after, cpu_s = server.metrics(), server.cpu_s() - cpu_s
    answered = step["answered"]
    level_s = sum(after[name] - before.get(name, 0) for name in after if name.startswith("fairlane_cpu_seconds_total") and '"reads"' in name)
    hits, misses = (after[f'fairlane_row_cache_{name}_total'] - before[f'fairlane_row_cache_{name}_total'] for name in ("hits", "misses"))
    seen = {
        "state": state,
        "reads_per_s": answered / options.seconds,
        "level_us": level_s / answered * 1e6,
        "server_us": cpu_s / answered * 1e6,
        "p99_us": step["reads"]["latency"]["p99_us"],
        "row_hits": hits / max(hits + misses, 1),
    }
    print(
        f"{state:14} {seen['reads_per_s']:9.0f} reads/s  level {seen['level_us']:5.2f} us  server {seen['server_us']:5.2f} us  p99 {seen['p99_us']:.0f} us"
        f"  {seen['row_hits'] * 100:.0f} % of the rows asked for were cached",
        flush=True,
    )
    return seen


def states(options):
    server = Server(options.binary, "--memory", "1GiB", "--memtable-memory", "64MiB", on_cpu_0=True)
    try:
        server.level("reads", "shares = 1000")
        server.level("writes", "shares = 1000")
        server.run("admin", "prefill", "--keys", options.keys, "--in-flight", "128")
        seen = [read(server, "fresh", options) for _ in range(2)]
        server.session.execute("FLUSH keyspace1.standard1")
        server.settle()
        seen += [read(server, "flushed", options) for _ in range(2)]
        writes = ["write", "--no-create", "--keys", options.keys]
        for _ in range(6):
            server.run("writes", *writes, "--in-flight", "128", "--duration", "4s")
        seen += [read(server, "steady", options) for _ in range(2)]
        beside = server.load("writes", *writes, "--rate", "10000", "--duration", f"{3 * options.seconds + 10}s")
        seen += [read(server, "beside writes", options) for _ in range(2)]
        ended_well(beside, stop=True)
        for what in ("level_us", "server_us"):
            fresh = seen[1][what]
            print(f"{what} over fresh, second pass: " + ", ".join(f"{one['state']} {one[what] / fresh:.2f}" for one in seen[3::2]))
        return seen
    finally:
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--keys", default="100000")
    parser.add_argument("--in-flight", default="64")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--json")
    options = parser.parse_args()
    seen = states(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(seen, file, indent=2)


main()
