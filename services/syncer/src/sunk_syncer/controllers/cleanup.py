"""Deletes records of nodes whose Node is in no NodeSlice any more. Only the leader runs it.

What must stay true: a bus that lost the NodeSlices deletes nothing. A bucket that holds no trace of one
proves nothing, and one that is new proves nothing before everybody had the time to write there again.
"""

import logging
import time

import anyio

from sunk_events.nodesets import NodeSliceState
from sunk_runtime.errors import TransientError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.views import StateView
from sunk_slurm.states import NodeState
from sunk_syncer.actions import DeleteNode
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import Config
from sunk_syncer.policy.cleanup import are_many, may_be_ours, why_kept
from sunk_syncer.writers.node_writer import NodeWriter

log = logging.getLogger(__name__)


class CleanupController:
    """Follows nodes that may have lost their Node."""

    def __init__(
        self, node_writer: NodeWriter, views: Views, slices: StateView[NodeSliceState], config: Config
    ) -> None:
        self._node_writer = node_writer
        self._views = views
        self._slices = slices
        self._config = config
        self._loop = KeyLoop(
            "clean_up", self._settle, concurrency=2, woken_by=[*views.recoveries(), slices.recovery]
        )
        self._missing_since: dict[str, float] = {}
        self._created = ""
        """When the bucket of NodeSlices was made."""
        self._trusted_from = 0.0
        self._listed: frozenset[str] | None = None
        """What all NodeSlices have; None: they have changed."""

    async def run(self) -> None:
        """Look until cancelled."""
        if not self._config.slurm_node_clean_up:
            return
        views = self._views
        await views.complete()
        await self._slices.complete()
        self._created = self._slices.created
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_slices)
            await self._loop.run(
                views.nodes.changes(),
                views.pods.changes(),
                keys=views.nodes.keys,
                resync_s=self._config.resync_s,
            )

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _settle(self, name: str) -> float | None:
        """Delete one node's record if it has to go; return when to look again although nothing changes."""
        published = self._views.nodes.get(name)
        if published is None or not may_be_ours(published) or self._views.pods.get(name) is not None:
            self._missing_since.pop(name, None)
            return None
        self._require_known(name)
        if name in self._in_slices():
            self._missing_since.pop(name, None)
            return self._config.clean_up_after_s  # Its entry goes soon, or its Pod comes.
        since = self._missing_since.setdefault(name, time.monotonic())
        left_s = self._wait_s() - (time.monotonic() - since)
        if left_s > 0:
            return left_s
        async with self._node_writer.place(name):
            return await self._delete(name)

    async def _delete(self, name: str) -> float | None:
        seen = await self._node_writer.look(name)
        if seen is None:
            return None
        fresh = seen.node
        self._require_known(name)
        self._listed = None
        state = fresh.state_now if fresh.state else NodeState("UNKNOWN")
        kept = why_kept(
            name,
            state,
            fresh.extra,
            fresh.reason,
            is_in_slice=name in self._in_slices(),
            pod=self._views.pods.get(name),
        )
        if kept is not None:
            log.info("node record kept", extra={"node": name, "because": kept})
            self._missing_since.pop(name, None)  # One that stays for long makes nothing else doubtful.
            return self._config.resync_s
        done = await self._node_writer.carry_out(DeleteNode(name, self._views.pods.event(name)), seen)
        self._missing_since.pop(name, None)
        return None if done else self._config.refused_again_s

    def _require_known(self, name: str) -> None:
        self._views.require_known(name)
        self._slices.require_complete()
        self._require_proof()
        if self._slices.undecodable:
            raise TransientError("a NodeSlice cannot be read: which nodes it has is unknown")

    def _require_proof(self) -> None:
        """Raise `TransientError` while what NodeSlices lack proves nothing: perhaps NATS lost them."""
        if self._slices.is_untouched:
            raise TransientError(
                "the bus has no NodeSlice, and no record that one was deleted", retry_after_s=5.0
            )
        if self._slices.created != self._created:
            self._created = self._slices.created
            self._trusted_from = time.monotonic() + self._config.clean_up_doubt_s
        if (left_s := self._trusted_from - time.monotonic()) > 0:
            text = "the bus has had NodeSlices for a short time only: others may follow"
            raise TransientError(text, retry_after_s=min(left_s, 5.0))

    async def _follow_slices(self) -> None:
        async for _ in self._slices.changes():
            self._listed = None

    def _in_slices(self) -> frozenset[str]:
        if self._listed is None:
            self._listed = frozenset(entry.node for part in self._slices.values() for entry in part.entries)
        return self._listed

    def _wait_s(self) -> float:
        missing = len(self._missing_since)
        is_doubtful = are_many(missing, len(self._in_slices()) + missing)
        return self._config.clean_up_doubt_s if is_doubtful else self._config.clean_up_after_s
