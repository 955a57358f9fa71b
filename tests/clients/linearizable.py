"""Concurrent compare-and-set while the server is killed and started again: the results are linearizable.

`FAIRLANE_HISTORIES` is the number of histories (4), each with one kill. Every client runs three kinds of operations on a few
registers: `INSERT ... IF NOT EXISTS`, `UPDATE ... IF v = ?`, and reads with consistency SERIAL.
"""

import os
import random
import threading
import time

from cassandra import ConsistencyLevel

from _connect import connect
from _linearizable import cas, is_linearizable, read
from _server import Server

HISTORIES = int(os.environ.get("FAIRLANE_HISTORIES", "4"))
CLIENTS = 4
REGISTERS = 16
# Maximum of operations on one register before the kill, and again after it.
OPERATIONS_MAX = 60


class Client(threading.Thread):
    """Runs operations until the server is killed, or all registers have had theirs."""

    def __init__(self, session, histories, seed):
        super().__init__(daemon=True)
        self.session, self.histories, self.chance = session, histories, random.Random(seed)
        self.operations_max = OPERATIONS_MAX + max(map(len, histories.values()))
        self.known = {}
        self.insert = session.prepare("INSERT INTO linear.registers (k, v) VALUES (?, ?) IF NOT EXISTS")
        self.update = session.prepare("UPDATE linear.registers SET v = ? WHERE k = ? IF v = ?")
        self.select = session.prepare("SELECT v FROM linear.registers WHERE k = ?")
        self.select.consistency_level = ConsistencyLevel.SERIAL

    def run(self):
        while True:
            left = [k for k, history in self.histories.items() if len(history) < self.operations_max]
            if not left or not self.operate(self.chance.choice(left)):
                return

    def operate(self, register):
        """Runs one operation and records it. Returns false if its outcome is unknown."""
        history, known = self.histories[register], self.known.get(register)
        new = self.chance.randrange(1 << 30)
        began = time.monotonic_ns()
        if self.chance.random() < 0.3:
            try:
                row = self.session.execute(self.select, (register,)).one()
            except Exception:  # A read without an answer has no effect.
                return False
            self.known[register] = row.v if row else None
            history.append(read(began, time.monotonic_ns(), self.known[register]))
            return True
        try:
            if known is None:
                row = self.session.execute(self.insert, (register, new)).one()
            else:
                row = self.session.execute(self.update, (new, register, known)).one()
        except Exception:
            history.append(cas(began, None, known, new))
            return False
        seen = None if row.applied else getattr(row, "v", None)
        history.append(cas(began, time.monotonic_ns(), known, new, row.applied, seen))
        self.known[register] = new if row.applied else seen
        return True


def main():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    operations = 0
    with Server() as server:
        with connect(server) as cluster:
            session = cluster.connect()
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            session.execute(f"CREATE KEYSPACE linear WITH replication = {replication}")
            session.execute("CREATE TABLE linear.registers (k int PRIMARY KEY, v int)")
        for number in range(HISTORIES):
            registers = range(number * REGISTERS, (number + 1) * REGISTERS)
            histories = {k: [] for k in registers}
            for is_killed in [True, False]:
                cluster = connect(server)
                session = cluster.connect()
                clients = [Client(session, histories, chance.randrange(2**32)) for _ in range(CLIENTS)]
                for client in clients:
                    client.start()
                if is_killed:
                    time.sleep(chance.uniform(0.05, 0.4))
                    server.crash()
                for client in clients:
                    client.join(60)
                    assert not client.is_alive(), "a client still waits for the killed server"
                cluster.shutdown()
                if is_killed:
                    server.start()
            for register, history in histories.items():
                operations += len(history)
                assert is_linearizable(history), f"seed {seed}, register {register}: {sorted(history)}"
    print(f"{HISTORIES} histories with a kill each, {operations} operations: all linearizable")


main()
