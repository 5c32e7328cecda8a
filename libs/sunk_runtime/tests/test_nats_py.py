# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What nats-py 2.16 does on the real server that keeps us from some of its calls (ADR 0021).

A test that fails says that nats-py has mended it: its call then takes the place of ours.
"""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio
import nats
import pytest
from nats import micro
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import KeyWrongLastSequenceError
from nats.micro.request import Request

from sunk_events import subjects
from sunk_lab.nats import NatsServer
from sunk_runtime import pull as module
from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.jetstream import Bus, BusSettings
from sunk_runtime.pull import create_consumer, pulling
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

STREAM = subjects.fact_stream("c1")
LEASES = subjects.lease_bucket("c1")
NO_ACK = ConsumerConfig(ack_policy=AckPolicy.NONE)


@pytest.fixture
async def client(bus: Bus, server: NatsServer) -> AsyncGenerator[Client]:
    """Return nats-py alone, where *bus* has made our streams."""
    del bus
    client = await nats.connect(server.url, reconnect_time_wait=0.1, max_reconnect_attempts=-1)
    yield client
    await client.close()


@pytest.fixture
def js(client: Client) -> JetStreamContext:
    return client.jetstream()


async def test_kv_get_takes_a_lease_that_ended_for_an_entry_and_create_for_one_that_is_held(
    bus: Bus, js: JetStreamContext
) -> None:
    key, stream = subjects.key_subject(LEASES, "syncer"), subjects.bucket_stream(LEASES)
    await bus.publish(key, b"{}", ttl_s=1)

    async def has_ended() -> bool:
        found = await bus.last(stream, key)
        return found is not None and "Nats-Marker-Reason" in found[1].headers

    await until(has_ended)
    bucket = await js.key_value(LEASES)

    assert (await bucket.get("syncer")).value is None
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.create("syncer", b"{}", msg_ttl=1)


async def test_kv_update_drops_the_time_to_live(js: JetStreamContext) -> None:
    bucket = await js.key_value(LEASES)
    first = await bucket.create("syncer", b"{}", msg_ttl=60)
    second = await bucket.update("syncer", b"{}", last=first)

    stored = [(await js.get_msg(subjects.bucket_stream(LEASES), seq=second)).headers or {}]
    assert ["Nats-TTL" in headers for headers in stored] == [False]


async def test_publish_async_waits_for_ever_for_the_answer_of_a_server_that_was_killed(
    bus: Bus, client: Client, js: JetStreamContext, server: NatsServer
) -> None:
    server.hang()
    answer = await js.publish_async("sunk.ev.c1.x", b"1")
    server.kill()
    server.start()
    await until(lambda: client.is_connected and bus.reconnects == 1)
    await js.publish("sunk.ev.c1.x", b"2")

    assert not answer.done()


async def test_publish_fails_with_an_error_of_python_over_an_answer_that_is_none_of_jetstreams(
    bus: Bus, client: Client, js: JetStreamContext
) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"1")

    await client.subscribe("theirs", cb=answer)
    await client.flush()

    with pytest.raises(TypeError):
        await js.publish("theirs", b"1")
    with pytest.raises(BusUnavailableError):
        await bus.publish("theirs", b"1")


async def test_an_ordered_consumer_of_a_stream_that_was_made_anew_waits_for_its_old_sequence(
    bus: Bus, js: JetStreamContext, settings: BusSettings
) -> None:
    seen = list[str]()

    async def see(message: Msg) -> None:
        seen.append(message.subject)

    async def is_followed() -> bool:
        return bool(await bus.js.consumers_info(STREAM))

    config = ConsumerConfig(mem_storage=True)
    await js.subscribe(
        subjects.facts("c1"), cb=see, stream=STREAM, config=config, ordered_consumer=True, idle_heartbeat=2
    )
    for number in range(3):
        await bus.publish(f"sunk.ev.c1.{number}", b"")
    await until(lambda: len(seen) == 3)

    await bus.js.delete_stream(STREAM)
    await bus.provision("c1", settings)
    await bus.publish("sunk.ev.c1.new", b"")
    await until(is_followed)
    for number in range(2, 5):
        await bus.publish(f"sunk.ev.c1.{number}", b"")
    await until(lambda: seen[-1] == "sunk.ev.c1.4")

    assert "sunk.ev.c1.new" not in seen


async def test_an_ordered_consumer_ends_nats_pys_reader_over_newer_acknowledgement_subjects(
    tmp_path: Path,
) -> None:
    async def see(_: Msg) -> None: ...

    with NatsServer(tmp_path / "newer", extra="feature_flags { js_ack_fc_v2: true }") as server:
        client = await nats.connect(server.url, error_cb=see)
        js, impatient = client.jetstream(timeout=60), client.jetstream(timeout=1)
        await js.add_stream(name="S", subjects=["s"])
        await js.subscribe("s", cb=see, stream="S", ordered_consumer=True)

        async def is_deaf() -> bool:
            try:
                await impatient.stream_info("S")
            except TimeoutError:
                return True
            return False

        await client.publish("s", b"1")
        await until(is_deaf)
        assert client.is_connected
        await client.close()


async def test_fetch_takes_a_consumer_that_was_removed_for_one_that_has_nothing(
    bus: Bus, js: JetStreamContext
) -> None:
    name, _ = await create_consumer(bus, STREAM, NO_ACK)
    reader = await js.pull_subscribe_bind(name, STREAM)

    found = list[object]()

    async def fetch() -> None:
        found.append(await reader.fetch(10, timeout=60, heartbeat=0.2))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetch)
        await until(partial(is_asked, bus, name))
        await bus.js.delete_consumer(STREAM, name)
        await until(lambda: found == [[]])


async def test_fetch_does_not_miss_heartbeats(
    bus: Bus, js: JetStreamContext, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(module, "DEAD_S", 0.5)
    theirs, _ = await create_consumer(bus, STREAM, NO_ACK)
    ours, _ = await create_consumer(bus, STREAM, NO_ACK)
    reader = await js.pull_subscribe_bind(theirs, STREAM)
    is_over = anyio.Event()

    async def fetch() -> None:
        with pytest.raises(TimeoutError):
            await reader.fetch(10, timeout=60, heartbeat=0.2)
        is_over.set()

    async with pulling(bus, STREAM, ours) as pull, anyio.create_task_group() as tasks:
        tasks.start_soon(fetch)
        await until(partial(is_asked, bus, theirs))
        server.hang()
        with pytest.raises(BusUnavailableError, match="no message for"):
            await followed(pull)
        assert not is_over.is_set()
        server.resume()
        tasks.cancel_scope.cancel()


async def followed(pull: module.Pull) -> None:
    while True:
        await pull.batch()


async def is_asked(bus: Bus, consumer: str) -> bool:
    return bool((await bus.js.consumer_info(STREAM, consumer)).num_waiting)


async def test_an_endpoint_of_a_micro_service_answers_one_question_after_the_other_and_sends_its_exception(
    client: Client,
) -> None:
    held, asked = anyio.Event(), list[bytes]()

    async def answer(request: Request) -> None:
        asked.append(request.data)
        if request.data == b"fails":
            raise ValueError("of ours")
        await held.wait()
        await request.respond(b"answered")

    service = await micro.add_service(client, name="locks", version="1.0.0")
    await service.add_endpoint(name="ask", handler=answer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.request, "ask", b"waits", timeout=60))
        await until(lambda: asked == [b"waits"])
        with pytest.raises(TimeoutError):
            await client.request("ask", b"fails", timeout=0.5)
        held.set()
    refused = await client.request("ask", b"fails", timeout=60)
    await service.stop()

    assert refused.headers is not None
    assert "of ours" in refused.headers["Nats-Service-Error"]
