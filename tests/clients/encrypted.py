"""TLS on every listener: cassandra-driver, cqlsh, psycopg and HTTPS, client certificates, changed certificates."""

import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from _server import PASSWORD, PATIENCE_S, Server

TLS = Path(__file__).resolve().parent / "tls"
# More than one TLS record, and more than the buffer of a socket.
LONG = "straße" * 100_000


def context(client=None, trusted="certificate.pem"):
    made = ssl.create_default_context(cafile=TLS / trusted)
    if client is not None:
        made.load_cert_chain(TLS / f"{client}.pem", TLS / f"{client}-key.pem")
    return made


def connect(server, tls, login=None):
    options = {"ssl_options": {"server_hostname": server.host}} if tls else {}
    return Cluster(
        [server.host], port=server.port, ssl_context=tls, auth_provider=login, connect_timeout=PATIENCE_S,
        protocol_version=4, **options,
    )  # fmt: skip


def long_notes(session):
    """Writes and reads more than the buffer of the socket, in many concurrent requests."""
    session.default_timeout = PATIENCE_S
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE shop WITH replication = {replication}")
    session.execute("CREATE TABLE shop.notes (id int PRIMARY KEY, note text)")
    insert = session.prepare("INSERT INTO shop.notes (id, note) VALUES (?, ?)")
    for first in range(0, 20, 2):
        # Two at a time: the driver refuses to send while the buffer of its socket is full.
        for future in [session.execute_async(insert, (id, LONG)) for id in (first, first + 1)]:
            future.result()
    select = session.prepare("SELECT note FROM shop.notes WHERE id = ?")
    for future in [session.execute_async(select, (id,)) for id in range(20)]:
        assert future.result().one().note == LONG


def cql(server):
    login = PlainTextAuthProvider("admin", PASSWORD)
    cluster = connect(server, context(), login)
    session = cluster.connect()
    long_notes(session)
    session.execute("CREATE ROLE tls_app WITH PASSWORD = 'never given' AND LOGIN = true")
    session.execute("GRANT SELECT ON shop.notes TO tls_app")
    cluster.shutdown()
    # The same port accepts plain text on loopback.
    plain = connect(server, None, login)
    assert plain.connect().execute("SELECT note FROM shop.notes WHERE id = 1").one().note == LONG
    plain.shutdown()


def certificates(server, private):
    """A client certificate logs in its role, over CQL and SQL."""
    cluster = connect(server, context("client"))
    session = cluster.connect()
    assert session.execute("SELECT note FROM shop.notes WHERE id = 1").one().note == LONG
    try:
        session.execute("DROP TABLE shop.notes")
    except Unauthorized as error:
        assert "tls_app" in str(error), error
    else:
        raise AssertionError("tls_app may not drop the table")
    cluster.shutdown()
    try:
        connect(server, context("stranger")).connect()
        raise AssertionError("a certificate of an unknown authority was accepted")
    except NoHostAvailable:
        pass
    files = {"sslcert": str(TLS / "client.pem"), "sslkey": str(private)}
    with sql(server, user="tls_app", **files) as db:
        assert db.execute("SELECT count(*) FROM shop.notes").fetchone() == (20,)
    # Another role needs its password.
    with sql(server, user="admin", password=PASSWORD, **files) as db:
        assert db.execute("SELECT count(*) FROM shop.notes").fetchone() == (20,)
    try:
        sql(server, user="admin", password="wrong", **files)
        raise AssertionError("a wrong password was accepted")
    except psycopg.OperationalError as error:
        assert "password" in str(error), error


def sql(server, **options):
    trusted = {"sslmode": "verify-full", "sslrootcert": str(TLS / "certificate.pem")}
    return psycopg.connect(
        host=server.host, port=server.sql_port, dbname="shop", connect_timeout=PATIENCE_S, autocommit=True,
        **trusted | options,
    )  # fmt: skip


def bound(server):
    """SCRAM-SHA-256-PLUS, with libpq's `channel_binding=require`."""
    with sql(server, user="admin", password=PASSWORD, channel_binding="require") as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    try:
        sql(server, user="admin", password=PASSWORD, channel_binding="require", sslmode="disable", sslrootcert="")
        raise AssertionError("channel binding without encryption")
    except psycopg.OperationalError as error:
        assert "channel binding" in str(error), error


def https(server):
    host, port = server.http.removeprefix("http://").rsplit(":", 1)
    for url, tls in [(f"https://{host}:{port}", context()), (f"http://{host}:{port}", None)]:
        for path, expected in [("/health/ready", b"ready"), ("/metrics", b"fairlane_")]:
            with urllib.request.urlopen(url + path, context=tls, timeout=PATIENCE_S) as answer:
                assert expected in answer.read(), (url, path)


def cqlsh(server):
    program = Path(sys.executable).parent / "cqlsh"
    if not program.exists():
        print("      cqlsh is not installed: not tested")
        return
    environment = dict(os.environ, SSL_CERTFILE=str(TLS / "certificate.pem"), SSL_VALIDATE="true")
    command = [program, "--ssl", "-u", "admin", "-p", PASSWORD, server.host, str(server.port)]
    done = subprocess.run(
        [*command, "-e", "SELECT count(*) FROM shop.notes"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "20" in done.stdout, (done.stdout, done.stderr)


def changed(server, folder):
    """The next client receives a certificate that has replaced another in the same files."""
    shutil.copy(TLS / "other.pem", folder / "certificate.pem")
    shutil.copy(TLS / "other-key.pem", folder / "key.pem")
    server.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            cluster = connect(server, context(trusted="other.pem"), PlainTextAuthProvider("admin", PASSWORD))
            assert cluster.connect().execute("SELECT note FROM shop.notes WHERE id = 1").one().note == LONG
            cluster.shutdown()
            return
        except NoHostAvailable:
            assert time.monotonic() < until, "the certificate was not reloaded"
            time.sleep(0.1)


def beyond(files):
    """Addresses other than loopback refuse plain text, on every port."""
    flags = ["--listen", "0.0.0.0:0", "--http-listen", "0.0.0.0:0", "--sql-listen", "0.0.0.0:0"]
    with Server(flags=[*flags, *files]) as server:
        server.host = "127.0.0.1"
        login = PlainTextAuthProvider("admin", PASSWORD)
        try:
            connect(server, None, login).connect()
            raise AssertionError("plain text was accepted")
        except NoHostAvailable as error:
            assert "encrypted connections only" in str(error), error
        cluster = connect(server, context(), login)
        assert cluster.connect().execute("SELECT key FROM system.local").one().key == "local"
        cluster.shutdown()
        port = server.http.rsplit(":", 1)[1]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=PATIENCE_S)
            raise AssertionError("plain text was accepted")
        except urllib.error.HTTPError as error:
            assert error.code == 400 and b"use https" in error.read()
        with urllib.request.urlopen(
            f"https://127.0.0.1:{port}/health/live", context=context(), timeout=PATIENCE_S
        ) as answer:
            assert answer.read() == b"live\n"


def before_cluster(files, folder):
    """A front encrypts to its node, and verifies the node's certificate."""
    variables = {"FAIRLANE_CLUSTER_PASSWORD": PASSWORD}
    with Server(flags=files) as node:

        def front(*flags):
            contact = ["--engine", "cluster", "--contact", f"{node.host}:{node.port}", "--cluster-user", "admin"]
            return Server(password=None, flags=[*contact, *flags], variables=variables)

        def refused(expected, *flags):
            command = [os.environ["FAIRLANE_BIN"], "serve", "--cores", "2", "--overprovisioned", "--memory", "256MiB"]
            command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", *front(*flags).flags]
            environment = dict(os.environ, **variables)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode != 0 and expected in done.stderr, (expected, done.stderr)

        own = ["--cluster-cert", str(TLS / "client.pem"), "--cluster-key", str(TLS / "client-key.pem")]
        refused("TLS handshake with the cluster failed", "--cluster-ca", str(TLS / "other.pem"))
        refused("there is no such file", "--cluster-ca", str(folder / "missing.pem"))
        refused("give --cluster-ca beside", *own)
        refused("a certificate needs its key", "--cluster-ca", str(TLS / "certificate.pem"), *own[:2])
        login = PlainTextAuthProvider("admin", PASSWORD)
        with front("--cluster-ca", str(folder / "certificate.pem")) as server:
            cluster = connect(server, None, login)
            long_notes(cluster.connect())
            cluster.shutdown()
            direct = connect(node, context(), login)
            connections = direct.connect().execute("SELECT encrypted, driver_name FROM system.connections").all()
            assert "fairlane" in [row.driver_name for row in connections], connections
            assert all(row.encrypted for row in connections), connections
            direct.shutdown()


def main():
    with tempfile.TemporaryDirectory(prefix="fairlane-tls-") as folder:
        folder = Path(folder)
        for name in ("certificate.pem", "key.pem"):
            shutil.copy(TLS / name, folder / name)
        # libpq refuses a key that other users may read.
        private = folder / "client-key.pem"
        shutil.copy(TLS / "client-key.pem", private)
        private.chmod(0o600)
        files = ["--tls-certificate", str(folder / "certificate.pem"), "--tls-key", str(folder / "key.pem")]
        with Server(flags=[*files, "--tls-client-ca", str(TLS / "client-ca.pem")]) as server:
            cql(server)
            certificates(server, private)
            bound(server)
            https(server)
            cqlsh(server)
            changed(server, folder)
        for name in ("certificate.pem", "key.pem"):
            shutil.copy(TLS / name, folder / name)
        beyond(files)
        before_cluster(files, folder)


if __name__ == "__main__":
    main()
