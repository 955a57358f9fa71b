"""Two fronts as one: one of them is killed, a limit on concurrency holds over both, and a change of a level at one acts at the other."""

import contextlib
import threading
import time

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy
from cassandra.query import SimpleStatement

from _server import PASSWORD, PATIENCE_S
from bench import KEYSPACE, two_fronts
from clients import TABLE, completed, create, failures, kind, loops_of, running, sessions, until
from failures import cells_of, noted
from results import Row, counted, machine, pair, judged, spread

# Statements of the level that may run at once, and those that each front is asked for at once.
LIMIT, ASKED = 4, 8
# Marks statements for `system_views.queries` of the nodes. A statement reads the whole table, for about a second.
MARK = "/* limited */"
SLOW = f"SELECT count(*) {MARK} FROM {KEYSPACE}.standard1"
# Leases of a dead front are free after ten seconds (section 8).
LEASE_S = 10
# Time for which nodes are counted, seconds, and changes that are timed.
WATCHED_S, CHANGES = 12, 20


def front_killed(bench, _rate):
    """Clients that know both fronts go on with the other one when theirs is killed, and come back to it after its start."""
    create(bench)
    for run in (0, 1):
        with two_fronts(bench) as fronts, contextlib.ExitStack() as stack, bench.cell("front killed", f"front {run + 1}") as found:
            loops = []
            for number in range(4):
                profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=PATIENCE_S)
                driver = Cluster(
                    [fronts[number % 2].host], port=fronts[number % 2].port, protocol_version=5,
                    auth_provider=PlainTextAuthProvider("admin", PASSWORD), execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                    reconnection_policy=ConstantReconnectionPolicy(0.5, None), connect_timeout=PATIENCE_S,
                    control_connection_timeout=PATIENCE_S,
                )  # fmt: skip
                session = stack.enter_context(driver).connect()
                until("a driver finds both fronts", lambda: sum(host.is_up or 0 for host in driver.metadata.all_hosts()) == 2)
                loops += loops_of(session, f"driver {number + 1}")
            with running(loops):
                began = time.monotonic()
                fronts[run].crash()
                completed(loops)
                found["gone_s"] = time.monotonic() - began
                time.sleep(2 * LEASE_S)
                before = len(failures(loops, ""))
                fronts[run].start()
                with sessions([fronts[run]]) as (session,):
                    count = lambda: sum(row.requests for row in session.execute("SELECT requests FROM system.nodes"))
                    found["used_s"] = until("the front is used again", lambda: count() > 200)
                completed(loops)
            found["later"] = len(failures(loops, "")) - before
            noted(found, fronts, loops, began)
            found["shown"] += f"\n    used again {found['used_s']:.1f} s after its start, {found['later']} failures after it"
    cells = cells_of(bench, "front killed")
    what = "front killed under clients that know both"
    last = pair([cell["last_s"] for cell in cells], "{:.1f}")
    seen = " and ".join(f"reads {cell['reads']}, writes {cell['writes']}" for cell in cells)
    goes_on = [cell["last_s"] <= 5 and cell["later"] == 0 for cell in cells]
    return [Row(f"{what}: failures", f"{seen}; the last after {last} s", "", "none after 5 s", counted(goes_on))]


class Asker(threading.Thread):
    """Keeps `ASKED` slow statements in flight at one front, in the level of role `a`."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.ended, self.completed, self.failures = session, False, 0, []
        self.places = threading.Semaphore(ASKED)

    def run(self):
        statement = SimpleStatement(SLOW, consistency_level=ConsistencyLevel.ONE)
        while not self.ended:
            self.places.acquire()
            self.session.execute_async(statement).add_callbacks(self.answered, self.failed)

    def answered(self, _rows):
        self.completed += 1
        self.places.release()

    def failed(self, error):
        self.failures.append((time.monotonic(), kind(error), str(error)))
        threading.Timer(0.2, self.places.release).start()


def at_once(readers, since):
    """Returns the number of marked statements that ran at all nodes at one moment, and began after `since`. Nodes are read one after
    the other: those that began after the first reading do not count. It may miss one that ended meanwhile, and never counts two that
    followed each other."""
    began, count = time.monotonic(), 0
    for session, statement in readers:
        rows = list(session.execute(statement))
        now = time.monotonic()
        ages = [row.running_micros / 1e6 for row in rows if MARK in (row.task or "")]
        count += sum(now - began <= age <= now - since for age in ages)
    return count


def limited(bench, _rate):
    """`max_concurrency` over two fronts, while the limit is changed and while a front is killed. The nodes count, not the fronts."""
    with contextlib.ExitStack() as stack:
        readers = []
        for node in bench.ring.nodes:
            session = stack.enter_context(node.cluster()).connect()
            statement = session.prepare("SELECT thread_id, running_micros, task FROM system_views.queries")
            statement.consistency_level = ConsistencyLevel.ONE
            readers.append((session, statement))
        fill(bench)
        for run in (1, 2):
            # Statements take as long as they need: nodes go on with those that a front has given up.
            levels = [("a", f"max_concurrency = {LIMIT} AND timeout = 60s")]
            with two_fronts(bench, levels=levels, timeout_ms=60_000) as fronts, bench.cell("max_concurrency", f"run {run}") as found:
                with sessions(fronts, "a") as through:
                    askers = [Asker(session) for session in through]
                    for asker in askers:
                        asker.start()
                    until("statements through both fronts", lambda: all(asker.completed > 0 for asker in askers))
                    found["most"] = {"two fronts": watched(readers, WATCHED_S)}
                    fronts[0].session.execute(f"ALTER SERVICE LEVEL a WITH max_concurrency = {LIMIT // 2}")
                    # It is in force everywhere two seconds later. Those that began before may run on.
                    time.sleep(2)
                    found["most"]["half the limit"] = watched(readers, WATCHED_S)
                    fronts[0].session.execute(f"ALTER SERVICE LEVEL a WITH max_concurrency = {LIMIT}")
                    time.sleep(3)
                    askers[1].ended = True
                    fronts[1].crash()
                    found["most"]["a front killed"] = watched(readers, LEASE_S + 5)
                    found["most"]["one front"] = watched(readers, WATCHED_S)
                    for asker in askers:
                        asker.ended = True
                found["completed"] = [asker.completed for asker in askers]
                found["log"] = [line for front in fronts for line in front.complaints()]
                found["shown"] = "; ".join(f"{name}: {most} at once" for name, most in found["most"].items())
                found["shown"] += f"; {found['completed']} completed, other failures: {[asker.failures[:2] for asker in askers]}"
                found["shown"] += "".join(f"\n    log: {line[:300]}" for line in found["log"][:10])
                fronts[1].start()
    cells = cells_of(bench, "max_concurrency")
    rows = []
    for name, limit in (("two fronts", LIMIT), ("half the limit", LIMIT // 2), ("a front killed", LIMIT), ("one front", LIMIT)):
        most = [cell["most"][name] for cell in cells]
        what = f"statements at once at the nodes with max_concurrency = {limit}, {name}, at most"
        rows.append(Row(what, pair(most, "{}"), "", f"≤ {limit}", counted(n <= limit for n in most)))
    return rows


def fill(bench):
    bench.run("fill", "table", "prefill", "--in-flight", 96, seconds=240)


def watched(readers, seconds):
    """Returns the most statements that began during some time and ran at once, of readings over that time."""
    since, most = time.monotonic(), 0
    while time.monotonic() < since + seconds:
        most = max(most, at_once(readers, since))
        time.sleep(0.02)
    return most


def changes(bench, _rate):
    """The time until a change of a level at one front acts at the other: a tag that refuses QUORUM, and one that does not."""
    create(bench)
    took = []
    with two_fronts(bench, levels=[("a", "tag = 'nodes:127.0.0.1'")]) as fronts, sessions([fronts[1]], "a") as (session,):
        read = SimpleStatement(f"SELECT v FROM {TABLE} WHERE k = 7", consistency_level=ConsistencyLevel.QUORUM)

        def is_refused():
            try:
                session.execute(read)
                return False
            except InvalidRequest:
                return True

        until("the level at the other front", lambda: not is_refused())
        with bench.cell("changes", f"{CHANGES} of a level") as found:
            for number in range(CHANGES):
                tag = "nodes:127.0.0.1" if number % 2 else "dc:a"
                fronts[0].session.execute(f"ALTER SERVICE LEVEL a WITH tag = '{tag}'")
                took.append(until(f"the tag {tag} at the other front", lambda: is_refused() == (tag == "dc:a")))
            found["seconds"], found["shown"] = took, spread(took) + " s"
    what = f"time until a change of a level acts at the other front, {CHANGES} changes"
    return [Row(what, f"{spread(took)} {machine([found])}", "s", "≤ 2, at most", judged([max(took)], [found], most=2))]
