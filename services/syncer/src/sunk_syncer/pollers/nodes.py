"""Slurm's nodes to the bus: whole lists as often as it is worth, single nodes at once when asked.

What must stay true: what is told of a node is never older than what was told before; a node that was known
is taken for removed only when a look at it found nothing and a list asked for later, and believed, lacks it
too: a single answer may come from a slurmctld that has just lost its state, or from another cluster's.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import msgspec

from sunk_events.nodes import SlurmNodeState
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError, TransientError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.tracing import continuing
from sunk_runtime.writer import StateWriter, is_same
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.reads import NotModified
from sunk_slurm.wire import Node
from sunk_syncer.actions import NodeAction
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.expected import Expected, named
from sunk_syncer.adapters.ports import SlurmNodes
from sunk_syncer.config import Config
from sunk_syncer.metrics import ANSWERED, DOUBTED, LOOKS
from sunk_syncer.policy.polling import LossGuard
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.poll_loop import LOOKS_AT_ONCE, SETTLED_AT_ONCE, Poller, PollSchedule
from sunk_syncer.states.node_cache import NodeCache
from sunk_syncer.states.nodes import is_reported, is_standing, node_facts, node_removed, node_state

log = logging.getLogger(__name__)

_LOOKS: Final = LOOKS.labels("node")
_LISTS: Final = LOOKS.labels("nodes")


class _List(msgspec.Struct, frozen=True):
    """The last whole list that was believed."""

    requested_at: float
    names: frozenset[str]


class NodePoller:
    """Follows every node of one cluster. Only the leader runs it."""

    def __init__(
        self,
        slurm: SlurmNodes,
        writer: StateWriter[SlurmNodeState],
        activity: ActivityPoller,
        config: Config,
    ) -> None:
        self._slurm = slurm
        self._writer = writer
        self._view = writer.view
        self._config = config
        self._cache = NodeCache()
        self._loop = KeyLoop(
            "slurm_node", self._settle, concurrency=SETTLED_AT_ONCE, woken_by=[writer.view.recovery]
        )
        self._looking = anyio.Semaphore(LOOKS_AT_ONCE, fast_acquire=True)
        self._to_look_at: set[str] = set()
        self._not_found: dict[str, float] = {}
        """Known nodes of which a look found nothing, and when that was asked."""
        self._expected = Expected[NodeAction]()
        self._settled: dict[str, int] = {}
        """The revision at which the bus held of each node what was seen of it last."""
        self._list = _List(requested_at=0.0, names=frozenset())
        self._update_time = 0
        self._doubt = LossGuard()
        self.answered: datetime | None = None
        """When Slurm was last asked for all nodes, answered and was believed."""
        self.clock_ahead_s: float | None = None
        """By how much slurmctld's clock is ahead of ours, or a little less; None: no list has told it yet."""
        self._activity = activity
        self._clock_turns = 0
        self._poller = Poller("nodes", self.poll, PollSchedule.of(config, config.poll_s), mark=self._mark)

    async def run(self) -> None:
        """Poll and settle until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poller.run)
            # A bucket that was lost is told of by its view: what is known is then written again at once.
            await self._loop.run(self._unsettled(), keys=self._cache.names, resync_s=self._config.resync_s)

    async def _unsettled(self) -> AsyncGenerator[str]:
        """Yield the nodes of which the bus holds something else than what we have written last."""
        async for name in self._view.changes():
            if self._settled.get(name) != self._view.revision(name):
                yield name

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._poller.wake()
        self._loop.wake()

    def __len__(self) -> int:
        """Return how many nodes there are, as far as we have seen."""
        return len(self._cache)

    @property
    def waiting(self) -> int:
        """How many single nodes wait to be looked at."""
        return len(self._to_look_at)

    def is_drained(self, name: str) -> bool:
        """Whether *name* is drained, as it was seen last."""
        seen = self._cache.get(name)
        return seen is not None and seen.state_now.is_drain

    def expect(self, action: NodeAction) -> None:
        """Note that *action* is being done, so that what follows names its cause."""
        if action.cause.id:
            self._expected.expect(action.node, action)

    def look(self, name: str) -> None:
        """Look at the one node *name* now."""
        self._to_look_at.add(name)
        self._loop.enqueue(name)

    async def fresh(self, name: str) -> Node | None:
        """Look at the one node *name*, tell the bus what it is, and return it; None: Slurm has none.

        Raises:
            TransientError: a look found nothing of a node that was known, and no later list says so too.
        """
        _LOOKS.inc()
        requested_at = time.monotonic()
        with within(self._config.call_timeout_s, f"look at node {name}"):
            node = await self._slurm.node(name)
        if node is not None:
            self._not_found.pop(name, None)
        elif self._is_known(name):
            self._require_lacking(name, requested_at)
        self._cache.take_one(name, node, requested_at)
        self._loop.enqueue(name)
        return node

    def _is_known(self, name: str) -> bool:
        is_reported = self._view.get(name) is not None or name in self._view.undecodable
        return (is_reported and not self._cache.is_absent(name)) or name in self._cache

    def _require_lacking(self, name: str, requested_at: float) -> None:
        """Raise `TransientError` unless a list that is later than the first such look lacks *name* too."""
        since = self._not_found.setdefault(name, requested_at)
        if self._list.requested_at <= since or name in self._list.names:
            raise TransientError(f"Slurm does not know node {name}, but no list has confirmed that yet")

    async def fresh_list(self) -> dict[str, Node]:
        """Look at all nodes at once, tell the bus what they are, and return them; for many it is cheaper.

        What a list lacks is not absent: look at that one.
        """
        requested_at = time.monotonic()
        try:
            with within(self._config.poll_timeout_s, "look at all nodes"):
                answer = await self._slurm.nodes()
        finally:
            _LISTS.inc()
        if isinstance(answer, NotModified):
            raise SlurmUnavailableError("look at all nodes: not modified, although everything was requested")
        # New nodes are left to `poll`, which first asks whether the answer can be trusted.
        known = self._known()
        nodes = [node for node in answer.nodes if node.name in known]
        for name in self._cache.take_list(nodes, requested_at).changed:
            self._loop.enqueue(name)
        return {node.name: node for node in answer.nodes}

    async def poll(self) -> bool:
        """Ask for all nodes once; return whether that was more than "nothing new"."""
        requested_at, moment = time.monotonic(), now()
        answer = await self._slurm.nodes(self._since())
        if isinstance(answer, NotModified):
            self._believe(moment)
            return False
        if answer.last_update:
            self.clock_ahead_s = answer.last_update - time.time()
        known = self._known()  # Before the list's own nodes are taken over.
        taken = self._cache.take_list(answer.nodes, requested_at)
        if new := [name for name in taken.changed if self._view.get(name) is None]:
            log.info("nodes are new", extra={"nodes": len(new), "some": new[:5], "known": len(self._view)})
        for name in taken.changed:
            self._loop.enqueue(name)
        is_believed = self._look_for(known, frozenset(node.name for node in answer.nodes), requested_at)
        # What of this list was left aside may have been the newer: then the next one has to show it again.
        self._update_time = answer.last_update if is_believed and not taken.is_disputed else 0
        if is_believed:
            self._believe(moment)
        return True

    def _since(self) -> int:
        """Return the time of slurmctld's since when changes are asked for; 0: everything is to be told.

        A list has to say whether nodes that no look found are there, also where nothing changed since the
        last; and on a clock that went back nothing has changed since a time that is yet to come.
        """
        if self._clock_turns != self._activity.clock_turns:
            self._clock_turns = self._activity.clock_turns
            self._update_time = 0
        return 0 if self._not_found else self._update_time

    def _believe(self, moment: datetime) -> None:
        self.answered = moment
        ANSWERED.labels("nodes").set_to_current_time()

    def _mark(self) -> Callable[[], Awaitable[None]]:
        """Return what ends when nodes may have changed since now."""
        stirred = self._activity.since("nodes")

        async def may_have_changed() -> None:
            if not self._cache.is_changing and not self._not_found:
                await stirred()

        return may_have_changed

    def _known(self) -> set[str]:
        return {*self._cache.names(), *self._view.keys(), *self._view.undecodable}

    def _look_for(self, known: set[str], listed: frozenset[str], requested_at: float) -> bool:
        """Look at each *known* node that is not *listed*, unless too many are missing to believe it."""
        missing = known - listed
        moment = time.monotonic()
        counted = known - self._doubt.unconfirmed
        self._doubt = self._doubt.after(counted, listed, moment)
        if self._doubt.since is not None:
            DOUBTED.labels("nodes").inc()
            counts = {"known": len(counted), "missing": len(counted - listed)}
            log.warning("answer not plausible", extra=counts)
        if not self._doubt.is_over(moment, self._config.doubt_s):
            return False
        self._list = _List(requested_at, listed)
        self._not_found = {name: since for name, since in self._not_found.items() if name in missing}
        for name in missing:
            self.look(name)
        return self._doubt.since is None

    async def _settle(self, name: str) -> float | None:
        """Tell the bus what was seen of *name* last; return when to look again where a look was refused."""
        if name in self._to_look_at:
            async with self._looking:
                self._to_look_at.discard(name)
                try:
                    await self.fresh(name)
                except PermanentError as error:
                    self._to_look_at.add(name)
                    log.error("look at node refused", extra={"node": name, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                    return self._config.refused_again_s
                except BaseException:
                    self._to_look_at.add(name)
                    raise
        revision = self._view.revision(name)
        before = self._view.get(name)
        seen = self._cache.get(name)
        cluster, moment = self._config.cluster, now()
        if seen is not None:
            after = node_state(seen, moment)
            actions = self._expected.of(name, may_last=partial(is_standing, state=after))
            facts = node_facts(before, after, cluster=cluster, revision=revision, now=moment, actions=actions)
            cause = named(facts, (action.cause for action in actions))
            with continuing(cause):
                await self._writer.record(name, after, facts, revision=revision)
            self._expected.forget(name, partial(is_reported, facts=facts, state=after))
            if (published := self._view.get(name)) is not None and is_same(published, after):
                self._settled[name] = self._view.revision(name)
            if facts and before is not None:  # Those that are new, `poll` says in one line.
                fields = {"node": name, "facts": [type(fact).__name__ for fact in facts]}
                log.info("node published", extra={**fields, "reason": after.reason, "cause": cause.id})
        elif self._cache.is_absent(name):
            self._not_found.pop(name, None)
            actions, facts = self._expected.of(name), ()
            if before is not None:
                facts = node_removed(before, cluster=cluster, revision=revision, now=moment, actions=actions)
            cause = named(facts, (action.cause for action in actions))
            with continuing(cause):
                await self._writer.forget(name, facts, revision=revision)
            self._settled.pop(name, None)
            self._expected.forget(name)
            if before is not None:
                log.info("node removed", extra={"node": name, "cause": cause.id})
        return None
