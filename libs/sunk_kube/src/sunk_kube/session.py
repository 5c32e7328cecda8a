"""HTTP to the API server: raw bytes in and out.

What must stay true: every call ends in time, with bytes or one of our errors; nothing of aiohttp gets past
this module.

A client library's models cost 30 times as much as structs, and its calls know no timeout.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio

from sunk_kube.access import Access, as_pod, by_kubeconfig
from sunk_kube.answers import refusal
from sunk_kube.errors import KubeUnavailableError
from sunk_runtime.errors import SunkError

CONNECT_S: Final = 3.0
CONNECTIONS: Final = 100
"""At once; further calls wait for one. Watches, which last, have their own, and as many as they are."""
_REFUSED: Final = 300
"""HTTP: from here on it is no success."""


class Session:
    """Connections to one API server. Make it with `open_session`."""

    def __init__(
        self,
        access: Access,
        http: aiohttp.ClientSession,
        watches: aiohttp.ClientSession,
        *,
        agent: str,
        timeout_s: float,
    ) -> None:
        self._access = access
        self._http = http
        self._watches = watches
        self._agent = agent
        self._timeout_s = timeout_s

    async def send(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        """Make one call and return its answer's body.

        Raises:
            KubeUnavailableError: no answer, not in time, or 401, 408, 429, 5xx. It may have happened.
            ConflictError, KubeNotFoundError, KubeRejectedError: as `answers.refusal` says.
        """
        doing = f"{method.lower()} {path}"
        headers = await self._headers()
        if data is not None:
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s, sock_connect=CONNECT_S)
        async with (
            _translated(doing),
            self._http.request(
                method, self._access.host + path, params=query, data=data, headers=headers, timeout=timeout
            ) as response,
        ):
            answer = await response.read()
            if response.status >= _REFUSED:
                raise refusal(doing, response.status, answer, response.headers)
            return answer

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """Yield the body of a watch in chunks; a silence of *silence_s* seconds raises.

        Raises:
            KubeUnavailableError: as `send`, and when the connection breaks or falls silent.
        """
        doing = f"watch {path}"
        timeout = aiohttp.ClientTimeout(connect=CONNECT_S, sock_connect=CONNECT_S, sock_read=silence_s)
        headers = await self._headers()
        async with (
            _translated(doing),
            self._watches.get(
                self._access.host + path, params=query, headers=headers, timeout=timeout
            ) as response,
        ):
            if response.status >= _REFUSED:
                with anyio.fail_after(self._timeout_s):
                    raise refusal(doing, response.status, await response.read(), response.headers)
            chunks = _chunks(response)
            try:
                yield chunks
            finally:
                await chunks.aclose()
                response.close()  # Not handed back: its body has no end.

    async def _headers(self) -> dict[str, str]:
        # The keys of ServiceAccounts come as application/jwk-set+json and as nothing else.
        headers = {"Accept": "application/json, */*", "User-Agent": self._agent}
        if authorization := await self._access.authorization():
            headers["Authorization"] = authorization
        return headers


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Yield what came, as it came: lines would have a limit, and objects have none that is as low."""
    async for chunk in response.content.iter_any():
        yield chunk


@asynccontextmanager
async def _translated(doing: str) -> AsyncGenerator[None]:
    """Raise our errors for aiohttp's; the original stays as ``__cause__``."""
    try:
        yield
    except SunkError:
        raise
    except (aiohttp.ClientError, OSError) as error:  # Time-outs and TLS errors are OSErrors.
        raise KubeUnavailableError(f"{doing}: {type(error).__name__}: {error}".rstrip(": ")) from error


@asynccontextmanager
async def open_session(agent: str, *, kubeconfig: Path | None, timeout_s: float) -> AsyncGenerator[Session]:
    """Yield a session: by *kubeconfig*, or as the Pod that we are. No call is made here.

    Raises:
        ConfigError: neither works; the text says why.
    """
    access = await by_kubeconfig(kubeconfig) if kubeconfig is not None else as_pod()
    # Proxies are looked for once: looked for at each call, as trust_env does, they were a third of its cost.
    proxy = _proxy(access.host)
    connector, unlimited = (aiohttp.TCPConnector(limit=limit, ssl=access.tls) for limit in (CONNECTIONS, 0))
    async with (
        aiohttp.ClientSession(connector=connector, proxy=proxy) as http,
        aiohttp.ClientSession(connector=unlimited, proxy=proxy) as watches,
    ):
        yield Session(access, http, watches, agent=agent, timeout_s=timeout_s)


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for *url*, if it names one."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
