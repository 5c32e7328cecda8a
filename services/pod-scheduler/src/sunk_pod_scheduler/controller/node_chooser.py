"""Which nodes Slurm may choose from, for Pods that are submitted and for Pods that wait.

A choice is made anew only for Pods that ask for what none has asked for, or after a Node or a Slurm node has
changed in what Pods look at; and in slices, so that nobody waits for it, however many nodes there are.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Final

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from sunk_kube.pods import Pod
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.placement_index import PlacementIndex
from sunk_pod_scheduler.placement.node_filter import (
    Holders,
    NodeChoice,
    NodeConstraints,
    NodeRequirements,
    Nodes,
    are_alike,
    choice,
    ports_taken,
    unfit,
    wished,
)
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_runtime.clock import now

LASTS: Final = timedelta(seconds=1)
"""A node that came or changed a moment ago may be missed: the one that Slurm chose is looked at again."""
SLICE: Final = 250
"""Nodes, or Pods, that are looked at without a pause."""
TESTS: Final = 5000
"""Tests of their labels without a pause: a Pod may ask for hundreds."""
KEPT_MAX: Final = 1000
"""Choices that are remembered."""
KEPT_CHARACTERS_MAX: Final = 16 << 20
"""Characters of all of them: a user may name thousands of nodes whose names do not fold."""


class NodeChoiceCache:
    """What was chosen for Pods, which mostly are alike: among many nodes a choice takes long."""

    def __init__(self) -> None:
        self._made: dict[bytes, NodeChoice] = {}
        self._nodes: Nodes = {}
        self._since = datetime.min.replace(tzinfo=UTC)
        self._under_way: dict[bytes, anyio.Event] = {}
        """By what is asked for: Pods that request the same wait for it, and no others do."""

    async def choose(
        self,
        pods: Iterable[Pod],
        nodes: Callable[[], Nodes],
        constraints: NodeConstraints,
        now: datetime,
        *,
        holders: Holders = lambda _: {},
        pins: bool = True,
    ) -> NodeChoice:
        """Return what Slurm may choose from, so that each of *pods* fits every node of it.

        Args:
            pods: One, or the members of a gang: who gets which node is seen later.
            nodes: Returns the Node of every node that Slurm has.
            constraints: What they ask for by annotation.
            now: The time.
            holders: Returns who has a host port.
            pins: As of `node_filter.choice`.
        """
        wishes: dict[bytes, tuple[Pod, frozenset[str]]] = {}
        for number, pod in enumerate(pods):
            taken = ports_taken(pod, holders)
            wishes[wished(pod, taken)] = pod, taken
            if number % SLICE == SLICE - 1:
                await checkpoint()
        key = _digest(wishes, constraints, pins=pins)
        while True:
            known, made = self._current(nodes, now)
            if (found := made.get(key)) is not None:
                return found
            if (under_way := self._under_way.get(key)) is None:
                break
            await under_way.wait()
        self._under_way[key] = done = anyio.Event()
        try:
            bad: set[str] = set()
            for pod, taken in wishes.values():
                bad |= await _unfit(NodeRequirements(pod, taken), known)
            found = choice(constraints, known, bad, pins=pins)
            kept = sum(map(_characters, made.values()))
            if len(made) >= KEPT_MAX or kept + _characters(found) > KEPT_CHARACTERS_MAX:
                made.clear()
            made[key] = found
            return found
        finally:
            del self._under_way[key]
            done.set()

    def _current(self, nodes: Callable[[], Nodes], now: datetime) -> tuple[Nodes, dict[bytes, NodeChoice]]:
        """Return the nodes, and what was chosen among them."""
        if now - self._since > LASTS:
            found = nodes()
            if not are_alike(found, self._nodes):
                self._made = {}
            self._nodes, self._since = found, now
        return self._nodes, self._made


def _characters(made: NodeChoice) -> int:
    return sum(map(len, (*made.required, *made.excluded)))


async def _unfit(wishes: NodeRequirements, known: Nodes) -> set[str]:
    found: set[str] = set()
    nodes, size = iter(known.items()), max(1, min(SLICE, TESTS // (wishes.tests or 1)))
    while part := [*islice(nodes, size)]:
        found |= unfit(wishes, part)
        await checkpoint()
    return found


class NodeChooser:
    """Chooses for the Pods of one Slurm cluster."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._choices = NodeChoiceCache()
        self._placement_index = PlacementIndex(context.placements.view)

    async def choose(
        self,
        pods: Sequence[Pod],
        requested: JobOptions,
        *,
        least: int = 1,
        pins: bool = True,
        excludes: Collection[str] | None = None,
    ) -> NodeChoice:
        """Return what Slurm may choose from for *pods*: no node of Pods whose job slurmctld has lost.

        Args:
            pods: One, or the members of a gang.
            requested: What they ask for by annotation.
            least: How many nodes are needed.
            pins: As of `node_filter.choice`.
            excludes: Which nodes the annotation excludes; None: as it says.
        """
        moment, views = now(), self._context.views
        refused = {node for pod in pods for node in self._context.refusals.nodes(pod, moment)}
        refused.update(self._placement_index.nodes_without_jobs())
        known = (node for node in sorted(refused) if views.slurm_nodes.get(node) is not None)
        excluded = requested.excluded_nodes if excludes is None else excludes
        constraints = NodeConstraints(
            required=requested.required_nodes, excluded=(*excluded, *known), least=least
        )
        holders = cache(self._context.pods.holders)
        nodes = partial(views.nodes, self._context.pods)
        return await self._choices.choose(pods, nodes, constraints, moment, holders=holders, pins=pins)

    async def excluded(
        self, pods: Sequence[Pod], requested: JobOptions, *, least: int = 1, pins: bool = True
    ) -> str | None:
        """Return which nodes a job of *pods* that waits must not get; None where none is left or known.

        Where none is left, what it was told last stands: Slurm holds a job that may have no node.
        """
        views = self._context.views
        if not (views.slurm_nodes.is_complete and views.kube_pods.is_complete):
            return None
        # Slurm refuses names that it does not know: at submission its user is told, now nobody can mend it.
        there = [node for node in requested.excluded_nodes if views.slurm_nodes.get(node) is not None]
        found = await self.choose(pods, requested, least=least, pins=pins, excludes=there)
        return ",".join(found.excluded) if found.is_possible else None


def _digest(wishes: Iterable[bytes], constraints: NodeConstraints, *, pins: bool) -> bytes:
    content = b"\0".join([msgspec.json.encode((constraints, pins)), *sorted(wishes)])
    return hashlib.sha256(content).digest()
