"""One call of slurmrestd: version, token, limits, and its answers and errors made ours.

What must stay true: no token ever stands in an error or a log line; an answer is either understood or
an error; a refusal is told from a failure by Slurm's error number, never by the HTTP status, because
24.11 answers 500 to both.

Source: slurmrestd 24.11 and 26.05, measured; slurm.schedmd.com/rest.html.
"""

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import httpx
import msgspec

from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError, is_transient
from sunk_slurm.tokens import Tokens
from sunk_slurm.wire import VERSIONS, Answer, Problem

log = logging.getLogger(__name__)

Transport = httpx.AsyncBaseTransport
T = TypeVar("T", bound=Answer)

MAX_CONNECTIONS: Final = 8
"""slurmctld is single-minded: more at once only makes each slower."""
CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 30.0
"""10,000 nodes take 1.5 s and 10,000 jobs 7 s; callers set shorter deadlines of their own."""
_TOKEN_REFUSED: Final = frozenset({401, 511})
_NOT_MODIFIED: Final = 304
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_SHOWN: Final = 120


class _Paths(msgspec.Struct, frozen=True):
    """The part of slurmrestd's OpenAPI document that says which versions it has."""

    paths: dict[str, msgspec.Raw] = {}


class Rest:
    """A connection pool to one slurmrestd. Use it as a context."""

    def __init__(self, url: str, tokens: Tokens, *, transport: Transport | None = None) -> None:
        self._tokens = tokens
        self._version = ""
        self._slots = anyio.Semaphore(MAX_CONNECTIONS)
        self._client = httpx.AsyncClient(
            base_url=url,
            transport=transport,
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            trust_env=False,  # A proxy of the environment must never see Slurm's tokens.
        )

    @property
    def version(self) -> str:
        """The API version in use; empty before the first call."""
        return self._version

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)

    async def call(
        self,
        doing: str,
        kind: type[T],
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        params: Iterable[tuple[str, str | int]] = (),
    ) -> T | None:
        """Call ``/slurm/<version>/<path>`` and return the answer; None is HTTP 304, "not modified".

        Args:
            doing: What this is for, in the words of an operator: ``drain gpu-000-012``.
            kind: What the answer looks like.
            method: ``GET``, ``POST`` or ``DELETE``.
            path: Behind the version; names in it are quoted by the caller.
            body: Sent as JSON.
            params: The query; a name may come twice.

        Raises:
            SlurmUnavailableError: no answer, not Slurm's, or a failure that may pass.
            SlurmRejectedError: Slurm refuses.
        """
        version = self._version or await self._negotiate()
        response = await self._send(doing, method, f"/slurm/{version}/{path}", body=body, params=params)
        if response.status_code == _NOT_MODIFIED:
            return None
        if response.status_code == _NOT_FOUND and not _is_json(response):
            self._version = ""  # slurmrestd was replaced by one with other versions.
            raise SlurmUnavailableError(f"{doing}: slurmrestd no longer serves {version}")
        return _understood(doing, kind, response)

    async def _negotiate(self) -> str:
        """Choose the best version that both sides speak, and remember it."""
        doing = "ask slurmrestd for its API versions"
        response = await self._send(doing, "GET", "/openapi/v3")
        if response.status_code >= _SERVER_ERROR or not _is_json(response):
            raise SlurmUnavailableError(f"{doing}: {_shown(response)}")
        try:
            paths = msgspec.json.decode(response.content, type=_Paths).paths
        except msgspec.DecodeError as error:
            raise SlurmUnavailableError(f"{doing}: {_shown(response)}") from error
        served = {words[2] for path in paths if len(words := path.split("/")) > 2 and words[1] == "slurm"}  # noqa: PLR2004 - "", "slurm", version
        for version in VERSIONS:
            if version in served:
                self._version = version
                log.info("slurm api chosen", extra={"version": version, "served": sorted(served)})
                return version
        raise SlurmRejectedError(
            f"slurmrestd serves {', '.join(sorted(served)) or 'no API of slurmctld'}; needed is one of "
            f"{', '.join(VERSIONS)}"
        )

    async def _send(
        self,
        doing: str,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        params: Iterable[tuple[str, str | int]] = (),
    ) -> httpx.Response:
        """Send once, and once more with a fresh token if the first was not accepted."""
        content = None if body is None else msgspec.json.encode(body)
        query = httpx.QueryParams(tuple((name, str(value)) for name, value in params))
        for is_last in (False, True):
            headers = {"X-SLURM-USER-TOKEN": self._tokens.current(), "Content-Type": "application/json"}
            try:
                async with self._slots:
                    response = await self._client.request(
                        method, path, content=content, params=query, headers=headers
                    )
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                raise SlurmUnavailableError(f"{doing}: {type(error).__name__}") from error
            if response.status_code not in _TOKEN_REFUSED:
                return response
            self._tokens.renew()
            if is_last:
                raise SlurmUnavailableError(
                    f"{doing}: slurmrestd does not accept the token (HTTP {response.status_code}); check the "
                    "key or the token file, and the clocks",
                    retry_after_s=5.0,
                )
        raise AssertionError("unreachable")


def _understood(doing: str, kind: type[T], response: httpx.Response) -> T:
    """Return the answer, or raise what Slurm's errors in it mean."""
    try:
        answer = msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmUnavailableError(f"{doing}: {_shown(response)}: {error}") from error
    if problems := [problem for problem in answer.errors if problem.error_number != 0]:
        raise _classified(f"{doing}: HTTP {response.status_code}", problems)
    if response.status_code >= _SERVER_ERROR:
        raise SlurmUnavailableError(f"{doing}: {_shown(response)}")
    if not response.is_success:
        raise SlurmRejectedError(f"{doing}: {_shown(response)}")
    return answer


def _classified(doing: str, problems: list[Problem]) -> SlurmUnavailableError | SlurmRejectedError:
    """Return one error for *problems*: a refusal if any of them is one."""
    text = f"{doing}: {'; '.join(str(problem) for problem in problems)}"
    refusals = [problem.error_number for problem in problems if not is_transient(problem.error_number)]
    return SlurmRejectedError(text, number=refusals[0]) if refusals else SlurmUnavailableError(text)


def _is_json(response: httpx.Response) -> bool:
    return response.content.lstrip()[:1] == b"{"


def _shown(response: httpx.Response) -> str:
    """Say what came, in a line: it may be anything, and it may be long."""
    start = " ".join(response.content[:_SHOWN].decode("utf-8", "replace").split())
    return f"HTTP {response.status_code}, {len(response.content)} bytes of {start!r}"
