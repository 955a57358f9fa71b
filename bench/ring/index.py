"""Experiments by name."""

from typing import Callable, NamedTuple

import failures
import fronts
import latency
import overload
import scans
import shares
import soak
import tags


class Experiment(NamedTuple):
    """`run(bench, rate)` returns rows. The ring has a node for each letter of `datacenters`. With `has_rate` it is warm, and `rate` is
    its capacity, requests a second. `is_by_name`: left out unless it is named."""

    run: Callable
    datacenters: str = "aaa"
    has_rate: bool = False
    is_by_name: bool = False

    def about(self):
        """Returns the first sentence of its description."""
        return " ".join(self.run.__doc__.split()).split(". ")[0].rstrip(".")


EXPERIMENTS = {
    "latency": Experiment(latency.added_latency, has_rate=True),
    "ladder": Experiment(overload.ladder, has_rate=True),
    "levels": Experiment(shares.on_one, has_rate=True),
    "levels-two-fronts": Experiment(shares.on_two, has_rate=True),
    "front-gone": Experiment(shares.front_gone, has_rate=True),
    "scans": Experiment(scans.beside_paging, has_rate=True),
    "sql-scans": Experiment(scans.beside_sql, has_rate=True),
    "sql-rows": Experiment(scans.sql_rows, has_rate=True),
    "goodput": Experiment(overload.goodput, has_rate=True),
    "limited": Experiment(fronts.limited),
    "changes": Experiment(fronts.changes),
    "front-killed": Experiment(fronts.front_killed),
    "stopped": Experiment(failures.stopped),
    "killed": Experiment(failures.killed),
    "restarted": Experiment(failures.restarted),
    "tags": Experiment(tags.tags, datacenters="aab"),
    "tags-saturated": Experiment(tags.saturated, datacenters="aab", has_rate=True),
    # The ring is not used, but its CPUs are.
    "cpu": Experiment(latency.cpu, datacenters=""),
    "soak": Experiment(soak.soak, is_by_name=True),
}
