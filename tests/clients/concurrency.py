"""`fairlane load usl`, `sweep` and `plan` on a real server.

Behind a delay line of `DELAY_S`, N requests in flight have at most N answers in twice that time, and hardly fewer: any
machine serves many times as much. There the ladder must have a law, and the law must predict a rung that was left
out. Without the delay only the machine knows the law. There the conclusions are compared with those that this script
computes from the same rungs."""

import itertools
import json
import math
import os
import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from _delay import DelayLine
from _server import PASSWORD, PATIENCE_S, Server

KEYS = ["--keys", "2000"]
# The rung of 16 is left out of the fit.
LADDER, LEFT_OUT = [1, 2, 4, 8, 32, 64], 16
# Of one direction. Large beside what a busy machine adds to a response, in the mean.
DELAY_S = 0.02
# Difference of a prediction from the measurement, beyond that of two measurements of one rung.
FACTOR = 1.1
# Thresholds of docs/concurrency.md, and of a superlinear start.
LINEAR, MISFIT, SUPERLINEAR, SUPERLINEAR_END = 0.8, 0.1, 1.15, 0.95


def command(server, *arguments, address=None):
    names = [os.environ["FAIRLANE_BIN"], "load", *arguments]
    if arguments[0] != "plan":
        names += ["--hosts", address or f"{server.host}:{server.port}", "--user", "admin"]
    return names


ENVIRONMENT = dict(os.environ, FAIRLANE_PASSWORD=PASSWORD)


def load(server, *arguments, codes=(0,), address=None):
    """Runs a load. Returns its output."""
    done = subprocess.run(
        command(server, *arguments, address=address), env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode in codes, f"{arguments} ended with {done.returncode}: {done.stderr}"
    return done


def served(server):
    """Returns the number of requests that the server has served, by its own count."""
    text = urllib.request.urlopen(f"http://{server.http}/metrics", timeout=PATIENCE_S).read().decode()
    counts = [line for line in text.splitlines() if line.startswith("fairlane_service_time_seconds_count{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counts)


def ladder(server, path, ladder, seconds, *more, address=None):
    """Measures a ladder of two rounds. Returns what it found. The server has served at least what was counted."""
    rungs = ["--ladder", ",".join(str(n) for n in ladder), "--ladder-rounds", "2"]
    short = ["--duration", f"{seconds}s", "--warmup", "300ms", "--metrics", server.http, "--quiet"]
    before = served(server)
    arguments = ["usl", "read", *KEYS, *rungs, *short, *more, "--json", str(path)]
    load(server, *arguments, codes=(0, 3), address=address)
    found = json.loads(path.read_text())
    answered = sum(rung["sent"] - rung["failed"] for rung in found["rungs"])
    assert answered <= served(server) - before, (answered, served(server) - before)
    assert sorted(rung["n"] for rung in found["rungs"]) == sorted(ladder * 2), found["rungs"]
    assert (found["connections"], found["threads"], found["server_core_count"]) == (16, 1, 2), found
    for rung in found["rungs"]:
        # At both ends of the measured time requests are in flight.
        counted = rung["throughput_per_s"] * found["seconds"]
        assert abs(counted - (rung["sent"] - rung["failed"])) <= rung["n"] + 0.01 * counted, rung
        in_flight = rung["throughput_per_s"] * rung["response"]["mean_us"] / 1e6
        assert abs(rung["little"] - in_flight / rung["n_reached"]) < 1e-6, rung
        is_valid = abs(rung["little"] - 1) <= 0.05 and rung["n_reached"] >= 0.95 * rung["n"]
        is_valid &= rung["generator_cpu"] <= 0.8 and rung["failed"] <= 0.001 * rung["sent"]
        assert is_valid == (not rung["invalid"]), rung
        if is_valid:
            assert 0 < rung["service_us"] <= rung["response"]["mean_us"], rung
    conclusions(found)
    return found


def by_law(law, n):
    return law["lambda"] * n / (1 + law["sigma"] * (n - 1) + law["kappa"] * n * (n - 1))


def valid_of(found):
    """Returns N and throughput of the valid rungs."""
    return [(rung["n"], rung["throughput_per_s"]) for rung in found["rungs"] if not rung["invalid"]]


def means_of(found):
    """Returns the mean throughput of each N, ascending."""
    rounds = {n: [x for other, x in valid_of(found) if other == n] for n, _ in sorted(valid_of(found))}
    return {n: sum(all) / len(all) for n, all in rounds.items()}


def conclusions(found):
    """The conclusions follow from the valid rungs, and there are some if the rungs determine a law."""
    scaling, valid, means = found["scaling"], valid_of(found), means_of(found)
    each = {n: x / n for n, x in means.items()}
    highest = max(each.values(), default=0)
    is_superlinear = bool(each) and highest >= SUPERLINEAR * min(each.items())[1]
    begin = [n for n in each if not is_superlinear or each[n] >= SUPERLINEAR_END * highest]
    fitted = {n: x for n, x in means.items() if n >= begin[0]} if begin else {}
    assert (scaling is None) == (len(fitted) < 4), (scaling, fitted)
    if scaling is None:
        return
    law, first = scaling["law"], min(fitted)
    assert (scaling["from_n"], scaling["up_to_n"]) == (first, max(fitted)), (scaling, fitted)
    assert scaling["superlinear"] == [n for n in means if n < first], scaling
    assert law["lambda"] > 0 and 0 <= law["sigma"] <= 1 and law["kappa"] >= 0, law
    least_squares(law, [(n, x) for n, x in valid if n >= first])
    residuals = {n: x / by_law(law, n) - 1 for n, x in fitted.items()}
    misfits = {misfit["n"]: misfit["residual"] for misfit in scaling["misfits"]}
    assert misfits.keys() == {n for n in residuals if abs(residuals[n]) > MISFIT}, (misfits, residuals)
    assert all(math.isclose(misfits[n], residuals[n], rel_tol=1e-6) for n in misfits), (misfits, residuals)
    linear = itertools.takewhile(lambda n: each[n] >= LINEAR * each[first], fitted)
    assert scaling["measured_end"] == list(linear)[-1], scaling
    assert [n for n, _ in scaling["curve"]] == list(fitted), scaling
    for n, estimate in scaling["curve"]:
        assert math.isclose(estimate["value"], by_law(law, n), rel_tol=1e-6), (n, estimate)
    end = scaling["linear_end"]["value"]
    threshold = LINEAR * by_law(law, first) / first
    assert 1 <= end <= max(fitted) and by_law(law, end) / end >= threshold * (1 - 1e-6), scaling
    assert end == max(fitted) or by_law(law, end + 0.01) / (end + 0.01) < threshold, scaling
    if scaling["peak"] is not None:
        n, highest = scaling["peak"]["n"]["value"], scaling["peak"]["throughput_per_s"]["value"]
        assert scaling["kappa"]["low"] > 0 and 1 <= n <= max(fitted), scaling
        assert math.isclose(n, max(1, math.sqrt((1 - law["sigma"]) / law["kappa"])), rel_tol=1e-6), scaling
        assert math.isclose(highest, by_law(law, n), rel_tol=1e-6), scaling


def least_squares(law, points):
    """No law beside this one has smaller relative errors. The problem is convex, so that there is none elsewhere."""
    terms = [1 / law["lambda"], law["sigma"] / law["lambda"], law["kappa"] / law["lambda"]]
    last = max(n for n, _ in points)

    def error(a, b, c):
        return sum((1 - x / n * (a + b * (n - 1) + c * n * (n - 1))) ** 2 for n, x in points)

    sizes = [terms[0], terms[0] / last, terms[0] / last**2]
    for signs in itertools.product([-1e-3, 0, 1e-3], repeat=3):
        a, b, c = (term + sign * size for term, sign, size in zip(terms, signs, sizes))
        if 0 <= b <= a and c >= 0:
            assert error(*terms) <= error(a, b, c) + 1e-9, (law, signs)


def behind_a_delay(server, folder):
    """The ladder has a law, and the law predicts the rung that was left out. Returns the file and the conclusions."""
    path, out = folder / "delayed.json", folder / "rung.json"
    seconds = 2
    with DelayLine(server.host, server.port, DELAY_S) as line:

        def left_out():
            arguments = ["--in-flight", str(LEFT_OUT), "--duration", f"{seconds}s", "--warmup", "300ms", "--quiet"]
            arguments += ["--no-routing", "--json", str(out)]
            load(server, "read", *KEYS, *arguments, codes=(0, 3), address=line.address)
            return json.loads(out.read_text())["steps"][0]["throughput_per_s"]

        before = left_out()
        found = ladder(server, path, LADDER, seconds, "--no-routing", address=line.address)
        measured = [before, left_out()]
    rounds = {n: [rung["throughput_per_s"] for rung in found["rungs"] if rung["n"] == n] for n in LADDER}
    rounds[LEFT_OUT] = measured
    for n, all in rounds.items():
        # A place in flight has an answer in every round trip, and one more at the end.
        most = n * (1 / (2 * DELAY_S) + 1 / seconds)
        assert max(all) <= most, (n, all, most)
    for rung in found["rungs"]:
        assert rung["response"]["mean_us"] >= 2e6 * DELAY_S, rung
    scaling = found["scaling"]
    assert scaling is not None, [rung["invalid"] for rung in found["rungs"]]
    bound = FACTOR * max(max(all) / min(all) for all in rounds.values())
    predicted, mean = by_law(scaling["law"], LEFT_OUT), sum(measured) / 2
    assert 1 / bound < predicted / mean < bound, (predicted, measured, bound)
    return path, found


def no_law(server, folder):
    """Three rungs determine no law, and no plan."""
    path = folder / "three.json"
    found = ladder(server, path, [1, 2, 4], 0.3)
    assert found["scaling"] is None, found
    refused = load(server, "plan", "--from", str(path), "--rate", "500k", codes=(3,))
    assert "expected a ladder with a law" in refused.stderr, refused.stderr


def sweep(server, folder, usl, ladder_found):
    """Open loops: the arrivals do not depend on the server, and each second is reported."""
    path, page = folder / "sweep.json", folder / "sweep.html"
    short = ["--sweep-runs", "1", "--duration", "4s", "--warmup", "300ms", "--metrics", server.http, "--quiet"]
    before = served(server)
    load(server, "sweep", *KEYS, "--from", str(usl), *short, "--json", str(path), "--html", str(page), codes=(0, 3))
    found = json.loads(path.read_text())
    answered = sum(second["answered"] for run in found["runs"] for second in run["seconds"])
    assert answered <= served(server) - before, (answered, served(server) - before)
    assert [run["part"] for run in found["runs"]] == [0.04, 0.4, 1.0], found["runs"]
    peak, means = ladder_found["scaling"]["peak"], means_of(ladder_found).values()
    expected = peak["throughput_per_s"]["value"] if peak else max(means)
    assert math.isclose(found["peak_per_s"], expected, rel_tol=1e-6), (found["peak_per_s"], expected)
    for run in found["runs"]:
        # Six standard deviations of Poisson arrivals, and a stall of 0.1 s at either end.
        due = run["part"] * found["peak_per_s"] * 4
        assert abs(run["sent"] - due) < 6 * math.sqrt(due) + 0.05 * due, (run["sent"], due)
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


def plan(server, folder, usl, ladder_found):
    """The plan follows from the file. A target that no rung meets is an error with the lowest p99."""
    path, scaling = folder / "plan.json", ladder_found["scaling"]
    wanted = ["plan", "--from", str(usl), "--rate", "500k", "--headroom", "30%"]
    load(server, *wanted, "--json", str(path))
    found = json.loads(path.read_text())
    measured = found["measured"][0]
    if scaling["misfits"]:
        expected = (scaling["measured_end"], means_of(ladder_found)[scaling["measured_end"]])
    else:
        end = math.floor(scaling["linear_end"]["value"])
        expected = (end, by_law(scaling["law"], end))
    assert measured["n"] == expected[0], (measured, expected)
    assert math.isclose(measured["throughput_per_s"]["value"], expected[1], rel_tol=1e-6), (measured, expected)
    low = measured["throughput_per_s"]["low"]
    assert low <= expected[1] and found["rows"][0]["cores"] == math.ceil(2 * 650_000 / low - 1e-9), found
    assert "1 core count determines no law over cores" in found["notes"][0], found["notes"]
    refused = load(server, *wanted, "--p99", "0.001ms", codes=(3,))
    assert "the lowest is" in refused.stderr, refused.stderr


def main():
    with Server() as server, tempfile.TemporaryDirectory(prefix="fairlane-concurrency-") as name:
        folder = Path(name)
        load(server, "prefill", *KEYS, "--quiet")
        usl, found = behind_a_delay(server, folder)
        plan(server, folder, usl, found)
        sweep(server, folder, usl, found)
        path = folder / "usl.json"
        found = ladder(server, path, LADDER, 1)
        if found["scaling"] is not None:
            plan(server, folder, path, found)
        no_law(server, folder)
        interrupted(server, folder)


if __name__ == "__main__":
    main()
