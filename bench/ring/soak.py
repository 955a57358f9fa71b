"""Two fronts in use for long: loads, drivers that come and go, statements, changes of levels and schema, and restarts. What grows?"""

import contextlib
import random
import re
import time
from pathlib import Path

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from bench import KEYSPACE, two_fronts
from clients import TABLE, create, failed, kind, loops_of, sessions
from fleet import cluster
from results import Row

LEVELS = [("a", "shares = 200"), ("b", "shares = 800 AND max_concurrency = 64"), ("c", "shares = 400 AND workload_type = 'batch'")]
# Events in turn, one every so many seconds. Readings follow when the loads rest.
EVENTS, EVENT_S = ("alter", "sessions", "prepare", "schema", "alter", "front", "sessions", "prepare", "node", "stop"), 12
READINGS = 6
# Loads rest this long before a reading, so that requests in flight are those that were left behind.
REST_S = 12
SESSIONS, STATEMENTS = 8, 50


def reading(bench, fronts):
    """Reads memory, descriptors and connections of the fronts."""
    found = {}
    for number, front in enumerate(fronts, 1):
        process = Path(f"/proc/{front.process.pid}")
        status = process.joinpath("status").read_text()
        found[f"front {number} RSS, MiB"] = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024
        found[f"front {number} threads"] = int(re.search(r"Threads:\s+(\d+)", status)[1])
        found[f"front {number} descriptors"] = len(list(process.joinpath("fd").iterdir()))
        with cluster(front) as driver:
            session = driver.connect()
            # The driver reads the schema when it connects, and the table is a moment old.
            time.sleep(1)
            rows = list(session.execute("SELECT * FROM system.nodes"))
            found[f"front {number} requests in flight at nodes"] = sum(row.in_flight for row in rows)
            found[f"front {number} requests waiting"] = sum(row.queued for row in rows)
            found[f"front {number} sessions"] = len(list(session.execute("SELECT id FROM system.connections")))
            for row in session.execute("SELECT purpose, bytes FROM system.memory"):
                key = f"front {number} memory of {row.purpose}, KiB"
                found[key] = found.get(key, 0) + row.bytes // 1024
    for node in bench.ring.nodes:
        with node.cluster() as driver:
            rows = driver.connect().execute("SELECT username FROM system_views.clients")
            # The driver that asks has two.
            found[f"connections at {node.host}"] = len(list(rows)) - 2
    return found


class Soak:
    """Events of a soak, and the errors that clients saw, by event and kind."""

    def __init__(self, bench, fronts):
        self.bench, self.fronts, self.random, self.errors, self.count, self.texts = bench, fronts, random.Random(1), {}, {}, {}
        self.tables = 0

    def note(self, error):
        key = f"{self.event}: {kind(error)}"
        self.errors[key] = self.errors.get(key, 0) + 1
        self.texts.setdefault(key, str(error)[:200])

    def run(self, event):
        self.event = event
        self.count[event] = self.count.get(event, 0) + 1
        try:
            getattr(self, event)()
        except Exception as error:
            self.note(error)

    def front_of_choice(self):
        return self.random.choice(self.fronts)

    def alter(self):
        with cluster(self.front_of_choice()) as driver:
            session = driver.connect()
            for level, _ in LEVELS:
                session.execute(f"ALTER SERVICE LEVEL {level} WITH shares = {self.random.randint(1, 1000)}")
            name = f"extra{self.count['alter']}"
            session.execute(f"CREATE SERVICE LEVEL {name} WITH shares = 10")
            session.execute(f"DROP SERVICE LEVEL {name}")

    def sessions(self):
        """Opens sessions at once, half of them with a keyspace, and closes them with requests in flight."""
        drivers = []
        try:
            for number in range(SESSIONS):
                drivers.append(cluster(self.front_of_choice(), self.random.choice("abc")))
                session = drivers[-1].connect(KEYSPACE if number % 2 else None)
                for _ in range(20):
                    session.execute_async(f"SELECT v FROM {TABLE} WHERE k = {self.random.randint(0, 100)}").add_errback(self.note)
        finally:
            for driver in drivers:
                driver.shutdown()

    def prepare(self):
        with cluster(self.front_of_choice(), "a") as driver:
            session = driver.connect()
            for _ in range(STATEMENTS):
                # Each a text of its own.
                text = f"SELECT v AS v{self.random.getrandbits(60)} FROM {TABLE} WHERE k = ?"
                session.execute(session.prepare(text), [7])

    def schema(self):
        with cluster(self.front_of_choice()) as driver:
            session = driver.connect()
            self.tables += 1
            name = f"outcomes.extra{self.tables}"
            session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
            session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")
            session.execute(f"ALTER TABLE {name} ADD w int")
            session.execute(SimpleStatement(f"SELECT * FROM {name}", consistency_level=ConsistencyLevel.ONE))
            session.execute(f"DROP TABLE {name}")

    def front(self):
        """The second front, by SIGKILL and by SIGTERM in turn. The first one stays, to show what grows."""
        front = self.fronts[1]
        if self.count["front"] % 2:
            front.crash()
        else:
            front.process.terminate()
            front.process.wait(60)
            front.process.stdout.close()
        front.start()

    def node(self):
        node = self.bench.ring.nodes[self.count["node"] % 3]
        if self.count["node"] % 2:
            node.stop()
        else:
            node.crash()
        node.start()
        node.wait()

    def stop(self):
        node = self.random.choice(self.bench.ring.nodes)
        node.pause()
        time.sleep(8)
        node.resume()


def soak(bench, _rate):
    """Two fronts in use for `--minutes`, with restarts of a front and of nodes. What grows is read at the start, midway and at the end."""
    create(bench)
    bench.run("fill", "table", "prefill", "--in-flight", 96, seconds=240)
    readings, ends_s = [], time.monotonic() + 60 * bench.minutes
    with two_fronts(bench, levels=LEVELS) as fronts, bench.cell("soak", f"{bench.minutes} minutes") as found:
        time.sleep(2)
        events, reports, loops = Soak(bench, fronts), [], []
        readings.append(reading(bench, fronts))
        turn, began = 0, time.monotonic()
        for part in range(READINGS):
            part_ends_s = time.monotonic() + (ends_s - time.monotonic()) / (READINGS - part) - REST_S
            seconds = max(5, round(part_ends_s - time.monotonic()))
            with contextlib.ExitStack() as stack:
                flags = ("--in-flight", 16, "--duration", f"{seconds}s", "--drain", "10s")
                loads = [bench.start("mixed", *flags, user=user, connections=8) for user in "ab"]
                loads.append(bench.start("scan", "--duration", f"{seconds}s", user="c", connections=2, hosts=fronts[0].hosts))
                through = stack.enter_context(sessions(fronts, "a"))
                running = [loop for number, session in enumerate(through) for loop in loops_of(session, f"front {number + 1}", each=1)]
                for loop in running:
                    loop.start()
                while time.monotonic() < part_ends_s:
                    before = time.monotonic()
                    events.run(EVENTS[turn % len(EVENTS)])
                    bench.say(f"soak: {EVENTS[turn % len(EVENTS)]}, {time.monotonic() - before:.0f} s; errors {sum(events.errors.values())}")
                    turn += 1
                    time.sleep(max(0.0, min(before + EVENT_S, part_ends_s) - time.monotonic()))
                for loop in running:
                    loop.ended = True
                for loop in running:
                    loop.join(60)
                loops += running
                for load in loads:
                    with contextlib.suppress(AssertionError):
                        reports.append(bench.finish(load, seconds))
            time.sleep(REST_S)
            readings.append(reading(bench, fronts))
            bench.say(f"soak: {', '.join(f'{name} {n}' for name, n in readings[-1].items() if n)}")
        found["readings"], found["events"], found["errors"], found["texts"] = readings, events.count, events.errors, events.texts
        found["failures"], found["reports"] = failed(loops, began), [brief(report) for report in reports]
        found["log"] = {number: lines_by_kind(front.complaints()) for number, front in enumerate(fronts, 1)}
        of_loops = {key: seen["number"] for key, seen in found["failures"].items()}
        found["shown"] = f"events {events.count}; errors of events {events.errors}, {events.texts}; of loops {of_loops}"
        for report in found["reports"]:
            found["shown"] += f"\n    load: {report}"
        for number, lines in found["log"].items():
            found["shown"] += f"\n    log of front {number}: {lines}"
    return rows_of(bench.minutes, found)


def brief(report):
    if "steps" not in report:
        return {name: report[name] for name in ("pages", "errors")}
    step = report["steps"][-1]
    names = ("answered", "errors", "lost", "unanswered", "unsent", "connections_broken", "error_codes")
    return {name: step[name] for name in names}


def lines_by_kind(lines):
    """Returns the number of lines of a log by their phrase, without times and fields."""
    found = {}
    for line in lines:
        phrase = re.sub(r"[0-9a-f]{8}-[0-9a-f-]+|\d+", "N", line.split(" ", 1)[-1])[:120]
        found[phrase] = found.get(phrase, 0) + 1
    return found


def rows_of(minutes, found):
    """Returns rows of what is read at the start, in the middle and at the end, and of errors."""
    first, middle, last = (found["readings"][index] for index in (0, READINGS // 2, -1))
    rows = []
    for name in last:
        values = [reading.get(name, 0) for reading in (first, middle, last)]
        if max(values) > 0:
            rows.append(Row(f"soak of {minutes} minutes, {name}, at the start · in the middle · at the end", " · ".join(map(str, values))))
    errors = {**found["errors"], **{key: seen["number"] for key, seen in found["failures"].items()}}
    rows.append(Row(f"soak of {minutes} minutes, errors", ", ".join(f"{n} {key}" for key, n in sorted(errors.items())) or "0"))
    return rows
