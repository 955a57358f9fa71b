"""Interactive latency beside an unlimited batch load, over alone, in short interleaved phases (A B B A …).

    ~/.cache/fairlane/target/venv/bin/python tests/bench/interleaved.py target/release/fairlane [RATE]

The server has CPU 0, both loads CPU 1, the batch load there with the idle policy. One open loop of single-row reads runs throughout, at the rate
given (20000 a second); a closed loop of 256 slices of 100 rows comes and goes. Each has a service level, 1000 shares and 10. Printed: each
phase, and the median and spread of the ratios of neighbouring phases. `cargo xtask clients` makes the environment with the driver.
"""

import sys

from _bench import Server, interleaved

KEYS = ["--keys", "100000"]
SLICES = ["--keys", "2000", "--rows-per-partition", "100", "--columns", "1"]


def main(binary, rate="20000"):
    server = Server(binary, on_cpu_0=True)
    try:
        server.level("interactive", "shares = 1000")
        server.level("analytics", "shares = 10")
        server.run("admin", "prefill", *KEYS)
        server.run("admin", "prefill", *SLICES)
        server.settle()
        slices = ["slice", *SLICES, "--no-create", "--in-flight", "256", "--duration", "600s"]
        interleaved(server, "interactive", ["read", *KEYS, "--no-create"], rate, lambda: server.load("analytics", *slices, idle=True))
    finally:
        server.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
