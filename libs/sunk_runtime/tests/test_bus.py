from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from sunk_events import subjects
from sunk_events.base import event_id
from sunk_events.codec import MAX_BYTES, OversizeError, encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, ConfigError, ConflictError, NoAnswerError, PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.writer import publish

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = subjects.bucket("c1", SlurmNodeState)


def drained(node: str) -> NodeDrained:
    return NodeDrained(
        id=event_id("node_drained", node, 0),
        source="/c1/test",
        subject=node,
        time=NOW,
        data=NodeSnapshot(node=node, state="IDLE"),
    )


async def stored(bus: Bus, stream: str = "") -> dict[str, int]:
    """Return how many messages stand on each subject."""
    name = stream or subjects.fact_stream("c1")
    return (await bus.js.stream_info(name, subjects_filter=">")).state.subjects or {}


async def publish_until_acknowledged(bus: Bus, event: NodeDrained) -> None:
    while True:
        try:
            return await publish(bus, "c1", event)
        except BusUnavailableError:
            await anyio.sleep(0.05)


async def test_nothing_acknowledged_is_lost_and_nothing_is_doubled_when_the_server_is_killed(
    bus: Bus, server: NatsServer
) -> None:
    events = [drained(f"n{number}") for number in range(300)]
    bus.publish_timeout_s = 1.0

    async def publish_all() -> None:
        for event in events:
            await publish_until_acknowledged(bus, event)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish_all)
        await anyio.sleep(0.03)
        server.kill()
        server.start()
    await until(lambda: bus.reconnects == 1)

    assert await stored(bus) == {subjects.fact("c1", event): 1 for event in events}


async def test_a_connection_survives_any_number_of_server_restarts(bus: Bus, server: NatsServer) -> None:
    for times in range(1, 4):
        server.kill()
        await until(lambda: not bus.is_connected)
        server.start()
        await until(lambda: bus.is_connected)

        await publish(bus, "c1", drained(f"n{times}"))
    assert bus.reconnects == 3


async def test_a_fact_published_twice_is_stored_once(bus: Bus) -> None:
    event = drained("n1")

    sequences = {await bus.publish(subjects.fact("c1", event), encode(event), msg_id=event.id) for _ in "ab"}

    assert len(sequences) == 1
    assert await stored(bus) == {subjects.fact("c1", event): 1}


async def test_a_publish_that_was_given_up_may_arrive_later_and_is_stored_once_all_the_same(
    bus: Bus, server: NatsServer
) -> None:
    server.hang()
    with anyio.move_on_after(0.1) as given_up:
        await publish(bus, "c1", drained("n1"))
    server.resume()

    await publish(bus, "c1", drained("n1"))

    assert given_up.cancelled_caught
    assert await stored(bus) == {subjects.fact("c1", drained("n1")): 1}


async def test_a_publish_hears_at_once_that_the_connection_broke_and_is_stored_once_when_it_is_repeated(
    bus: Bus, server: NatsServer
) -> None:
    bus.publish_timeout_s = 120.0
    server.hang()
    broke = pytest.RaisesExc(BusUnavailableError, match="the connection broke")
    with anyio.fail_after(WITHIN_S), pytest.RaisesGroup(broke):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, bus, "c1", drained("n1"))
            await until(lambda: bus.waiting == 1)
            server.kill()
    server.start()

    with anyio.fail_after(WITHIN_S):
        await publish(bus, "c1", drained("n1"))

    assert await stored(bus) == {subjects.fact("c1", drained("n1")): 1}


async def test_messages_are_stored_in_the_order_of_the_calls_from_the_first_on(settings: BusSettings) -> None:
    order: list[int] = []
    async with connect(settings, "new") as bus:
        await bus.provision("c1", settings)

    async with connect(settings, "new") as bus, anyio.create_task_group() as tasks:

        async def store(number: int) -> None:
            order.append(number)
            await publish(bus, "c1", drained(f"n{number:03}"))

        async def store_one_that_came_meanwhile(number: int) -> None:
            for _ in range(number % 5):
                await checkpoint()
            await store(number)

        for number in range(200):
            tasks.start_soon(store_one_that_came_meanwhile, number)

    async with connect(settings, "look") as bus:
        found = [await subject_of(bus, sequence) for sequence in range(1, 201)]
    assert found == [subjects.fact("c1", drained(f"n{number:03}")) for number in order]


async def subject_of(bus: Bus, sequence: int) -> str:
    found = await bus.js.get_msg(subjects.fact_stream("c1"), seq=sequence)
    return found.subject or ""


async def test_a_write_on_a_stale_revision_is_refused(bus: Bus) -> None:
    subject = subjects.key_subject(BUCKET, "n1")
    first = await bus.publish(subject, b"1", expected_revision=0)
    second = await bus.publish(subject, b"2", expected_revision=first)

    for stale in (0, first):
        with pytest.raises(ConflictError):
            await bus.publish(subject, b"3", expected_revision=stale)

    assert await bus.last(subjects.bucket_stream(BUCKET), subject) is not None
    assert await bus.publish(subject, b"3", expected_revision=second) > second


async def test_what_is_no_answer_of_jetstream_is_no_acknowledgement(bus: Bus) -> None:
    errors = [b'{"error":{}}', b'{"error":{"code":"x"}}', b'{"error":"x"}']
    answers = [b"{}", b"[]", b"+OK", b"\xff", *errors]

    async def answer(message: Message) -> None:
        await bus.send(message.reply, answers[0])

    async with bus.subscribed("nobody.stores.this", answer):
        while answers:
            with pytest.raises(BusUnavailableError, match=r"nobody\.stores\.this"):
                await bus.publish("nobody.stores.this", b"")
            answers.pop(0)


async def test_what_is_too_large_is_never_sent_and_the_connection_lives(bus: Bus) -> None:
    with pytest.raises(OversizeError, match="at most 262144"):
        await bus.publish(subjects.key_subject(BUCKET, "n1"), b"x" * (MAX_BYTES + 1))

    await publish(bus, "c1", drained("n1"))
    assert (bus.is_connected, bus.reconnects) == (True, 0)


async def test_the_callers_headers_are_left_as_they_are(bus: Bus) -> None:
    headers = {"KV-Operation": "PURGE"}

    await bus.publish(subjects.key_subject(BUCKET, "n1"), b"", expected_revision=0, ttl_s=60, headers=headers)

    assert headers == {"KV-Operation": "PURGE"}


async def test_a_question_that_nobody_answers_fails_at_once(bus: Bus) -> None:
    with anyio.fail_after(WITHIN_S), pytest.raises(NoAnswerError, match="no service answers it now"):
        await bus.request("nobody.there", b"", 30.0)


async def test_a_key_that_never_was_is_none_and_a_missing_bucket_is_an_error(bus: Bus) -> None:
    subject = subjects.key_subject(BUCKET, "n1")

    assert await bus.last(subjects.bucket_stream(BUCKET), subject) is None


async def test_a_service_that_starts_before_nats_waits_for_it(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    server.start()
    server.kill()
    connected = anyio.Event()

    async def service() -> None:
        async with connect(BusSettings(url=server.url), "early"):
            connected.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service)
            await anyio.sleep(0.3)
            server.start()
            with anyio.fail_after(WITHIN_S):
                await connected.wait()
    finally:
        server.stop()


USERS = """
authorization { users: [
  {user: "syncer", password: "right", permissions: {publish: ["$JS.API.>", "sunk.ev.c1.slurm.>"],
     subscribe: "_INBOX.syncer.>"}},
] }
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats", extra=USERS) as server:
        yield server


def user(server: NatsServer, folder: Path, password: str) -> BusSettings:
    file = folder / "password"
    file.write_text(f"{password}\n")
    return BusSettings(url=server.url, user="syncer", password_file=file)


async def test_a_wrong_password_is_said_and_not_retried_for_ever(guarded: NatsServer, tmp_path: Path) -> None:
    with (
        anyio.fail_after(WITHIN_S),
        pytest.raises(PermanentError, match=r"refuses user 'syncer'.*Authorization"),
    ):
        async with connect(user(guarded, tmp_path, "wrong"), "syncer"):
            pytest.fail("connected")


async def test_a_denied_publish_is_said_at_once_and_for_ever(guarded: NatsServer, tmp_path: Path) -> None:
    async with connect(user(guarded, tmp_path, "right"), "syncer") as bus:
        bus.publish_timeout_s = 300
        with pytest.raises(PermanentError, match=r"NATS denies user 'syncer' the publish to .*n1\.locked'"):
            await bus.publish("sunk.ev.c1.lock.node.n1.locked", b"")


async def test_a_denied_question_is_said_at_once(guarded: NatsServer, tmp_path: Path) -> None:
    async with connect(user(guarded, tmp_path, "right"), "syncer") as bus:
        with pytest.raises(PermanentError, match=r"docs/security\.md"):
            await bus.request("sunk.rpc.c1.lock.node.n1.acquire", b"", 300)


async def test_a_denied_subscription_ends_who_relies_on_it(guarded: NatsServer, tmp_path: Path) -> None:
    async def receive(_: Message) -> None:
        pytest.fail("received")

    async with connect(user(guarded, tmp_path, "right"), "syncer") as bus:
        with pytest.raises(PermanentError, match=r"'syncer' the subscription to 'sunk\.rpc\.>'"):
            async with bus.subscribed("sunk.rpc.>", receive):
                await anyio.sleep_forever()


async def test_a_denial_ends_only_what_was_denied(guarded: NatsServer, tmp_path: Path) -> None:
    async with connect(user(guarded, tmp_path, "right"), "syncer") as bus:
        await bus.provision("c1", BusSettings())

        async def denied() -> None:
            with pytest.raises(PermanentError):
                await bus.publish("sunk.ev.c1.lock.node.n1.locked", b"")

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(denied)
                tasks.start_soon(publish, bus, "c1", drained(f"n{number}"))

        assert len(await stored(bus)) == 50


async def test_a_password_that_was_changed_is_taken_up(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats", extra=USERS)
    server.start()
    try:
        settings = user(server, tmp_path, "right")
        async with connect(settings, "syncer") as bus:
            server.kill()
            user(server, tmp_path, "changed")
            server = NatsServer(tmp_path / "nats", extra=USERS.replace('"right"', '"changed"'))
            server.start()
            await until(lambda: bus.reconnects == 1)
            await bus.provision("c1", settings)
    finally:
        server.kill()


async def test_a_password_that_cannot_be_read_is_an_error_at_start(tmp_path: Path) -> None:
    settings = BusSettings(user="syncer", password_file=tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"cannot read the password in .*missing: No such file"):
        async with connect(settings, "syncer"):
            pytest.fail("connected")


async def test_a_connection_that_is_closed_for_good_ends_the_process(tmp_path: Path) -> None:
    for_good = pytest.RaisesExc(PermanentError, match="for good")
    nats = NatsServer(tmp_path / "nats")
    with nats, anyio.fail_after(WITHIN_S), pytest.RaisesGroup(for_good):
        async with connect(BusSettings(url=nats.url), "test") as bus:
            await bus.provision("c1", BusSettings(url=nats.url))
            nats.kill()
            await until(lambda: not bus.is_connected)
            NatsServer(tmp_path / "nats", extra="max_payload: 1000").start()  # Smaller while we run.
            await until(lambda: bus.is_connected)
            # The client checks the payload only, the server counts the headers too.
            with pytest.raises(BusUnavailableError):
                await bus.publish(subjects.key_subject(BUCKET, "n1"), b"x" * 1000, msg_id="1" * 400)
            await anyio.sleep_forever()


@pytest.mark.parametrize("anyio_backend", [pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")])
async def test_a_socket_that_was_closed_a_moment_ago_is_a_broken_connection(bus: Bus) -> None:
    inner: Any = bus

    async def closed() -> int:
        known, client = bus.reconnects, inner._client  # noqa: SLF001 - no call closes just the socket.
        client._flusher_task.cancel()  # noqa: SLF001 - as it ends by itself when it meets the closed socket.
        client._transport._io_writer.transport.abort()  # noqa: SLF001
        await checkpoint()
        return known

    known = await closed()
    with pytest.raises(BusUnavailableError):
        await bus.send_bare(inner._client.publish("x"))  # noqa: SLF001 - as an acknowledgement does
    await until(lambda: bus.reconnects > known)
    known = await closed()
    with pytest.raises(BusUnavailableError):
        await bus.send("x", b"")
    await until(lambda: bus.reconnects > known)
    await bus.flush()
