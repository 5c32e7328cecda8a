"""The bus grows from one server to three: every stream, its sequences and its consumers are kept."""

import runpy
import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from sunk_events import subjects
from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_runtime.errors import PermanentError, TransientError
from sunk_runtime.growing.config import GrowSettings
from sunk_runtime.growing.copying import grow as grow_once
from sunk_runtime.growing.decision import ConsumerSeen, Step, StreamSeen, next_step, no_space
from sunk_runtime.growing.main import run
from sunk_runtime.growing.snapshots import names_of, put, seen
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until

pytestmark = [pytest.mark.faults, pytest.mark.anyio]
STORE: Final[dict[str, Any]] = runpy.run_path(str(Path(__file__).parents[2] / "helm/sunk/files/store.py"))
"""Of a script that is in no package, so its types are not known here."""
FACTS: Final = subjects.fact_stream("c1")
BUCKET: Final = subjects.bucket("c1", SlurmNodeState)
NODES: Final = subjects.bucket_stream(BUCKET)
TEAM: Final = "team"
FACT: Final = "sunk.ev.c1.slurm.node.n1.drained"
STORED: Final = 3000


@pytest.fixture
def alone(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "one") as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[NatsCluster]:
    with NatsCluster(tmp_path / "three") as servers:
        yield servers


@pytest.fixture
async def one(alone: NatsServer) -> AsyncGenerator[Bus]:
    """One server with facts, states, a lease and another team's consumer in the middle of its work."""
    settings = BusSettings(url=alone.url)
    async with connect(settings, "one") as bus:
        await bus.provision("c1", settings)
        await fill(bus)
        yield bus


@pytest.fixture
async def three(cluster: NatsCluster) -> AsyncGenerator[Bus]:
    async with connect(BusSettings(url=cluster.url), "three") as bus:
        yield bus


async def fill(bus: Bus) -> None:
    under_way = anyio.Semaphore(50)  # The server writes each to its disk, and a publish waits seconds only.

    async def publish(subject: str) -> None:
        async with under_way:
            await bus.publish(subject, b"x" * 300)

    async with anyio.create_task_group() as tasks:
        for number in range(STORED):
            tasks.start_soon(publish, f"sunk.ev.c1.slurm.node.n{number % 100}.drained")
    for number in range(20):
        await bus.publish(subjects.key_subject(BUCKET, f"n{number % 10}"), b"{}")
    lease = subjects.key_subject(subjects.lease_bucket("c1"), subjects.LEADER_KEY)
    await bus.publish(lease, b"{}", ttl_s=2)
    # What is not acknowledged comes again after this time, half a minute by default: not within a test.
    config = ConsumerConfig(durable_name=TEAM, ack_policy=AckPolicy.EXPLICIT, ack_wait=3600.0)
    await bus.js.add_consumer(FACTS, config)
    team = await bus.js.pull_subscribe_bind(consumer=TEAM, stream=FACTS)
    for message in await team.fetch(7, timeout=60):
        await message.ack_sync()
    await team.fetch(5, timeout=60)
    await team.unsubscribe()


async def grow(one: Bus, three: Bus, *, volume_mib: int = 0) -> None:
    """Copy until it is done, as `run` does: a lease that ends meanwhile has one message more on one side."""
    while True:
        try:
            await grow_once(one, three, volume_mib=volume_mib)
        except TransientError:
            continue
        return


async def are_equal(one: Bus, three: Bus) -> bool:
    return {name: await seen(one, name) for name in await names_of(one)} == {
        name: await seen(three, name) for name in await names_of(three) if name != subjects.GROWN_STREAM
    }


async def begin_and_break_off(one: Bus, three: Bus) -> None:
    """Leave behind what a copy that was killed after its first chunk leaves behind."""
    inbox = one.inbox()
    send, receive = anyio.create_memory_object_stream[bytes](100)

    async def take(message: Any) -> None:  # noqa: ANN401 - nats-py's.
        await send.send(message.data)

    async with send, receive, one.subscribed(inbox, take):
        begun = await one.js.snapshot(FACTS, inbox)
        deliver_to = await three.js.restore(FACTS, begun["config"] | {"num_replicas": 3}, begun["state"])
        await put(three, deliver_to, await receive.receive(), 30)


async def test_every_stream_has_its_messages_sequences_and_consumers_on_three_servers(
    one: Bus, three: Bus
) -> None:
    await grow(one, three)

    assert await are_equal(one, three)
    facts = await seen(three, FACTS)
    assert (facts.messages, facts.last_seq) == (STORED, STORED)
    team = facts.consumers[TEAM]
    assert (team.delivered, team.acknowledged, team.unacknowledged) == (12, 7, 5)
    for name in await names_of(three):
        info = await three.js.stream_info(name)
        assert info.config.num_replicas == 3
    pull = await three.js.pull_subscribe_bind(consumer=TEAM, stream=FACTS)
    (message,) = await pull.fetch(1, timeout=60)
    assert message.metadata.sequence.stream == 13


async def test_services_go_on_with_the_revisions_that_they_know_whether_they_are_set_to_one_or_three(
    one: Bus, three: Bus
) -> None:
    key = subjects.key_subject(BUCKET, "n3")
    known = await one.last(NODES, key)
    assert known is not None
    await grow(one, three)

    for replicas in (1, 3):
        settings = BusSettings(replicas=replicas)
        await three.provision("c1", settings)
        assert (await three.js.stream_info(NODES)).config.num_replicas == 3
    revision = await three.publish(key, b"{}", expected_revision=known[0])
    assert revision == (await seen(one, NODES)).last_seq + 1
    assert await three.publish(FACT, b"next") == STORED + 1


async def test_a_lease_ends_on_three_servers_as_on_one(one: Bus, three: Bus) -> None:
    await grow(one, three)
    stream = subjects.bucket_stream(subjects.lease_bucket("c1"))
    lease = subjects.key_subject(subjects.lease_bucket("c1"), subjects.LEADER_KEY)

    async def has_ended() -> bool:
        found = await three.last(stream, lease)
        return found is None or "Nats-Marker-Reason" in found[1].headers

    await until(has_ended)


async def test_to_copy_again_changes_nothing(one: Bus, three: Bus) -> None:
    await grow(one, three)
    made = [(await three.js.stream_info(name)).created for name in await names_of(one)]

    await grow(one, three)

    assert [(await three.js.stream_info(name)).created for name in await names_of(one)] == made
    assert subjects.GROWN_STREAM in await names_of(three)


@pytest.mark.parametrize("is_given_up", [False, True], ids=["at once", "after JetStream gave it up"])
async def test_a_copy_that_broke_off_is_made_by_the_next_try(
    one: Bus, three: Bus, alone: NatsServer, cluster: NatsCluster, *, is_given_up: bool
) -> None:
    await begin_and_break_off(one, three)
    if is_given_up:

        async def is_an_empty_stream() -> bool:
            try:
                return FACTS in await names_of(three)
            except TransientError:
                return False

        await until(is_an_empty_stream)

    await run(GrowSettings(source=alone.url, target=cluster.url))

    assert await are_equal(one, three)


async def test_what_the_one_server_got_after_a_growth_that_was_given_up_is_copied_too(
    one: Bus, three: Bus
) -> None:
    await grow(one, three)
    await one.publish(FACT, b"later")

    await grow(one, three)

    assert await are_equal(one, three)
    assert (await seen(three, FACTS)).last_seq == STORED + 1
    assert subjects.GROWN_STREAM in await names_of(three)


async def test_what_a_client_wrote_to_the_three_is_not_thrown_away(
    one: Bus, three: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(one, three)
    monkeypatch.setattr("sunk_runtime.growing.copying.EQUAL_S", 0.1)
    await three.publish(FACT, b"precious")

    with pytest.raises(PermanentError, match=rf"stream {FACTS}: the three servers .* up to {STORED + 1}"):
        await grow(one, three)

    assert subjects.GROWN_STREAM not in await names_of(three)
    assert (await seen(three, FACTS)).last_seq == STORED + 1


async def test_what_the_settings_of_a_stream_became_is_copied_too(
    one: Bus, three: Bus, alone: NatsServer, cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(one, three)
    monkeypatch.setattr("sunk_runtime.growing.copying.EQUAL_S", 0.1)
    facts = (await one.js.stream_info(FACTS)).config
    facts.max_age = 12345.0
    await one.js.update_stream(facts)

    await run(GrowSettings(source=alone.url, target=cluster.url))

    assert (await three.js.stream_info(FACTS)).config.max_age == 12345.0


async def test_what_the_settings_of_a_consumer_became_is_copied_too(
    one: Bus, three: Bus, alone: NatsServer, cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(one, three)
    monkeypatch.setattr("sunk_runtime.growing.copying.EQUAL_S", 0.1)
    team = ConsumerConfig(durable_name=TEAM, ack_policy=AckPolicy.EXPLICIT, ack_wait=77.0)
    await one.js.add_consumer(FACTS, team)

    await run(GrowSettings(source=alone.url, target=cluster.url))

    assert (await three.js.consumer_info(FACTS, TEAM)).config.ack_wait == 77.0


async def test_a_server_without_streams_is_not_taken_for_the_one(tmp_path: Path, three: Bus) -> None:
    with NatsServer(tmp_path / "empty") as server:
        async with connect(BusSettings(url=server.url), "empty") as empty:
            with pytest.raises(PermanentError, match="the one server has no streams"):
                await grow(empty, three)

    assert await names_of(three) == []


async def test_a_stream_that_the_one_server_has_no_more_does_not_come_back(one: Bus, three: Bus) -> None:
    await one.js.add_stream(name="TEAMS", subjects=["teams"])
    await grow(one, three)
    await one.js.delete_stream("TEAMS")

    with pytest.raises(PermanentError, match=r"the three servers have stream TEAMS.*delete the claims"):
        await grow(one, three)

    assert subjects.GROWN_STREAM not in await names_of(three)  # Else the three servers would serve it.


async def test_a_server_may_take_its_time_to_check_a_large_stream(
    one: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_runtime.context.TIMEOUT_S", 1e-9)  # Every answer comes later.

    begun = await one.js.snapshot(FACTS, one.inbox())

    assert begun["state"]["messages"] == STORED


async def test_it_waits_for_the_third_server(
    one: Bus, alone: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = NatsCluster(tmp_path / "late")
    first, second, third = servers.servers
    with first, second:  # Two that have never seen the third choose no leader.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, GrowSettings(source=alone.url, target=servers.url))
            await until(lambda: "not yet" in caplog.messages)
            third.start()
        async with connect(BusSettings(url=servers.url), "looks") as three:
            assert await are_equal(one, three)
        third.kill()


@pytest.mark.parametrize(
    ("here", "there", "step"),
    [
        (StreamSeen(), None, Step.COPY),
        (StreamSeen(messages=1, first_seq=1, last_seq=1), StreamSeen(), Step.REPLACE),
        (
            StreamSeen(messages=1, first_seq=3, last_seq=3),
            StreamSeen(messages=1, first_seq=2, last_seq=2),
            Step.REPLACE,
        ),
        (StreamSeen(), StreamSeen(messages=1, first_seq=1, last_seq=1), Step.REFUSE),
        (StreamSeen(last_seq=1), StreamSeen(last_seq=1), Step.NOTHING),
        (StreamSeen(consumers={"a": ConsumerSeen(1, 1, 0)}), StreamSeen(), Step.REPLACE),
        (StreamSeen(settings={"max_age": 2}), StreamSeen(settings={"max_age": 1}), Step.REPLACE),
    ],
)
def test_what_is_still_to_do(here: StreamSeen, there: StreamSeen | None, step: Step) -> None:
    assert next_step(here, there) is step


@pytest.mark.parametrize(("used_mib", "fits"), [(0, True), (46, True), (47, False), (100, False)])
def test_the_streams_must_have_space_twice(used_mib: int, *, fits: bool) -> None:
    assert (no_space(used_mib << 20, 103) is None) is fits


async def test_without_that_space_nothing_is_copied(one: Bus, three: Bus) -> None:
    with pytest.raises(PermanentError, match="hold them twice for some time"):
        await grow(one, three, volume_mib=1)

    assert await names_of(three) == []


def settle(mode: str, *volumes: Path, first: str = f"{socket.gethostname()}:1") -> list[int]:
    """Run what each server's Pod runs before NATS starts, by default as *first*; return the statuses."""
    return [STORE["main"](mode, str(volume), first) for volume in volumes]


async def test_the_three_servers_serve_the_copy_from_its_place_and_the_former_streams_are_kept(
    one: Bus, three: Bus, alone: NatsServer, cluster: NatsCluster, tmp_path: Path
) -> None:
    await grow(one, three)
    before = {name: await seen(three, name) for name in await names_of(three)}
    alone.stop()
    cluster.stop()
    stores = [tmp_path / f"three/n{number}/store" for number in range(3)]
    volumes = [tmp_path / f"volume{number}" for number in range(3)]
    for store, volume in zip(stores, volumes, strict=True):
        volume.mkdir()
        store.rename(volume / "cluster")
        (volume / "jetstream").mkdir()  # As a server leaves it that has no streams.
    (volumes[0] / "jetstream").rmdir()
    (tmp_path / "one/store/jetstream").rename(volumes[0] / "jetstream")

    assert settle("growing", *volumes) == [0, 0, 0]
    assert settle("three", *volumes) == [0, 0, 0]
    assert settle("three", *volumes) == [0, 0, 0]  # Each later start.
    assert settle("growing", *volumes) == [1, 1, 1]
    assert settle("one", *volumes) == [1, 1, 1]

    assert [[one.name for one in sorted(volume.iterdir())] for volume in volumes] == [
        ["jetstream", "standalone"],
        ["jetstream"],
        ["jetstream"],
    ]
    assert (volumes[0] / "standalone/$G/streams" / FACTS).is_dir()
    for store, volume in zip(stores, volumes, strict=True):
        volume.rename(store)
    cluster.start()

    async def are_as_before() -> bool:
        try:
            return {name: await seen(three, name) for name in await names_of(three)} == before
        except TransientError:
            return False

    await until(are_as_before)


@pytest.mark.parametrize(
    ("has", "mode", "why"),
    [
        (["jetstream/$G/streams/A"], "one", ""),
        (["jetstream/$G/streams/A", "cluster/jetstream/$G/streams/SUNK_GROWN"], "one", ""),
        (["jetstream/$G/streams/A", "given-up/jetstream"], "one", ""),
        (["jetstream/$SYS/_js_/_meta_", "jetstream/$G/streams/A"], "one", "three servers have used it"),
        (["jetstream/$G/streams/A"], "growing", ""),
        (["jetstream/$G/streams/A"], "three", "set nats.growing first"),
        (["jetstream/$G/streams/A", "cluster/jetstream/$G/streams/A"], "three", "not all streams are copied"),
        (["jetstream/$G/streams/A", "cluster/jetstream/$G/streams/SUNK_GROWN"], "three", ""),
        (
            ["jetstream/$G/streams/A", "cluster/jetstream/$G/streams/SUNK_GROWN", "standalone"],
            "three",
            "already exists",
        ),
        (["standalone", "cluster/jetstream/$G/streams/SUNK_GROWN"], "three", ""),
        (["standalone", "jetstream/$SYS/_js_/_meta_", "cluster"], "three", ""),
        (["jetstream/$SYS/_js_/_meta_", "jetstream/$G/streams/A"], "three", ""),
        (["jetstream/$SYS/_js_/_meta_"], "growing", "three servers have used it"),
        ([], "one", ""),
        ([], "growing", ""),
        ([], "three", ""),
    ],
    ids=[
        "one",
        "given up",
        "broken off while the copy is removed",
        "of three, to be one",
        "the one server",
        "nothing copied",
        "part copied",
        "all copied",
        "grown twice",
        "broken off between two moves",
        "broken off after them",
        "of three",
        "of three, to grow",
        "new and one",
        "new, to grow",
        "new",
    ],
)
def test_a_server_starts_only_on_a_volume_that_has_what_it_is_to_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has: list[str], mode: str, why: str
) -> None:
    for folder in has:
        (tmp_path / folder).mkdir(parents=True)

    (status,) = settle(mode, tmp_path)

    assert (status, why in capsys.readouterr().out) == (int(bool(why)), True)
    if not why and mode != "growing":
        assert not {"cluster", "given-up"} & {one.name for one in tmp_path.iterdir()}
    if not why and mode == "one":
        assert [one.name for one in tmp_path.iterdir()] == ["jetstream"][: len(has)]


async def test_one_server_does_not_start_where_it_would_not_see_the_streams_of_three(
    one: Bus, three: Bus, cluster: NatsCluster, tmp_path: Path
) -> None:
    await grow(one, three)
    names = await names_of(three)
    cluster.stop()
    with NatsServer(tmp_path / "three/n0") as server:  # What a rollback to one server would start.
        async with connect(BusSettings(url=server.url), "back") as back:
            assert await names_of(back) == []
    assert names

    assert settle("one", tmp_path / "three/n0/store") == [1]


def test_an_old_copy_is_not_served_beside_a_first_server_that_went_on_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster/jetstream/$G/streams/SUNK_GROWN").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        first = f"127.0.0.1:{listens.getsockname()[1]}"

    assert settle("three", tmp_path, first=first) == [1]
    assert "the first server is not one of the three" in capsys.readouterr().out
    assert (tmp_path / "cluster").exists()

    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        assert settle("three", tmp_path, first=first) == [0]
    assert (tmp_path / "jetstream/$G/streams/SUNK_GROWN").exists()
