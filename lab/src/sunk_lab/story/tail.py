# pyright: reportUnknownMemberType=false
"""Facts as they fly by, read as any other team would: a plain subscription to ``sunk.ev.>``."""

import threading
from collections.abc import Callable
from typing import Self

import anyio
import msgspec
import nats
from anyio.from_thread import BlockingPortal, start_blocking_portal
from nats.aio.client import Client
from nats.aio.msg import Msg

from sunk_lab.nats import EVERYTHING
from sunk_lab.stack.raw import Object


class Tail:
    """Calls *see* with subject and event, from a thread of its own, while the context lasts."""

    def __init__(self, url: str, see: Callable[[str, Object], None]) -> None:
        self._url = url
        self._see = see
        self._stop = threading.Event()
        self._starting = start_blocking_portal()
        self._portal: BlockingPortal | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._portal = self._starting.__enter__()
        self._client = self._portal.call(self._subscribe)
        return self

    def __exit__(self, *_: object) -> None:
        if self._portal is not None and self._client is not None:
            self._portal.call(self._client.close)
        self._starting.__exit__(None, None, None)

    async def _subscribe(self) -> Client:
        with anyio.fail_after(10):
            client = await nats.connect(self._url)
            await client.subscribe(EVERYTHING, cb=self._receive)
            await client.flush()
            await client.flush()  # nats-py's first one overtakes the subscription.
        return client

    async def _receive(self, message: Msg) -> None:
        self._see(message.subject, msgspec.json.decode(message.data, type=Object))
