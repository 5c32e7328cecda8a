"""A prolog's call: held until its node is locked for its job, or for as long as it wants to be held.

What must stay true: a refusal is given at the prolog's own deadline only; of the leaves to drain a node that
nobody counted, no more than may be are passed on.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

import anyio

from sunk_events.base import Reply, Request
from sunk_events.locks import LockLevel
from sunk_events.nodes import SlurmNodeState
from sunk_events.requests import AcquireLock, LockWaiting
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.adapters.views import Locks, Notification, Placements, pause_s, reminder_s
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.controller.notices import Notice, Notices
from sunk_hook_gateway.hooks import answers, components
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.bodies import Prehook
from sunk_hook_gateway.metrics import REFUSALS
from sunk_runtime.requests import TRY_S
from sunk_runtime.views import StateView
from sunk_slurm.granted_locks import is_granted

LOOK_S: Final = 5.0
"""A prolog that waits for other components looks at them anew this often: Slurm may end one by itself."""
LAST_S: Final = 1.5
"""So much is left of a call for its last question: its answer decides whether the node is drained."""
MESSAGE_S: Final = 8.0
"""A prolog whose call or deadline ends sooner says nothing: it would ask Slurm in its last seconds."""


class Requester(Protocol):
    """Sends a question to the service that decides."""

    async def __call__(self, request: Request, *, timeout_s: float) -> Reply | None:
        """Requester once; None where nobody answered, which is never "no"."""
        ...


class _Times:
    """When one call ends, in the event loop's time, and how long its prolog has waited."""

    def __init__(self, body: Prehook, config: Config) -> None:
        self._began = anyio.current_time() - body.waited_s
        wanted_s = body.deadline_s or config.prehook_deadline_s
        self.deadline = anyio.current_time() + min(wanted_s, config.prehook_deadline_max_s)
        hold_s = body.hold_s if body.hold_s is not None else float("inf")
        self.held_until = anyio.current_time() + hold_s

    @property
    def is_kept(self) -> bool:
        """Whether the call is held to the prolog's deadline, and so has to tell it what to do."""
        return self.deadline <= self.held_until

    @property
    def left_s(self) -> float:
        """How much of the call is left."""
        return min(self.deadline, self.held_until) - anyio.current_time()

    @property
    def waited_s(self) -> float:
        """How long the prolog has waited."""
        return anyio.current_time() - self._began

    def pause(self, pause_s: float) -> float:
        """Return *pause_s*, or as much of it as leaves time for a last question."""
        return min(pause_s, max(0.05, self.left_s - LAST_S if self.is_kept else self.left_s))

    def prolong(self, least_s: float) -> None:
        """Have at least so much left."""
        self.deadline = max(self.deadline, anyio.current_time() + least_s)


class Prologs:
    """Answers prologs whose node is known."""

    def __init__(
        self,
        ask: Requester,
        config: Config,
        *,
        nodes: StateView[SlurmNodeState],
        locks: Locks,
        placements: Placements,
        leaves: LeaveCount,
    ) -> None:
        self._ask = ask
        self._config = config
        self._nodes = nodes
        self._locks = locks
        self._placements = placements
        self._leaves = leaves
        self._notices = Notices(locks)

    async def prehook(self, node: str, body: Prehook) -> Answer:
        """Return when the node is locked for the job, the job no longer runs, or the call has an end."""
        times = _Times(body, self._config)
        if body.components:
            if answer := await self._others(node, body, times):
                return answer
            times.prolong(TRY_S)
        return await self._locked(node, body, times)

    async def _others(self, node: str, body: Prehook, times: _Times) -> Answer | None:
        """Return None when our node and those of the other components are locked; theirs lock meanwhile."""
        try:
            others, since = components.waited_for(body), components.since(body)
        except ValueError as error:
            return answers.failed(400, f"body: {error}")
        if not is_granted(self._locks.get(node), body.job, since):
            answer = await self._locked(node, body, times)
            if answer != answers.LOCKED:
                return answer
        with anyio.move_on_after(min(times.left_s, LOOK_S)):
            await self._locks.granted(others, since)
            return None
        reason = components.reason_of(self._locks.left(others, since))
        return answers.retry(reason) if anyio.current_time() < times.deadline else answers.kept_back(reason)

    async def _locked(self, node: str, body: Prehook, times: _Times) -> Answer:
        """Return when the node is locked for the job, the job no longer runs, or the call has an end."""
        waiting: LockWaiting | None = None
        is_noted = partial(self._locks.is_waited_for, node, body.job)
        notice = self._notices.of(node, body)
        with self._locks.notified_of(node) as notification:
            if body.waited_s and is_noted():
                within_s = times.pause(reminder_s(node, times.waited_s))
                if message := await _noted(notification, is_noted, within_s, times, notice):
                    return answers.held(message)
            while times.left_s > 0:
                reply = await self._ask(self._question(node, body, times), timeout_s=times.left_s)
                if reply is not None and (answer := answers.acquired(reply)):
                    return answer
                if isinstance(reply, LockWaiting):
                    waiting = reply
                if not is_noted():
                    await notification.wait_for(times.pause(pause_s(reply, times.waited_s)))
                within_s = times.pause(reminder_s(node, times.waited_s))
                if message := await _noted(notification, is_noted, within_s, times, notice):
                    return answers.held(message)
        return await self._refuse(node, waiting) if times.is_kept else answers.HELD

    def _question(self, node: str, body: Prehook, times: _Times) -> AcquireLock:
        left_s = times.deadline - anyio.current_time()
        return AcquireLock(
            node=node,
            job=body.job,
            level=self._level(body),
            deadline=datetime.now(UTC) + timedelta(seconds=left_s),
            waited_s=times.waited_s,
            left_s=max(0.0, left_s),
        )

    def _level(self, body: Prehook) -> LockLevel:
        """Return the level: a placeholder's lock is strict, whatever its prolog thinks."""
        return body.level if self._placements.of_job(body.job) is None else "strict"

    async def _refuse(self, node: str, waiting: LockWaiting | None) -> Answer:
        """Return the refusal, and count a drain that it asks for until the state shows it."""
        if waiting is None and (lock := self._locks.get(node)) is not None and lock.in_the_way:
            waiting = LockWaiting(in_the_way=lock.in_the_way)  # Nobody answers, and these were there last.
        # Only the last question's leave is counted by who gave it; an earlier one is given to all at once.
        is_allowed = waiting is None or waiting.is_drain_allowed
        # What is not read yet is unknown: a node too many must not be drained for it.
        may_drain = is_allowed and self._nodes.is_complete and await self._leaves.take(node, len(self._nodes))
        answer = answers.in_the_way(waiting, may_drain=may_drain)
        REFUSALS.labels(answers.prolog_action(answer)).inc()
        return answer


async def _noted(
    notification: Notification, is_noted: Callable[[], bool], within_s: float, times: _Times, notice: Notice
) -> str:
    """Return when the lock is no longer noted as asked for: a change says that it was granted.

    At once where it is not noted, at last after *within_s*: asking again earlier gains nothing. Earlier with
    what the prolog has to say, if it has time left to come back.
    """
    ends = anyio.current_time() + within_s
    while is_noted() and (left_s := ends - anyio.current_time()) > 0:
        has_time = times.left_s > MESSAGE_S
        if has_time and (message := notice.take()):
            return message
        with anyio.move_on_after(min(left_s, notice.due_in_s) if has_time else left_s):
            await notification.wait()
    return ""
