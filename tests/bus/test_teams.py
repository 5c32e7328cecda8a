# pyright: reportUnknownMemberType=false
"""What a program with the password of another team can do to our bus: on two real nats-servers.

The server of other teams mirrors ours (ADR 0034). Each attack is tried there, as a team's user.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError

from sunk_events import subjects
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.dead import DeadLetter
from sunk_events.locks import LockState
from sunk_events.permissions import DOMAIN_API, KEEPER, configuration, mirrored, streams, users
from sunk_events.teams import (
    SUBSCRIBER,
    Limits,
    link_configuration,
)
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_lab.ports import free_ports
from sunk_lab.processes import wait_for
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, BusSettings, Message
from sunk_runtime.mirroring.decision import Seen, Step, Stored, next_step
from sunk_runtime.testing import WITHIN_S, until
from sunk_trials.stage import tried
from sunk_trials.teams import (
    CLUSTER,
    FACT,
    FACTS,
    KEY,
    LOCKS,
    OTHER,
    PASSWORDS,
    TEAM_USERS,
    Servers,
    has,
    last_seq,
    mirror,
    team_on,
    team_server,
)

pytestmark = pytest.mark.anyio

INBOX: Final = f"{subjects.inbox('syncer-c1')}.x"


@pytest.fixture
def servers(tmp_path: Path) -> Generator[Servers]:
    made = Servers(tmp_path)
    with made.ours, made.theirs:
        yield made


async def overwrite_by_reply(team: Client) -> None:
    """Ask for a stored message, and name a lock's key as where the answer goes."""
    await team.publish(f"$JS.API.STREAM.MSG.GET.{LOCKS}", b'{"seq": 1}', reply=KEY)
    await team.request(f"$JS.API.STREAM.INFO.{LOCKS}", timeout=WITHIN_S)  # The one before was answered too.


async def overwrite_by_delivery(team: Client, deliver_to: str = KEY) -> None:
    """Have a consumer deliver facts to a lock's key."""
    config = ConsumerConfig(
        durable_name=SUBSCRIBER,
        deliver_subject=deliver_to,
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.ALL,
    )
    await team.jetstream().add_consumer(FACTS, config)


@pytest.fixture
def one_server(tmp_path: Path) -> Generator[NatsServer]:
    """Give a server on which teams that may read are users next to the services, as they once were."""
    extra = configuration((*users([CLUSTER]), *TEAM_USERS), PASSWORDS)
    with NatsServer(tmp_path / "one", extra=extra) as server:
        yield server


async def test_on_the_services_server_a_team_that_may_read_overwrites_a_lock(
    one_server: NatsServer, tmp_path: Path
) -> None:
    # NATS does not check a reply subject. That is why teams are no users of our server.
    async with Servers(tmp_path).bus(one_server, "admin") as admin:
        await admin.provision(CLUSTER, BusSettings())
        await admin.publish(KEY, b"locked")
        async with team_on(one_server) as team:
            await overwrite_by_reply(team)

        await until(lambda: is_overwritten(admin))


async def test_on_the_services_server_a_team_that_may_read_sends_to_a_services_inbox(
    one_server: NatsServer, tmp_path: Path
) -> None:
    # Nor does it check where a consumer delivers.
    servers = Servers(tmp_path)
    async with servers.bus(one_server, "admin") as admin, servers.bus(one_server, "syncer-c1") as syncer:
        await admin.provision(CLUSTER, BusSettings())
        await admin.publish(FACT, b"{}")
        async with heard(syncer, INBOX) as came, team_on(one_server) as team:
            await overwrite_by_delivery(team, INBOX)

            await until(lambda: came == [FACT])


async def is_overwritten(admin: Bus) -> bool:
    found = await admin.last(LOCKS, KEY)
    return found is None or found[1].data != b"locked"


async def test_a_team_cannot_have_jetstream_write_a_key(servers: Servers) -> None:
    async with servers.mirrored() as (admin, keeper), heard(admin) as came, servers.team() as team:
        await overwrite_by_reply(team)
        await overwrite_by_delivery(team)
        await settled(admin, keeper)

        assert KEY not in came
        assert not await is_overwritten(admin)


async def test_a_team_cannot_have_jetstream_send_to_a_service(servers: Servers) -> None:
    async with (
        servers.mirrored() as (admin, keeper),
        servers.bus(servers.ours, "syncer-c1") as syncer,
        heard(syncer, INBOX) as came,
        servers.team() as team,
    ):
        await overwrite_by_delivery(team, INBOX)
        await team.publish(f"$JS.API.STREAM.MSG.GET.{LOCKS}", b'{"seq": 1}', reply=INBOX)
        await team.request(f"$JS.API.STREAM.INFO.{LOCKS}", timeout=WITHIN_S)
        await settled(admin, keeper)
        await syncer.flush()

        assert came == []


async def test_a_team_cannot_have_jetstream_call_ours(servers: Servers) -> None:
    # An answer of JetStream is JSON that names a stream and settings, as a call to make a consumer is.
    call = f"{DOMAIN_API}.CONSUMER.CREATE.{FACTS}"
    async with servers.mirrored() as (admin, keeper), servers.team() as team:
        before = await consumers(admin)
        await overwrite_by_delivery(team)
        for asked in (f"CONSUMER.INFO.{FACTS}.{SUBSCRIBER}", f"STREAM.INFO.{FACTS}"):
            await team.publish(f"$JS.API.{asked}", b"", reply=call)
        await team.publish(f"$JS.API.STREAM.MSG.GET.{LOCKS}", b'{"seq": 1}', reply=call)
        await settled(admin, keeper)

        assert await consumers(admin) == before
        assert not await is_overwritten(admin)


async def test_a_team_publishes_nothing_that_reaches_us(servers: Servers) -> None:
    tried = [
        *(some(subjects.facts(CLUSTER, kind)) for kind in EVENTS if kind is not DeadLetter),
        *(subjects.key_subject(subjects.bucket(CLUSTER, kind), "n1") for kind in STATES),
        *(some(subjects.questions(CLUSTER, kind)) for kind in REQUESTS),
        *(f"{api}.STREAM.{verb}.{name}" for api in APIS for verb in CHANGES for name in streams(CLUSTER)),
        *(f"{api}.CONSUMER.CREATE.{name}.other" for api in APIS for name in streams(CLUSTER)),
        *(f"{DOMAIN_API}.CONSUMER.CREATE.{name}" for name in streams(CLUSTER)),
        *(f"{subjects.inbox(user.name)}.x" for user in users([CLUSTER])),
        "$JS.M.x",
        "anything",
    ]
    async with servers.mirrored() as (admin, keeper), heard(admin) as came, servers.team() as team:
        for subject in tried:
            await team.publish(subject, b"{}")
        await team.flush(timeout=60)
        await settled(admin, keeper)

        assert [subject for subject in came if subject in tried] == []
        assert {name: await last_seq(keeper, name) for name in (FACTS, LOCKS)} == {FACTS: 1, LOCKS: 1}


APIS: Final = ("$JS.API", DOMAIN_API)
CHANGES: Final = ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE")


async def test_a_team_reads_no_leases_dead_letters_or_answers(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _), servers.team() as team:
        got: list[str] = []

        async def note(message: Msg) -> None:
            got.append(message.subject)

        for subject in ("sunk.rpc.>", "sunk.dlq.>", "$KV.>", "$JS.>", "_INBOX.>", ">", "sunk.ev.>"):
            await team.subscribe(subject, cb=note)
        await team.flush(timeout=60)
        unseen = (subjects.key_subject(subjects.lease_bucket(CLUSTER), "syncer"), "sunk.dlq.c1.syncer", KEY)
        for subject in unseen:
            await admin.publish(subject, b"1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_until, admin, lambda: FACT in got)

        assert set(got) == {FACT}
        for stream in (subjects.bucket_stream(subjects.lease_bucket(CLUSTER)), subjects.DEAD_LETTER_STREAM):
            with pytest.raises((NatsError, TimeoutError)):
                await team.jetstream(timeout=1).stream_info(stream)


async def publish_until(admin: Bus, is_there: Callable[[], bool]) -> None:
    """Publish a fact again and again: whoever just subscribed hears the next one, at the latest."""
    while not is_there():
        await admin.publish(FACT, b"{}")
        await anyio.sleep(0.05)


async def test_a_team_makes_one_consumer_of_a_stream_and_takes_no_room_from_services(tmp_path: Path) -> None:
    made = Servers(tmp_path, Limits(consumers=1))
    with made.ours, made.theirs:
        async with made.mirrored() as (admin, _), made.team() as team, made.team(OTHER) as other:
            before = await consumers(admin)
            for stream in mirrored(CLUSTER):
                await team.jetstream().add_consumer(stream, ConsumerConfig(name=SUBSCRIBER))
            with pytest.raises((NatsError, TimeoutError)):
                await team.jetstream(timeout=1).add_consumer(FACTS, ConsumerConfig(name="another"))
            with pytest.raises(APIError, match="maximum consumers limit reached"):
                await other.jetstream().add_consumer(FACTS, ConsumerConfig(name=OTHER))

            assert await consumers(admin) == before


async def test_teams_connections_count_against_their_own_limit(tmp_path: Path) -> None:
    made = Servers(tmp_path, Limits(connections=5))
    with made.ours, made.theirs:
        async with made.mirrored(), AsyncExitStack() as open_ones:
            await open_until_refused(made, open_ones)
            async with made.bus(made.ours, "syncer-c1") as syncer:
                await syncer.flush()


async def open_until_refused(made: Servers, open_ones: AsyncExitStack) -> None:
    try:
        for _ in range(6):
            await open_ones.enter_async_context(made.team())
    except NatsError as error:
        assert "maximum account active connections exceeded" in str(error)  # noqa: PT017 - which one varies.
    else:
        pytest.fail("all connected")


async def test_a_team_follows_facts_and_states_as_before(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _), servers.team() as team:
        bucket = await team.jetstream().key_value(subjects.bucket(CLUSTER, LockState))
        assert (await bucket.get("n1")).value == b"locked"
        facts = await team.jetstream().pull_subscribe(subjects.facts(CLUSTER), SUBSCRIBER, FACTS)
        (message,) = await facts.fetch(timeout=WITHIN_S)
        assert message.subject == FACT
        await message.ack()
        await admin.publish(FACT, b'{"second": 1}')
        (message,) = await facts.fetch(timeout=WITHIN_S)
        assert message.data == b'{"second": 1}'


async def test_the_link_takes_no_stream_of_ours_away(tmp_path: Path) -> None:
    made = Servers(tmp_path)
    with made.without_link as before:
        async with made.bus(before, "admin") as admin:
            await admin.provision(CLUSTER, BusSettings())
            await admin.publish(KEY, b"locked")
            await admin.publish(FACT, b"{}")
            await admin.js.add_consumer(FACTS, ConsumerConfig(durable_name="metrics-exporter-facts"))
            had = await contents(admin)
    with made.ours, made.theirs:
        async with made.mirrored() as (admin, keeper):
            now = await contents(admin)
            assert set(now) == set(had)
            assert now[FACTS][1:] == had[FACTS][1:] == ({"metrics-exporter-facts"},)
            assert (await keeper.last(FACTS, FACT)) is not None


async def test_three_servers_get_the_link_one_after_another_and_keep_their_streams(tmp_path: Path) -> None:
    extra, port = configuration(users([CLUSTER]), PASSWORDS), free_ports(3)
    made = Servers(tmp_path)
    before = NatsCluster(tmp_path / "three", extra=extra)
    doors = [link_configuration(f"127.0.0.1:{port + number}") for number in range(3)]
    after = NatsCluster(tmp_path / "three", extra=extra, each=doors)
    theirs = team_server(tmp_path, port)
    three = BusSettings(replicas=3)
    with before, theirs:
        async with made.bus(before, "admin") as admin, made.bus(theirs, KEEPER) as keeper:
            await admin.provision(CLUSTER, three)
            await admin.publish(FACT, b"{}")
            for number in range(3):
                before.servers[number].stop()
                after.servers[number].start()
                wait_for("a leader", after.leader)
                await until(lambda: is_published(admin, b"locked"))
            now = await tried(lambda: contents(admin), within_s=WITHIN_S)
            assert set(now) == set(streams(CLUSTER))
            assert now[FACTS][0] == 1
            await mirror(keeper)
            await until(lambda: is_mirrored(keeper, b"locked"))


async def is_published(admin: Bus, data: bytes) -> bool:
    try:
        await admin.publish(KEY, data)
    except TransientError:
        return False
    return True


async def contents(admin: Bus) -> dict[str, tuple[int, set[str]]]:
    found: dict[str, tuple[int, set[str]]] = {}
    for name in streams(CLUSTER):
        info = await admin.js.stream_info(name)
        named = {one.name for one in await admin.js.consumers_info(name) if one.config.durable_name}
        found[name] = info.state.messages, named
    return found


async def test_a_mirror_is_made_again_when_our_nats_lost_its_streams(servers: Servers) -> None:
    async with servers.mirrored() as (admin, keeper):
        await admin.publish(KEY, b"later")
        await until(lambda: has(keeper, LOCKS, 2))
        servers.ours.kill()
        servers.ours.wipe()
        servers.ours.start()
        await until(lambda: admin.is_connected)
        await admin.provision(CLUSTER, BusSettings())
        await admin.publish(KEY, b"new")
        steps = await mirror(keeper)

        # One that held nothing is adopted. Where an answer was late, a second round had less to do.
        assert Step.MAKE_AGAIN in steps
        await until(lambda: is_mirrored(keeper, b"new"))


async def is_mirrored(keeper: Bus, data: bytes) -> bool:
    found = await keeper.last(LOCKS, KEY)
    return found is not None and found[1].data == data


async def test_a_mirror_goes_on_where_it_was_after_either_server_restarts(servers: Servers) -> None:
    async with servers.mirrored() as (admin, keeper):
        for server in (servers.ours, servers.theirs):
            server.restart()
        await until(lambda: bool(admin.reconnects and keeper.reconnects))
        await admin.publish(KEY, b"later")
        await until(lambda: is_mirrored(keeper, b"later"))

        assert set(await mirror(keeper)) == {Step.NOTHING}


AT_5: Final = Stored("a", "t5")


@pytest.mark.parametrize(
    ("stream", "theirs", "step"),
    [
        pytest.param(None, None, Step.NOTHING, id="there is no stream"),
        pytest.param(None, Seen("m", 5, AT_5), Step.NOTHING, id="the stream cannot be seen"),
        pytest.param(Seen("m"), None, Step.MAKE, id="there is no mirror"),
        pytest.param(Seen("m", 9, AT_5), Seen("m", 5, AT_5), Step.NOTHING, id="the mirror is behind"),
        pytest.param(Seen("m", 9), Seen("m", 5, AT_5), Step.NOTHING, id="its last key was written again"),
        pytest.param(Seen("m", 4), Seen("m", 5, AT_5), Step.MAKE_AGAIN, id="the stream came back older"),
        pytest.param(Seen("m", 9, Stored("a", "t6")), Seen("m", 5, AT_5), Step.MAKE_AGAIN, id="and went on"),
        pytest.param(Seen("n", 9, AT_5), Seen("m", 5, AT_5), Step.ADOPT, id="the stream was copied"),
        pytest.param(Seen("n", 9), Seen("m", 5, AT_5), Step.MAKE_AGAIN, id="another stream, or a copy"),
        pytest.param(Seen("n", 9), Seen("m"), Step.ADOPT, id="another stream, and nothing was mirrored"),
    ],
)
def test_what_is_done_for_a_mirror(stream: Seen | None, theirs: Seen | None, step: Step) -> None:
    assert next_step(stream, theirs) is step


@asynccontextmanager
async def heard(bus: Bus, subject: str = ">") -> AsyncGenerator[list[str]]:
    """Note the subject of each message that comes on *subject*; by default all that come to the server."""
    came: list[str] = []

    async def note(message: Message) -> None:
        came.append(message.subject)

    async with bus.subscribed(subject, note):
        await bus.flush()
        yield came


async def settled(admin: Bus, keeper: Bus) -> None:
    """Return when what was sent over the link before has come: a call over it comes behind."""
    for _ in range(2):
        await keeper.js.call(f"{DOMAIN_API}.STREAM.INFO.{FACTS}")
    await admin.flush()


async def consumers(admin: Bus) -> dict[str, set[str | None]]:
    """Return where the consumers of each stream deliver, by stream."""
    return {
        name: {info.config.deliver_subject for info in await admin.js.consumers_info(name)}
        for name in streams(CLUSTER)
    }


def some(pattern: str) -> str:
    return pattern.replace("*", "x").replace(">", "x")
