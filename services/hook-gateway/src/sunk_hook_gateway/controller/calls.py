"""What each hook does: ask on the bus, again and again, until its own deadline.

What must stay true: `Later`, nobody listening and no answer in time are the same: try again. What a
caller is told was either decided by the owner of the thing, or is "again" (503), or, for a prolog at its
deadline, the refusal that keeps its job from sharing the node.
"""

import logging
from functools import partial
from typing import Final

import anyio

from sunk_events.base import Reply, Request
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    ExplainJobToOwner,
    Later,
    Noted,
    NudgeJob,
    NudgeNode,
    PlacementAnnounced,
    PlacementSilent,
    RebootNode,
    ReleaseLock,
    ReleasePlacement,
)
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.adapters.views import Locks, Placements, pause_s
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.controller.admission import UNKNOWN_S, VIEWS_WAIT_S
from sunk_hook_gateway.controller.prologs import Prologs
from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.bodies import Nudge, Prehook, Release, Started
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import TRY_S, ask
from sunk_runtime.views import StateView

log = logging.getLogger(__name__)

STARTED_WAIT_S: Final = 8.0
"""How long a script that has begun is held: it hangs up after ten seconds, and each call of its costs a
process on its node, which a burst of Pods has better use for."""
NO_REBOOTS: Final = answers.failed(
    403,
    "reboots are off: set syncer.nodePermissions.enabled of helm/slurm (REBOOTS of the hook-gateway)",
)


class Gateway:
    """Answers hook calls whose callers have been let in."""

    def __init__(
        self,
        bus: Bus,
        config: Config,
        *,
        nodes: StateView[SlurmNodeState],
        pods: StateView[KubePodState],
        locks: Locks,
        placements: Placements,
        leaves: LeaveCount,
    ) -> None:
        self._bus = bus
        self._config = config
        self._nodes = nodes
        self._pods = pods
        self._locks = locks
        self._placements = placements
        self._prologs = Prologs(
            self._ask, config, nodes=nodes, locks=locks, placements=placements, leaves=leaves
        )

    async def prehook(self, node: str, body: Prehook) -> Answer:
        """Return when the node is locked for the job, the job no longer runs, or the deadline passed."""
        if unknown := await self._unknown(node):
            return unknown
        return await self._prologs.prehook(node, body)

    async def release_node(self, node: str, body: Release) -> Answer:
        """Return when the job's Pod, if it is a placeholder, is gone and its hold on the lock is released."""
        if unknown := await self._unknown(node):
            return unknown
        if not self._placements.is_complete:
            return answers.retry("placements are not read yet")
        placement = self._placements.of_job(body.job)
        # Where placements are lost, the lock still tells whose epilog this is. One without a node
        # waits, or is a gang's: its owner knows where that is.
        is_placeholder = self._locks.is_placeholder(node, body.job)
        if is_placeholder if placement is None else placement.node in {"", node}:
            answer, is_answered = await self._until_pod_gone(ReleasePlacement(job=body.job, node=node))
            if answer == answers.RETRY and (placement is not None or is_answered):
                return answers.left(placement)  # By the lock alone anybody may look like a placeholder.
            if answer.content != {"gone": True}:
                return answer
        reply = await self._ask(ReleaseLock(node=node, job=body.job), timeout_s=TRY_S)
        answer = answers.noted(reply)
        return Answer(200, {"gone": True}) if answer == Answer(200, {}) else answer

    async def reboot(self, node: str, who: str) -> Answer:
        """Return when the Node's condition asks for a reboot, or why it may not."""
        if not self._config.reboots:
            return NO_REBOOTS
        if unknown := await self._unknown(node):
            return unknown
        request = RebootNode(node=node, who=who)
        return answers.noted(await self._ask_until(request, within_s=self._config.release_wait_s))

    async def started(self, job: int, token: str, body: Started) -> Answer:
        """Return when the pod-scheduler has noted that the placeholder's script runs."""
        reply = await self._ask_until(
            PlacementAnnounced(job=job, node=body.node, token=token), within_s=STARTED_WAIT_S
        )
        return answers.noted(reply)

    async def release_job(self, job: int, token: str) -> Answer:
        """Return when the placeholder's Pod is gone, or a bound passes: then the script asks again."""
        # The owner judges a caller for an unknown job, as it knows each token: "gone" is its word.
        answer, _ = await self._until_pod_gone(ReleasePlacement(job=job, token=token))
        return answer

    async def outcome(self, job: int, known: PlacementState, token: str) -> Answer:
        """Return how the script shall end when its Pod is gone; 204 while the Pod lives: ask again."""
        with self._placements.notified_of(job) as notification, anyio.move_on_after(self._config.poll_s):
            while True:
                await self._placements.complete()
                present = self._placements.now(known)
                if answer := answers.outcome(known, present):
                    return answer
                if present is not None and present.job == job:
                    known = present
                if known.silent is not None and not await self._speak_for(known, token):
                    continue
                await notification.wait()
        return Answer(204)

    async def explain(self, job: int, user: str) -> Answer:
        """Return why *job* of *user* is as it is."""
        return answers.explained(await self._ask(ExplainJobToOwner(job=job, user=user), timeout_s=TRY_S))

    async def outcome_dropped(self, job: int) -> None:
        """Have the job looked at: its script's poll was cut, which may be the first sign of its death."""
        log.info("outcome poll dropped", extra={"job": job})
        async with anyio.create_task_group() as tasks:
            for question in (PlacementSilent(job=job), NudgeJob(job=job)):
                tasks.start_soon(partial(self._ask, question, timeout_s=1.0))

    async def _speak_for(self, placement: PlacementState, token: str) -> bool:
        """Say that a script which counts as silent polls here; return whether that was noted."""
        if placement.job is None:
            return True
        announced = PlacementAnnounced(job=placement.job, node=placement.node, token=token)
        if await self._ask(announced, timeout_s=TRY_S) == Noted():
            return True
        await anyio.sleep(pause_s(None))
        return False

    async def nudge(self, body: Nudge) -> Answer:
        """Return when the syncer has noted that it should look."""
        if body.node is not None and body.job is None:
            return answers.noted(await self._ask(NudgeNode(node=body.node), timeout_s=TRY_S))
        if body.job is not None and body.node is None:
            return answers.noted(await self._ask(NudgeJob(job=body.job), timeout_s=TRY_S))
        return answers.failed(400, "exactly one of `node` and `job` is needed")

    async def _unknown(self, node: str) -> Answer | None:
        """Return what to say of a node that nobody knows; None if somebody does."""
        if self._knows(node):
            return None
        with anyio.move_on_after(VIEWS_WAIT_S):
            await self._nodes.complete()
            await self._pods.complete()
            await anyio.sleep(UNKNOWN_S)
        if self._knows(node):
            return None
        if not (self._nodes.is_complete and self._pods.is_complete):
            return answers.retry("nodes are not read yet")
        return answers.failed(404, f"node {node} is unknown")

    def _knows(self, node: str) -> bool:
        return self._nodes.get(node) is not None or self._pods.get(node) is not None

    async def _until_pod_gone(self, request: ReleasePlacement) -> tuple[Answer, bool]:
        """Ask until the Pod is gone or the bound passes; return the answer, and whether anybody spoke."""
        deadline = anyio.current_time() + self._config.release_wait_s
        answer, is_answered = answers.RETRY, False
        with self._placements.notified_of(request.job) as notification:
            while (left_s := deadline - anyio.current_time()) > 0:
                reply = await self._ask(request, timeout_s=left_s)
                is_answered = is_answered or reply is not None
                if reply is not None and not isinstance(reply, Later):
                    answer = answers.released(reply)
                    if answer.status not in {202, 503}:
                        return answer, is_answered
                with anyio.move_on_after(min(pause_s(reply), left_s)):
                    await notification.wait()
        return answer, is_answered

    async def _ask_until(self, request: Request, *, within_s: float) -> Reply | None:
        """Ask again while nobody knows, for *within_s* seconds."""
        deadline = anyio.current_time() + within_s
        while (left_s := deadline - anyio.current_time()) > 0:
            reply = await self._ask(request, timeout_s=left_s)
            if reply is not None and not isinstance(reply, Later):
                return reply
            await anyio.sleep(min(pause_s(reply), left_s))
        return None

    async def _ask(self, request: Request, *, timeout_s: float) -> Reply | None:
        """Ask once; None where nobody answered, which is never "no"."""
        try:
            return await ask(self._bus, self._config.cluster, request, timeout_s=max(timeout_s, 0.1))
        except TransientError as error:
            fields = {"question": type(request).__name__, "error": str(error)}
            log.debug("no answer", extra=fields)
            return None
