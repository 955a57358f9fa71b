"""The administrator's connection to a server that is killed during the test. The driver does not repeat requests."""

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, RoundRobinPolicy

from _server import PASSWORD


def connect(server):
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(), request_timeout=20, retry_policy=FallthroughRetryPolicy()
    )
    auth = PlainTextAuthProvider("admin", PASSWORD)
    return Cluster(
        [server.host],
        port=server.port,
        auth_provider=auth,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=60,
        control_connection_timeout=60,
    )
