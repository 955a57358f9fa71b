"""Figures and failures of fronts before a ring of three nodes of Apache Cassandra: `cargo xtask ring` runs this program, which needs
Java and Maven. It takes about an hour, writes its rows into bench/results, and stops what it starts."""

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
    f"Three nodes of Apache Cassandra {VERSION} with 1 GiB of heap each. Times and rates: nodes share CPU 1; front, loads and this "
    "program share CPU 0; nodes are warm. Outcomes, which are counts: nodes use both CPUs, and are not warm. "
    "Every node has a copy of each row, of 170 bytes for times, so that both ways each request reaches a replica. Variants were measured in one "
    "order and then in the other. Results of both are joined by *and*, or are a median with a range. *Others* is the part of one CPU "
    "that other programs used, at worst; above 10 % times decide nothing. *Undecided* is a result, too, whose repetitions are farther "
    "apart than their median is from the goal."
)
# Limit of a run beside its soak. An experiment that begins later than the second number is left out.
LIMIT_S, LAST_S = 90 * 60, 80 * 60


def arguments():
    from index import EXPERIMENTS

    shown = "\n".join(f"  {name:18} {experiment.about()}" for name, experiment in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="cargo xtask ring", description=__doc__, epilog=f"experiments:\n{shown}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the time: shows that it works, and decides no time")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="this experiment; may be repeated")
    parser.add_argument("--minutes", type=int, default=60, help="time of the soak, which runs by name only")
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


def ended(number, _frame):
    raise TimeoutError("the run took too long" if number == signal.SIGALRM else "the run was ended by SIGTERM")


def measured(bench, names, experiments, rows):
    """Runs experiments with one ring, and appends their rows. Returns false if one failed."""
    from warm import capacity

    is_sound, rate = True, None
    for name in names:
        if time.monotonic() - bench.began > LAST_S:
            bench.say(f"{name}: left out, it would end too late")
            continue
        try:
            if rate is None and experiments[name].has_rate:
                rate, found = capacity(bench)
                rows += found
            found = experiments[name].run(bench, rate)
        except Exception as error:
            traceback.print_exc()
            bench.say(f"{name}: left out, it failed with {error!r}")
            is_sound = False
            if isinstance(error, TimeoutError):
                raise
            continue
        print(*(f"  {' | '.join(row)}" for row in found), sep="\n", flush=True)
        rows += found
    return is_sound


def main():
    options = arguments()
    reason = missing()
    if reason is not None:
        print(f"not tried: {reason}")
        return 0
    from bench import Bench
    from index import EXPERIMENTS

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, ended)
    names = options.only or [name for name, experiment in EXPERIMENTS.items() if not experiment.is_by_name]
    signal.alarm(LIMIT_S + 60 * options.minutes * ("soak" in names))
    command = "cargo xtask ring" + "".join(f" --only {name}" for name in options.only or ()) + (" --quick" if options.quick else "")
    is_sound, rows, cells, began = True, [], [], time.monotonic()
    try:
        # One ring after the other, each with all that needs it.
        ring_of = lambda name: (EXPERIMENTS[name].datacenters, EXPERIMENTS[name].has_rate)
        for ring in dict.fromkeys(map(ring_of, names)):
            with Bench(*ring, 0.2 if options.quick else 1, began, options.minutes) as bench:
                cells.append(bench.cells)
                is_sound &= measured(bench, [name for name in names if ring_of(name) == ring], EXPERIMENTS, rows)
    finally:
        if options.cells:
            options.cells.write_text(json.dumps([cell for some in cells for cell in some], indent=1))
        if rows and not options.dry and not options.quick:
            write(command, rows)
            print(f"written to {FILE}; `cargo xtask benchmarks` renders the page", flush=True)
    bench.say("done")
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
