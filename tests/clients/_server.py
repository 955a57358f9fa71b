"""A fairlane server for one test, with its own ports and folder. It ends with the test."""

import os
import select
import subprocess
import tempfile

PASSWORD = "secret for tests"
PATIENCE_S = 60


class Server:
    """`with Server() as server:` starts a server: CQL at `server.host` and `server.port`, SQL at `server.sql_port`.

    Its working directory is `server.folder`, with the data in `fairlane-data`, the default. Without a password, the server
    generates one. After `server.crash()`, `server.start()` opens the same data, and so does `server.restart()`.
    """

    def __init__(self, password=PASSWORD, memory="256MiB", flags=(), variables=None):
        self.password = password
        self.memory = memory
        self.flags = flags
        self.variables = variables or {}
        self.listen = "127.0.0.1:0"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fairlane-client-")
        self.start()
        return self

    def start(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLANE_")}
        environment.update(self.variables)
        if self.password is not None:
            environment["FAIRLANE_ADMIN_PASSWORD"] = self.password
        command = [os.environ["FAIRLANE_BIN"], "serve", "--cores", "2", "--overprovisioned", "--memory", self.memory]
        # A server in front of a cluster has no data, and SQL if its test wants it.
        if "cluster" not in self.flags:
            command += ["--shard-aware-port", "0", "--sql-listen", "127.0.0.1:0", "--disk-probe", "off"]
        command += ["--listen", self.listen, "--http-listen", "127.0.0.1:0", *self.flags]
        self.process = subprocess.Popen(
            command, env=environment, cwd=self.folder.name, stdout=subprocess.PIPE, text=True
        )
        if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
            self.process.kill()
            raise AssertionError(f"the server was not ready within {PATIENCE_S} s")
        line = self.process.stdout.readline()
        if "is ready: CQL " not in line:
            raise AssertionError(f"expected the line of a ready server, got {line!r}")
        address = line.split("is ready: CQL ")[1].split(",")[0].strip()
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.http = line.split(", HTTP ")[1].split(",")[0].strip()
        if ", SQL " in line:
            self.sql_port = int(line.split(", SQL ")[1].split(",")[0].rsplit(":", 1)[1])

    def crash(self):
        """Kills the server by SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        """Shuts the server down by SIGTERM and starts it with the same data. `listen` must name a port, so that it has the same."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, f"the server ended with {self.process.returncode}"
        self.process.stdout.close()
        self.start()

    def __exit__(self, *failure):
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "a timeout"
        self.folder.cleanup()
        if failure[0] is None:
            assert code == 0, f"the server ended with {code}"
