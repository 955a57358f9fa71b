"""Kills of a server under load: no acknowledged write is lost, and no statement is applied partially.

`FAIRLANE_CRASHES` is the number of kills (6). Clients write on both cores until the server is killed. After the next start:

- A batch or statement over several partitions has all of its rows or none, and all if it was acknowledged.
- Of concurrent `INSERT ... IF NOT EXISTS` of one key, at most one was applied. Every client that received the owner of the
  key received the one that is stored.
- A row that is updated repeatedly has the last acknowledged value, or the one after it.
- Indexes and a view name exactly the rows that have the value.
"""

import os
import random
import threading
import time

from cassandra.query import BatchStatement, BatchType

from _connect import connect
from _server import Server

CRASHES = int(os.environ.get("FAIRLANE_CRASHES", "6"))
PARTS = 8
WRITERS = 4
VALUES = 5


def make(session):
    session.execute(
        "CREATE KEYSPACE crash WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    for table in [
        "whole (id int, part int, v int, PRIMARY KEY ((id, part)))",
        "locks (k int PRIMARY KEY, owner int)",
        "last (writer int PRIMARY KEY, n int)",
        "indexed (k int, c int, v int, w text, s int static, PRIMARY KEY (k, c))",
    ]:
        session.execute(f"CREATE TABLE crash.{table}")
    for index in ["indexed (v) USING 'sai'", "indexed (w)", "indexed (s) USING 'sai'"]:
        session.execute(f"CREATE INDEX ON crash.{index}")
    named = " AND ".join(f"{column} IS NOT NULL" for column in ("v", "k", "c"))
    session.execute(f"CREATE MATERIALIZED VIEW crash.by_v AS SELECT v, k, c, w FROM crash.indexed WHERE {named} PRIMARY KEY (v, k, c)")


class Writer(threading.Thread):
    """Writes until the server is killed. `acknowledged` has the ids of writes, `owners` the returned owners of locks."""

    def __init__(self, session, number):
        super().__init__(daemon=True)
        self.session, self.number = session, number
        self.acknowledged, self.attempted, self.owners, self.applied = set(), set(), {}, []
        self.last = 0
        insert = "INSERT INTO crash.whole (id, part, v) VALUES (?, ?, 1)"
        several = f"UPDATE crash.whole SET v = 2 WHERE id = ? AND part IN ({', '.join(map(str, range(PARTS)))})"
        self.insert, self.several = session.prepare(insert), session.prepare(several)
        self.lock = session.prepare("INSERT INTO crash.locks (k, owner) VALUES (?, ?) IF NOT EXISTS")
        self.update = session.prepare("UPDATE crash.last SET n = ? WHERE writer = ?")
        self.indexed = session.prepare("INSERT INTO crash.indexed (k, c, v, w, s) VALUES (?, ?, ?, ?, ?)")
        self.delete = session.prepare("DELETE FROM crash.indexed WHERE k = ? AND c = ?")

    def run(self):
        number = 0
        try:
            while True:
                number += 1
                self.write(number)
        except Exception:  # The server was killed.
            return

    def write(self, number):
        id = number * WRITERS + self.number
        self.attempted.add(id)
        if number % 2:
            batch = BatchStatement(batch_type=BatchType.LOGGED)
            for part in range(PARTS):
                batch.add(self.insert, (id, part))
            self.session.execute(batch)
        else:
            self.session.execute(self.several, (id,))
        self.acknowledged.add(id)
        row = self.session.execute(self.lock, (number, self.number)).one()
        if row.applied:
            self.applied.append(number)
        self.owners[number] = self.number if row.applied else row.owner
        self.session.execute(self.update, (number, self.number))
        self.last = number
        k, c, v = number % 7, number % 11, (number + self.number) % VALUES
        if number % 5 == 4:
            self.session.execute(self.delete, (k, c))
        else:
            self.session.execute(self.indexed, (k, c, v, f"w{v}", v))


def check(session, writers):
    found = {}
    for id, part in session.execute("SELECT id, part FROM crash.whole"):
        found.setdefault(id, set()).add(part)
    torn = {id: parts for id, parts in found.items() if len(parts) != PARTS}
    assert not torn, f"applied partially: {torn}"
    owners = dict(session.execute("SELECT k, owner FROM crash.locks"))
    last = dict(session.execute("SELECT writer, n FROM crash.last"))
    applied = [k for writer in writers for k in writer.applied]
    assert len(applied) == len(set(applied)), "one lock was given to two writers"
    for writer in writers:
        lost = writer.acknowledged - found.keys()
        assert not lost, f"acknowledged and lost: {sorted(lost)}"
        for k, owner in writer.owners.items():
            assert owners.get(k) == owner, f"lock {k}: writer {writer.number} received {owner}, stored {owners.get(k)}"
        n = last.get(writer.number, 0)
        assert n in (writer.last, writer.last + 1), f"writer {writer.number}: acknowledged {writer.last}, found {n}"
    return len(found), sum(len(writer.attempted - writer.acknowledged) for writer in writers)


def check_indexes(session):
    """Compares queries by index and by view with a scan of the table."""
    rows = list(session.execute("SELECT k, c, v, w, s FROM crash.indexed"))
    for value in range(VALUES):
        for test, holds in [
            (f"v = {value}", lambda row: row.v == value),
            (f"v > {value}", lambda row: row.v is not None and row.v > value),
            (f"w = 'w{value}'", lambda row: row.w == f"w{value}"),
            (f"s = {value}", lambda row: row.s == value),
        ]:
            expected = [(row.k, row.c) for row in rows if holds(row)]
            found = [tuple(row) for row in session.execute(f"SELECT k, c FROM crash.indexed WHERE {test}")]
            assert found == expected, f"{test}: found {found}, expected {expected}"
    expected = sorted((row.v, row.k, row.c, row.w) for row in rows if row.v is not None)
    found = [tuple(row) for row in session.execute("SELECT v, k, c, w FROM crash.by_v")]
    assert sorted(found) == expected, f"the view has {found}, expected {expected}"
    for value in range(VALUES):
        found = [tuple(row) for row in session.execute(f"SELECT v, k, c, w FROM crash.by_v WHERE v = {value}")]
        assert found == [row for row in expected if row[0] == value], f"the view of {value} has {found}"


def main():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    written = interrupted = 0
    with Server() as server:
        with connect(server) as cluster:
            make(cluster.connect())
        for _ in range(CRASHES):
            cluster = connect(server)
            session = cluster.connect()
            for table in ["whole", "locks", "last"]:
                session.execute(f"TRUNCATE crash.{table}")
            writers = [Writer(session, number) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(chance.uniform(0.05, 0.8))
            server.crash()
            for writer in writers:
                writer.join(60)
                assert not writer.is_alive(), "a client still waits for the killed server"
            cluster.shutdown()
            server.start()
            with connect(server) as cluster:
                session = cluster.connect()
                whole, open = check(session, writers)
                check_indexes(session)
            written, interrupted = written + whole, interrupted + open
    print(f"{CRASHES} crashes: {written} writes over {PARTS} partitions, none partial; {interrupted} were interrupted")


main()
