# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""nats-py's JetStream context, raising our errors: at once where the connection breaks or a call is denied.

Source: nats-py 2.16. All that its context asks of JetStream goes through `_api_request`. It has no calls for
snapshots of streams: those are here, by JetStream's API.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, StreamConfig, StreamInfo

from sunk_runtime.clock import ServerClock
from sunk_runtime.connection import Connection
from sunk_runtime.errors import JetStreamRejectedError, NoResponderError

TIMEOUT_S: Final = 5.0
CHECK_S: Final = 600.0
"""How long a server may take to check a stream of many gigabytes before it answers."""
_TYPES: Final = "io.nats.jetstream.api.v1."


class JetStream(JetStreamContext):
    """Streams, consumers and messages, over one connection.

    Each call raises `BusUnavailableError` where nobody answered, or JetStream cannot now;
    `JetStreamRejectedError` where it refused; `PermanentError` where NATS denies us the call.
    """

    def __init__(self, connection: Connection, clock: ServerClock) -> None:
        super().__init__(connection.client, timeout=TIMEOUT_S)
        self._connection = connection
        self._clock = clock

    if TYPE_CHECKING:  # nats-py leaves the types of `params` away.

        async def add_stream(self, config: StreamConfig | None = None, **params: Any) -> StreamInfo:  # noqa: ANN401
            """Make a stream."""
            ...

        async def update_stream(self, config: StreamConfig | None = None, **params: Any) -> StreamInfo:  # noqa: ANN401
            """Change a stream."""
            ...

        async def add_consumer(
            self,
            stream: str,
            config: ConsumerConfig | None = None,
            timeout: float | None = None,  # noqa: ASYNC109 - nats-py's
            **params: Any,  # noqa: ANN401
        ) -> ConsumerInfo:
            """Make a consumer."""
            ...

    async def snapshot(self, stream: str, deliver_to: str) -> dict[str, Any]:
        """Ask for a snapshot of *stream* with its consumers; return its settings (``config``) and ``state``.

        Its chunks come on *deliver_to*. Each that names a reply wants an answer there; the last is empty.
        """
        request = {"deliver_subject": deliver_to, "jsck": True}  # It checks all, then answers.
        return await self._request(f"STREAM.SNAPSHOT.{stream}", request, CHECK_S)

    async def restore(self, stream: str, config: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Begin to make *stream* of a snapshot; return where its chunks go, the empty one that ends it too.

        JetStream gives it up after 5 s without a chunk; what it then has of that name is an empty stream.
        """
        answer = await self._request(
            f"STREAM.RESTORE.{stream}", {"config": config, "state": state}, TIMEOUT_S
        )
        return str(answer["deliver_subject"])

    async def put_chunk(self, deliver_to: str, chunk: bytes, *, timeout_s: float) -> None:
        """Hand over *chunk* of a snapshot, without headers: JetStream takes all of the message for it.

        Raises:
            JetStreamRejectedError: it cannot restore the stream.
            NoResponderError: our server knows no server that restores it, so *chunk* was not delivered.
            BusUnavailableError: it did not answer within *timeout_s*.
        """
        try:
            async with self._connection.awaiting("restore a stream", deliver_to):
                answer = (await self._nc.request(deliver_to, chunk, timeout=timeout_s)).data
        except NoRespondersError as no_server:
            raise NoResponderError("restore a stream: no server listens") from no_server
        error: dict[str, Any] = json.loads(answer).get("error") or {} if answer else {}
        if error:
            text = f"restore a stream: {error.get('description')} ({error.get('err_code')})"
            raise JetStreamRejectedError(text, err_code=int(error.get("err_code") or 0))

    async def call(self, subject: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call JetStream's API by its whole *subject*, which may be that of another domain."""
        return await self._api_request(subject, json.dumps(request).encode() if request else b"")

    async def _request(self, what: str, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        return await self._api_request(f"{self._prefix}.{what}", json.dumps(request).encode(), timeout_s)

    async def _api_request(
        self,
        req_subject: str,
        req: bytes = b"",
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - nats-py's
    ) -> dict[str, Any]:
        """Ask, and compare our clock with the time that the answer tells: nats-py drops it."""
        requested_at = datetime.now(UTC)
        doing = f"JetStream {req_subject.removeprefix(f'{self._prefix}.')}"
        async with self._connection.awaiting(doing, req_subject):
            try:
                answer: dict[str, Any] = await super()._api_request(req_subject, req, timeout)
                if not answer["type"].startswith(_TYPES):
                    raise ValueError(answer["type"])  # noqa: TRY301 - as what is no JSON
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise NatsError("the answer is not from JetStream") from error
        if server_time := answer.get("ts"):
            self._clock.note(str(server_time), requested_at)
        return answer
