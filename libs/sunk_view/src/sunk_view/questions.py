"""Questions to the services: shared among callers, and few at once.

What must stay true: however many users ask, a service gets the same question once in `KEEP_S`, and of each
kind that makes it read or count `AT_ONCE` at most, for each Slurm cluster. An answer says nothing of the user
who asked: what that user may not read is hidden afterwards.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from sunk_events.base import Reply, Request
from sunk_events.requests import ExplainJob, ExplainKubeNode, Explanation, Later, Refused
from sunk_events.view import Part
from sunk_runtime.errors import NoAnswerError, PermanentError, TransientError

KEEP_S: Final = 3.0
AT_ONCE: Final = 2
COSTLY: Final = (ExplainKubeNode, ExplainJob)
"""The nodeset-controller reads a Node and its Pods for the one, the syncer counts its jobs for the other."""
UNKNOWN: Final = frozenset({"unknown_node", "unknown_job"})
"""Problems of parts: the service has no such thing."""
KEPT_MAX: Final = 1024

Ask = Callable[[str, Request, float], Awaitable[Reply]]
"""Asks a Slurm cluster's service until a deadline, in the event loop's time."""


class _Shared:
    """An answer, or the wait for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.part: Part | None = None
        self.until = 0.0


class Questions:
    """Asks for every caller."""

    def __init__(self, ask: Ask, *, answer_s: float, keep_s: float = KEEP_S, at_once: int = AT_ONCE) -> None:
        self._ask = ask
        self._answer_s = answer_s
        self._keep_s = keep_s
        self._at_once = at_once
        self._slots: dict[tuple[str, type[Request], bool], anyio.Semaphore] = {}
        """For each Slurm cluster and kind of question, and for owners of Pods apart from operators.

        What is slow in one holds no other up.
        """
        self._shared: dict[tuple[str, Request], _Shared] = {}

    async def part(self, cluster: str, service: str, question: Request) -> Part:
        """Return what *service* answers, or what it answered another caller a moment ago."""
        key = (cluster, question)
        while (shared := self._shared.get(key)) is not None:
            is_under_way = not shared.done.is_set()
            await shared.done.wait()
            if shared.part is not None and (is_under_way or anyio.current_time() < shared.until):
                return shared.part
            if self._shared.get(key) is shared:
                del self._shared[key]
        shared = self._shared[key] = _Shared()
        try:
            shared.part = await self._response(cluster, service, question)
            keep_s = 0.0 if shared.part.problem else self._keep_s
            shared.until = anyio.current_time() + keep_s
            return shared.part
        finally:
            shared.done.set()
            self._forget(key, shared)

    def _forget(self, key: tuple[str, Request], shared: _Shared) -> None:
        """Drop what is not kept: an answer that never came, and those that are too old."""
        now = anyio.current_time()
        if shared.until <= now:
            self._shared.pop(key, None)
        if len(self._shared) > KEPT_MAX:
            old = [one for one, kept in self._shared.items() if kept.done.is_set() and kept.until <= now]
            for one in old:
                del self._shared[one]

    async def _response(self, cluster: str, service: str, question: Request) -> Part:
        deadline = anyio.current_time() + self._answer_s
        if not isinstance(question, COSTLY):
            return await self._answer(cluster, service, question, deadline)
        is_of_owner = isinstance(question, ExplainJob) and not question.is_ahead_named
        kind = (cluster, type(question), is_of_owner)
        slots = self._slots.setdefault(kind, anyio.Semaphore(self._at_once))
        with anyio.CancelScope(deadline=deadline) as waiting:
            await slots.acquire()
        if waiting.cancelled_caught:
            problem = f"{service} answers other questions now: ask again in some seconds"
            return Part(cluster=cluster, service=service, problem=problem)
        try:
            return await self._answer(cluster, service, question, deadline)
        finally:
            slots.release()

    async def _answer(self, cluster: str, service: str, question: Request, deadline: float) -> Part:
        try:
            return _part(cluster, service, await self._ask(cluster, question, deadline))
        except NoAnswerError:
            problem = f"{service} does not answer: no replica leads, or it is busy"
        except TransientError as error:
            problem = f"{service} cannot be asked now: {error}"
        except PermanentError as error:
            problem = str(error)
        return Part(cluster=cluster, service=service, problem=problem)


def _part(cluster: str, service: str, reply: Reply) -> Part:
    match reply:
        case Explanation(findings=findings):
            return Part(cluster=cluster, service=service, findings=findings)
        case Refused(code=code) if code in UNKNOWN:
            return Part(cluster=cluster, service=service, problem=code)
        case Later(reason=reason) | Refused(reason=reason):
            return Part(cluster=cluster, service=service, problem=reason)
        case _:
            problem = f"{service} answered {type(reply).__name__}"
            return Part(cluster=cluster, service=service, problem=problem)
