"""What callers have asked for, until a look at their Pod has taken it into account.

Only the one loop over Pods decides and writes; whoever answers a question leaves it here and waits for the
loop to have looked.
"""

from collections.abc import Callable

import anyio
import msgspec

from sunk_pod_scheduler.model import Voice


class Announcement(msgspec.Struct, frozen=True):
    """The placeholder's script of *job* runs on *node*."""

    job: int
    node: str


class Book:
    """Announcements and wishes by Pod uid."""

    def __init__(self) -> None:
        self._announced: dict[str, Announcement] = {}
        self._released: dict[str, int] = {}
        self._voices: dict[str, tuple[int, Voice]] = {}
        self._looked: dict[str, anyio.Event] = {}

    def announce(self, uid: str, announcement: Announcement) -> None:
        """Remember that the script runs."""
        self._announced[uid] = announcement

    def ask_release(self, uid: str, job: int) -> None:
        """Remember that *job* is to end."""
        self._released[uid] = job

    def announced_on(self, uid: str, job: int | None) -> str:
        """Return the node from which the script of *job* has announced itself."""
        found = self._announced.get(uid)
        return found.node if found is not None and found.job == job else ""

    def is_release_asked(self, uid: str, job: int | None) -> bool:
        """Whether *job* is to end."""
        return job is not None and self._released.get(uid) == job

    def hear(self, uid: str, job: int, voice: Voice) -> None:
        """Remember what is said of the script of *job*."""
        self._voices[uid] = job, voice

    def voice(self, uid: str, job: int | None) -> Voice:
        """Return what was last said of the script of *job*."""
        whose, voice = self._voices.get(uid, (None, ""))
        return voice if whose == job else ""

    def forget(self, uid: str) -> None:
        """Forget all about a Pod."""
        self._voices.pop(uid, None)
        self._announced.pop(uid, None)
        self._released.pop(uid, None)

    def looked(self, uid: str) -> None:
        """Wake who waits: the loop has looked at the Pod."""
        if event := self._looked.pop(uid, None):
            event.set()

    async def until(self, uid: str, is_done: Callable[[], bool], *, timeout_s: float) -> bool:
        """Return whether *is_done* after some look at the Pod, within *timeout_s* seconds."""
        with anyio.move_on_after(timeout_s):
            while not is_done():
                await self._looked.setdefault(uid, anyio.Event()).wait()
        return is_done()
