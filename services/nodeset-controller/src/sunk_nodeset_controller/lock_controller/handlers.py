"""Answers of the lock: a question waits with the node's others, the loop looks at the node, and answers it.

What must stay true: "not yet" and "I cannot tell" are never "no"; a node is unknown only when the views
that would know it are complete; leave to drain a node is counted, and stored, before it is given.
"""

from datetime import datetime, timedelta
from typing import Final, Protocol

import anyio

from sunk_events.base import REASON_MAX, Reply, question_id
from sunk_events.requests import (
    AcquireLock,
    ExplainKubeNode,
    Explanation,
    Finding,
    JobNotRunning,
    Later,
    LockGranted,
    LockWaiting,
    Noted,
    Refused,
    ReleaseLock,
)
from sunk_nodeset_controller.lock_controller.reconciler import Locks
from sunk_nodeset_controller.lock_controller.requests import PendingReply
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.metrics import LOCK_SECONDS
from sunk_nodeset_controller.locks.model import Granted, NotRunning, Unsure, Waiting
from sunk_runtime.clock import WHAT_TO_DO, Clocks, now
from sunk_runtime.keys import KeyLoop
from sunk_runtime.tracing import here
from sunk_slurm.failed_locks import FailedLocks

HOLD_S: Final = 4.0
"""How long a question is held; the asker waits for 5 s and asks again."""
MARGIN_S: Final = 0.5
"""Before the asker's deadline, with a write to the bus in it: an answer that comes after it is none."""
LATE_S: Final = 60.0
"""A deadline that is over for longer is no question that came late: nobody asks with such a one."""
LAST_S: Final = 5.0
"""A question this close to its asker's deadline is its last: it is held until just before that."""
NEXT_S: Final = 2.5
"""What a question that is not the last leaves of the time, so that there is a last one."""
RELEASE_S: Final = 3.0
NAMED: Final = 100
"""So many Pods in the way are named in an answer."""


class Explain(Protocol):
    """Says why a Slurm node is as it is."""

    def __call__(self, node: str, locks: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return everything there is to say of *node*; *locks* is what its lock has to say."""
        ...


def only_locks(node: str, locks: tuple[Finding, ...]) -> tuple[Finding, ...]:  # noqa: ARG001 - an `Explain`
    """Say of a Slurm node what its lock has to say, and nothing of its Pod."""
    return locks


class Handlers:
    """Answers questions about the locks of one cluster."""

    def __init__(
        self, snapshotter: LockSnapshotter, locks: Locks, loop: KeyLoop, explain: Explain = only_locks
    ) -> None:
        self.failed: Final = FailedLocks()
        """The caller of this class keeps it current. Only the leader answers, so the count is one."""
        for node in tuple(snapshotter.views.slurm_nodes.keys()):
            self.failed.take(node, snapshotter.views.slurm_nodes.get(node))
        for lock in snapshotter.views.locks.values():
            self.failed.recall(lock, now(), anyio.current_time())
        self._snapshotter = snapshotter
        self._locks = locks
        self._loop = loop
        self._explain = explain
        self._clocks = Clocks(LATE_S)
        self._refused: dict[tuple[str, int], datetime] = {}
        """The deadline of each prolog that was refused lately, by node and job."""

    async def acquire(self, request: AcquireLock) -> Reply:
        """Hold the question until the node is locked for the job, or for a while."""
        if refusal := self._refusal(request.node):
            return refusal
        began = now()
        left_s = request.left_s if request.left_s is not None else (request.deadline - began).total_seconds()
        if self._clocks.note("a client, or this service", min(0.0, left_s)):
            return Later(reason=f"the deadline passed {-left_s:.0f} s ago: a clock is wrong, {WHAT_TO_DO}")
        lock_requests, waited_s = self._locks.lock_requests(request.node), request.waited_s
        cause = here(question_id(AcquireLock, request.node, request.job))
        with lock_requests.asking(
            request.job, request.level, began, waited_s=waited_s, cause=cause
        ) as waiter:
            self._loop.enqueue(request.node)
            await waiter.wait(hold_s(left_s))
        is_last = left_s <= LAST_S
        if is_last and isinstance(waiter.answer, Waiting):
            self._account(request, began + timedelta(seconds=left_s), now())
        return await self._reply(request.node, waiter, is_last=is_last)

    async def release(self, request: ReleaseLock) -> Reply:
        """Note that the job has left the node, and return when the Node says so too."""
        if refusal := self._refusal(request.node):
            return refusal
        done = self._locks.lock_requests(request.node).release(request.job, now())
        self._loop.enqueue(request.node)
        with anyio.move_on_after(RELEASE_S):
            await done.wait()
            return Noted()
        return Later(reason="the release is noted, but not written on the Node yet")

    async def explain(self, request: ExplainKubeNode) -> Reply:
        """Say why a node, its Pod and its lock are as they are, and which Pods a lock would drive out."""
        if refusal := self._refusal(request.node):
            return refusal
        found = await self._locks.explain(request.node)
        if found is None:
            return Refused(code="unknown_node", reason=f"the Node of {request.node} is gone")
        return Explanation(findings=self._explain(request.node, found))

    def _refusal(self, node: str) -> Reply | None:
        """Return why nothing can be said of *node*, if so."""
        self._snapshotter.require_complete()
        if not self._snapshotter.is_known(node):
            return self._unknown(node)
        if not self._snapshotter.kube_node(node):
            return Later(reason=f"the Node of {node} is not known yet")
        return None

    def _unknown(self, node: str) -> Reply:
        """Answer for a node that no NodeSet has: while Slurm has it, or nobody has told of any, for now."""
        views = self._snapshotter.views
        is_early = not len(views.kube_pods) and not len(views.slurm_nodes)
        if is_early or node in views.kube_pods.undecodable or views.slurm_nodes.get(node) is not None:
            return Later(reason=f"no known NodeSet has node {node} yet")
        return Refused(code="unknown_node", reason=f"no NodeSet has node {node}")

    def _account(self, request: AcquireLock, deadline: datetime, ended: datetime) -> None:
        """Note, once, that nobody waits any longer for a lock that is not granted.

        Args:
            request: The question.
            deadline: The asker's, on our clock.
            ended: Now.
        """
        key = (request.node, request.job)
        old = ended - timedelta(seconds=LATE_S)
        self._refused = {one: until for one, until in self._refused.items() if until > old}
        before = self._refused.get(key)
        self._refused[key] = deadline
        if before is not None and abs((deadline - before).total_seconds()) < LAST_S:
            return  # With a moment left it asks once more.
        since = self._locks.lock_requests(request.node).waiting_since.get(request.job, ended)
        LOCK_SECONDS.labels(request.level, "refused").observe((ended - since).total_seconds())

    async def _reply(self, node: str, waiter: PendingReply, *, is_last: bool) -> Reply:
        match waiter.answer:
            case Granted():
                return LockGranted()
            case NotRunning(state):
                return JobNotRunning(state=state)
            case Waiting(in_the_way, blocking):
                may_drain = self._may_drain(node, is_last=is_last)
                if may_drain and is_last:
                    await self._locks.fail(node, in_the_way[:NAMED])
                return LockWaiting(
                    in_the_way=in_the_way[:NAMED],
                    blocking=blocking,
                    is_drain_allowed=may_drain,
                    is_hold_needed=not may_drain,  # It would be put on this node again, and meet the same.
                )
            case Unsure():
                return Later(
                    reason="the job was released just now, and Slurm has not reported since then that it runs"
                )
            case None:
                return Later(reason=waiter.trouble[:REASON_MAX])

    def _may_drain(self, node: str, *, is_last: bool) -> bool:
        """Whether *node* may be drained for its lock; where nobody asks again that is a leave, and counts."""
        now_s, total = anyio.current_time(), len(self._snapshotter.views.slurm_nodes)
        is_allowed = self.failed.may_drain(node, total, now_s)
        if is_allowed and is_last:
            self.failed.give_leave(node, now_s)
        return is_allowed


def hold_s(left_s: float) -> float:
    """Return how long to hold a question whose asker gives up in *left_s*: its last one to the end."""
    if left_s <= LAST_S:
        return max(0.1, left_s - MARGIN_S)
    return min(HOLD_S, left_s - NEXT_S)
