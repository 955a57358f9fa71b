"""`fairlane load usl`, `sweep` and `plan` on a real server. The bounds are those of a busy machine: ratios of what was
measured, never times."""

import json
import math
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from _server import PASSWORD, PATIENCE_S, Server

KEYS = ["--keys", "2000"]
# The rung of 16 is left out of the fit.
LADDER, LEFT_OUT = [1, 2, 4, 8, 32, 64], 16
# Two rounds of a second each differ on a busy machine.
FACTOR = 4


def command(server, *arguments):
    names = [os.environ["FAIRLANE_BIN"], "load", *arguments]
    if arguments[0] != "plan":
        names += ["--hosts", f"{server.host}:{server.port}", "--user", "admin"]
    return names


ENVIRONMENT = dict(os.environ, FAIRLANE_PASSWORD=PASSWORD)


def load(server, *arguments, codes=(0,)):
    """Runs a load. Returns its output."""
    done = subprocess.run(command(server, *arguments), env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode in codes, f"{arguments} ended with {done.returncode}: {done.stderr}"
    return done


def climb(server, folder):
    """A short ladder: every rung is valid or has its reason, and the law predicts the rung that was left out."""
    path = folder / "usl.json"
    rungs = ",".join(str(n) for n in LADDER)
    short = ["--ladder-rounds", "2", "--duration", "1s", "--warmup", "300ms", "--metrics", server.http]
    load(server, "usl", "read", *KEYS, "--ladder", rungs, *short, "--quiet", "--json", str(path), codes=(0, 3))
    found = json.loads(path.read_text())
    assert sorted(rung["n"] for rung in found["rungs"]) == sorted(LADDER * 2), found["rungs"]
    assert (found["connections"], found["threads"], found["server_core_count"]) == (16, 1, 2), found
    valid = [rung for rung in found["rungs"] if not rung["invalid"]]
    for rung in valid:
        assert abs(rung["little"] - 1) <= 0.05 and rung["n_reached"] >= 0.95 * rung["n"], rung
        assert rung["service_us"] > 0 and rung["response"]["mean_us"] >= rung["service_us"], rung
    scaling = found["scaling"]
    # A start that looks superlinear may also leave fewer than four.
    assert scaling is None or len({rung["n"] for rung in valid}) >= 4, scaling
    if scaling is None:
        print(f"      no law: {[rung['invalid'] for rung in found['rungs']]}")
        return path, None
    law = scaling["law"]
    assert law["lambda"] > 0 and 0 <= law["sigma"] <= 1 and law["kappa"] >= 0, law

    def by_law(n):
        return law["lambda"] * n / (1 + law["sigma"] * (n - 1) + law["kappa"] * n * (n - 1))

    out = folder / "rung.json"
    closed = ["--in-flight", str(LEFT_OUT), "--duration", "2s", "--quiet", "--json", str(out)]
    load(server, "read", *KEYS, *closed, codes=(0, 3))
    measured = json.loads(out.read_text())["steps"][0]["throughput_per_s"]
    assert 1 / FACTOR < by_law(LEFT_OUT) / measured < FACTOR, (by_law(LEFT_OUT), measured)
    highest = max(rung["throughput_per_s"] for rung in valid)
    if scaling["peak"] is not None:
        peak = scaling["peak"]
        assert 1 <= peak["n"]["value"] <= scaling["up_to_n"], peak
        assert 1 / FACTOR < peak["throughput_per_s"]["value"] / max(highest, measured) < FACTOR, (peak, measured)
    return path, scaling


def sweep(server, folder, usl):
    """Open loops: the arrivals do not depend on the server, and each second is reported."""
    path, page = folder / "sweep.json", folder / "sweep.html"
    short = ["--sweep-runs", "1", "--duration", "4s", "--warmup", "300ms", "--metrics", server.http, "--quiet"]
    source = ["--from", str(usl)] if usl else ["--peak", "20k"]
    load(server, "sweep", *KEYS, *source, *short, "--json", str(path), "--html", str(page), codes=(0, 3))
    found = json.loads(path.read_text())
    assert [run["part"] for run in found["runs"]] == [0.04, 0.4, 1.0], found["runs"]
    first = found["runs"][0]
    due = 0.04 * found["peak_per_s"] * 4
    assert abs(first["sent"] - due) < 6 * math.sqrt(due) + 50, (first["sent"], due)
    for run in found["runs"]:
        assert len(run["seconds"]) == 4 and run["n_max"] <= 4096, run
        assert run["n_low"] <= run["n_high"] <= run["n_max"], run
        assert all(second["service_us"] is None or second["service_us"] > 0 for second in run["seconds"]), run
    text = page.read_text()
    assert "<svg" in text and "Every run" in text and "S mean" in text, text[:500]


def interrupted(server, folder):
    """Ctrl-C ends a sweep with a report on what was measured."""
    path, page = folder / "stopped.json", folder / "stopped.html"
    arguments = ["sweep", *KEYS, "--peak", "5k", "--duration", "10m", "--json", str(path), "--html", str(page)]
    running = subprocess.Popen(
        command(server, *arguments), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = []
    for line in running.stderr:
        lines.append(line)
        if "step 1" in line:
            break
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 3, (running.returncode, lines)
    assert lines[0].startswith("run 1 of 7: 4 % of the peak, 200/s"), lines
    assert "it was stopped" in text and "stopped after 1 of 7 runs" in text, text
    assert len(json.loads(path.read_text())["runs"]) == 1 and "it was stopped" in page.read_text()


def plan(server, folder, usl, scaling):
    """The plan follows from the file. A target that no rung meets is an error with the lowest p99."""
    path = folder / "plan.json"
    wanted = ["plan", "--from", str(usl), "--rate", "500k", "--headroom", "30%"]
    if scaling is None:
        refused = load(server, *wanted, codes=(3,))
        assert "expected a ladder with a law" in refused.stderr, refused.stderr
        return
    load(server, *wanted, "--json", str(path))
    found = json.loads(path.read_text())
    if scaling["misfits"]:
        assert found["measured"][0]["n"] == scaling["measured_end"], (found["measured"], scaling)
    low = found["measured"][0]["throughput_per_s"]["low"]
    assert found["rows"][0]["cores"] == math.ceil(2 * 650_000 / low - 1e-9), found
    assert "1 core count determines no law over cores" in found["notes"][0], found["notes"]
    refused = load(server, *wanted, "--p99", "0.001ms", codes=(3,))
    assert "the lowest is" in refused.stderr, refused.stderr


def main():
    with Server() as server, tempfile.TemporaryDirectory(prefix="fairlane-concurrency-") as name:
        folder = Path(name)
        load(server, "prefill", *KEYS, "--quiet")
        usl, scaling = climb(server, folder)
        sweep(server, folder, usl if scaling else None)
        interrupted(server, folder)
        plan(server, folder, usl, scaling)


if __name__ == "__main__":
    main()
