"""Clients of the Python driver, which note each failure. They repeat nothing themselves, so that a failure is the front's answer, or
that of its connection."""

import contextlib
import re
import time

from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable

from _server import PATIENCE_S
from bench import ROLES
from fleet import cluster
from ring import COMPLETED, Client, numbers, under
from ring import completed as all_completed

# Time in which every loop completes some statements.
SECONDS = 2 * PATIENCE_S
# Wait after a failure, seconds.
REST_S = 0.02
# Failures whose text is kept, of each kind.
TEXTS = 3


def kind(error):
    """Returns the name of an error, or that of the first host for which a driver had none to ask."""
    if isinstance(error, NoHostAvailable) and error.errors:
        error = next(iter(error.errors.values()))
    return re.sub("(Error)?Message$", "", type(error).__name__)


class Loop(Client):
    """A client that counts failures apart, each with its time, kind and text."""

    def __init__(self, session, statement, next, name):
        super().__init__(session, statement, next, name=name)
        self.slowest_s = 0.0

    def run(self):
        while not self.ended:
            began = time.monotonic()
            try:
                self.session.execute(self.statement, self.next())
                self.completed += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            except Exception as error:
                if not self.ended:
                    self.failures.append((time.monotonic(), kind(error), str(error)))
                time.sleep(REST_S)


TABLE = "outcomes.t"


def create(bench):
    """Creates the table of the clients, with a copy of each row at each node."""
    with bench.ring.nodes[0].cluster() as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS outcomes WITH replication = {bench.ring.replication()}")
        session.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (k int PRIMARY KEY, v int)")
        session.execute(f"INSERT INTO {TABLE} (k, v) VALUES (7, 7)")
        for role in ROLES:
            session.execute(f"GRANT SELECT ON KEYSPACE outcomes TO {role}")
            session.execute(f"GRANT MODIFY ON KEYSPACE outcomes TO {role}")


def loops_of(session, name, reads=("LOCAL_ONE", "LOCAL_QUORUM"), writes=("LOCAL_QUORUM",), each=4):
    """Returns loops of reads and writes in a session, `each` of every consistency."""
    loops = []
    for consistency in (*reads, *writes):
        is_write = len(loops) >= each * len(reads)
        text = f"INSERT INTO {TABLE} (k, v) VALUES (?, ?)" if is_write else f"SELECT v FROM {TABLE} WHERE k = ?"
        statement = session.prepare(text)
        statement.consistency_level = ConsistencyLevel.name_to_value[consistency]
        for _ in range(each):
            number = len(loops)
            values = numbers(1_000_000 * number + 1000) if is_write else lambda: [7]
            word = "write" if is_write else "read"
            loops.append(Loop(session, statement, values, f"{word} at {consistency}, {name}"))
    return loops


@contextlib.contextmanager
def sessions(fronts, role="admin"):
    """One session through each front, which asks no other one."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(cluster(front, role)).connect() for front in fronts]


def running(loops):
    """Runs loops until the end of the block."""
    return under(loops, SECONDS)


def completed(loops, statements=COMPLETED):
    """Waits until every loop has completed this number of further statements."""
    all_completed(loops, statements, SECONDS)


def until(what, done, seconds=PATIENCE_S):
    """Waits until `done` returns something true, and returns how long that took."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() < began + seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def failed(loops, began):
    """Returns failures by the names of their loops and their kinds: number, times after `began` of the first and the last, and some
    texts."""
    found = {}
    for loop in loops:
        for at, name, text in loop.failures:
            key = f"{loop.name.split(',')[0]}: {name}"
            seen = found.setdefault(key, {"number": 0, "first_s": at - began, "last_s": at - began, "texts": []})
            seen["number"] += 1
            seen["first_s"], seen["last_s"] = min(seen["first_s"], at - began), max(seen["last_s"], at - began)
            if len(seen["texts"]) < TEXTS and text not in seen["texts"]:
                seen["texts"].append(text)
    return found


def failures(loops, word):
    """Returns the failures of loops of reads or of writes."""
    return [failure for loop in loops if loop.name.startswith(word) for failure in loop.failures]


def listed(loops, word):
    """Returns the number of failures of reads or writes, by kind, and of completed ones, as text."""
    kinds = {}
    for _, name, _ in failures(loops, word):
        kinds[name] = kinds.get(name, 0) + 1
    text = ", ".join(f"{number} {name}" for name, number in sorted(kinds.items())) or "0"
    return f"{text} of {sum(loop.completed for loop in loops if loop.name.startswith(word))}"
