"""Rows of results, and verdicts on them."""

import math
import statistics

# Programs of others may use this part of one CPU during a cell. Above it, times decide nothing.
OTHERS_MAX = 0.1


class Row(tuple):
    """A line of a result file: what, measured, unit, goal, verdict."""

    def __new__(cls, what, measured, unit="", goal="", verdict=""):
        return super().__new__(cls, (what, measured, unit, goal, verdict))


def machine(cells):
    """Returns the use of CPUs beside results, as text: that of other programs and of the host, and the load average, at worst."""
    most = {name: max(cell["use"][name] for cell in cells) for name in ("others", "steal", "load_average")}
    return f"(others {most['others']:.0%}, steal {most['steal']:.0%}, load {most['load_average']:.1f})"


def judged(values, cells, most=None, least=None):
    """Returns the verdict on repeated times or rates, whose goal is `most` or `least`. It is undecided if their range is larger than
    the distance of their median from the goal, or if others used the CPUs."""
    if max(cell["use"]["others"] + cell["use"]["steal"] for cell in cells) > OTHERS_MAX:
        return "undecided"
    if not all(map(math.isfinite, values)):
        return "undecided"
    middle, width = statistics.median(values), max(values) - min(values)
    goal = least if most is None else most
    if width > abs(middle - goal):
        return "undecided"
    return "met" if (middle <= goal if least is None else middle >= goal) else "missed"


def together(*verdicts):
    """Returns the verdict on a row with several goals: the worst of theirs."""
    return next(verdict for verdict in ("missed", "undecided", "met") if verdict in verdicts)


def counted(outcomes):
    """Returns the verdict on outcomes that no clock decides: one that is not as it should be is enough."""
    return "met" if all(outcomes) else "missed"


def spread(values, form="{:.2f}"):
    """Returns the median of values and their range, as text."""
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def pair(values, form="{:.2f}"):
    return " and ".join(form.format(value) for value in values)


def step(cell, index=-1):
    return cell["report"]["steps"][index]


def latency(cell, name):
    """Returns a percentile of reads, microseconds: endless if none was answered."""
    reads = step(cell)["reads"]
    return reads["latency"][f"{name}_us"] if reads else math.inf


def per_s(report):
    return report["steps"][-1]["throughput_per_s"]
