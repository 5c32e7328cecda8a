"""Carries out deeds on Slurm nodes: who may, how many at once, and what is said and looked at afterwards.

What must stay true: nothing is written when the lease may have ended; after a write, whatever was answered,
the node is looked at, because an error does not mean that nothing was done.
"""

import logging
import time
from typing import Final

import anyio
import msgspec

from sunk_runtime.errors import TransientError
from sunk_runtime.leases import Leadership
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.wire import Node
from sunk_syncer.apply import apply
from sunk_syncer.config import Config
from sunk_syncer.deadline import within
from sunk_syncer.metrics import ACTIONS, REFUSED
from sunk_syncer.model import Deed, DrainNode
from sunk_syncer.ports import NodeWrites
from sunk_syncer.together import DrainsTogether
from sunk_syncer.watch_nodes import NodeWatch

log = logging.getLogger(__name__)

CROWD: Final = 20
"""So many nodes that are drained or undrained at once are worth waiting for with what is not urgent."""
LIST_SHARE: Final = 1 / 8
"""Single looks at so many of all nodes cost Slurm and us as much as one list, which is one call that others
wait for: a look takes 1.2 ms, of a list each node 0.14 ms."""
LOOKS_AT_ONCE: Final = 6
"""Of slurmrestd's 8 connections; the polls and the jobs have the others."""


class Seen(msgspec.Struct, frozen=True):
    """A node as a look showed it."""

    node: Node
    asked: float
    """When Slurm was asked, in monotonic time: it was so then or later."""


class Deeds:
    """The one way by which the syncer changes Slurm nodes. Only the leader has one."""

    def __init__(self, slurm: NodeWrites, watch: NodeWatch, leadership: Leadership, config: Config) -> None:
        self._slurm = slurm
        self._watch = watch
        self._leadership = leadership
        self._config = config
        self._looks = anyio.CapacityLimiter(LOOKS_AT_ONCE)
        self._looking = 0
        self._under_way = 0
        self._list_lock = anyio.Lock()
        self._list_asked = 0.0
        self._list: dict[str, Node] = {}
        self._slots = anyio.CapacityLimiter(config.writes_at_once)
        self._together = DrainsTogether(
            slurm,
            leadership,
            self._slots,
            timeout_s=config.call_timeout_s,
            others=lambda: self._looking,
        )

    @property
    def is_crowded(self) -> bool:
        """Whether many nodes are drained or undrained now, or looked at since: what can wait does."""
        return max(self._looking, self._under_way, self._watch.waiting) >= CROWD

    @property
    def _list_from(self) -> float:
        return max(CROWD, len(self._watch) * LIST_SHARE)

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
                if (found := listed.get(node)) is not None:
                    return Seen(found, self._list_asked)
            async with self._looks:
                asked = time.monotonic()
                found = await self._watch.fresh(node)
                return None if found is None else Seen(found, asked)
        finally:
            self._looking -= 1

    async def _listed(self) -> dict[str, Node]:
        """Return all nodes from a list that was asked for after this call; who comes together shares it."""
        came = time.monotonic()
        async with self._list_lock:
            if self._list_asked <= came:
                self._list_asked = time.monotonic()
                self._list = await self._watch.fresh_list()
            return self._list

    async def _look_after(self, node: str) -> None:
        """See what became of *node*; where many were changed, in one list."""
        if self._under_way < self._list_from:
            self._watch.look(node)
            return
        try:
            await self._listed()
        except TransientError:
            self._watch.look(node)

    async def carry_out(self, deed: Deed, seen: Seen) -> bool:
        """Carry out *deed*, say so, and look at what became of it; return False where Slurm refuses it.

        Args:
            deed: What to do.
            seen: The node as it was just read; drains of those that are not drained are written together.
        """
        fields = {
            "node": deed.node,
            "action": type(deed).__name__,
            "reason": getattr(deed, "reason", None),
            "reason_before": seen.node.reason,
        }
        self._under_way += 1
        try:
            await self._write(deed, seen)
            await self._look_after(deed.node)
        except SlurmRejectedError as error:
            self._watch.look(deed.node)
            REFUSED.labels(type(deed).__name__).inc()
            log.error("node not changed", extra={**fields, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return False
        except BaseException:
            self._watch.look(deed.node)
            raise
        finally:
            self._under_way -= 1
        log.info("node changed", extra=fields)
        return True

    async def _write(self, deed: Deed, seen: Seen) -> None:
        if isinstance(deed, DrainNode) and not seen.node.state_now.is_drain:
            await self._together.drain(deed.node, deed.reason, asked=seen.asked)
            ACTIONS.labels("DrainNode").inc()
            return
        async with self._slots:
            self._leadership.check()
            timeout_s = min(self._config.call_timeout_s, self._leadership.left_s)
            with within(timeout_s, f"change node {deed.node}"):
                await apply(deed, self._slurm)
