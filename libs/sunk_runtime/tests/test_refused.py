"""What JetStream, or another in its place, says where it did not do what was asked."""

from pathlib import Path

import anyio
import pytest

from sunk_events import subjects
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_runtime.errors import BusUnavailableError, FullError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.testing import WITHIN_S

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"null", b"{}", b'{"type":1}', b'{"error":"x"}', b'{"error":{}}']
)
async def test_what_is_no_answer_of_jetstreams_api_is_none(bus: Bus, data: bytes) -> None:
    bus.js._prefix = "THEIRS"  # noqa: SLF001 - at JetStream's own it answers  # pyright: ignore[reportPrivateUsage]

    async def answer(message: Message) -> None:
        await bus.send(message.reply, data)

    async with bus.subscribed("THEIRS.>", answer):
        with pytest.raises(BusUnavailableError):
            await bus.js.stream_info(subjects.fact_stream("c1"))


async def test_a_stream_that_is_full_is_said_at_once_however_long_a_leader_is_waited_for(bus: Bus) -> None:
    await bus.js.add_stream(name="small", subjects=["small"], max_bytes=200, discard="new")
    bus.publish_retry_s = 3600

    async def fill() -> None:
        while True:
            await bus.publish("small", b"x" * 50)

    with anyio.fail_after(WITHIN_S), pytest.raises(FullError):
        await fill()


async def test_a_stream_whose_queue_is_full_takes_it_later(tmp_path: Path) -> None:
    folder, met = tmp_path / "nats", list[BusUnavailableError]()
    narrow = f'jetstream {{ store_dir: "{folder}/store", max_buffered_msgs: 1 }}'

    with NatsServer(folder, extra=narrow) as server:
        async with connect(BusSettings(url=server.url), "test") as bus, anyio.create_task_group() as tasks:
            await bus.js.add_stream(name="S", subjects=["s"])

            async def publish() -> None:
                try:
                    await bus.publish("s", b"x" * 1000)
                except BusUnavailableError as error:
                    met.append(error)

            for _ in range(2000):
                tasks.start_soon(publish)

    assert any("too many requests (10167)" in str(error) for error in met)


@pytest.mark.lab
@pytest.mark.faults
async def test_a_fact_whose_first_copy_waits_for_the_other_servers_is_to_be_published_again(
    tmp_path: Path,
) -> None:
    with NatsCluster(tmp_path / "nats") as cluster:
        async with connect(BusSettings(url=cluster.url), "test") as bus:
            await bus.js.add_stream(name="S", subjects=["s"], num_replicas=3)
            await bus.publish("s", b"")
            led = (await bus.js.stream_info("S")).cluster
            assert led is not None
        leader = cluster.servers[int(str(led.leader).removeprefix("n"))]
        async with connect(BusSettings(url=leader.url), "test") as bus:
            bus.publish_timeout_s = 0.5
            others = [server for server in cluster.servers if server is not leader]
            for server in others:
                server.hang()
            with pytest.raises(BusUnavailableError, match="TimeoutError"):
                await bus.publish("s", b"", msg_id="same")

            bus.publish_timeout_s = 5.0  # A leader of one that hears no other steps down after ten.
            with pytest.raises(BusUnavailableError, match="10158"):
                await bus.publish("s", b"", msg_id="same")

            for server in others:
                server.resume()
