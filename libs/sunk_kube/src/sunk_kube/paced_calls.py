"""Calls of the API server in their turn, each counted by its outcome.

What must stay true: while the server has asked for quiet no call is made, apart from renewals of leases.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import msgspec

from sunk_kube.api import Api
from sunk_kube.errors import KubeBusyError
from sunk_kube.metrics import REQUESTS, WAITED
from sunk_kube.objects import KubeObject
from sunk_kube.pacing import Pace
from sunk_kube.resources import EVENTS, LEASES, Resource
from sunk_runtime.errors import SunkError

T = TypeVar("T", bound=KubeObject)
Body = object
"""What is sent: a dict, list or struct that is JSON to be, or bytes as they are."""
JSON: Final = "application/json"


class PacedCalls:
    """Calls of one API server, as fast as *pace* lets them go."""

    def __init__(self, api: Api, pace: Pace) -> None:
        self.api: Final = api
        self._pace = pace

    async def send(
        self,
        method: str,
        resource: Resource[T],
        path: str,
        *,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        verb: str = "",
        timeout_s: float | None = None,
    ) -> bytes:
        """Make one call, in its turn, and count its outcome."""
        outcome = "ok"
        sent = msgspec.to_builtins(body, str_keys=True, builtin_types=(bytes,))
        is_urgent = resource is LEASES  # A leader must not wait behind its own calls.
        try:
            if not is_urgent:
                await self._await_turn()
            return await self.api.send(
                method,
                path,
                body=sent,
                query=query,
                content_type=content_type,
                timeout_s=timeout_s,
                is_urgent=is_urgent,
            )
        except SunkError as error:
            outcome = type(error).__name__
            # A budget forbids an eviction, and a namespace may have too many Events: others are not meant.
            if isinstance(error, KubeBusyError) and verb != "EVICT" and resource is not EVENTS:
                self._pace.hold(time.monotonic(), error.retry_after_s)
            raise
        finally:
            REQUESTS.labels(verb or method, resource.plural, outcome).inc()

    async def _await_turn(self) -> None:
        wait_s = self._pace.turn_s(time.monotonic())
        if wait_s > 0:
            WAITED.inc(wait_s)
            await anyio.sleep(wait_s)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> AsyncGenerator[AsyncIterable[bytes]]:
        """Yield the chunks of an answer, as `Api.stream`."""
        try:
            async with self.api.stream(path, query, silence_s=silence_s) as chunks:
                yield chunks
        except KubeBusyError as error:  # At its start, or in the midst of it.
            self._pace.hold(time.monotonic(), error.retry_after_s)
            raise
