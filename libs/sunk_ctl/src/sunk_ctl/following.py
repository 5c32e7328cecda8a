"""Events from the view, page by page: each once and in order, whatever breaks meanwhile.

What must stay true: where we stand moves only with an answer that came whole and was handed on; so an answer
that is lost is asked for again, and none is handed on twice.
"""

from collections.abc import Callable
from typing import Final

import anyio

from sunk_ctl.cluster import Cluster
from sunk_ctl.refusals import NOT_FOUND, LoggedOutError, NoAnswerError
from sunk_events.view import EventRow, Events

POLL_S: Final = 2.0
"""Between two questions where nothing more is stored: a tenth of what a user may ask."""
AGAIN_S: Final = 3.0
PAUSE_S: Final = 0.25
"""Between two questions where more is stored, within the rate that a user has."""
REFUSED_S: Final = 60.0
"""For so long the API server may not know the user: a plugin renews a token, or what knows users is away."""
Take = Callable[[tuple[EventRow, ...]], None]
Note = Callable[[str], None]


class Refusals:
    """For how long the API server has not known the user, one answer after the other."""

    def __init__(self) -> None:
        self._since: float | None = None

    def may_pass(self, error: NoAnswerError, now_s: float) -> bool:
        """Return whether to ask again after *error*, at *now_s* of a clock that never goes back."""
        if not isinstance(error, LoggedOutError):
            self._since = None
            return error.may_pass
        self._since = now_s if self._since is None else self._since
        return now_s - self._since < REFUSED_S


async def events(
    cluster: Cluster,
    path: str,
    query: dict[str, str],
    take: Take,
    note: Note,
    *,
    is_following: bool,
    poll_s: float = POLL_S,
    again_s: float = AGAIN_S,
) -> None:
    """Hand the events at *path* on to *take*; with *is_following*, those to come too, until cancelled.

    Args:
        cluster: Whose view is asked.
        path: Where the events are.
        query: Of the first question: how far back.
        take: Is given each event once.
        note: Is told what is amiss.
        is_following: Go on.
        poll_s: Between two questions.
        again_s: After a question that had no answer.

    Raises:
        NoAnswerError: nothing is known of it, the user may not, or the first answer did not come.
    """
    found = await cluster.get(Events, path, query)
    if not found.after:
        hint = f": did you mean {', '.join(found.near)}?" if found.near else ""
        raise NoAnswerError(f"nothing with that name is known{hint}", NOT_FOUND)
    reported: tuple[str, ...] = ()
    while True:
        take(found.items)
        for problem in found.problems:
            if problem not in reported:
                note(problem)
        reported = found.problems
        if not is_following:
            return
        await anyio.sleep(PAUSE_S if found.is_more else poll_s)
        found = await _next(cluster, path, {"after": found.after, "key": found.key}, note, again_s)


async def _next(cluster: Cluster, path: str, query: dict[str, str], note: Note, again_s: float) -> Events:
    """Return the next answer, however long it takes until there is one.

    Raises:
        NoAnswerError: the user may not any longer, or is not known any longer.
    """
    is_reported = False
    refusals = Refusals()
    while True:
        try:
            return await cluster.get(Events, path, {name: text for name, text in query.items() if text})
        except NoAnswerError as error:
            if not refusals.may_pass(error, anyio.current_time()):
                raise
            if not is_reported:
                note(f"{error}. Trying again; no event is missed")
            is_reported = True
            await anyio.sleep(again_s)
