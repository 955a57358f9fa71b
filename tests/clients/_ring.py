"""Nodes of Apache Cassandra for one test, from the files that Maven publishes. They end with the test."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from _server import PASSWORD, PATIENCE_S

VERSION = "5.0.9"
# Versions of Java on which Cassandra 5.0 runs.
JAVA = (11, 17)
# Longest start of a node. A quiet machine needs 6 to 24 s.
START_S = 180
# Below the ports that the kernel gives to connections, so that none of them has the port of a node that is down.
PORTS = range(20_000, 32_000)

# Packages that Cassandra's own `jvm17-server.options` names.
EXPORTS = """java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.base/java.lang.ref
    java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql
    jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file jdk.attach/sun.tools.attach""".split()
OPENS = """java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref java.base/jdk.internal.reflect
    java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.util.jar java.base/sun.nio.ch
    java.base/java.io java.base/java.lang java.base/java.lang.reflect java.base/java.util java.base/java.util.concurrent
    java.base/java.util.concurrent.atomic java.base/java.nio java.base/java.net
    jdk.management/com.sun.management.internal""".split()

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>fairlane</groupId><artifactId>ring</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""

LOGGING = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %logger{0} %m%n</pattern></encoder>
  </appender>
  <logger name="org.apache.cassandra.service.StartupChecks" level="ERROR"/>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

# Roles are read from one replica, so that logins do not fail while another one is down: every node has all roles. Requests
# have twice the usual time, for busy machines.
SETTINGS = """cluster_name: ring
num_tokens: 16
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: GossipingPropertyFileSnitch
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
auth_read_consistency_level: ONE
commitlog_sync: periodic
commitlog_sync_period: 10000ms
read_request_timeout: 10s
range_request_timeout: 20s
write_request_timeout: 10s
counter_write_request_timeout: 10s
user_defined_functions_enabled: true
materialized_views_enabled: true
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{seed}"
listen_address: {host}
rpc_address: {host}
native_transport_port: {port}
storage_port: {storage_port}
data_file_directories: ["{folder}/data"]
commitlog_directory: {folder}/commitlog
hints_directory: {folder}/hints
saved_caches_directory: {folder}/saved_caches
cdc_raw_directory: {folder}/cdc
"""


def missing():
    """Returns the reason why no ring can be started here, or `None`."""
    programs = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if programs:
        return f"{' and '.join(programs)} not installed"
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=PATIENCE_S).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    if not found or int(found[1]) not in JAVA:
        return f"expected Java {' or '.join(map(str, JAVA))}, got {text.splitlines()[:1]}"
    return None


def jars(name=f"cassandra-{VERSION}", pom=POM):
    """Returns the folder with the files that a project needs, beside the target folder. Downloads them once (Cassandra: 67 MB)."""
    folder = Path(sys.executable).parent.parent.parent.parent / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder.parent) as partial:
            file, lib = Path(partial, "pom.xml"), Path(partial, "lib")
            file.write_text(pom)
            command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(file), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            subprocess.run([*command, f"-DoutputDirectory={lib}"], check=True, timeout=4 * PATIENCE_S)
            # An interrupted download is no folder.
            lib.rename(folder)
    return folder


def free_port(hosts):
    """Returns a port that is free on all of these addresses."""
    for port in random.sample(PORTS, 100):
        try:
            for host in hosts:
                with socket.socket() as listener:
                    listener.bind((host, port))
            return port
        except OSError:
            continue
    raise AssertionError(f"no port of {PORTS} is free on {', '.join(hosts)}")


def retried(purpose, attempt, seconds=PATIENCE_S):
    """Returns the result of `attempt`, repeated until it raises nothing."""
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except Exception as error:
            if time.monotonic() > until:
                raise AssertionError(f"{purpose}: failed for {seconds} s, with {error!r}") from error
            time.sleep(0.2)


def pinned(server, role="admin", password=PASSWORD):
    """Returns a driver that connects to this node or front only, which has an address of its own."""
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([server.host]), consistency_level=ConsistencyLevel.ALL,
        request_timeout=PATIENCE_S,
    )  # fmt: skip
    return Cluster(
        [server.host], port=server.port, auth_provider=PlainTextAuthProvider(role, password), protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile}, connect_timeout=PATIENCE_S,
    )  # fmt: skip


class Node:
    """A node, with CQL at `host` and `port`. After [`Node.crash`], [`Node.start`] opens the same data."""

    def __init__(self, number, datacenter, ring):
        self.host, self.port, self.datacenter = f"127.0.0.{number}", ring.port, datacenter
        self.folder = Path(ring.folder.name, f"node{number}")
        self.process, self.has_started, self.lib, self.cpu, self.properties = None, False, ring.lib, ring.cpu, ring.properties
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        (conf / "cassandra-rackdc.properties").write_text(f"dc={datacenter}\nrack=r1\n")
        (conf / "logback.xml").write_text(LOGGING)
        settings = SETTINGS.format(
            seed="127.0.0.1", host=self.host, port=ring.port, storage_port=ring.storage_port, folder=self.folder
        )
        (conf / "cassandra.yaml").write_text(settings)

    def command(self):
        conf = self.folder / "conf"
        # The kernel ends the node with the test, even if the test is killed.
        command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command += ["taskset", "-c", str(self.cpu)] if self.cpu is not None else []
        command += ["java", "-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
        # A test ends before the second compiler has paid for itself.
        command += ["-XX:TieredStopAtLevel=1"] if self.cpu is None else []
        command += [f"-javaagent:{next(self.lib.glob('jamm-*.jar'))}"]
        for option, packages in (("--add-exports", EXPORTS), ("--add-opens", OPENS)):
            command += [word for package in packages for word in (option, f"{package}=ALL-UNNAMED")]
        properties = {
            "cassandra.config": f"file://{conf}/cassandra.yaml",
            "cassandra-rackdc.properties": f"file://{conf}/cassandra-rackdc.properties",
            "cassandra.storagedir": self.folder,
            "cassandra-foreground": "yes",
            "cassandra.ring_delay_ms": 5000,
            "cassandra.superuser_setup_delay_ms": 0,
            **self.properties,
        }
        if not self.has_started:
            # A node that starts again waits, because it would answer Unavailable before it knows that the others are up.
            properties["cassandra.skip_wait_for_gossip_to_settle"] = 0
        command += [f"-D{name}={value}" for name, value in properties.items()]
        return [*command, "-cp", f"{conf}:{self.lib}/*", "org.apache.cassandra.service.CassandraDaemon"]

    def address(self):
        return f"{self.host}:{self.port}"

    def start(self):
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.has_started = True

    def wait(self):
        """Waits until the started node accepts connections."""
        until = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((self.host, self.port), PATIENCE_S).close()
                return
            except OSError:
                pass
            if self.process.poll() is not None:
                raise AssertionError(f"the node {self.host} ended with {self.process.returncode}")
            if time.monotonic() > until:
                raise AssertionError(f"the node {self.host} was not ready within {START_S} s")
            time.sleep(0.1)

    def crash(self):
        """Kills the node by SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """Shuts the node down by SIGTERM, which drains it: the others hear of it first."""
        self.process.terminate()
        self.process.wait(START_S)

    def pause(self):
        """Stops the process by SIGSTOP. Its connections stay open, and it answers nothing until [`Node.resume`]."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def cluster(self, role="admin", password=PASSWORD):
        return pinned(self, role, password)

    def complaints(self):
        """Returns the last warnings and errors in the log."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return "\n".join([f"the log of the node {self.host}:", *(f"  {line}" for line in lines[-30:])])


class Ring:
    """`with Ring() as ring:` starts a node for each datacenter named, and `Ring()` alone downloads their files. The superuser is
    `admin`, with the password of all tests. Every node has a copy of all roles. For measurements all nodes share one `cpu`, and
    their code is compiled as in production. `properties` are more of Java's for each node."""

    def __init__(self, datacenters=("a", "a", "b"), cpu=None, properties=None):
        self.lib = jars()
        hosts = [f"127.0.0.{number}" for number in range(1, len(datacenters) + 1)]
        self.port = free_port(hosts)
        self.storage_port = free_port(hosts)
        self.datacenters, self.cpu, self.properties = datacenters, cpu, properties or {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlane-ring-", ignore_cleanup_errors=True)
        self.nodes = []
        try:
            self.nodes = [Node(number, datacenter, self) for number, datacenter in enumerate(self.datacenters, 1)]
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        first, *others = self.nodes
        # The others learn from the first one which nodes there are.
        first.start()
        first.wait()
        for node in others:
            node.start()
        for node in others:
            node.wait()
        retried("a superuser of the ring", self.create_admin, START_S)
        for node in self.nodes:
            retried(f"the node {node.host} reaches all nodes", lambda: self.read_roles(node), START_S)

    def create_admin(self):
        with self.nodes[0].cluster("cassandra", "cassandra") as cluster:
            session = cluster.connect()
            # First the replicas and then the role, so that each replica has it without a repair.
            for keyspace in ("system_auth", "system_traces"):
                session.execute(f"ALTER KEYSPACE {keyspace} WITH replication = {self.replication()}")
            session.execute(
                f"CREATE ROLE IF NOT EXISTS admin WITH PASSWORD = '{PASSWORD}' AND LOGIN = true AND SUPERUSER = true"
            )

    def read_roles(self, node):
        with node.cluster() as cluster:
            cluster.connect().execute("SELECT role FROM system_auth.roles")

    def replication(self):
        """Returns the replication of a keyspace with one copy on each node, in CQL."""
        copies = {name: self.datacenters.count(name) for name in sorted(set(self.datacenters))}
        return str({"class": "NetworkTopologyStrategy", **{name: str(n) for name, n in copies.items()}})

    def contacts(self):
        return ",".join(node.address() for node in self.nodes)

    def __exit__(self, *failure):
        for node in self.nodes:
            node.crash()
        if failure[0] is not None:
            print(*(node.complaints() for node in self.nodes if node.has_started), sep="\n")
        self.folder.cleanup()
