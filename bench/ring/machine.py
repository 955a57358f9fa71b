"""CPU time of this machine by its users: the nodes, the front, the loads, and other programs."""

import os
import resource
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    """Returns the CPU time of a process, seconds. Zero if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def machine_s():
    """Returns the time that all CPUs were busy and that the host took from them, seconds."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS_PER_S, steal / TICKS_PER_S


def own_s():
    """Returns the CPU time of this process, and of its children that have ended, seconds."""
    own, children = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def load_average():
    return float(Path("/proc/loadavg").read_text().split()[0])


class Use:
    """Use of CPUs since the last reading, as parts of one CPU. Loads count once they have ended."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.before = None

    def begin(self, now_s, fronts):
        self.before = self.read(now_s, fronts)

    def read(self, now_s, fronts):
        busy, steal = machine_s()
        own, loads = own_s()
        nodes = sum(cpu_s(node.process.pid) for node in self.nodes)
        return {
            "seconds": now_s, "busy": busy, "steal": steal, "own": own, "loads": loads, "nodes": nodes,
            "front": sum(cpu_s(front.process.pid) for front in fronts),
        }  # fmt: skip

    def end(self, now_s, fronts):
        after = self.read(now_s, fronts)
        spent = {name: after[name] - self.before[name] for name in after}
        seconds = max(spent.pop("seconds"), 1e-9)
        parts = {name: spent[name] / seconds for name in spent}
        parts["others"] = max(0.0, parts["busy"] - sum(parts[name] for name in ("own", "loads", "nodes", "front")))
        parts["load_average"] = load_average()
        return parts
