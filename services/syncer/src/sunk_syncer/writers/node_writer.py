"""Carries out actions on Slurm nodes: which may run, how many at once, and what is read afterwards.

What must stay true: nothing is written when the lease may have ended, nor upon a look that is older than a
few seconds, also if the call waits for its turn: Slurm has no compare-and-set. A list that failed is nobody's
look. After a write, whatever was answered, the node is looked at, because an error does not mean that nothing
was done.
"""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, assert_never

import anyio
import msgspec
from msgspec import structs

from sunk_runtime.errors import ConflictError, SunkError, TransientError
from sunk_runtime.leases import Leadership
from sunk_runtime.tracing import acting, here
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.wire import Node
from sunk_syncer.actions import (
    DeleteNode,
    DescribeNode,
    DownNode,
    DrainNode,
    NodeAction,
    PlaceNode,
    ResumeNode,
    UndrainNode,
)
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import NodeWrites
from sunk_syncer.config import Config
from sunk_syncer.metrics import ACTIONS, REFUSED
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.writers.drain_batcher import TOO_OLD, DrainBatcher

log = logging.getLogger(__name__)

CROWD: Final = 20
"""So many nodes that are drained or undrained at once are worth waiting for with what is not urgent."""
LIST_SHARE: Final = 1 / 8
"""Single looks at so many of all nodes cost Slurm and us as much as one list, which is one call that others
wait for: a look takes 1.2 ms, of a list each node 0.14 ms."""
LOOKS_AT_ONCE: Final = 6
"""Of slurmrestd's 8 connections; the polls and the jobs have the others."""
FRESH_S: Final = 5.0
"""What was asked for longer ago is asked for again before anything is written."""
LIST_FRESH_S: Final = 0.5
"""So long, at least, a list may be written upon once it has come: calls for its nodes gather for a moment."""


class Seen(msgspec.Struct, frozen=True):
    """A node as a look showed it."""

    node: Node
    good_until: float
    """Until when it may be written upon, in monotonic time: Slurm has no compare-and-set."""
    is_listed: bool = False
    """It was read with all others."""


class _List(msgspec.Struct, frozen=True):
    """What came of the last attempt to list all nodes."""

    requested_at: float = 0.0
    came: float = 0.0
    nodes: dict[str, Node] = {}
    error: SunkError | None = None
    """Why there is no list."""


def list_good_until(requested_at: float, came: float) -> float:
    """Return until when a list that was requested at *requested_at* and came at *came* may be written upon.

    What it shows may be as old as it was long in coming; it is not to become much older.
    """
    return min(requested_at + FRESH_S, came + max(came - requested_at, LIST_FRESH_S))


class NodeWriter:
    """The one way by which the syncer changes Slurm nodes. Only the leader has one."""

    def __init__(self, slurm: NodeWrites, watch: NodePoller, leadership: Leadership, config: Config) -> None:
        self._slurm = slurm
        self._watch = watch
        self._leadership = leadership
        self._config = config
        self._looks = anyio.CapacityLimiter(LOOKS_AT_ONCE)
        self._looking = 0
        self._under_way = 0
        self._changed: set[str] = set()
        """Nodes that were written from a place, and have yet to be looked at."""
        self._list_lock = anyio.Lock()
        self._last_list = _List()
        self._slots = anyio.CapacityLimiter(config.writes_at_once)
        self._places = anyio.CapacityLimiter(max(1, config.writes_at_once - 1))
        """One slot is left for drains: they are urgent, and hundreds of other changes may be waiting."""
        self._batcher = DrainBatcher(
            slurm,
            leadership,
            self._slots,
            timeout_s=config.call_timeout_s,
            others=lambda: self._looking,
            is_drained=watch.is_drained,
        )

    @property
    def is_crowded(self) -> bool:
        """Whether many nodes are drained or undrained now, or looked at since: what can wait does."""
        return max(self._looking, self._under_way, self._watch.waiting) >= CROWD

    @property
    def _list_from(self) -> float:
        return max(self._config.list_from, len(self._watch) * LIST_SHARE)

    async def look(self, node: str, *, may_be_listed: bool = False) -> Seen | None:
        """Look at *node* now, to decide about it; None: Slurm has none.

        Args:
            node: Its name.
            may_be_listed: Where many are looked at, one list of all will do, which is a little older.
        """
        self._looking += 1
        try:
            if may_be_listed and self._looking >= self._list_from:
                listed = await self._listed()
                if (found := listed.nodes.get(node)) is not None:
                    return Seen(found, list_good_until(listed.requested_at, listed.came), is_listed=True)
            async with self._looks:
                requested_at = time.monotonic()
                found = await self._watch.fresh(node)
                return None if found is None else Seen(found, requested_at + FRESH_S)
        finally:
            self._looking -= 1

    @asynccontextmanager
    async def place(self, node: str) -> AsyncGenerator[None]:
        """Wait for one of the few places to write from, to change *node*.

        Look at the node inside: what was looked at before may be old when the place is free.
        """
        self._under_way += 1
        try:
            async with self._places, self._slots:
                yield
            if node in self._changed:
                await self._look_after(node)
        finally:
            self._changed.discard(node)
            self._under_way -= 1

    async def _listed(self) -> _List:
        """Return a list that was asked for after this call; simultaneous callers share it, or its failure."""
        came = time.monotonic()
        async with self._list_lock:
            if self._last_list.requested_at <= came:
                requested_at = time.monotonic()
                try:
                    nodes = await self._watch.fresh_list()
                    self._last_list = _List(requested_at, time.monotonic(), nodes)
                except SunkError as error:
                    self._last_list = _List(requested_at, error=error)
            last = self._last_list
        if last.error is not None:
            raise TransientError(str(last.error)) from last.error
        return last

    async def _look_after(self, node: str) -> None:
        """See what became of *node*; where many were changed, in one list."""
        if self._under_way < self._list_from:
            self._watch.look(node)
            return
        try:
            await self._listed()
        except TransientError:
            self._watch.look(node)

    async def drain(self, action: DrainNode, seen: Seen) -> bool:
        """Drain a node that was seen not drained, together with others; return False where Slurm refuses it.

        Not from a `place`: the call that drains many waits for its own.

        Raises:
            ConflictError: the look was too old when its turn came; nothing was written.
        """
        self._under_way += 1
        try:
            is_done = await self._carry_out(action, seen, is_together=True)
            if is_done:
                await self._look_after(action.node)
            return is_done
        finally:
            self._under_way -= 1

    async def carry_out(self, action: NodeAction, seen: Seen) -> bool:
        """Carry out *action* from a `place`, say so, and look at what became of it.

        Args:
            action: What to do.
            seen: The node as it was read from that place.

        Returns:
            False where Slurm refuses it.

        Raises:
            ConflictError: the look is too old; nothing was written.
        """
        is_done = await self._carry_out(action, seen, is_together=False)
        if is_done:
            self._changed.add(action.node)
        return is_done

    async def _carry_out(self, action: NodeAction, seen: Seen, *, is_together: bool) -> bool:
        fields = {
            "node": action.node,
            "action": type(action).__name__,
            "reason": getattr(action, "reason", None),
            "reason_before": seen.node.reason,
        }
        with acting(type(action).__name__, action.node, action.cause):
            self._watch.expect(structs.replace(action, cause=here(action.cause.id)))
            try:
                await self._write(action, seen, is_together=is_together)
            except SlurmRejectedError as error:
                self._watch.look(action.node)
                REFUSED.labels(type(action).__name__).inc()
                log.error("node not changed", extra={**fields, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                return False
            except BaseException:
                self._watch.look(action.node)
                raise
            log.info("node changed", extra=fields)
        return True

    async def _write(self, action: NodeAction, seen: Seen, *, is_together: bool) -> None:
        if is_together and isinstance(action, DrainNode):
            await self._batcher.drain(action.node, action.reason, good_until=seen.good_until)
            ACTIONS.labels("DrainNode").inc()
            return
        self._leadership.check()
        if time.monotonic() > seen.good_until:
            raise ConflictError(TOO_OLD)
        timeout_s = min(self._config.call_timeout_s, self._leadership.left_s)
        with within(timeout_s, f"change node {action.node}"):
            await call_slurm(action, self._slurm.sending_until(seen.good_until))


async def call_slurm(action: NodeAction, slurm: NodeWrites) -> None:
    """Carry out *action*. Every call may be repeated; after an error it may have been carried out."""
    match action:
        case DrainNode(node, reason):
            await slurm.drain(node, reason)
        case UndrainNode(node):
            await slurm.undrain(node)
        case DownNode(node, reason):
            await slurm.set_down(node, reason)
        case ResumeNode(node):
            await slurm.resume(node)
        case DescribeNode(node, extra, features):
            await slurm.describe_node(node, extra=extra, features=features)
        case PlaceNode(node, topology):
            await slurm.place_node(node, topology)
        case DeleteNode(node):
            await slurm.delete_node(node)
        case _:
            assert_never(action)
    ACTIONS.labels(type(action).__name__).inc()
