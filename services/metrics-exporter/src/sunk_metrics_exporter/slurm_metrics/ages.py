"""How old what the bus knows of Slurm is, by kind, and which metrics rest on which kinds.

What must stay true: an age is never younger than what it tells of, whatever clock wrote that. A state does
not change by being looked at again, so the syncer tells with its statistics when Slurm last answered about
all of a kind; where it is older than that, the newest state of any kind must do.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, get_args

import msgspec

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


class LastSeen(msgspec.Struct, frozen=True):
    """When Slurm was heard, by kind. A moment that was ahead when it came counts as the one of its coming."""

    states: Mapping[Kind, datetime] = {}
    """By the newest state: Slurm was heard then at the latest."""
    answers: Mapping[Kind, tuple[datetime, datetime]] = {}
    """By the last answer about all of a kind: as the syncer told it, and as it counts."""


def last_seen(
    before: LastSeen,
    newest: Mapping[Kind, datetime | None],
    statistics: SlurmStatisticsState | None,
    now: datetime,
) -> LastSeen:
    """Return what is known after a look.

    Args:
        before: What was known.
        newest: When the newest state of each kind began that is new with this look.
        statistics: Those of the syncer.
        now: The moment of the look.
    """
    states: dict[Kind, datetime] = {}
    for kind in KINDS:
        if moments := [*filter(None, (before.states.get(kind), newest[kind]))]:
            states[kind] = min(max(moments), now)
    answered: dict[Kind, datetime | None] = {}
    if statistics is not None:
        answered = {
            "nodes": statistics.nodes_answered,
            "jobs": statistics.jobs_answered,
            "partitions": statistics.partitions_answered,
        }
    answers: dict[Kind, tuple[datetime, datetime]] = {}
    for kind, moment in answered.items():
        if moment is not None:
            last, counts = before.answers.get(kind, (None, moment))
            answers[kind] = (moment, min(counts if last == moment else moment, now))
    return LastSeen(states, answers)


def ages(known: LastSeen, now: datetime) -> dict[Kind, float]:
    """Return the age of each kind in seconds; infinite where nothing was ever told."""
    of_all = max(known.states.values(), default=None)
    last: dict[Kind, datetime | None] = dict.fromkeys(KINDS, of_all)
    for kind, (_, moment) in known.answers.items():
        last[kind] = max(moment, known.states.get(kind, moment))
    last["statistics"] = known.states.get("statistics")
    return {kind: _age_s(moment, now) for kind, moment in last.items()}


def _age_s(moment: datetime | None, now: datetime) -> float:
    return math.inf if moment is None else max((now - moment).total_seconds(), 0.0)
