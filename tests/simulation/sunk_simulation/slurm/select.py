"""Which nodes a job gets, as select/cons_tres and preempt/partition_prio have it. Pure.

It is simpler than Slurm: nodes are taken in their order, sockets and cores are not heeded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sunk_simulation.slurm.records import Held, JobRecord, NodeRecord
from sunk_slurm import hostlist

MEMORY_PER_CPU: Final = 4000
"""DefMemPerCPU, of a node of 4 CPUs and 16,000 MiB."""


@dataclass(frozen=True)
class Place:
    """A node with the jobs on it."""

    node: NodeRecord
    jobs: tuple[JobRecord, ...]

    def without(self, gone: Callable[[JobRecord], bool]) -> "Place":
        """Return it as it would be without some jobs."""
        return Place(self.node, tuple(job for job in self.jobs if not gone(job)))


@dataclass(frozen=True)
class Choice:
    """The nodes for a job, and whose place it takes."""

    held: dict[str, Held]
    victims: tuple[JobRecord, ...] = ()


def names_of(expression: str) -> tuple[str, ...]:
    """Return the names of a hostlist expression; none of an empty one."""
    return hostlist.expand(expression) if expression else ()


def needed(job: JobRecord, node: NodeRecord, count: int) -> Held:
    """Return what *job* takes of *node* if it runs on *count* nodes."""
    per_node = job.tasks_per_node or -(-max(job.tasks, 1) // count)
    cpus = per_node * max(job.cpus_per_task, 1)
    if job.shared == "none":
        return Held(node.cpus, node.real_memory, node.gpus)
    memory = cpus * MEMORY_PER_CPU if job.memory is None else job.memory or node.real_memory
    return Held(cpus, memory, job.gpus)


def could_ever(job: JobRecord, nodes: Iterable[NodeRecord]) -> bool:
    """Whether enough of *nodes* were big enough, if all were well and free."""
    able = [Place(node, ()) for node in nodes]
    return _of(job, able) is not None


def choose(job: JobRecord, places: Sequence[Place], tier_of: Callable[[JobRecord], int]) -> Choice | None:
    """Return where *job* begins now, if need be in the place of jobs of lower tiers; None: nowhere."""
    if (found := _of(job, places)) is not None:
        return Choice(found)
    tier = tier_of(job)

    def is_lower(other: JobRecord) -> bool:
        return tier_of(other) < tier

    found = _of(job, [place.without(is_lower) for place in places])
    if found is None:
        return None
    victims = {
        other.job_id: other
        for place in places
        if place.node.name in found
        for other in place.jobs
        if is_lower(other)
    }
    return Choice(found, tuple(victims.values()))


def _of(job: JobRecord, places: Sequence[Place]) -> dict[str, Held] | None:
    excluded = set(names_of(job.excluded_nodes))
    usable = [place for place in places if place.node.name not in excluded]
    named = [place for place in usable if place.node.name in job.required_nodes]
    if len(named) < len(job.required_nodes):
        return None
    others = [place for place in usable if place.node.name not in job.required_nodes]
    least = max(job.min_nodes, len(job.required_nodes), 1)
    most = max(least, job.max_nodes or (len(usable) if job.tasks > 1 and not job.required_nodes else least))
    counts = range(most, least - 1, -1) if job.max_nodes > least else range(least, most + 1)
    for count in counts:
        fitting = [place for place in others if _fits(job, place, count)]
        if all(_fits(job, place, count) for place in named) and len(named) + len(fitting) >= count:
            taken = [*named, *fitting[: count - len(named)]]
            order = {place.node.name: index for index, place in enumerate(places)}
            taken.sort(key=lambda place: order[place.node.name])
            return {place.node.name: needed(job, place.node, count) for place in taken}
    return None


def _fits(job: JobRecord, place: Place, count: int) -> bool:
    node, want = place.node, needed(job, place.node, count)
    if not set(job.constraints) <= set(node.active_features):
        return False
    if job.shared == "none" and place.jobs:
        return False
    if any(_keeps_away(other, job) or _keeps_away(job, other) for other in place.jobs):
        return False
    on_it = [
        other.held[node.name] for other in place.jobs if other.base != "SUSPENDED" or other.is_completing
    ]
    return (
        want.cpus <= node.cpus - sum(held.cpus for held in on_it)
        and want.memory <= node.real_memory - sum(held.memory for held in on_it)
        and want.gpus <= node.gpus - sum(held.gpus for held in on_it)
    )


def _keeps_away(one: JobRecord, other: JobRecord) -> bool:
    return one.shared == "none" or (one.shared == "user" and one.user_id != other.user_id)
