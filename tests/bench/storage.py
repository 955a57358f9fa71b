"""What the storage engine does under load, one experiment a command; see docs/benchmarks.md.

    ~/.cache/fairlane/target/venv/bin/python tests/bench/storage.py target/release/fairlane EXPERIMENT [--rows N] [--seconds S] [--json FILE]

EXPERIMENT is one of

    ingest       rows of 300 bytes by a closed loop: rows a second, disk bandwidth by whose work it is, write amplification, size
    cache        point reads of a working set that fits the cache, alone and beside scans of the whole table: their hit rate
    shares       disk-bound reads of two levels with shares 1:4: the ratio of what they are answered
    sequential   interactive reads from disk, alone and beside unlimited scans of the same table in a level of 10 shares: p99

Table files are read past the page cache, so that what is not in the server's own cache comes from the disk. The table of `shares` has blocks of
512 KiB: with smaller ones a core has more to do than the disk, and CPU shares would be measured.
Each starts a server of its own on CPU 0 and a temporary folder, which is removed in the end; loads run on CPU 1. `cargo xtask clients`
makes the environment with the driver.
"""

import argparse
import json
import os
import signal
import statistics
import threading
import time

from _bench import Server, ended, written

# A key of 8 bytes beside it makes about 300.
ROW = ["--columns", "1", "--value-size", "290"]
TABLE = "keyspace1.columns1"


def server_on_a_core(binary, *flags):
    return Server(binary, "--request-timeout-ms", "3600000", *flags, on_cpu_0=True)


class Scans:
    """Full-table scans, one after the other, until stopped: counts, so that nothing but the server is busy with them."""

    def __init__(self, server, user):
        self.cluster = server.connect(user)
        self.session, self.rows, self.over, self.error = self.cluster.connect(), 0, False, None
        self.session.default_timeout = 3600
        self.thread = threading.Thread(target=self.scan)
        self.thread.start()

    def scan(self):
        try:
            while not self.over:
                self.rows += self.session.execute(f"SELECT count(*) FROM {TABLE}").one()[0]
        except Exception as error:  # told by the thread that waits for this one
            self.error = error

    def stop(self):
        self.over = True
        self.thread.join()
        self.cluster.shutdown()
        if self.error or self.rows == 0:
            raise SystemExit(f"no scan ended: {self.error}")
        return self.rows


def ingest(binary, rows, seconds):
    server = server_on_a_core(binary)
    try:
        before, samples, begun = server.metrics(), [], time.time()
        load = server.load("admin", "prefill", "--keys", str(rows), "--in-flight", "256", *ROW)
        while load.poll() is None:
            now = server.metrics()
            samples.append((time.time() - begun, *(written(now, group) for group in ("log", "flush", "compaction"))))
            time.sleep(1)
        taken = time.time() - begun
        ended(load)
        server.settle()
        after = server.metrics()
        size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(server.folder) for name in names)
        for a, b in zip(samples[::10], samples[10::10]):
            log, flush, compaction = ((y - x) / (b[0] - a[0]) / 1e6 for x, y in zip(a[1:], b[1:]))
            print(f"{a[0]:5.0f} s  log {log:6.1f}  flush {flush:6.1f}  compaction {compaction:6.1f} MB/s")
        log, flush, compaction = (written(after, g) - written(before, g) for g in ("log", "flush", "compaction"))
        return {
            "rows": rows,
            "rows_per_s": rows / taken,
            "log_bytes": log,
            "flush_bytes": flush,
            "compaction_bytes": compaction,
            "write_amplification": (flush + compaction) / max(flush, 1),
            "table_file_bytes": after["fairlane_table_file_bytes"],
            "folder_bytes": size,
            "samples": samples,
        }
    finally:
        server.end()


def cache(binary, rows, seconds):
    # The cache has a quarter of the memory: a thousand blocks of 64 KiB. Three hundred keys lie in as many blocks, which fit; the
    # table is far larger.
    server = server_on_a_core(binary, "--memory", "256MiB")
    try:
        server.run("admin", "prefill", "--keys", str(rows), "--in-flight", "256", *ROW)
        server.settle()
        reads = ["read", "--keys", str(rows), "--slice", f"1/{max(rows // 300, 1)}", "--no-create", "--rate", "2000", *ROW]
        server.run("admin", *reads, "--duration", f"{seconds}s")

        def hit_rate(phase):
            before = server.metrics()
            outcome = server.run("admin", *reads, "--duration", f"{seconds}s")
            after = server.metrics()
            # Scans of whole tables pass the cache by, and are no lookups.
            hit, missed = (after[name] - before[name] for name in ("fairlane_cache_hits_total", "fairlane_cache_misses_total"))
            latency = outcome["steps"][0]["reads"]["latency"]
            print(f"{phase}: {hit / max(hit + missed, 1) * 100:.2f} % of {hit + missed:.0f} lookups, p99 {latency['p99_us']:.0f} us")
            return hit / max(hit + missed, 1)

        server.level("scans", "shares = 10")
        alone = hit_rate("alone")
        scans = Scans(server, "scans")
        beside = hit_rate("beside scans")
        return {"alone": alone, "beside": beside, "points_lost": (alone - beside) * 100, "rows_scanned": scans.stop()}
    finally:
        server.end()


def shares(binary, rows, seconds):
    # A cache that holds next to nothing of the table, so that each read is one of the disk.
    server = server_on_a_core(binary, "--memory", "64MiB")
    try:
        server.run("admin", "prefill", "--keys", "1", *ROW)
        blocks = "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 512}"
        server.session.execute(f"ALTER TABLE {TABLE} WITH compression = {blocks}")
        server.run("admin", "prefill", "--keys", str(rows), "--in-flight", "256", *ROW)
        server.settle()
        for name, weight in (("one", 100), ("four", 400)):
            server.level(name, f"shares = {weight}")
        reads = ["read", "--keys", str(rows), "--no-create", "--in-flight", "128", "--warmup", "3s", "--duration", f"{seconds}s", *ROW]
        loads = [server.load(name, *reads, "--seed", seed) for name, seed in (("one", "1"), ("four", "2"))]
        # Only while both ask for more than there is.
        time.sleep(5)
        before, begun = server.metrics(), time.time()
        time.sleep(max(seconds - 4, 1))
        after, taken = server.metrics(), time.time() - begun
        one, four = (ended(load)["steps"][0]["throughput_per_s"] for load in loads)

        def grown(name, level, more=""):
            series = f'{name}{{level="{level}"{more}}}'
            return after[series] - before.get(series, 0)

        read = [grown("fairlane_disk_bytes_total", level, ',direction="read"') for level in ("one", "four")]
        return {
            "one_reads_per_s": one,
            "four_reads_per_s": four,
            "disk_mb_per_s": sum(read) / taken / 1e6,
            "answered": four / max(one, 1e-9),
            "read": read[1] / max(read[0], 1),
        }
    finally:
        server.end()


def sequential(binary, rows, seconds):
    server = server_on_a_core(binary, "--memory", "64MiB")
    try:
        server.run("admin", "prefill", "--keys", str(rows), "--in-flight", "256", *ROW)
        server.settle()
        server.level("interactive", "shares = 1000")
        server.level("scans", "shares = 10")
        reads = ["read", "--keys", str(rows), "--no-create", "--rate", "500", "--duration", f"{seconds}s", "--warmup", "1s", *ROW]
        p99 = {"alone": [], "beside": []}
        # A B B A, so that a machine that grows slower or faster is told from what is compared; pairs are neighbours.
        for phase in ("alone", "beside", "beside", "alone") * 2:
            scans = Scans(server, "scans") if phase == "beside" else None
            latency = server.run("interactive", *reads)["steps"][0]["reads"]["latency"]
            rows_scanned = scans.stop() if scans else 0
            p99[phase].append(latency["p99_us"])
            print(f"{phase}: p50 {latency['p50_us']:.0f} us, p99 {latency['p99_us']:.0f} us, {rows_scanned} rows scanned")
        alone, beside = (statistics.median(p99[phase]) for phase in ("alone", "beside"))
        ratios = [b / a for a, b in zip(p99["alone"], p99["beside"])]
        return {
            "p99_alone_us": alone,
            "p99_beside_us": beside,
            "ratio": statistics.median(ratios),
            "ratio_least": min(ratios),
            "ratio_most": max(ratios),
        }
    finally:
        server.end()


# What is asked of a figure: in words, and whether it is met.
GOALS = {
    "points_lost": ("at most 1", lambda value: value <= 1),
    "answered": ("4 within 5 %", lambda value: abs(value / 4 - 1) <= 0.05),
    "read": ("4 within 5 %", lambda value: abs(value / 4 - 1) <= 0.05),
    "ratio": ("at most 2", lambda value: value <= 2),
}
EXPERIMENTS = {"ingest": ingest, "cache": cache, "shares": shares, "sequential": sequential}
ROWS = {"ingest": 10_000_000, "cache": 5_000_000, "shares": 5_000_000, "sequential": 5_000_000}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--json")
    asked = parser.parse_args()
    # What is asked to end cleans up as what is interrupted.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    found = EXPERIMENTS[asked.experiment](asked.binary, asked.rows or ROWS[asked.experiment], asked.seconds)
    for name, value in found.items():
        if name == "samples":
            continue
        goal, met = GOALS.get(name, ("", None))
        verdict = "" if met is None else "met" if met(value) else "NOT MET"
        number = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        print(f"{name:22} {number:>18}  {goal:14} {verdict}".rstrip())
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
