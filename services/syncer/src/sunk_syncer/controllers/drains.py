"""Wanted drains from the bus to Slurm: whenever either side of a node changes, both are compared.

What must stay true: nothing is decided on views that are not complete; the node is read again right
before it is written, and so are the jobs of Pods whose node is lifted after one that was overdue; the most
urgent come first, and none waits for one that Slurm refuses.
"""

import logging
from collections.abc import AsyncIterable, Collection
from typing import Final

import anyio

from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.keys import KeyLoop
from sunk_syncer.actions import Action, DownNode, DrainNode, KubeInputs, SlurmInputs, gone_uid
from sunk_syncer.adapters.views import Views, fresh_inputs, published_inputs
from sunk_syncer.config import Config
from sunk_syncer.metrics import HELD_BACK
from sunk_syncer.policy.drains import OVERDUE, decide, is_ours, urgency
from sunk_syncer.policy.requeues import is_in_the_way
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.writers.node_writer import NodeWriter, Seen

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0
_AT_ONCE: Final = 512
"""Nodes under way: as many may end up in one call."""
_RANK_S: Final = 60.0
"""A key of the next urgency is due so much before the others: behind nobody who waits for less than that."""


class DrainController:
    """Keeps the drains of one cluster's nodes as Kubernetes' side wants them. Only the leader runs it."""

    def __init__(
        self, node_writer: NodeWriter, watch: NodePoller, jobs: JobPoller, views: Views, config: Config
    ) -> None:
        self._node_writer = node_writer
        self._watch = watch
        self._jobs = jobs
        self._views = views
        self._config = config
        self._loop = KeyLoop("drain", self._settle, concurrency=_AT_ONCE, woken_by=views.recoveries())
        self._downed: dict[str, str] = {}
        """The uid of the Pod that each node was set down for."""
        self._look_for_s: dict[str, float] = {}
        """When to look again for each node that Slurm does not know, or has down, though its Pod is ready."""
        self._too_late: set[str] = set()
        """Nodes whose last look was too old when their turn came: a look at one node is the quickest."""

    async def run(self) -> None:
        """Compare until cancelled."""
        views = self._views
        await views.complete()
        async with anyio.create_task_group() as tasks:
            for source in (
                views.nodes.changes(),
                views.pods.changes(),
                views.locks.changes(),
                views.nodes_of_placements(),
            ):
                tasks.start_soon(self._follow, source)
            await self._loop.run(keys=views.nodes.keys, resync_s=self._config.resync_s)

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _follow(self, source: AsyncIterable[str]) -> None:
        """Look at what changed, the most urgent first."""
        async for name in source:
            rank = urgency(self._kube_inputs(name))
            self._loop.enqueue(name, after_s=-rank * _RANK_S)

    async def _settle(self, name: str) -> float | None:
        """Bring one node's drain in line; return when to look again although nothing changes."""
        try:
            self._views.require_known(name)
        except TransientError:
            HELD_BACK.inc()
            raise
        published = self._views.nodes.get(name)
        if published is None:
            return self._look_for(name)
        if not published.is_down:
            self._look_for_s.pop(name, None)
        slurm = published_inputs(published, now(), clock_ahead_s=self._watch.clock_ahead_s)
        actions = self._decide(slurm, self._kube_inputs(name))
        if not actions:
            return self._look_for(name) if published.is_down else self._again_s(slurm)
        try:
            if _is_new_drain(actions, slurm):
                return await self._drain(name)
            return await self._change(name)
        except PermanentError as error:
            log.error("look at node refused", extra={"node": name, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return self._config.refused_again_s

    async def _drain(self, name: str) -> float | None:
        """Drain a node that was told as not drained, in one call with others."""
        seen = await self._node_writer.look(name, may_be_listed=name not in self._too_late)
        if seen is None:
            return None
        slurm = self._fresh(seen, name)
        actions = self._decide(slurm, self._kube_inputs(name))
        if not actions:
            return self._again_s(slurm)
        if not _is_new_drain(actions, slurm) or not isinstance(actions[0], DrainNode):
            return await self._change(name)
        try:
            is_done = await self._node_writer.drain(actions[0], seen)
        except ConflictError:
            self._too_late.add(name)
            raise
        self._too_late.discard(name)
        if not is_done:
            return self._config.refused_again_s
        # What else there is to do is decided upon the drained node: this look has become old meanwhile.
        return await self._change(name) if len(actions) > 1 else self._again_s(slurm)

    async def _change(self, name: str) -> float | None:
        """Do to one node what a look asks for that is taken when its turn to be written has come."""
        async with self._node_writer.place(name):
            seen = await self._node_writer.look(name)
            if seen is None:
                return None
            left = await self._left(name) if seen.node.reason.startswith(OVERDUE) else frozenset[int]()
            slurm = self._fresh(seen, name)
            kube = self._kube_inputs(name, left)
            for action in self._decide(slurm, kube):
                if not await self._node_writer.carry_out(action, seen):
                    return self._config.refused_again_s
                if isinstance(action, DownNode):
                    self._downed[name] = gone_uid(kube.pod)
            return self._again_s(slurm)

    async def _left(self, name: str) -> frozenset[int]:
        """Look at the jobs of the Pods that are on a node; return those that do not run there any more.

        One Pod that has gone lifts the drain for all: the bus may not have heard of the end of another's job.
        """
        looks = await self._jobs.seen_all(sorted(self._views.jobs_of_pods(name)))
        left = frozenset(job for job, found in looks.items() if not is_in_the_way(found, name))
        for job in left:
            self._jobs.look(job)  # The bus is to hear of it.
        return left

    def _fresh(self, seen: Seen, name: str) -> SlurmInputs:
        """Return Slurm's side as it was *seen*, if what others say of the node is still known."""
        slurm = fresh_inputs(seen.node, clock_ahead_s=self._watch.clock_ahead_s)
        self._views.require_known(name)
        return slurm

    def _look_for(self, name: str) -> float | None:
        """A slurmd that answers has registered, or is about to: no need to wait for the next list.

        Nothing else says so: slurmctld's counters do not count registrations. One that has not after a while
        never will, and its Pod may stay for ever.
        """
        pod = self._views.pods.get(name)
        if pod is None or not pod.is_ready:
            self._look_for_s.pop(name, None)
            return None
        self._watch.look(name)
        again_s = self._look_for_s.get(name, _LOOK_AGAIN_S)
        self._look_for_s[name] = min(again_s * 2, self._config.resync_s)
        return again_s

    def _decide(self, slurm: SlurmInputs, kube: KubeInputs) -> tuple[Action, ...]:
        return decide(slurm, kube, prehook_pause_s=self._config.prehook_pause_s)

    def _again_s(self, slurm: SlurmInputs) -> float | None:
        """A drain of ours may have to go for no other reason than time."""
        if slurm.state.is_drain and self._watch.clock_ahead_s is None:
            return _LOOK_AGAIN_S
        return self._config.prehook_pause_s if is_ours(slurm) else None

    def _kube_inputs(self, name: str, left: Collection[int] = ()) -> KubeInputs:
        return self._views.kube_inputs(name, now(), downed_uid=self._downed.get(name, ""), left=left)


def _is_new_drain(actions: tuple[Action, ...], slurm: SlurmInputs) -> bool:
    return isinstance(actions[0], DrainNode) and not slurm.state.is_drain
