"""cassandra-stress with the commands of its documentation and the profiles that it comes with, for a few thousand operations each.

It is fetched beforehand and found in the folder `FAIRLANE_STRESS`, which is empty without Java or Maven.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from _ring import OPENS, missing
from _server import PATIENCE_S, Server

OPERATIONS = 2000
# The tool divides its options at spaces.
PASSWORD = "secret"
# A test ends before the second compiler has paid for itself.
JAVA = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.language=en"]
JAVA += [word for package in OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
COMMANDS = [
    "write n={n} cl=QUORUM no-warmup -pop seq=1..{n} -rate threads=20",
    "mixed ratio(write=1,read=3) n={n} cl=ONE no-warmup -pop dist=UNIFORM(1..{n}) -rate threads>=16 threads<=32",
    "counter_write n={n} cl=QUORUM no-warmup -rate threads=20",
    "counter_read n={n} cl=ONE no-warmup -rate threads=20",
    "user profile={profiles}/cqlstress-example.yaml ops(insert=1,simple1=1,range1=1) n={n} no-warmup -rate threads=20",
    "user profile={profiles}/cqlstress-insanity-example.yaml ops(insert=1,simple1=1) n={n} no-warmup -rate threads=20",
    "user profile={profiles}/cqlstress-counter-example.yaml ops(insert=1,simple1=1) n={n} no-warmup -rate threads=20",
    "user profile={profiles}/cqlstress-lwt-example.yaml ops(insert=1,singlepost=1,timeline=1) n={n} no-warmup -rate threads=20",
]


def stress(home, folder, server, words):
    command = [*JAVA, "-cp", f"{home}/conf:{home}/tools/lib/stress.jar:{home}/lib/*"]
    command += [f"-Dcassandra.storagedir={folder}", "-Dlogback.configurationFile=logback-tools.xml"]
    command += ["org.apache.cassandra.stress.Stress", *words.split()]
    command += ["-node", server.host, "-port", f"native={server.port}"]
    command += ["-mode", "native", "cql3", "user=admin", f"password={PASSWORD}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=4 * PATIENCE_S)
    printed = f"{words}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0 and done.stdout.rstrip().endswith("END"), printed
    found = re.search(r"Total errors +: +([\d,]+)", done.stdout)
    assert found and found[1] == "0", printed
    # Some partitions of a profile are written by several operations.
    partitions = re.search(r"Total partitions +: +([\d,]+)", done.stdout)
    assert partitions and int(partitions[1].replace(",", "")) >= OPERATIONS / 4, printed


def main():
    reason = missing()
    if reason:
        print(f"      not tried: {reason}")
        return
    home = os.environ["FAIRLANE_STRESS"]
    with Server(password=PASSWORD) as server, tempfile.TemporaryDirectory(prefix="fairlane-stress-") as folder:
        for words in COMMANDS:
            stress(home, folder, server, words.format(n=OPERATIONS, profiles=Path(home, "tools")))


if __name__ == "__main__":
    main()
