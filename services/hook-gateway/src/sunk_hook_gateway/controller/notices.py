"""When a prolog is told what to say to who waits for its job at a terminal.

What must stay true: a job is told once, and again only if that has changed; a burst of jobs is told in
rounds, so that slurmctld, which carries each message to its terminal, is not flooded.
"""

from collections.abc import Callable
from typing import Final

import anyio

from sunk_hook_gateway.adapters.views import Locks
from sunk_hook_gateway.hooks.answers import printable
from sunk_hook_gateway.hooks.bodies import Prehook
from sunk_hook_gateway.hooks.waiting_jobs import Rounds
from sunk_runtime.clock import now
from sunk_slurm.leaving import text

TextOf = Callable[[str, int], str | None]
"""Returns what the job is told by the prolog of that node; None: another one tells it."""

FIRST_S: Final = 3.0
"""A lock that is granted sooner is not worth a message."""
AGAIN_S: Final = 10.0
"""A change is told at the soonest so long after the last look, and by one prolog of a job only."""
_LOOK_S: Final = 1.0
ROUND_S: Final = 1.0
AT_ONCE: Final = 20
"""Messages a round of each gateway: 1,000 jobs that begin to wait at once are told within a minute."""


class Notices:
    """What the prologs of one gateway have to say."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._rounds = Rounds(AT_ONCE, ROUND_S)

    def of(self, node: str, body: Prehook) -> "Notice":
        """Return what one call may be told."""
        return Notice(self._text, self._rounds, node, body)

    def _text(self, node: str, job: int) -> str | None:
        locks = self._locks.waited_for(node, job)
        return None if locks is None else text(locks, now())


class Notice:
    """What one call of a prolog may be told."""

    def __init__(self, text_of: TextOf, rounds: Rounds, node: str, body: Prehook) -> None:
        self._text_of = text_of
        self._rounds = rounds
        self._node = node
        self._job = body.job
        self._last_message = body.said
        self._due = float("inf") if body.said is None else anyio.current_time() + first_look_s(body)

    @property
    def due_in_s(self) -> float:
        """In how many seconds there may be something to say."""
        return max(0.0, self._due - anyio.current_time())

    def take(self) -> str:
        """Return what is to be said now; empty: nothing yet."""
        if self.due_in_s > 0:
            return ""
        found = self._text_of(self._node, self._job)
        message = printable(found) if found else ""
        wait_s = AGAIN_S
        if found == "" and not self._last_message:
            wait_s = _LOOK_S  # Its Pods may not be known yet.
        elif message and message != self._last_message:
            wait_s = self._rounds.wait_s(anyio.current_time())
            if not wait_s:
                return message
        self._due = anyio.current_time() + wait_s
        return ""


def first_look_s(body: Prehook) -> float:
    """Return in how many seconds a call is looked at first: after a message in the rhythm of changes."""
    is_new = not body.said and body.waited_s < FIRST_S + AGAIN_S
    return max(0.0, FIRST_S - body.waited_s) if is_new else AGAIN_S
