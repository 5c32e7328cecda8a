"""The loop over keys: what changed is looked at, one key at a time, again later when it failed.

What must stay true: one key is never handled twice at once; a key enqueued while it is handled is handled
again; a key that fails, or hangs, backs off alone while the others go on; what backs off is due at once
when what was away is back; a key that is refused backs off too, for rules and rights change; every key
comes round at each resync. A key that blocks the processor rests for it, and no other key does.
"""

import heapq
import logging
import math
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from sunk_runtime.backoff import doubled
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.metrics import KEY_SECONDS, KEYS_BLOCKED, KEYS_HANDLED, KEYS_WAITING
from sunk_runtime.processor_time import TimedLook
from sunk_runtime.recovery import Recovery

log = logging.getLogger(__name__)

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_LAST_S: Final = 5.0
"""A key that waits longer than a few seconds after the reason is gone looks like one that is stuck."""
REFUSED_FIRST_S: Final = 1.0
REFUSED_LAST_S: Final = 60.0
"""Where a server refuses for good, a key costs no more than one look in so long."""
REFUSED_LOG_S: Final = 300.0
LOOK_S: Final = 60.0
"""A look that takes longer hangs: its calls have time-outs, and all of them together are shorter."""
BLOCKED_S: Final = 0.05
"""A look that takes the processor for so long without a pause blocks all other keys."""
RESTS: Final = 20
"""How many times as long its key rests then: no key takes more than a twentieth of the processor."""
_IDLE_S: Final = 60.0
_OUTCOMES: Final = ("done", "conflict", "deferred", "refused", "failed")

Handle = Callable[[str], Awaitable[float | None]]
"""Looks at one key; returns in how many seconds to look again, or None for when it changes."""


class KeyLoop:
    """Calls *handle* for keys that were enqueued, with bounded concurrency."""

    def __init__(
        self,
        name: str,
        handle: Handle,
        *,
        concurrency: int = 8,
        backoff_s: float = BACKOFF_LAST_S,
        look_s: float = LOOK_S,
        woken_by: Sequence[Recovery] = (),
        ahead_s: Callable[[str], float] = lambda _key: 0.0,
    ) -> None:
        """Describe a loop; `run` runs it.

        Args:
            name: Of the loop, in metrics and logs.
            handle: Looks at one key.
            concurrency: Keys looked at at once.
            backoff_s: The longest that a key that failed waits, unless the other side asked for more.
            look_s: A look that takes longer is cancelled, and counts as failed.
            woken_by: When one of these is back, `wake` is called.
            ahead_s: How much later another key may have come and still has its turn after this one: what
                is weightier comes first where many wait.
        """
        self.name = name
        self._handle = handle
        self._concurrency = concurrency
        self._backoff_s = backoff_s
        self._look_s = look_s
        self._woken_by = woken_by
        self._ahead_s = ahead_s
        self._due: dict[str, float] = {}
        """When each key's turn is, in monotonic time."""
        self._turns: list[tuple[float, str]] = []
        """The same as a heap; an entry that `_due` does not confirm is out of date."""
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._deferred = LogDeduplicator()
        self._refused = LogDeduplicator(REFUSED_LOG_S)
        self._resting: dict[str, float] = {}
        """Until when, in monotonic time, keys rest that blocked everybody else."""
        self._blocked = KEYS_BLOCKED.labels(name)
        self._changed = anyio.Event()
        self._waiting = KEYS_WAITING.labels(name)
        self._seconds = KEY_SECONDS.labels(name)
        self._handled = {outcome: KEYS_HANDLED.labels(name, outcome) for outcome in _OUTCOMES}
        """Made now: a counter that begins with its first 1 shows no increase."""

    def enqueue(self, key: str, *, after_s: float = 0.0) -> None:
        """Look at *key* in *after_s* seconds, or before if that was already due; not while it rests."""
        due = max(time.monotonic() + after_s, self._resting.get(key, -math.inf))
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._turns, (due, key))
            self._changed.set()

    def awaits(self, key: str) -> bool:
        """Whether *key* is looked at now, or has a turn."""
        return key in self._busy or key in self._due

    def wake(self) -> None:
        """Look now at every key that backs off: what they failed for may be over."""
        for key in tuple(self._failures):
            if key in self._due:
                self.enqueue(key)

    async def run(
        self,
        *sources: AsyncIterable[str],
        keys: Callable[[], Iterable[str]] = tuple,
        resync_s: float = 300.0,
    ) -> None:
        """Handle the keys of every source until cancelled, and all *keys()* each *resync_s* seconds."""
        with ExitStack() as stack:
            for recovery in self._woken_by:
                stack.enter_context(recovery.waking(self.wake))
            await self._run(sources, keys, resync_s)

    async def _run(
        self, sources: Iterable[AsyncIterable[str]], keys: Callable[[], Iterable[str]], resync_s: float
    ) -> None:
        async with anyio.create_task_group() as tasks:
            for source in sources:
                tasks.start_soon(self._follow, source)
            tasks.start_soon(self._resync, keys, resync_s)
            while True:
                self._changed = anyio.Event()
                while (key := self._next()) is not None:
                    tasks.start_soon(self._place, key)
                self._waiting.set(len(self._due))
                is_full = len(self._busy) >= self._concurrency
                with anyio.move_on_after(_IDLE_S if is_full else max(0.0, self._until_next())):
                    await self._changed.wait()

    def _next(self) -> str | None:
        """Take the key whose turn it is, if one's is and there is a free place."""
        while len(self._busy) < self._concurrency and self._until_next() <= 0:
            due, key = heapq.heappop(self._turns)
            if self._due.get(key) == due and key not in self._busy:
                del self._due[key]
                self._busy.add(key)
                return key
        return None

    def _until_next(self) -> float:
        """Return in how many seconds the next turn is, after dropping what is no turn any more."""
        while self._turns and (
            self._due.get(self._turns[0][1]) != self._turns[0][0] or self._turns[0][1] in self._busy
        ):
            heapq.heappop(self._turns)  # A busy key gets its turn back when it is done.
        return self._turns[0][0] - time.monotonic() if self._turns else _IDLE_S

    async def _follow(self, source: AsyncIterable[str]) -> None:
        async for key in source:
            self.enqueue(key, after_s=-self._ahead_s(key))

    async def _resync(self, keys: Callable[[], Iterable[str]], resync_s: float) -> None:
        while True:
            await anyio.sleep(resync_s)
            for key in keys():
                self.enqueue(key, after_s=-self._ahead_s(key))

    async def _place(self, first: str) -> None:
        """Handle *first*, then whatever has its turn: a task for each of thousands of keys costs more."""
        key: str | None = first
        while key is not None:
            await self._one(key)
            key = self._next()
            if key is not None:
                await checkpoint()  # Looks that wait for nothing must not keep everybody else waiting.
        self._changed.set()

    async def _one(self, key: str) -> None:
        try:
            again_s = await self._outcome(key)
        finally:
            self._busy.discard(key)
            if key in self._due:
                heapq.heappush(self._turns, (self._due[key], key))
                self._changed.set()
        if again_s is not None:
            self.enqueue(key, after_s=again_s)

    async def _outcome(self, key: str) -> float | None:
        """Handle *key*, log what went wrong, and return when to look again."""
        started = time.perf_counter()
        fields = {"loop": self.name, "key": key}
        try:
            again_s = await self._looked(key)
        except ConflictError as error:
            outcome, again_s = "conflict", self._backoff(key, BACKOFF_FIRST_S, self._backoff_s)
            log.info("key conflicted", extra={**fields, "error": str(error)})
        except TransientError as error:
            requested_s = error.retry_after_s if math.isfinite(error.retry_after_s) else 0.0
            outcome, again_s = (
                "deferred",
                max(requested_s, self._backoff(key, BACKOFF_FIRST_S, self._backoff_s)),
            )
            left_out = self._deferred.left_out(str(error), time.monotonic())
            if left_out is not None:  # A server that is away defers thousands of keys, each again and again.
                details = {"error": str(error), "retry_s": round(again_s, 2), "left_out": left_out}
                log.warning("key deferred", extra={**fields, **details})
        except PermanentError as error:
            outcome, again_s = "refused", self._backoff(key, REFUSED_FIRST_S, REFUSED_LAST_S)
            left_out = self._refused.left_out(str(error), time.monotonic())
            if left_out is not None:
                details = {"error": str(error), "retry_s": round(again_s, 2), "left_out": left_out}
                log.error("key refused", extra={**fields, **details})  # noqa: TRY400 - no bug, no traceback
        except Exception:
            outcome, again_s = "failed", self._backoff(key, BACKOFF_FIRST_S, self._backoff_s)
            log.exception("key failed", extra={**fields, "retry_s": round(again_s, 2)})
        else:
            outcome = "done"
            self._failures.pop(key, None)
        self._handled[outcome].inc()
        self._seconds.observe(time.perf_counter() - started)
        return again_s

    async def _looked(self, key: str) -> float | None:
        """Handle *key*, but not for ever: one that hangs would keep its place from the others."""
        look = TimedLook(self._handle(key))
        try:
            with anyio.move_on_after(self._look_s) as scope:
                return await look
        finally:
            self._rest(key, look.longest_s)
        if scope.cancelled_caught:
            raise TransientError(f"the look took longer than {self._look_s:g} s")
        return None

    def _rest(self, key: str, blocked_s: float) -> None:
        """Have *key* rest if it has blocked all others; enqueueing it meanwhile does not shorten that."""
        moment = time.monotonic()
        self._resting.pop(key, None)
        if blocked_s < BLOCKED_S:
            return
        rests_s = blocked_s * RESTS
        for other in [other for other, until in self._resting.items() if until <= moment]:
            del self._resting[other]
        self._resting[key] = moment + rests_s
        if key in self._due and self._due[key] < moment + rests_s:
            self._due[key] = moment + rests_s
        self._blocked.inc()
        fields = {"blocked_s": round(blocked_s, 3), "rests_s": round(rests_s, 1)}
        log.warning("key blocked the loop", extra={"loop": self.name, "key": key, **fields})

    def _backoff(self, key: str, first_s: float, last_s: float) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return doubled(first_s, failures, last_s)


EVERY_S: Final = 10.0
_TEXTS_MAX: Final = 256
"""Beyond that many reasons all are forgotten, and told anew."""


class LogDeduplicator:
    """Which texts were told lately, and how often each was left out since."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._last_logged: dict[str, tuple[float, int]] = {}

    def left_out(self, text: str, now_s: float) -> int | None:
        """Return how often *text* was left out since it was last told, now that it is told again.

        None: it was logged less than *every_s* ago, and is left out.
        """
        logged_s, left_out = self._last_logged.get(text, (now_s - self._every_s, 0))
        if now_s - logged_s < self._every_s:
            self._last_logged[text] = logged_s, left_out + 1
            return None
        if len(self._last_logged) >= _TEXTS_MAX:
            self._last_logged.clear()
        self._last_logged[text] = now_s, 0
        return left_out
