"""Levels with tags of two datacenters, a with two nodes and b with one. Nodes count the requests of each role."""

import contextlib
import os
import time

from bench import two_fronts
from clients import completed, create, failed, failures, listed, loops_of, running, sessions, until
from failures import cells_of, noted
from results import Row, counted, judged, latency, machine, pair, per_s

LEVELS = [("a", "tag = 'dc:a'"), ("b", "tag = 'dc:b'")]
# Time with the node of b away, seconds, and longest time until b is served after its start.
AWAY_S, BACK_S = 15, 120
# Requests of a role that need no tag, at most, while some thousands are counted: logins, signs of life, and its granted roles.
OWN = 20
# Rate of a's reads as a part of the capacity, requests of b in flight, and the priority of b's node.
PROBE, BACKLOG, NICE = 0.2, 512, 19


@contextlib.contextmanager
def counters(bench):
    """Yields a function that returns the requests of each role at each node, as `{(role, host): requests}`."""
    with contextlib.ExitStack() as stack:
        through = {node: stack.enter_context(node.cluster()).connect() for node in bench.ring.nodes}

        def read():
            found = {}
            for node, session in through.items():
                if node.process.poll() is None:
                    for row in session.execute("SELECT username, request_count FROM system_views.clients"):
                        found[row.username, node.host] = found.get((row.username, node.host), 0) + row.request_count
            return found

        yield read


def tags(bench, _rate):
    """Requests of a level reach the nodes of its datacenter only. The node of b is killed: a does not notice, and b is told."""
    create(bench)
    node = bench.ring.nodes[2]
    for run in (1, 2):
        with two_fronts(bench, levels=LEVELS) as fronts, contextlib.ExitStack() as stack, bench.cell("tags", f"run {run}") as found:
            time.sleep(2)
            by = {}
            for role in "ab":
                through = stack.enter_context(sessions(fronts, role))
                by[role] = [loop for number, session in enumerate(through) for loop in loops_of(session, f"role {role}, front {number + 1}")]
            loops = by["a"] + by["b"]
            with running(loops):
                with counters(bench) as read:
                    completed(loops)
                    before = read()
                    completed(loops, 300)
                    after = read()
                # A node counts those of its present connections.
                roles = [key for key in after if key[0] in by]
                found["requests"] = {f"{role} at {host}": after[role, host] - before.get((role, host), 0) for role, host in roles}
                began = time.monotonic()
                node.crash()
                time.sleep(AWAY_S)
                completed(by["a"])
                found["away"] = {role: failed(of_role, began) for role, of_role in by.items()}
                found["completed"] = {role: sum(loop.completed for loop in of_role) for role, of_role in by.items()}
                found["kinds"] = [(name, text) for _, name, text in failures(by["b"], "")]
                node.start()
                node.wait()
                goals = [loop.completed + 50 for loop in by["b"]]
                found["back_s"] = until("b is served again", lambda: all(loop.completed >= goal for loop, goal in zip(by["b"], goals)), BACK_S)
                completed(loops)
            found["a"] = " and ".join(listed(by["a"], word) for word in ("read", "write"))
            found["a_failures"] = len(failures(by["a"], ""))
            noted(found, fronts, loops, began)
            found["shown"] = f"requests {found['requests']}; failures of a: {found['a']}; b: {summary(found['kinds'])}\n    {found['shown']}"
    cells = cells_of(bench, "tags")
    outside = [{key: n for key, n in cell["requests"].items() if (key[0] == "a") == key.endswith(node.host)} for cell in cells]
    named = [cell["kinds"] and all(is_named(*failure) for failure in cell["kinds"]) for cell in cells]
    told, has_none = " and ".join(summary(cell["kinds"]) for cell in cells), [cell["a_failures"] == 0 for cell in cells]
    reached = "; ".join(", ".join(f"{n} of {key}" for key, n in cell["requests"].items()) for cell in cells)
    return [
        Row(
            "two tags: requests of each role at each node", reached, "", f"≤ {OWN} outside its datacenter", counted(n <= OWN for found in outside for n in found.values()),
        ),
        Row("node of b killed: failures of a", " and ".join(cell["a"] for cell in cells), "", "0", counted(has_none)),
        Row("node of b killed: failures of b", told, "", "Unavailable that names dc:b; WriteTimeout in flight", counted(named)),
        Row("b is served again after the start of its node", pair([cell["back_s"] for cell in cells], "{:.1f}"), "s"),
    ]  # fmt: skip


def is_named(name, text):
    return name == "WriteTimeout" or (name == "Unavailable" and "dc:b" in text)


def summary(kinds):
    """Returns the number of failures by kind, and of those that name the tag, as text."""
    by = {}
    for name, text in kinds:
        key = f"{name} {'with' if 'dc:b' in text else 'without'} dc:b"
        by[key] = by.get(key, 0) + 1
    return ", ".join(f"{number} {key}" for key, number in sorted(by.items())) or "0"


def saturated(bench, rate):
    """Reads of a at a fifth of the capacity: alone, beside a backlog of b, and with the node of b away. All nodes share one CPU, so
    that b's node gets a small part of it, as if it were slow: it may not take a's CPU, but its level's requests pile up in the
    fronts."""
    node, seconds, by = bench.ring.nodes[2], bench.seconds(12), {"alone": [], "beside b": [], "node of b away": []}
    for thread in os.listdir(f"/proc/{node.process.pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), NICE)
    with two_fronts(bench, levels=LEVELS) as fronts:
        hosts = ",".join(front.hosts for front in fronts)

        def run(name):
            with bench.cell("tags, saturated", name) as found:
                backlog = ("--in-flight", BACKLOG, "--duration", f"{seconds + 6}s", "--drain", "2s")
                load = bench.start("read", *backlog, user="b", hosts=hosts) if name != "alone" else None
                time.sleep(2)
                flags = ("--rate", f"{rate * PROBE:.0f}", "--warmup", "1s", "--duration", f"{seconds}s")
                found["report"] = bench.finish(bench.start("read", *flags, user="a", hosts=hosts), seconds)
                found["shown"] = f"{per_s(found['report']):.0f}/s, p99 {latency(found, 'p99') / 1000:.1f} ms"
                if load:
                    # Its node may be away.
                    load[0].kill()
                    load[0].communicate()
            by[name].append(found)

        for name in ("alone", "beside b", "beside b", "alone"):
            run(name)
        node.crash()
        for name in ("alone", "node of b away", "node of b away", "alone"):
            run(name)
    alone, rows = by.pop("alone"), []
    for (name, cells), base in zip(by.items(), (alone[:2], alone[2:])):
        for what, value in (("throughput", lambda cell: per_s(cell["report"])), ("p99", lambda cell: latency(cell, "p99"))):
            over = [value(cell) / value(before) for cell, before in zip(cells, base)]
            off = [abs(part - 1) for part in over]
            verdict = judged(off, cells + base, most=0.05)
            rows.append(Row(f"{what} of a over alone, {name}", f"{pair(over)} {machine(cells + base)}", "", "within 5 %", verdict))
    return rows
