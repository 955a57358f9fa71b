"""`system.connections` with the Python driver and psycopg. `CANCEL SESSION` of one protocol ends sessions of the other."""

import time

import psycopg
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster
from cassandra.policies import ConstantReconnectionPolicy

from _server import PASSWORD, PATIENCE_S, Server

SHOWN = "SELECT id, protocol, role, driver_name, application_name FROM system.connections"


def by_cql(server):
    login = PlainTextAuthProvider("admin", PASSWORD)
    return Cluster(
        [server.host], port=server.port, auth_provider=login, connect_timeout=PATIENCE_S,
        reconnection_policy=ConstantReconnectionPolicy(0.1, None),
    )  # fmt: skip


def by_sql(server, name):
    return psycopg.connect(
        host=server.host, port=server.sql_port, user="admin", password=PASSWORD, dbname="system", autocommit=True,
        connect_timeout=PATIENCE_S, application_name=name,
    )  # fmt: skip


def ended_from_cql(server, session):
    with by_sql(server, "report") as db:
        shown = [row for row in session.execute(SHOWN) if row.protocol == "sql"]
        assert [(row.role, row.application_name) for row in shown] == [("admin", "report")], shown
        session.execute(f"CANCEL SESSION '{shown[0].id}'")
        try:
            db.execute("SELECT 1")
        except psycopg.errors.AdminShutdown as error:
            assert "terminating connection due to administrator command" in str(error), error
            return
        raise AssertionError("the session should have ended")


def ended_from_sql(server, session):
    """A driver reconnects after its sessions were ended, with other ids."""
    with by_sql(server, "admin") as db:
        shown = [row for row in db.execute(SHOWN).fetchall() if row[1] == "cql"]
        assert shown and all("Python Driver" in row[3] for row in shown), shown
        ended = {row[0] for row in shown}
        for id in ended:
            db.execute(f"CANCEL SESSION '{id}'")
        until = time.monotonic() + PATIENCE_S
        while True:
            now = {row[0] for row in db.execute(SHOWN).fetchall() if row[1] == "cql"}
            if now and not now & ended:
                break
            assert time.monotonic() < until, (ended, now)
            time.sleep(0.05)


def main():
    with Server() as server:
        cluster = by_cql(server)
        session = cluster.connect()
        session.default_timeout = PATIENCE_S
        ended_from_cql(server, session)
        ended_from_sql(server, session)
        cluster.shutdown()


if __name__ == "__main__":
    main()
