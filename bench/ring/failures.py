"""Nodes that fail under clients of two fronts. Failures are counted by kind, which a busy machine does not change. All nodes have
each row, and answer LOCAL_QUORUM while one of them is away."""

import statistics
import time

from _ring import retried
from bench import two_fronts
from clients import completed, create, failed, failures, listed, loops_of, running, sessions, until
from results import Row, counted, pair

# A node that is silent is given up after four seconds (docs/cluster.md, Failures), and another second.
GIVEN_UP_S = 5
# Time for which a node is stopped, seconds.
STOPPED_S = 15
# Requests that a node answers, before it counts as used again.
USED = 50
# Longest time until a node is used again after its start, seconds.
USED_S = 120


def loops_of_all(through):
    return [loop for number, session in enumerate(through) for loop in loops_of(session, f"front {number + 1}")]


def answered_by(fronts, node):
    """Returns the number of requests that a node has answered to fronts."""
    return sum(row["requests"] for front in fronts for row in front.nodes()["rows"] if row["node"].startswith(f"{node.host}:"))


def used_again(fronts, node):
    """Waits until both fronts use a node again, and returns how long that took, seconds."""
    before = [answered_by([front], node) for front in fronts]
    is_used = lambda: all(answered_by([front], node) >= least + USED for front, least in zip(fronts, before))
    return until(f"{node.host} is used again", is_used, USED_S)


def noted(found, fronts, loops, began):
    """Puts what clients saw since `began` into a cell."""
    found["reads"], found["writes"] = listed(loops, "read"), listed(loops, "write")
    found["failures"], found["log"] = failed(loops, began), [line for front in fronts for line in front.complaints()]
    found["last_s"] = max((at - began for loop in loops for at, *_ in loop.failures), default=0.0)
    found["slowest_s"] = max(loop.slowest_s for loop in loops)
    found["shown"] = f"failed reads {found['reads']}; failed writes {found['writes']}; slowest {found['slowest_s']:.1f} s"
    for key, seen in found["failures"].items():
        found["shown"] += f"\n    {key}: {seen['number']}, after {seen['first_s']:.2f} to {seen['last_s']:.2f} s: {seen['texts'][0]}"
    for line in found["log"][:20]:
        found["shown"] += f"\n    log: {line[:300]}"


def away(bench, name, leave, back):
    """A node is away for a while, by `leave` until `back`. Returns the cells."""
    create(bench)
    cells = []
    # Not the contact point of the control connection, and then that one.
    for node in (bench.ring.nodes[1], bench.ring.nodes[0]):
        with two_fronts(bench) as fronts, sessions(fronts) as through, bench.cell(name, node.host) as found:
            loops = loops_of_all(through)
            with running(loops):
                began = time.monotonic()
                leave(node)
                time.sleep(STOPPED_S)
                completed(loops)
                before_back = len(failures(loops, ""))
                back(node)
                found["used_s"] = used_again(fronts, node)
                completed(loops)
            found["later"] = len(failures(loops, "")) - before_back
            found["is_each_once"] = all(len(loop.failures) <= 1 for loop in loops)
            found["is_write_timeout"] = all(name == "WriteTimeout" for _, name, _ in failures(loops, "write"))
            found["failed_reads"] = len(failures(loops, "read"))
            noted(found, fronts, loops, began)
            found["shown"] += f"\n    used again {found['used_s']:.1f} s after it was back, {found['later']} failures after its return"
    return cells_of(bench, name)


def cells_of(bench, name):
    return [cell for cell in bench.cells if cell["experiment"] == name]


def rows_of(what, cells):
    reads = " and ".join(cell["reads"] for cell in cells)
    writes = " and ".join(cell["writes"] for cell in cells)
    last = pair([cell["last_s"] for cell in cells], "{:.1f}")
    are_in_flight = [cell["is_each_once"] and cell["is_write_timeout"] and cell["last_s"] <= GIVEN_UP_S for cell in cells]
    used = statistics.median(cell["used_s"] for cell in cells)
    return [
        Row(f"{what}: failed reads", reads, "", "0", counted(cell["failed_reads"] == 0 for cell in cells)),
        Row(f"{what}: failed writes", f"{writes}; the last after {last} s", "", "in flight, ≤ 5 s", counted(are_in_flight)),
        Row(f"{what}: failures after its return", pair([cell["later"] for cell in cells], "{}"), "", "0", counted(cell["later"] == 0 for cell in cells)),
        Row(f"{what}: used by both fronts again after", f"{used:.1f}", "s"),
    ]


def killed(bench, _rate):
    """A node is killed by SIGKILL at LOCAL_QUORUM with three replicas, and starts again."""

    def back(node):
        node.start()
        node.wait()

    return rows_of("node killed", away(bench, "node killed", lambda node: node.crash(), back))


def stopped(bench, _rate):
    """A node is stopped by SIGSTOP: its connections stay open, and it answers nothing."""

    return rows_of("node stopped by SIGSTOP", away(bench, "node stopped", lambda node: node.pause(), lambda node: node.resume()))


def restarted(bench, _rate):
    """Every node is shut down by SIGTERM, which drains it, and starts again, one after the other."""
    create(bench)
    for run in (1, 2):
        with two_fronts(bench) as fronts, sessions(fronts) as through, bench.cell("rolling restart", f"run {run}") as found:
            loops, found["used_s"] = loops_of_all(through), []
            with running(loops):
                began = time.monotonic()
                for node in bench.ring.nodes:
                    node.stop()
                    completed(loops)
                    node.start()
                    node.wait()
                    found["used_s"].append(used_again(fronts, node))
                    # All nodes know it before the next one goes.
                    for other in bench.ring.nodes:
                        retried(f"{other.host} reaches all nodes", lambda: bench.ring.read_roles(other), USED_S)
                    completed(loops)
            noted(found, fronts, loops, began)
            found["failed_reads"] = len(failures(loops, "read"))
            found["is_answered"] = all(name != "OperationTimedOut" for _, name, _ in failures(loops, "write"))
    cells = cells_of(bench, "rolling restart")
    what = "rolling restart of all nodes"
    return [
        Row(f"{what}: failed reads", " and ".join(cell["reads"] for cell in cells), "", "0", counted(cell["failed_reads"] == 0 for cell in cells)),
        Row(
            f"{what}: failed writes", " and ".join(cell["writes"] for cell in cells), "", "reported",
            counted(cell["is_answered"] for cell in cells),
        ),
    ]  # fmt: skip
