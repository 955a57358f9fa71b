"""Figures of a front before a ring of three nodes of Apache Cassandra: `cargo xtask ring` runs this program, which needs Java and
Maven. It takes about 20 minutes, writes its rows into bench/results, and stops what it starts."""

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from _ring import VERSION, missing

ROOT = Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "bench" / "results" / "24-cluster.txt"
HEAD = """title: In front of a cluster
goal: The aim: through a front a ring answers nearly as fast as without one, and service levels hold. Not decided yet.
machine: Each run names its machine.
"""
NOTE = (
    f"Three nodes of Apache Cassandra {VERSION} share CPU 1, with 1 GiB of heap each. Front, loads and this program share CPU 0. "
    "Every node has a copy of each row of 170 bytes, so that both ways each request reaches a replica. Variants were measured in one "
    "order and then in the other. Results of both are joined by *and*, or are a median with a range. *Others* is the part of one CPU "
    "that other programs used, at worst; above 10 % results decide nothing. *Undecided* is a result, too, whose repetitions disagree."
)
# Limit of a run. An experiment that begins later than the second number is left out.
LIMIT_S, LAST_S = 25 * 60, 20 * 60


def arguments():
    from experiments import EXPERIMENTS

    parser = argparse.ArgumentParser(prog="cargo xtask ring", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the time: shows that it works, and decides nothing")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="this experiment; may be repeated")
    parser.add_argument("--cells", type=Path, help="write all cells as JSON")
    parser.add_argument("--dry", action="store_true", help="print the rows, and leave bench/results alone")
    return parser.parse_args()


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()

    unchanged = ("status", "--porcelain", "--", ".", ":!bench/results", ":!docs/benchmarks.md", ":!docs/benchmarks")
    return git("rev-parse", "--short=8", "HEAD") + (" modified" if git(*unchanged) else "")


def machine():
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kernel, load = (Path(path).read_text().split()[0] for path in ("/proc/sys/kernel/osrelease", "/proc/loadavg"))
    model = model[1] if model else "unknown"
    return f"Virtual machine, {os.cpu_count()} CPUs ({model}), kernel {kernel}, load average {load} at the end."


def write(command, rows):
    """Puts a block with these rows in the place of the older one of the same command."""
    lines = [f"date: {datetime.date.today()}", f"commit: {commit()}", f"command: {command}", f"machine: {machine()}", "runs: 2"]
    lines += [f"note: {NOTE}", *(" | ".join(row).strip() for row in rows)]
    blocks = (FILE.read_text() if FILE.exists() else HEAD).strip().split("\n\n")
    kept = [block for block in blocks if f"command: {command}" not in block.split("\n")]
    FILE.write_text("\n\n".join([*kept, "\n".join(lines)]) + "\n")


def expired(*_):
    raise TimeoutError(f"the run took longer than {LIMIT_S // 60} minutes")


def main():
    options = arguments()
    reason = missing()
    if reason is not None:
        print(f"not tried: {reason}")
        return 0
    from bench import Bench
    from experiments import EXPERIMENTS, capacity, warm

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, expired)
    signal.alarm(LIMIT_S)
    command = "cargo xtask ring" + "".join(f" --only {name}" for name in options.only or ()) + (" --quick" if options.quick else "")
    has_failed, rows, bench = False, [], Bench(0.2 if options.quick else 1)
    try:
        with bench:
            warm(bench)
            rate, rows = capacity(bench)
            for name in options.only or EXPERIMENTS:
                if time.monotonic() - bench.began > LAST_S:
                    bench.say(f"{name}: left out, it would end too late")
                    continue
                try:
                    found = EXPERIMENTS[name](bench, rate)
                except Exception as error:
                    traceback.print_exc()
                    bench.say(f"{name}: left out, it failed with {error!r}")
                    has_failed = True
                    if isinstance(error, TimeoutError):
                        raise
                    continue
                print(*(f"  {' | '.join(row)}" for row in found), sep="\n", flush=True)
                rows += found
    finally:
        if options.cells:
            options.cells.write_text(json.dumps(bench.cells, indent=1))
        if rows and not options.dry and not options.quick:
            write(command, rows)
            print(f"written to {FILE}; `cargo xtask benchmarks` renders the page", flush=True)
    bench.say("done")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
