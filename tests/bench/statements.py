"""Runs statements of CQL, one an argument: statements.py HOST PORT USER STATEMENT... with the password in FAIRLANE_PASSWORD."""

import os
import sys

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

host, port, user, *statements = sys.argv[1:]
credentials = PlainTextAuthProvider(user, os.environ["FAIRLANE_PASSWORD"])
with Cluster([host], port=int(port), auth_provider=credentials) as cluster:
    session = cluster.connect()
    for statement in statements:
        session.execute(statement)
