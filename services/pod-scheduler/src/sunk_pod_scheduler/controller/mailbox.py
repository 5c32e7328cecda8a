"""What callers have asked for, until a look at their Pod has taken it into account.

Only the one loop over Pods decides and writes; the handler of a question leaves it here and waits until the
loop has looked.
"""

from collections.abc import Callable

import anyio
import msgspec

from sunk_events.base import UNKNOWN, Cause
from sunk_pod_scheduler.placement.model import HeartbeatState
from sunk_runtime.clock import now


class Announcement(msgspec.Struct, frozen=True):
    """The placeholder's script of *job* runs on *node*."""

    job: int
    node: str
    cause: Cause = UNKNOWN
    """Its question."""


class Mailbox:
    """Announcements and wishes by Pod uid."""

    def __init__(self) -> None:
        self._announced: dict[str, Announcement] = {}
        self._released: dict[str, tuple[int, bool]] = {}
        """Which job is to end, and whether only an epilog says so."""
        self._heartbeats: dict[str, tuple[int, HeartbeatState]] = {}
        self._looked: dict[str, anyio.Event] = {}
        self.since = now()
        """From when on callers are heard. Before that another leader was told, or nobody."""

    def restart_listening(self) -> None:
        """Note that callers were not heard until now: the bus was away."""
        self.since = now()

    def announce(self, uid: str, announcement: Announcement) -> None:
        """Remember that the script runs."""
        self._announced[uid] = announcement

    def request_release(self, uid: str, job: int, *, is_epilog: bool = False) -> None:
        """Remember that *job* is to end. *is_epilog*: nobody says of which life of that number."""
        if is_epilog and self._released.get(uid) == (job, False):
            return  # Its script has said so too.
        self._released[uid] = job, is_epilog

    def announced_on(self, uid: str, job: int | None) -> str:
        """Return the node from which the script of *job* has announced itself."""
        found = self._announced.get(uid)
        return found.node if found is not None and found.job == job else ""

    def announcement(self, uid: str, job: int | None) -> Cause:
        """Return the question with which the script of *job* has announced itself."""
        found = self._announced.get(uid)
        return found.cause if found is not None and found.job == job else UNKNOWN

    def is_release_requested(self, uid: str, job: int | None, *, is_alive: bool = False) -> bool:
        """Whether *job* is to end.

        *is_alive*: Slurm says that it waits or runs. Then an epilog is that of an earlier job of its number,
        from before slurmctld lost its state: it begins only when Slurm has ended the job.
        """
        released, is_epilog = self._released.get(uid, (None, False))
        return job is not None and released == job and not (is_epilog and is_alive)

    def note_heartbeat(self, uid: str, job: int, heartbeat: HeartbeatState) -> None:
        """Remember what is said of the script of *job*."""
        self._heartbeats[uid] = job, heartbeat

    def heartbeat(self, uid: str, job: int | None) -> HeartbeatState:
        """Return what was last said of the script of *job*."""
        whose, heartbeat = self._heartbeats.get(uid, (None, ""))
        return heartbeat if whose == job else ""

    def forget(self, uid: str) -> None:
        """Forget all about a Pod, or about its job when it gets another, which may have the same number."""
        self._heartbeats.pop(uid, None)
        self._announced.pop(uid, None)
        self._released.pop(uid, None)

    def looked(self, uid: str) -> None:
        """Wake the handlers that wait: the loop has looked at the Pod."""
        if event := self._looked.pop(uid, None):
            event.set()

    async def until(self, uid: str, is_done: Callable[[], bool], *, timeout_s: float) -> bool:
        """Return whether *is_done* after some look at the Pod, within *timeout_s* seconds."""
        with anyio.move_on_after(timeout_s):
            while not is_done():
                await self._looked.setdefault(uid, anyio.Event()).wait()
        return is_done()
