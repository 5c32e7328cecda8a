"""How old what the bus knows of Slurm is, by kind, and which metrics rest on which kinds.

What must stay true: an age is never younger than what it tells of. A state does not change by being looked
at again, so the syncer tells with its statistics when Slurm last answered about all of a kind; where it is
older than that, the newest state of any kind must do.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, get_args

from sunk_events.nodes import SlurmStatisticsState

Kind = Literal["nodes", "jobs", "partitions", "statistics"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_RESTS_ON: Final[Mapping[str, frozenset[Kind]]] = {
    "slurm_partition_": frozenset({"nodes", "partitions"}),
    "slurm_node": frozenset({"nodes"}),
    "slurm_job": frozenset({"jobs"}),
    "slurm_queue_": frozenset({"jobs"}),
    "slurm_scheduler_": frozenset({"statistics"}),
    "slurm_controller_": frozenset({"statistics"}),
}
"""By the beginning of a metric's name. A partition's sums are those of its nodes."""


def rests_on(metric: str) -> frozenset[Kind]:
    """Return the kinds of state that *metric* is made of."""
    return next(kinds for begin, kinds in _RESTS_ON.items() if metric.startswith(begin))


def ages(
    newest: Mapping[Kind, datetime | None], told: SlurmStatisticsState | None, now: datetime
) -> dict[Kind, float]:
    """Return the age of each kind in seconds; infinite where nothing was ever told.

    Args:
        newest: When the newest state of each kind began: Slurm was heard then at the latest.
        told: The syncer's statistics.
        now: The moment.
    """
    of_all = max(filter(None, newest.values()), default=None)
    answered: dict[Kind, datetime | None] = {
        "nodes": told and told.nodes_answered,
        "jobs": told and told.jobs_answered,
        "partitions": told and told.partitions_answered,
    }
    heard: dict[Kind, datetime | None] = {
        kind: max(moment, newest[kind] or moment) if moment else of_all for kind, moment in answered.items()
    }
    heard["statistics"] = newest["statistics"]
    return {kind: _age_s(moment, now) for kind, moment in heard.items()}


def _age_s(moment: datetime | None, now: datetime) -> float:
    return math.inf if moment is None else max((now - moment).total_seconds(), 0.0)
