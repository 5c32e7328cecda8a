"""One slurmrestd: calls of it in turn, its API version, its circuit.

What must stay true: one that hangs costs a bounded number of requests, each for a bounded time, and then
none but a probe; callers without patience never make it write the long document of its versions more than
once in `_VERSIONS`' time; no token ever stands in an error or a log line.

Turns tell a call that had none from one that was not answered.

Source: slurmrestd 24.11 and 26.05, measured: stopped by SIGSTOP it still takes connections, and it works on
a request to its end although the caller has gone. So each request that is given up keeps it from others.
"""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Final

import anyio
import msgspec

from sunk_runtime.errors import SunkError
from sunk_slurm.answers import Reply, best_version, understood
from sunk_slurm.call import Call
from sunk_slurm.circuit import Circuit
from sunk_slurm.connections import Connections, Transport
from sunk_slurm.errors import NotSentError, NotServedError, SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.metrics import ANSWER_BYTES, CALL_SECONDS, CIRCUIT_OPEN, WAITING
from sunk_slurm.tokens import Tokens
from sunk_slurm.trust import Trust
from sunk_slurm.wire import Answer

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 8
"""slurmctld is single-minded: more at once only makes each slower."""
MAX_WAITING: Final = 256
"""More calls than that wait for a connection only if slurmrestd has stopped working."""
PROBE_TIMEOUT_S: Final = 2.0
_HANGING_S: Final = 1.0
"""A call that its caller gave up after so long without an answer counts as a failure."""
_TOKEN_REFUSED: Final = frozenset({401, 511})
_NOT_FOUND: Final = 404
_VERSIONS: Final = Call(
    name="versions", doing="ask slurmrestd for its API versions", path="/openapi/v3", timeout_s=10.0
)
_PROBE: Final = Call(name="probe", doing="probe slurmrestd", path="diag/", timeout_s=PROBE_TIMEOUT_S)
"""Cheap, and unlike ``ping`` refused without a token that slurmctld accepts."""


class Server:
    """One slurmrestd. `close` it."""

    def __init__(
        self, url: str, tokens: Tokens, *, trust: Trust | None = None, transport: Transport | None = None
    ) -> None:
        self.circuit = Circuit()
        self.opened = anyio.Event()
        """Set when the circuit opens, for the probe."""
        self.outages = 0
        """How often it has opened."""
        self.version = ""
        """The API version in use; empty before the first call, and where it is no longer served.

        A newer one is chosen some time after it is there.
        """
        self._why = ""
        """What it failed with last."""
        self._waiting = 0
        self._slots = anyio.Semaphore(MAX_CONNECTIONS, fast_acquire=True)
        self._wanted = anyio.Event()
        """Set when `choose_versions` has a choice to make."""
        self._choice: _Choice | None = None
        """The choice that is wanted or under way."""
        self._tokens = tokens
        self._connections = Connections(url, MAX_CONNECTIONS + 1, trust=trust, transport=transport)
        self.name: Final = self._connections.name
        self._waiting_gauge = WAITING.labels(self.name)

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()

    async def ask(self, call: Call) -> Reply:
        """Return what slurmrestd answers, whatever that is.

        Raises:
            SlurmUnavailableError: it does not.
            NotSentError: its circuit is open, or the call's turn did not come.
            TooLateError: its turn came after `Call.send_until`.
            SlurmRejectedError: it has no API version that we speak.
        """
        if self.circuit.is_open:
            text = f"{call.doing}: slurmrestd {self.name} gets no calls now: {self._why}"
            raise NotSentError(text, is_sent=False)
        if self._waiting >= MAX_WAITING:
            text = f"{call.doing}: {self._waiting} calls wait for slurmrestd {self.name}"
            raise NotSentError(text, is_sent=False)
        with self._limited(call) as progress:
            await self._slot()
            progress.is_its_turn = True
            try:
                return await self._ask_served(call, progress)
            finally:
                self._slots.release()

    def note_failure(self, why: str) -> None:
        """Count an answer that was none, or made no sense."""
        was_open = self.circuit.is_open
        self.circuit = self.circuit.failed()
        self._why = why
        if self.circuit.is_open and not was_open:
            self.outages += 1
            CIRCUIT_OPEN.labels(self.name).set(1)
            log.warning("slurmrestd gets only probes now", extra={"server": self.name, "error": why})
            self.opened.set()

    def note_success(self) -> None:
        """Note an answer that was understood."""
        was_open = self.circuit.is_open
        self.circuit = Circuit()
        if was_open:
            CIRCUIT_OPEN.labels(self.name).set(0)
            log.info("slurmrestd answers again", extra={"server": self.name})
            self.opened = anyio.Event()

    async def probe(self) -> bool:
        """Ask once whether it answers, in Slurm's words; that closes the circuit."""
        call = _PROBE if self.version else msgspec.structs.replace(_PROBE, timeout_s=_VERSIONS.timeout_s)
        try:
            with self._limited(call) as progress:
                progress.is_its_turn = True
                understood(_PROBE.doing, Answer, await self._ask_served(_PROBE, progress))
        except SunkError as error:
            if getattr(error, "number", None) is None:
                self.circuit, self._why = self.circuit.probed(), str(error)
                return False
        self.note_success()
        return True

    async def choose_versions(self) -> None:
        """Choose an API version whenever one is wanted, until cancelled.

        Calls wait for that, and none of them cuts it short: on a busy slurmrestd, each of them would make it
        write the document for nobody.
        """
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            choice = self.want_version()
            try:
                with self._limited(_VERSIONS) as progress:
                    progress.is_its_turn = True
                    progress.sent_at = time.monotonic()
                    reply = await self._send(_VERSIONS, _VERSIONS.path)
                    self.version = choice.version = best_version(_VERSIONS.doing, reply)
                log.info("slurm api chosen", extra={"version": self.version, "server": self.name})
            except SlurmUnavailableError as error:
                self.note_failure(str(error))
                choice.failed, choice.retry_after_s = str(error), error.retry_after_s
            except SlurmRejectedError as error:
                choice.rejected = str(error)
            self._choice = None
            choice.ended.set()

    async def _ask_served(self, call: Call, progress: "_Progress") -> Reply:
        """Ask in a version that is served; once more where slurmrestd was replaced by one with others."""
        if call.version:
            return await self._ask_only(call, progress)
        for is_last in (False, True):
            progress.waits_since = time.monotonic()
            version = self.version or await self._chosen()
            progress.sent_at = time.monotonic()
            tree = "slurmdb" if call.is_accounting else "slurm"
            reply = await self._send(call, f"/{tree}/{version}/{call.path}")
            if reply.status != _NOT_FOUND or reply.is_object:
                return reply
            if self.version == version:  # Another call may have had a new one chosen meanwhile.
                self.version = ""
            if call.is_accounting:
                raise NotServedError(f"{call.doing}: {reply.shown}")
            if is_last:
                raise SlurmUnavailableError(f"{call.doing}: {reply.shown}", is_sent=False)
        raise AssertionError("unreachable")

    async def _ask_only(self, call: Call, progress: "_Progress") -> Reply:
        """Ask in the one version that has the call."""
        progress.sent_at = time.monotonic()
        reply = await self._send(call, f"/slurm/{call.version}/{call.path}")
        if reply.status == _NOT_FOUND and not reply.is_object:
            raise NotServedError(f"{call.doing}: slurmrestd does not serve {call.version}")
        return reply

    async def _slot(self) -> None:
        self._waiting += 1
        self._waiting_gauge.set(self._waiting)
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
            self._waiting_gauge.set(self._waiting)

    async def _chosen(self) -> str:
        """Return the best version that both sides speak, once it is chosen; one choice serves all callers.

        Raises:
            NotSentError: slurmrestd did not say.
            SlurmRejectedError: there is none.
        """
        choice = self.want_version()
        await choice.ended.wait()
        if choice.failed:
            raise NotSentError(choice.failed, is_sent=False, retry_after_s=choice.retry_after_s)
        if choice.rejected:
            raise SlurmRejectedError(choice.rejected)
        return choice.version

    def want_version(self) -> "_Choice":
        """Return the choice that is under way, or have one made. A version in use stays in use meanwhile."""
        if self._choice is None:
            self._choice = _Choice()
            self._wanted.set()
        return self._choice

    async def _send(self, call: Call, path: str) -> Reply:
        """Send once, and once more with a fresh token if the first was not accepted."""
        call.check_in_time(time.monotonic())
        started, outcome, tokens = time.perf_counter(), "failed", call.tokens or self._tokens
        try:
            reply = await self._connections.exchange(call, path, tokens.current())
            if reply.status in _TOKEN_REFUSED:
                tokens.renew()
                call.check_in_time(time.monotonic())
                reply = await self._connections.exchange(call, path, tokens.current())
            outcome = str(reply.status)
        finally:
            _seconds(call.name, outcome).observe(time.perf_counter() - started)
        _bytes(call.name).inc(len(reply.content))
        if reply.status in _TOKEN_REFUSED:
            text = "does not accept the token; check the key or the token file, and the clocks"
            raise SlurmUnavailableError(
                f"{call.doing}: slurmrestd {text} (HTTP {reply.status})", retry_after_s=5.0
            )
        return reply

    @contextmanager
    def _limited(self, call: Call) -> Generator["_Progress"]:
        """Give *call* its time, and count its caller's loss of patience as a failure."""
        progress = _Progress()
        try:
            with anyio.fail_after(call.timeout_s):
                yield progress
        except TimeoutError as error:
            is_sent = progress.sent_at is not None
            if not progress.is_its_turn:
                text = f"{call.doing}: no turn within {call.timeout_s:g} s"
                raise NotSentError(text, is_sent=False) from error
            raise SlurmUnavailableError(
                f"{call.doing}: no answer within {call.timeout_s:g} s", is_sent=is_sent
            ) from error
        except anyio.get_cancelled_exc_class():
            waits_since = progress.sent_at or progress.waits_since
            if waits_since is not None and time.monotonic() - waits_since > _HANGING_S:
                self.note_failure("no answer before the caller's deadline")
            raise


class _Choice(msgspec.Struct):
    """Of an API version."""

    ended: anyio.Event = msgspec.field(default_factory=anyio.Event)
    version: str = ""
    rejected: str = ""
    """Why there is none that both sides speak."""
    failed: str = ""
    """Why slurmrestd did not say."""
    retry_after_s: float = 1.0


class _Progress(msgspec.Struct):
    """How far a call is."""

    is_its_turn: bool = False
    """It has a connection; until then it tells nothing about the server."""
    waits_since: float | None = None
    """It waits for the choice of a version, if need be."""
    sent_at: float | None = None


_seconds: Final = cache(CALL_SECONDS.labels)
_bytes: Final = cache(ANSWER_BYTES.labels)
