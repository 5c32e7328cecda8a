# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Calls of the API server by kubernetes_asyncio: its configuration, its `ApiClient`; raw bytes in and out.

What must stay true: every call ends in time, with bytes or one of our errors; a token that somebody else
replaces is followed; nothing of the library, or of aiohttp below it, gets past this module.

The library's models cost 30 times as much as structs, and its calls know no timeout of themselves.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import anyio
import yaml
from anyio.lowlevel import checkpoint_if_cancelled

from sunk_kube.addresses import checked, proxy_of
from sunk_kube.answers import refusal
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.library import (
    ApiClient,
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)
from sunk_runtime.errors import ConfigError, SunkError

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
CONNECTIONS: Final = 100
"""At once; further calls wait for one. Watches, which last, and who leads have as many as they are."""
BEGIN_S: Final = 30.0
"""How long it may take to read who we are, before the first call."""
RENEW_S: Final = 60.0
"""How often that is read again; besides, after an answer that we are nobody (401)."""
PAUSE_S: Final = 2.0
"""Between two readings, however often we are refused."""
PLUGIN_ENDS_S: Final = 2.0
"""How long a plugin that runs when the connections are closed may take to end."""
_REFUSED: Final = 300
"""HTTP: from here on it is no success."""
_UNAUTHORIZED: Final = 401
_ACCEPT: Final = "application/json, */*"
"""The keys of ServiceAccounts come as application/jwk-set+json and as nothing else."""
_UNREACHED: Final = (aiohttp.ClientError, OSError)
"""Time-outs and TLS errors are OSErrors."""
_UNREADABLE: Final = (
    *(*_UNREACHED, ConfigException, yaml.YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, AssertionError),
)
"""The library looks at little of what kubeconfigs say, and plugins and providers answer."""


class Api:
    """Connections to one API server. Make it with `open_api`."""

    def __init__(
        self, calls: ApiClient, unbounded: ApiClient, identity: "_Identity", *, timeout_s: float
    ) -> None:
        self._calls = calls
        self._unbounded = unbounded
        self._identity = identity
        self._timeout_s = timeout_s

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""
        return self._identity.namespace

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        is_urgent: bool = False,
    ) -> bytes:
        """Make one call, with a *body* of dicts, lists and scalars, or bytes of no JSON; return the answer's.

        One that *is_urgent* waits for no connection that others use.

        Raises:
            KubeUnavailableError: no answer, not in time, or 401, 408, 429, 5xx. It may have happened.
            ConflictError, KubeNotFoundError, KubeRejectedError: as `answers.refusal` says.
        """
        doing = f"{method.lower()} {path}"
        limit = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s, sock_connect=CONNECT_S)
        client = self._unbounded if is_urgent else self._calls
        pending = _response(client, method, path, query, limit, body=body, content_type=content_type)
        async with _translated(doing), await pending as response:
            answer = await response.read()
            if response.status >= _REFUSED:
                raise self._refusal(doing, response, answer)
            return answer

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> AsyncGenerator[AsyncIterable[bytes]]:
        """Yield the body of a watch as it comes; a silence of *silence_s* seconds raises.

        In chunks: of lines the library's connections would take no longer ones than 4 MiB.

        Raises:
            KubeUnavailableError: as `send`, and when the connection breaks or falls silent.
        """
        doing = f"watch {path}"
        limit = aiohttp.ClientTimeout(connect=CONNECT_S, sock_connect=CONNECT_S, sock_read=silence_s)
        pending = _response(self._unbounded, "GET", path, query, limit)
        async with _translated(doing), await pending as response:
            if response.status >= _REFUSED:
                with anyio.fail_after(self._timeout_s):
                    raise self._refusal(doing, response, await response.read())
            try:
                yield response.content.iter_any()
            finally:
                response.close()  # Not handed back: its body has no end.

    def _refusal(self, doing: str, response: aiohttp.ClientResponse, answer: bytes) -> SunkError:
        if response.status == _UNAUTHORIZED:
            self._identity.doubt()
        return refusal(doing, response.status, answer, response.headers)


async def _response(
    client: ApiClient,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    limit: aiohttp.ClientTimeout,
    *,
    body: object = None,
    content_type: str = "application/json",
) -> aiohttp.ClientResponse:
    response: Any = await client.call_api(
        path,
        method,
        query_params=list((query or {}).items()),
        header_params={"Accept": _ACCEPT, "Content-Type": content_type},
        body=body,
        auth_settings=["BearerToken"],
        _preload_content=False,
        _request_timeout=limit,
    )
    return response


class _Identity:
    """Who we are and where the API server is, as the library reads it.

    The library itself reads a kubeconfig's token once, and a Pod's again by the wall clock, which can go
    back.
    """

    def __init__(self, kubeconfig: Path | None, context: str) -> None:
        self._kubeconfig = kubeconfig
        self._context = context or None
        self._loader: Any = None
        """Of the kubeconfig: runs its plugin again when the token is about to expire."""
        self._refused = anyio.Event()
        self._reading = anyio.CancelScope(shield=True)

    async def read(self) -> Configuration:
        """Return it. Raises one of `_UNREADABLE`."""
        found = Configuration()
        if self._kubeconfig is None:
            load_incluster_config(client_configuration=found, try_refresh_token=False)
        elif self._loader is None:
            self._loader = await load_kube_config(
                config_file=str(self._kubeconfig),
                context=self._context,
                client_configuration=found,
                persist_config=False,
            )
        else:
            await self._loader.load_and_set(found)
        found.api_key = {name: _header(key) for name, key in found.api_key.items()}
        return found

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context; ``default`` where it names none."""
        named: Any = self._loader.current_context if self._loader is not None else {}
        return str((named.get("context") or {}).get("namespace") or "default")

    def doubt(self) -> None:
        """Have it read soon, by a plugin too."""
        if self._loader is not None:
            vars(self._loader).pop("exec_plugin_expiry", None)
        self._refused.set()

    async def keep(self, configuration: Configuration) -> None:
        """Renew the token in *configuration*, until cancelled; one that cannot be read leaves the last.

        One reading after the other: a plugin that hangs is one process, and no call waits for it. No
        cancellation but that of `end` leaves a plugin running.
        """
        while True:
            await anyio.sleep(PAUSE_S)
            with anyio.move_on_after(RENEW_S):
                await self._refused.wait()
            # A call that was refused wakes us also where `end` has been called since: no plugin starts then.
            await checkpoint_if_cancelled()
            self._refused = anyio.Event()
            self._reading = anyio.CancelScope(shield=True)
            try:
                with self._reading:
                    configuration.api_key = (await self.read()).api_key
            except _UNREADABLE as error:
                log.warning("credentials of the API server not read", extra={"error": _text(error)})

    def end(self) -> None:
        """Cancel a reading that is under way in `PLUGIN_ENDS_S`, if it has not ended by then."""
        self._reading.deadline = anyio.current_time() + PLUGIN_ENDS_S


def _header(key: str) -> str:
    """Return *key* without the end of its line. Raises `ValueError`: no header holds it."""
    key = key.strip()
    if not (key.isascii() and key.isprintable() and " " in key):
        raise ValueError("the token is empty, or has characters that no token has")
    return key


@asynccontextmanager
async def open_api(
    agent: str, *, kubeconfig: Path | None, timeout_s: float, context: str = ""
) -> AsyncGenerator[Api]:
    """Yield connections: by *kubeconfig*, or as the Pod that we are. No call is made here.

    Of a kubeconfig the *context* counts; empty: its current one.

    Raises:
        ConfigError: neither works; the text says why.
    """
    identity = _Identity(kubeconfig, context)
    try:
        with anyio.fail_after(BEGIN_S):
            configuration = await identity.read()
        host = checked(configuration.host or "")
        if proxy := configuration.proxy or proxy_of(host):
            configuration.proxy = checked(proxy)
        calls, unbounded = (_client(configuration, agent, limit) for limit in (CONNECTIONS, 0))
    except _UNREADABLE as error:
        what = f"kubeconfig {kubeconfig}" if kubeconfig else "settings of a Pod in a cluster"
        raise ConfigError(f"{what}: {_text(error)}") from error
    async with calls, unbounded, anyio.create_task_group() as tasks:
        tasks.start_soon(identity.keep, configuration)
        try:
            yield Api(calls, unbounded, identity, timeout_s=timeout_s)
        finally:
            identity.end()
            tasks.cancel_scope.cancel()


def _client(configuration: Configuration, agent: str, connections: int) -> ApiClient:
    """Return an `ApiClient` whose session looks for no proxy and no ~/.netrc at each call, and stays here.

    Both it would do in threads, at twice the cost of the call, and one that names the API server's host
    would break every call that has a token. Where it followed a redirect, a POST would be a GET, and a page
    to log in the success of a binding.
    """
    configuration.connection_pool_maxsize = connections
    client = ApiClient(configuration)
    client.user_agent = agent
    rest: Any = client.rest_client
    session = aiohttp.ClientSession(connector=rest.pool_manager.connector)
    rest.pool_manager.detach()
    request = partial(session.request, allow_redirects=False)
    rest.pool_manager = SimpleNamespace(request=request, close=session.close)
    return client


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def _translated(doing: str) -> AsyncGenerator[None]:
    """Raise our errors for the library's and aiohttp's; the original stays as ``__cause__``."""
    try:
        yield
    except SunkError:
        raise
    except _UNREACHED as error:
        raise KubeUnavailableError(f"{doing}: {type(error).__name__}: {error}".rstrip(": ")) from error
