"""The Python cassandra-driver with `drivers/python/client.py`."""

import sys

from _drivers import HERE, run

if __name__ == "__main__":
    run([sys.executable, HERE / "python" / "client.py"])
