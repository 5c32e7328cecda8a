"""The locks of nodes as the bus has them, and which placements wait for them.

What must stay true: who waits is woken by the next change of that lock. A look reads locks and notes who
waits for them without a pause in between; it costs no more than its own job has nodes.
"""

from collections.abc import AsyncIterator

from sunk_events.locks import LockState
from sunk_pod_scheduler.placement.model import AnyJob, JobSeen
from sunk_pod_scheduler.placement.node_locks import ungranted
from sunk_runtime.views import StateView


class NodeLocks:
    """The locks of one Slurm cluster's nodes."""

    def __init__(self, view: StateView[LockState]) -> None:
        self.view = view
        self._waiting: dict[str, set[str]] = {}
        """By Slurm node: whom the next change of its lock wakes, once."""

    def ungranted(self, uid: str, job: AnyJob, *, has_begun: bool) -> tuple[LockState, ...] | None:
        """Return the locks that the *job* of *uid*, if it runs, is not granted yet; None: nobody can say.

        Slurm starts a script after all prologs, so most jobs never wait for a lock here. If a script
        *has_begun* all the same, the last lock wakes the job, and no other one: all have to be granted.
        """
        if not isinstance(job, JobSeen) or not job.is_running:
            return ()
        if not (self.view.is_complete and self.view.undecodable.isdisjoint(job.nodes)):
            return None
        found = ungranted(job, self.view.get)
        if found and (has_begun or job.is_marked_started):
            self._waiting.setdefault(found[-1].node, set()).add(uid)
        return found

    async def woken(self) -> AsyncIterator[str]:
        """Yield the uids of placements that waited for a lock that has changed."""
        async for node in self.view.changes():
            for uid in self._waiting.pop(node, ()):
                yield uid
