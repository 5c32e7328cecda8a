"""One turn of the lock loop: read the Node, decide, carry out, answer, tell the bus."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from sunk_events.base import Event
from sunk_events.locks import FailedLock, LockState
from sunk_events.requests import Finding
from sunk_kube.objects import Node
from sunk_nodeset_controller.lock_controller.evictor import Evictor, Turn
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.lock_controller.stray_taints import is_stray_taint
from sunk_nodeset_controller.locks.annotations import read
from sunk_nodeset_controller.locks.events import cause, facts, state
from sunk_nodeset_controller.locks.explain import findings
from sunk_nodeset_controller.locks.holders import still_released
from sunk_nodeset_controller.locks.machine import decide
from sunk_nodeset_controller.locks.metrics import LOCK_SECONDS
from sunk_nodeset_controller.locks.model import Blockers, Decision, NodeLock, NotRunning, Rules, Seen, Step
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, SunkError, TransientError
from sunk_runtime.tracing import acting, because
from sunk_runtime.writer import StateWriter
from sunk_slurm.failed_locks import still_failed

log = logging.getLogger(__name__)

STEPS: Final = 8
"""Of one turn: close, look and settle are three, a conflict costs one more."""


LATE_S: Final = 25.0
"""Where the kubelet refuses who does not bear the taint, a lock that stands is looked at no more often."""


class Locks:
    """The locks of one cluster's nodes."""

    def __init__(
        self,
        snapshotter: LockSnapshotter,
        nodes: NodeLockStore,
        watches: PodWatches,
        writer: StateWriter[LockState],
        rules: Rules,
        *,
        evictor: Evictor,
    ) -> None:
        self._snapshotter = snapshotter
        self._nodes = nodes
        self._watches = watches
        self._writer = writer
        self._rules = rules
        self._evictor = evictor
        self._lock_requests: dict[str, LockRequests] = {}

    def lock_requests(self, node: str) -> LockRequests:
        """Return the questions about the lock of *node*."""
        return self._lock_requests.setdefault(node, LockRequests())

    async def reconcile(self, node: str) -> float | None:
        """Bring *node*'s lock as far as it can go now; return when to look again though nothing changes."""
        lock_requests = self.lock_requests(node)
        try:
            with lock_requests.carrying_out():
                self._snapshotter.require_complete()
                again_s = await self._take(
                    Turn(node, self._snapshotter.kube_node(node), lock_requests, lock_requests.requests)
                )
        except SunkError as error:
            lock_requests.trouble(str(error))
            raise
        finally:
            if lock_requests.is_empty:
                self._lock_requests.pop(node, None)
        return again_s

    async def explain(self, node: str) -> tuple[Finding, ...] | None:
        """Return how *node*'s lock stands and which Pods it would drive out; None: its Node is gone."""
        lock_requests, kube_node = (
            self._lock_requests.get(node) or LockRequests(),
            self._snapshotter.kube_node(node),
        )
        turn = Turn(node, kube_node, lock_requests, lock_requests.requests)
        found = await self._read(turn)
        if found is None:
            return None
        seen = self._seen(turn, found, None)
        others, kept = await self._evictor.find(turn, seen)
        return findings(seen.lock, others, kept, self._nodes.measure)

    async def fail(self, node: str, in_the_way: tuple[str, ...]) -> None:
        """Store that *node* may be drained because Pods are *in the way*: the next leader counts it.

        Raises:
            SunkError: it may not be stored; the node must not be drained for it.
        """
        view = self._writer.view
        for _ in range(STEPS):
            before, revision = view.get(node), view.revision(node)
            if before is None:
                raise TransientError(f"the lock of {node} is not on the bus yet")
            failed = FailedLock(at=now(), in_the_way=in_the_way)
            with suppress(ConflictError):  # The loop has just written it: once more, on that.
                await self._writer.record(node, replace(before, failed=failed), revision=revision)
                return
        raise ConflictError(f"the lock of {node} changes all the time")

    async def _take(self, turn: Turn) -> float | None:
        """Take steps until there is nothing to do but to wait."""
        found, clear = self._viewed(turn) or await self._read(turn, may_be_prefetched=not turn.requests), None
        closed: tuple[Seen, Decision] | None = None
        for _ in range(STEPS):
            # Of a Node that is another's by now, the lock is that one's.
            if found is None or self._snapshotter.successor(turn.node, turn.kube_node):
                return await self._forget(turn)
            seen = self._seen(turn, found, clear)
            decision = decide(seen, self._rules)
            if decision.step is Step.LOOK:
                clear = await self._look_first(turn, seen, decision, closed)
                continue
            if decision.step is Step.KEEP and clear is None and self._may_have_come(turn, seen):
                clear = await self._evictor.look(turn, seen)
                continue
            try:
                if decision.step is Step.OPEN and is_stray_taint(seen.lock):
                    await self._nodes.record_stray_taint(found)
                if decision.lock != seen.lock:
                    with acting("LockNode", turn.node, cause(turn.node, seen, decision.lock)):
                        found = await self._nodes.write(found, decision.lock)
            except ConflictError:  # Somebody wrote the Node in between: read and decide again.
                found, clear = await self._read(turn), None
                continue
            if decision.step is Step.CLOSE:
                turn.lock_requests.clear_since = {}  # What was seen before the taint is worth nothing.
                closed = seen, decision  # Told with what the look finds, which is next.
                continue
            await self._reply_and_record(turn, seen, decision)
            if decision.step is Step.KEEP and clear is None and self._nodes.taint.evicts:
                await self._evictor.look(turn, seen)
            return self._settled(turn, seen, decision)
        raise ConflictError(f"node {turn.kube_node} changes all the time")

    def _may_have_come(self, turn: Turn, seen: Seen) -> bool:
        """Whether to look for Pods that came in past the taint; a prolog does not wait for that."""
        if turn.requests:
            return False
        looked = turn.lock_requests.looked_at
        return self._nodes.taint.evicts or looked is None or (seen.now - looked).total_seconds() >= LATE_S

    def _viewed(self, turn: Turn) -> Node | None:
        """Return the Node as a view has it, if what is decided on that ends in a write.

        A view may be behind: then the API server refuses the write, and the Node is read.
        """
        found = self._nodes.viewed(turn.kube_node)
        if found is None:
            return None
        seen = self._seen(turn, found, None)
        return found if decide(seen, self._rules).lock != seen.lock else None

    async def _read(self, turn: Turn, *, may_be_prefetched: bool = False) -> Node | None:
        if not turn.kube_node:
            return None
        return await self._nodes.read(turn.kube_node, may_be_prefetched=may_be_prefetched)

    def _seen(self, turn: Turn, found: Node, clear: Blockers | None) -> Seen:
        lock_requests, lock = turn.lock_requests, read(found, self._nodes.taint)
        known = Seen(
            lock=lock,
            now=now(),
            requests=turn.requests,
            released=dict(lock_requests.released),
            idle_since=lock_requests.idle_since,
            way=clear,
            clear_since=dict(lock_requests.clear_since),
        )
        return self._snapshotter.seen(turn.node, lock, known)

    async def _look_first(
        self, turn: Turn, seen: Seen, decision: Decision, closed: tuple[Seen, Decision] | None
    ) -> Blockers:
        """Look before the lock is settled; where that fails, what was closed is told as it stands."""
        try:
            return await self._evictor.look(turn, seen, does_clear=not decision.is_drained)
        except SunkError:
            if closed is not None:
                await self._reply_and_record(turn, *closed)
            raise

    def _settled(self, turn: Turn, seen: Seen, decision: Decision) -> float | None:
        """Remember what the next turn needs."""
        turn.lock_requests.idle_since = decision.idle_since if decision.step is Step.LINGER else None
        turn.lock_requests.released = still_released(turn.lock_requests.released, seen.jobs, seen.now)
        if not decision.lock.is_tainted:
            turn.lock_requests.clear_since, turn.lock_requests.attempts = {}, {}
        # The kubelet refuses whoever is bound past a NoExecute taint; past the other it must be us.
        is_guarded = self._nodes.taint.evicts and decision.lock.is_tainted
        if decision.lock.value == "pending" or is_guarded or decision.is_drained:
            self._watches.wait(turn.node, turn.kube_node)
        elif decision.lock.is_tainted:
            self._watches.guard(turn.node, turn.kube_node)
        else:
            self._watches.stop(turn.node)
        return decision.again_s

    async def _reply_and_record(self, turn: Turn, seen: Seen, decision: Decision) -> None:
        """Tell those who ask, then the bus, what now stands on the Node."""
        for job, answer in decision.answers.items():
            turn.lock_requests.reply(job, answer)
        waited_s = _account(turn, seen, decision)
        with because(cause(turn.node, seen, decision.lock)):
            await self._record(turn, decision, seen.now, waited_s=max(waited_s, default=None))

    async def _record(self, turn: Turn, decision: Decision, at: datetime, *, waited_s: float | None) -> None:
        view, views = self._writer.view, self._snapshotter.views
        before, revision = view.get(turn.node), view.revision(turn.node)
        is_of_nodeset = views.kube_pods.get(turn.node) is not None
        failed = still_failed(before, views.slurm_nodes.get(turn.node), at, is_member=is_of_nodeset)
        after = state(
            turn.node,
            turn.kube_node,
            decision.lock,
            decision.in_the_way,
            at,
            leaving=decision.leaving,
            leaving_until=decision.leaving_until,
            failed=failed,
        )
        is_wanted = decision.step is not Step.REST or is_of_nodeset or failed is not None
        events = facts(before, after, revision=revision, waited_s=waited_s, cluster=view.cluster)
        if is_wanted:
            await self._writer.record(turn.node, after, events, revision=revision)
        else:
            await self._writer.forget(turn.node, events, revision=revision)
        if events:
            jobs = [holder.job for holder in decision.lock.holders]
            log.info("lock changed", extra={"node": turn.node, "lock": decision.lock.value, "jobs": jobs})

    async def _forget(self, turn: Turn) -> None:
        """Tell that the Node is gone, or another's, and its lock with it: nothing is written on a Node."""
        if successor := self._snapshotter.successor(turn.node, turn.kube_node):
            log.info("lock of a former node forgotten", extra={"node": turn.node, "now": successor})
        self._watches.stop(turn.node)
        turn.lock_requests.trouble("its Node has a new owner" if successor else "its Node is gone")
        turn.lock_requests.clear()
        view = self._writer.view
        before, revision = view.get(turn.node), view.revision(turn.node)
        events: Sequence[Event] = ()
        if before is not None:
            after = state(turn.node, before.kube_node, NodeLock(), (), now())
            events = facts(before, after, revision=revision, waited_s=None, cluster=view.cluster)
        await self._writer.forget(turn.node, events, revision=revision)


def _account(turn: Turn, seen: Seen, decision: Decision) -> list[float]:
    """Note who waits and who does no longer, and return how long each of those just granted has waited."""
    holders = decision.lock.holders
    turn.lock_requests.waiting_since = {
        holder.job: holder.since for holder in holders if holder.granted is None
    }
    for ask in turn.requests:
        if isinstance(decision.answers.get(ask.job), NotRunning):
            LOCK_SECONDS.labels(ask.level, "not_running").observe(
                (seen.now - ask.requested_at).total_seconds()
            )
    granted = [holder for holder in holders if holder.granted == seen.now]
    waited_s = [(seen.now - holder.since).total_seconds() for holder in granted]
    for holder, waited in zip(granted, waited_s, strict=True):
        LOCK_SECONDS.labels(holder.level, "locked").observe(waited)
    return waited_s
