"""How well `latency_target` holds the p99 of a level while a neighbour comes, grows and goes.

    target/venv/bin/python tests/bench/latency_target.py target/release/fairlane [RATE [TARGET_MS]]

The server has CPU 0, the loads CPU 1. An open loop of single-row reads runs throughout, at the rate given (15000 a second), with a target of 5 ms.
The neighbour reads slices of 100 rows: an open loop at two rates, then closed loops of 16 and 256 slices, then it leaves. Printed for each window of
ten seconds: the p99 that the client saw, and from `system.level_usage` the last decision. Windows without a neighbour, or with a slow one, meet the
target by being faster: there the lower bound of 80 % does not count. `cargo xtask clients` makes the environment with the driver.
"""

import sys
import time

from _bench import Server, ended, ended_well

KEYS = ["--keys", "100000"]
SLICES = ["--keys", "2000", "--rows-per-partition", "100", "--columns", "1"]
WINDOW_S = 10
# Windows of each phase, and the neighbour's load.
PHASES = [
    (2, None),
    (3, ["--rate", "300"]),
    (4, ["--rate", "1500"]),
    (6, ["--in-flight", "16"]),
    (6, ["--in-flight", "256"]),
    (2, None),
    (4, ["--in-flight", "256"]),
    (2, None),
]
SHOWN = "SELECT shares_now, latency_p99_us, latency_decision FROM system.level_usage WHERE service_level = 'oltp' ALLOW FILTERING"


def main(binary, rate="15000", target_ms="5"):
    server = Server(binary, on_cpu_0=True)
    try:
        target_us = float(target_ms) * 1000
        bounds = "shares = 500 AND shares_min = 20 AND shares_max = 1000"
        server.level("oltp", f"{bounds} AND latency_target = 'p99 < {target_ms}ms'")
        server.level("olap", "shares = 200")
        server.run("admin", "prefill", *KEYS)
        server.run("admin", "prefill", *SLICES)
        server.settle()
        windows = [load for count, load in PHASES for _ in range(count)]
        steps = ",".join(f"{rate}:{WINDOW_S}s" for _ in windows)
        steady = server.load("oltp", "read", *KEYS, "--no-create", "--rate", steps)
        began, neighbour, present, decisions = time.time(), None, None, []
        for index, load in enumerate(windows):
            if load is not present:
                if neighbour:
                    ended(neighbour, stop=True)
                neighbour = load and server.load("olap", "slice", *SLICES, "--no-create", *load, "--duration", "600s", idle=True)
                present = load
            time.sleep(max(0, began + (index + 1) * WINDOW_S - 0.2 - time.time()))
            decisions.append(server.session.execute(SHOWN).one())
        if neighbour:
            ended(neighbour, stop=True)
        report = ended_well(steady)
    finally:
        server.end()

    held = contended = within = 0
    for load, step, decision in zip(windows, report["steps"], decisions):
        p99_us = step["reads"]["latency"]["p99_us"]
        is_closed = bool(load) and "--in-flight" in load
        is_held = p99_us <= 1.2 * target_us
        is_within = is_held and p99_us >= 0.8 * target_us
        held, contended, within = held + is_held, contended + is_closed, within + (is_closed and is_within)
        print(
            f"{' '.join(load or ['alone']):16} p99 {p99_us / 1000:7.2f} ms, {step['answered'] / step['due'] * 100:6.2f} % answered; "
            f"server {decision.latency_p99_us / 1000:7.2f} ms, {decision.shares_now} shares, {decision.latency_decision}",
        )
    print(f"at most 120 % of the target in {held} of {len(windows)} windows; 80 to 120 % in {within} of {contended} beside a closed loop")
    print(f"the sender used {report['generator_cpu'] * 100:.0f} % of its core")


if __name__ == "__main__":
    main(*sys.argv[1:])
