"""Which jobs concern which node: an index over the states of jobs, and what one of them means for a node.

A job on 5,000 nodes is one state with a folded list; it is unfolded once a change, not once a look.
What must stay true: a job's state and its nodes are of the same revision, and a job whose nodes cannot be
told is as one that the bus does not know; when that was so says the server, not the clock of the writer; and
a sign that a bucket lost when it went back is none.
"""

import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_nodeset_controller.locks.model import JobPlace, JobSeen
from sunk_runtime.bucket_copy import Entry
from sunk_runtime.views import StateView
from sunk_slurm.hostlist import expand

log = logging.getLogger(__name__)


def place(state: SlurmJobState, *, is_here: bool) -> JobPlace:
    """Return where *state* puts its job towards a node that is, or is not, among the job's nodes."""
    holds = state.is_running or state.is_completing
    if holds and is_here:
        return "running" if state.is_running else "completing"
    if state.is_over or (holds and state.nodes):
        return "left"
    return "waiting"


class JobsOnNodes:
    """The jobs that hold each node, kept current by `follow`."""

    def __init__(self, view: StateView[SlurmJobState]) -> None:
        self._view = view
        self._states: dict[int, Entry[SlurmJobState]] = {}
        self._nodes: dict[int, frozenset[str]] = {}
        self._jobs: dict[str, set[int]] = {}
        self._newest: datetime | None = None
        self._is_newest_lost = False
        self._changes: Final = view.changes()
        for state in view.values():
            self._take(state.job)

    @property
    def newest(self) -> datetime | None:
        """The newest moment at which the bus was told of a job, as far as it knows of that yet."""
        if self._is_newest_lost:
            self._newest = max((entry.stored for entry in self._states.values()), default=None)
            self._is_newest_lost = False
        return self._newest

    @property
    def is_complete(self) -> bool:
        """Whether every job that the bus knows is here."""
        return self._view.is_complete

    def on(self, node: str) -> frozenset[int]:
        """Return the jobs that run or complete on *node*."""
        return frozenset(self._jobs.get(node, ()))

    def seen(self, job: int, node: str) -> JobSeen | None:
        """Return what the bus says of *job* for *node*; None: it does not know it."""
        if (found := self._states.get(job)) is None:
            return None
        where = place(found.value, is_here=node in self._nodes.get(job, ()))
        event = self._view.event(str(job), found.revision)
        return JobSeen(place=where, state=found.value.state, changed=found.stored, event=event)

    async def follow(self) -> AsyncIterator[str]:
        """Yield each node that a change concerns, those that a job has left too."""
        async for key in self._changes:
            for node in self._take(int(key)):
                yield node

    def _take(self, job: int) -> frozenset[str]:
        """Take *job* over as it is now and return the nodes concerned."""
        before = self._nodes.pop(job, frozenset[str]())
        for node in before:
            self._jobs[node].discard(job)
            if not self._jobs[node]:
                del self._jobs[node]
        entry = self._view.entry(str(job))
        known = self._states.get(job)
        if known is not None and self._view.revision(str(job)) < known.revision:
            self._is_newest_lost = True
        after = _held(entry.value) if entry is not None else None
        if entry is None or after is None:
            self._states.pop(job, None)
            return before
        self._states[job], self._nodes[job] = entry, after
        self._newest = max(self._newest or entry.stored, entry.stored)
        for node in after:
            self._jobs.setdefault(node, set()).add(job)
        return before | after


def _held(state: SlurmJobState) -> frozenset[str] | None:
    """Return the nodes that a job holds now; None: they cannot be told."""
    if not (state.is_running or state.is_completing):
        return frozenset()
    try:
        return frozenset(expand(state.nodes))
    except ValueError as error:
        log.error("nodes of a job cannot be read", extra={"job": state.job, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
        return None
