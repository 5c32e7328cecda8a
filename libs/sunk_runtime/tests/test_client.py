# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""What nats-py's own client does not bear: what others write, and what we give up (ADR 0021)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import urlparse

import anyio
import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.client import Srv
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from sunk_events import subjects
from sunk_lab.nats import NatsServer
from sunk_runtime import jetstream
from sunk_runtime.client import Client
from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.pull import create_consumer, pulling
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

STREAM = subjects.fact_stream("c1")
HOSTILE = [
    pytest.param(b"HPUB %s.a 16 17\r\nNATS/1.0 \xff\xff\xff\r\n\r\nx\r\n", id="a status that is no text"),
    pytest.param(b"HPUB %s.a 19 20\r\nNATS/1.0 404 \xff\xff\r\n\r\nx\r\n", id="a description that is none"),
    pytest.param(b"HPUB %s.a 8 9\r\nNATS/1.0x\r\n", id="headers without an end"),
    pytest.param(b"PUB %s.\xff 1\r\nx\r\n", id="a subject that is no text"),
    pytest.param(b"PUB %s.a \xff 1\r\nx\r\n", id="a reply subject that is no text"),
    pytest.param(b"PUB %s.a\x0b5 1\r\nx\r\n", id="a subject that names another subscription"),
    pytest.param(b"PUB %s.a a\x0bb 1\r\nx\r\n", id="a vertical tab in the reply subject"),
    pytest.param(b"PUB %s.a\x0cb 1\r\nx\r\n", id="a form feed in the subject"),
]


async def write(server: NatsServer, line: bytes) -> None:
    """Publish as no client of ours would."""
    host, _, port = server.url.removeprefix("nats://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as connection:
        await connection.send(b'CONNECT {"verbose":false,"headers":true}\r\n' + line + b"PING\r\n")
        told = b""
        while b"PONG" not in told:
            told += await connection.receive()


@pytest.mark.parametrize("line", HOSTILE)
async def test_a_message_that_is_no_text_comes_as_others_do_and_the_next_one_comes_too(
    bus: Bus, server: NatsServer, line: bytes
) -> None:
    came: list[bytes] = []

    async def take(message: Message) -> None:
        came.append(message.data)

    async with bus.subscribed("q.>", take):
        await bus.flush()
        await write(server, line % b"q")
        await bus.send("q.b", b"next")
        await until(lambda: len(came) == 2)

    assert (came, bus.reconnects) == ([b"x", b"next"], 0)


@pytest.mark.parametrize("line", HOSTILE)
async def test_one_that_is_stored_is_delivered_and_so_is_what_follows(
    bus: Bus, server: NatsServer, line: bytes
) -> None:
    await write(server, line % b"sunk.ev.c1")
    await bus.publish("sunk.ev.c1.b", b"next")
    consumer, _ = await create_consumer(bus, STREAM, ConsumerConfig(ack_policy=AckPolicy.NONE))
    came: list[bytes] = []
    async with pulling(bus, STREAM, consumer) as pull:
        while len(came) < 2:
            came += [message.data for message in await pull.batch()]

    assert (came, bus.reconnects) == ([b"x", b"next"], 0)


async def given_up(bus: Bus) -> None:
    with anyio.move_on_after(0.01):
        await bus.flush()


async def timed_out(bus: Bus) -> None:
    with pytest.raises(BusUnavailableError):
        await bus.flush()


@pytest.mark.parametrize("flush", [given_up, timed_out])
async def test_a_flush_that_was_in_vain_leaves_the_connection_as_it_was(
    bus: Bus, server: NatsServer, monkeypatch: pytest.MonkeyPatch, flush: Callable[[Bus], Awaitable[None]]
) -> None:
    monkeypatch.setattr(jetstream, "PUBLISH_TIMEOUT_S", 1.0)
    server.hang()
    await flush(bus)
    server.resume()
    await bus.js.stream_info(STREAM)

    assert bus.reconnects == 0


class Looked(Client):
    """What the connection of *bus* keeps."""

    def __init__(self, bus: Bus) -> None:
        self.__dict__ = bus._client.__dict__  # noqa: SLF001 - nobody else can tell  # pyright: ignore[reportPrivateUsage]

    @property
    def kept(self) -> tuple[int, int]:
        """How much is to be sent, and how many answers are waited for."""
        return self.pending_data_size, len(self._resp_map)


async def test_calls_while_nats_is_away_leave_nothing_behind_and_neither_does_the_end(
    settings: BusSettings, server: NatsServer
) -> None:
    async with connect(settings, "test") as bus:
        server.kill()
        await until(lambda: not bus.is_connected)
        for _ in range(10):
            await bus.send("x", b"x" * 200_000)
        kept, _ = Looked(bus).kept
        for _ in range(5):
            with pytest.raises(BusUnavailableError):
                await bus.request("x", b"x" * 50_000, timeout_s=0.1)

        assert Looked(bus).kept == (kept, 0)


async def test_publishes_to_a_nats_that_takes_nothing_any_more_end_in_their_time(
    bus: Bus, server: NatsServer
) -> None:
    bus.publish_timeout_s = 0.5

    async def publish() -> None:
        with pytest.raises(BusUnavailableError):
            await bus.publish("sunk.ev.c1.x", b"x" * 200_000)

    server.hang()
    with anyio.fail_after(20):  # nats-py takes the connection for dead after 30 s.
        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(publish)
    server.resume()


async def test_what_others_have_nats_deliver_to_a_pull_is_none_of_its_deliveries(bus: Bus) -> None:
    await bus.publish("sunk.ev.c1.a", b"ours")
    consumer, _ = await create_consumer(bus, STREAM, ConsumerConfig(ack_policy=AckPolicy.NONE))
    async with pulling(bus, STREAM, consumer) as pull:
        await bus.js.add_stream(name="THEIRS", subjects=["theirs"])
        for _ in range(3):
            await bus.publish("theirs", b"forged")
        await bus.js.add_consumer(
            "THEIRS", ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_subject=pull.inbox)
        )

        async def are_delivered() -> bool:
            (theirs,) = await bus.js.consumers_info("THEIRS")
            return theirs.num_pending == 0

        await until(are_delivered)
        await bus.flush()
        assert [message.data for message in await pull.batch()] == [b"ours"]
        assert await pull.batch() == []


async def test_a_server_that_another_one_names_goes_by_the_name_of_the_service_in_its_certificate() -> None:
    """Also where the client is connected to one that it knows by its address alone."""

    class Connected(Client):
        def __init__(self, address: str, name: str) -> None:
            super().__init__()
            self.options["dont_randomize"] = True
            self._current_server = Srv(urlparse(f"tls://{address}"), discovered=True, tls_name=name)
            self._server_pool = [self._current_server]
            self._server_info = {"tls_required": True}

        async def learn(self, address: str) -> Srv:
            await self._process_info({"connect_urls": [address]})
            return self._server_pool[-1]

    learned = await Connected("10.0.0.1:4222", "nats.sunk").learn("10.0.0.2:4222")

    assert (learned.uri.hostname, learned.tls_name) == ("10.0.0.2", "nats.sunk")


class Wire:
    """What a client writes, on its way to the server."""

    def __init__(self, transport: Any) -> None:  # noqa: ANN401 - nats-py's own
        self._transport, self.lines = transport, list[bytes]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it stands for the transport
        return getattr(self._transport, name)

    def write(self, line: bytes) -> None:
        self.lines.append(line)
        self._transport.write(line)

    def writelines(self, lines: list[bytes]) -> None:
        self.lines += lines
        self._transport.writelines(lines)

    @classmethod
    async def of(cls, client: NatsClient) -> list[bytes]:
        """Return the first words of what a subscription and a flush write."""

        async def ignore(_: Msg) -> None:
            """Take a message."""

        inside = vars(client)
        wire = inside["_transport"] = cls(inside["_transport"])
        await client.subscribe("a", cb=ignore)
        await client.flush()
        await client.flush()
        return [line.split()[0] for line in wire.lines]


async def test_a_flush_is_answered_after_what_was_subscribed_before_it(server: NatsServer) -> None:
    """By nats-py the question overtakes the subscription, and a message sent after the answer is lost."""
    ours, theirs = Client(), NatsClient()
    await ours.connect(server.url)
    await theirs.connect(server.url)
    try:
        assert await Wire.of(ours) == [b"SUB", b"PING", b"PING"]
        assert await Wire.of(theirs) == [b"PING", b"SUB", b"PING"]
    finally:
        await ours.close()
        await theirs.close()


@pytest.mark.parametrize(
    ("client", "goes_on"),
    [pytest.param(Client(), False, id="ours"), pytest.param(NatsClient(), True, id="nats-py's")],
)
async def test_a_close_ends_a_reconnect_that_is_refused_in_the_same_moment(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, client: NatsClient, *, goes_on: bool
) -> None:
    """In nats-py the refusal takes the cancel's place (`asyncio.wait_for`), and it tries again for ever."""
    refusals = 0
    options: dict[str, Any] = {"reconnect_time_wait": 0.01, "max_reconnect_attempts": -1}
    await client.connect(server.url, **options)

    def reconnect() -> asyncio.Task[None]:
        return vars(client)["_reconnection_task"]

    async def refuse(**_: Any) -> NoReturn:  # noqa: ANN401 - as asyncio has it
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            tasks.start_soon(client.close)
            while not reconnect().cancelling():  # noqa: ASYNC110 - the very moment matters
                await asyncio.sleep(0)
        raise ConnectionRefusedError

    async def is_decided() -> bool:
        return reconnect().done() or refusals > 5

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    async with anyio.create_task_group() as tasks:
        server.kill()
        await until(lambda: refusals > 0)
        await until(is_decided)
    went_on = not reconnect().done()
    reconnect().cancel()

    assert went_on == goes_on
