"""Each service may do what its code does, and nothing that is another's: on a real NATS with its users."""

import ast
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from sunk_events import subjects, view_user
from sunk_events.base import Event, Reply, Request, State, source
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.codec import decode_event, decode_request, decode_state, tag_of
from sunk_events.dead import DeadLetter
from sunk_events.locks import LockState
from sunk_events.permissions import (
    ADMIN,
    DURABLES,
    LEASES,
    READS,
    REQUESTED_BY,
    SERVICES,
    Service,
    configuration,
    permissions,
    streams,
    user_name,
    users,
)
from sunk_events.requests import Noted
from sunk_events.teams import SUBSCRIBER, listener
from sunk_lab.nats import NatsServer
from sunk_runtime.client import Client
from sunk_runtime.dead import publish_dead_letter
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.leases import BusLease
from sunk_runtime.requests import answering, ask
from sunk_runtime.settle import FactConsumer
from sunk_runtime.streams import stream_configs
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter, publish

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
FACTS = [kind for kind in EVENTS if kind is not DeadLetter]
CLUSTERS = ("c1", "c2")
DENIED = "NATS denies user"

each_service = pytest.mark.parametrize("service", SERVICES)


def sample(kind: type[msgspec.Struct]) -> bytes:
    return (GOLDEN / f"{tag_of(kind)}.json").read_bytes()


def sample_fact(kind: type[Event]) -> Event:
    """Return a fact as its owner tells it of cluster c1."""
    return msgspec.structs.replace(decode_event(sample(kind)), source=source("c1", EVENTS[kind]))


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    wanted = (*users(CLUSTERS), listener())
    extra = configuration(wanted, {user.name: f"secret of {user.name}" for user in wanted})
    with NatsServer(tmp_path / "nats", extra=extra) as server:
        yield server


class Users:
    """Connects as any of the users."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self._server = server
        self._folder = folder

    @property
    def url(self) -> str:
        return self._server.url

    @asynccontextmanager
    async def named(self, user: str, service: str) -> AsyncGenerator[Bus]:
        file = self._folder / user
        file.write_text(f"secret of {user}\n")
        settings = BusSettings(url=self._server.url, user=user, password_file=file)
        async with connect(settings, service) as bus:
            bus.publish_timeout_s = 60  # A denial is said at once.
            yield bus

    @asynccontextmanager
    async def service(self, service: Service, cluster: str = "c1") -> AsyncGenerator[Bus]:
        async with self.named(user_name(service, cluster), service) as bus:
            for name in CLUSTERS if service == "nodeset-controller" else (cluster,):
                await bus.provision(name, BusSettings())
            yield bus


@pytest.fixture
def as_user(server: NatsServer, tmp_path: Path) -> Users:
    return Users(server, tmp_path)


async def ignore(_: Message) -> None:
    pytest.fail("received")


async def is_denied(bus: Bus, subject: str) -> bool:
    """Whether *bus* may not publish on *subject*."""
    try:
        await bus.publish(subject, b"")
    except PermanentError as error:
        return DENIED in str(error)
    return False


async def is_deaf(bus: Bus, subject: str) -> bool:
    """Whether *bus* may not subscribe to *subject*."""
    try:
        async with bus.subscribed(subject, ignore):
            await bus.flush()
    except PermanentError as error:
        return DENIED in str(error)
    return False


def some(pattern: str) -> str:
    """Return a subject that fits *pattern*."""
    return pattern.replace("*", "x")


def foreign_facts(service: str) -> list[str]:
    return [some(subjects.facts("c1", kind)) for kind in FACTS if EVENTS[kind] != service]


def foreign_keys(service: str) -> list[str]:
    states = [subjects.bucket("c1", kind) for kind, owner in STATES.items() if owner != service]
    return [subjects.key_subject(bucket, "x") for bucket in states]


def foreign_letters(service: str) -> list[str]:
    return [some(subjects.dead_letters("c1", other)) for other in SERVICES if other != service]


def foreign_leases(service: Service) -> list[str]:
    names = {"nobody", *(name for other in LEASES for name in LEASES[other])} - {*LEASES.get(service, ())}
    return [subjects.key_subject(subjects.lease_bucket("c1"), name) for name in names]


def foreign_questions(service: Service) -> list[str]:
    return [some(subjects.questions("c1", kind)) for kind in REQUESTS if service not in REQUESTED_BY[kind]]


@each_service
async def test_a_service_cannot_publish_what_is_anothers(as_user: Users, service: Service) -> None:
    subjects_denied = [
        *foreign_facts(service),
        *foreign_keys(service),
        *foreign_letters(service),
        *foreign_leases(service),
        *foreign_questions(service),
    ]
    async with as_user.service(service) as bus:
        assert [subject for subject in subjects_denied if not await is_denied(bus, subject)] == []


@each_service
async def test_a_service_cannot_change_empty_or_remove_a_stream(as_user: Users, service: Service) -> None:
    verbs = ("DELETE", "PURGE", "UPDATE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN")
    async with as_user.service(service) as bus:
        calls = [f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs for stream in streams("c1")]

        assert [call for call in calls if not await is_denied(bus, call)] == []


@each_service
async def test_a_service_cannot_make_a_stream_of_its_own(as_user: Users, service: Service) -> None:
    async with as_user.service(service) as bus:
        assert await is_denied(bus, "$JS.API.STREAM.CREATE.MINE")


@each_service
async def test_a_service_reads_no_bucket_that_it_need_not(as_user: Users, service: Service) -> None:
    unread = [kind for kind, owner in STATES.items() if owner != service and kind not in READS[service]]
    async with as_user.service(service) as bus:
        buckets = [subjects.bucket_stream(subjects.bucket("c1", kind)) for kind in unread]
        verbs = ("CONSUMER.CREATE.{}", "CONSUMER.CREATE.{}.x", "CONSUMER.MSG.NEXT.{}.x", "STREAM.MSG.GET.{}")
        reads = [f"$JS.API.{verb.format(stream)}" for verb in verbs for stream in buckets]

        assert [call for call in reads if not await is_denied(bus, call)] == []


@each_service
async def test_a_service_hears_nothing_but_its_own_questions_and_answers(
    as_user: Users, service: Service
) -> None:
    foreign = [subjects.questions("c1", kind) for kind, (owner, _) in REQUESTS.items() if owner != service]
    inboxes = [f"{subjects.inbox(user.name)}.>" for user in users(CLUSTERS)]
    inboxes.remove(f"{subjects.inbox(user_name(service, 'c1'))}.>")
    everything = ["_INBOX.>", "sunk.>", "$JS.>", "$KV.>", ">", subjects.DEAD_LETTERS, subjects.facts("c1")]
    async with as_user.service(service) as bus:
        heard = [subject for subject in (*foreign, *inboxes, *everything) if not await is_deaf(bus, subject)]

    assert heard == []


@each_service
async def test_a_service_answers_only_who_may_ask_it(as_user: Users, service: Service) -> None:
    asked = [kind for kind, (owner, _) in REQUESTS.items() if owner == service]
    askers = {user_name(asker, "c1") for kind in asked for asker in REQUESTED_BY[kind]}
    askers |= {ADMIN} if asked else set()
    askers |= {view_user.VIEW} if set(asked) & set(view_user.QUESTIONS) else set()
    others = {user.name for user in users(["c1"])} - askers
    async with as_user.service(service) as bus:
        reached = [name for name in others if not await is_denied(bus, f"{subjects.inbox(name)}.x")]

    assert reached == []


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "nodeset-controller"])
async def test_a_service_of_one_slurm_cluster_reaches_nothing_of_another(
    as_user: Users, service: Service
) -> None:
    theirs, shared = permissions(service, ["c2"]), permissions(service, ["c1"])
    published = [some(subject).replace(">", "x") for subject in {*theirs.publish} - {*shared.publish}]
    async with as_user.service(service, "c1") as bus:
        assert [subject for subject in published if not await is_denied(bus, subject)] == []
        assert [subject for subject in theirs.subscribe if not await is_deaf(bus, subject)] == []


@each_service
async def test_a_service_provisions_alone_publishes_its_facts_and_buries(
    as_user: Users, service: Service
) -> None:
    async with as_user.service(service) as bus:
        for kind in (kind for kind in FACTS if EVENTS[kind] == service):
            await publish(bus, "c1", sample_fact(kind))
        assert await publish_dead_letter(bus, "c1", Message(Client(), "x.y", data=b"?"), "why", msg_id="1")
        await bus.provision(
            "c1", BusSettings(facts_max_age_s=3600)
        )  # Other settings: the stream is looked at.


@each_service
async def test_a_service_follows_what_it_reads_and_writes_what_it_owns(
    as_user: Users, service: Service
) -> None:
    async with as_user.service(service) as bus:
        own = [kind for kind, owner in STATES.items() if owner == service]
        for kind in (*own, *READS[service]):
            view = StateView(bus, "c1", kind)
            async with following(view):
                await until(lambda view=view: view.is_complete)
                if kind in own:
                    await write(bus, view)


async def write(bus: Bus, view: StateView[State]) -> None:
    """Write as a writer does whose last answer was lost, then forget."""
    writer, state = StateWriter(bus, view, fence=None), decode_state(view.kind, sample(view.kind))
    await writer.record("ip-10.ec2", state, revision=0)
    blind = StateWriter(bus, StateView(bus, "c1", view.kind), fence=None)
    await blind.record("ip-10.ec2", state, revision=0)
    await writer.forget("ip-10.ec2", revision=view.revision("ip-10.ec2"))


async def test_the_pod_scheduler_follows_the_locks_of_its_own_cluster_and_writes_none(as_user: Users) -> None:
    """It binds no Pod to a node whose lock is not granted, and grants none itself."""
    bucket, theirs = (subjects.bucket(cluster, LockState) for cluster in CLUSTERS)
    async with as_user.service("nodeset-controller") as owner, as_user.service("pod-scheduler") as bus:
        written, read = StateView(owner, "c1", LockState), StateView(bus, "c1", LockState)
        state = decode_state(LockState, sample(LockState))
        async with following(written, read):
            await written.complete()
            await StateWriter(owner, written, fence=None).record("n1", state, revision=0)
            await until(lambda: read.get("n1") == state)

        assert await is_denied(bus, subjects.key_subject(bucket, "n1"))
        assert await is_denied(bus, f"$JS.API.CONSUMER.CREATE.{subjects.bucket_stream(theirs)}")


@pytest.mark.parametrize("service", LEASES)
async def test_a_service_takes_renews_and_gives_up_its_lease(as_user: Users, service: Service) -> None:
    async with as_user.service(service) as bus:
        for name in LEASES[service]:
            lease = BusLease(bus, "c1", name, "me", ttl_s=30)
            assert await lease.acquire()
            assert await lease.renew()
            await lease.release()


@pytest.mark.parametrize("kind", REQUESTS, ids=tag_of)
async def test_a_question_reaches_who_answers_it_and_the_answer_who_asked(
    as_user: Users, kind: type[Request]
) -> None:
    async def answer(_: Request) -> Reply:
        return Noted()

    question = decode_request(kind, sample(kind))
    async with as_user.service(owner_of(kind)) as answerer, answering(answerer, "c1", kind, answer):
        for asker in REQUESTED_BY[kind]:
            async with as_user.service(asker) as bus:
                assert await ask(bus, "c1", question) == Noted()
        async with as_user.named(ADMIN, "bus") as bus:
            assert await ask(bus, "c1", question) == Noted()


def owner_of(kind: type[Request]) -> Service:
    return msgspec.convert(REQUESTS[kind][0], Service)


async def test_a_question_cannot_have_its_answer_written_into_a_bucket(as_user: Users) -> None:
    kind = next(kind for kind in REQUESTS if REQUESTED_BY[kind])
    key = subjects.key_subject(subjects.bucket("c1", own_state(owner_of(kind))), "x")
    asked = anyio.Event()

    async def answer(_: Request) -> Reply:
        asked.set()
        return Noted()

    async with (
        as_user.service(owner_of(kind)) as answerer,
        as_user.service(REQUESTED_BY[kind][0]) as bus,
        answering(answerer, "c1", kind, answer),
    ):
        question = decode_request(kind, sample(kind))
        await bus.send(subjects.question("c1", question), sample(kind), reply=key)
        await asked.wait()
        assert await ask(bus, "c1", question) == Noted()  # By now the first would have been answered.
        stream = subjects.bucket_stream(subjects.bucket("c1", own_state(owner_of(kind))))
        assert await answerer.last(stream, key) is None


def own_state(service: Service) -> type[State]:
    return next(kind for kind, owner in STATES.items() if owner == service)


@pytest.mark.parametrize("service", DURABLES)
async def test_a_service_settles_facts_through_its_own_consumer_only(
    as_user: Users, service: Service
) -> None:
    seen: list[Event] = []

    async def handle(event: Event) -> None:
        seen.append(event)
        if len(seen) == 1:
            raise PermanentError("no retry can help")

    async with as_user.named(ADMIN, "bus") as admin, as_user.service(service) as bus:
        for kind in FACTS:
            await publish(admin, "c1", sample_fact(kind))
        stream = subjects.fact_stream("c1")
        async with anyio.create_task_group() as tasks:
            for durable in DURABLES[service]:
                tasks.start_soon(FactConsumer(bus, "c1", durable, handle).run)
            await until(lambda: len(seen) == len(FACTS))
            await until(lambda: is_settled(admin, stream, DURABLES[service][0]))
            tasks.cancel_scope.cancel()
        letters = await admin.js.stream_info(subjects.DEAD_LETTER_STREAM)
        assert letters.state.messages == 1
        for call in ("DURABLE.CREATE", "MSG.NEXT", "DELETE"):
            assert await is_denied(bus, f"$JS.API.CONSUMER.{call}.{stream}.other")


async def is_settled(bus: Bus, stream: str, consumer: str) -> bool:
    info = await bus.js.consumer_info(stream, consumer)
    return info.num_ack_pending == 0 and info.num_pending == 0


async def test_a_team_on_our_server_hears_facts_and_publishes_nothing_at_all(as_user: Users) -> None:
    # What teams may on the server of their own: tests/bus/test_teams.py.
    heard: list[str] = []

    async def receive(message: Msg) -> None:
        heard.append(message.subject)

    async with as_user.named(ADMIN, "bus") as admin:
        await admin.provision("c1", BusSettings())
        team = TeamClient()
        await team.connect(
            as_user.url, user=SUBSCRIBER, password=f"secret of {SUBSCRIBER}", error_cb=team.note
        )
        await team.subscribe(subjects.EVERYTHING, cb=receive)  # pyright: ignore[reportUnknownMemberType]
        await team.flush(timeout=60)
        await team.flush(timeout=60)  # nats-py's first one overtakes the subscription.
        for kind in FACTS:
            await publish(admin, "c1", sample_fact(kind))
        await until(lambda: len(heard) == len(FACTS))
        for subject in ("$JS.API.INFO", f"$JS.API.STREAM.INFO.{subjects.fact_stream('c1')}", "_INBOX.x", "x"):
            await team.publish(subject, b"")
            await team.flush(timeout=60)
            await until(lambda subject=subject: any(f'"{subject}"'.lower() in said for said in team.denied))
        await team.close()


class TeamClient(NatsClient):
    """A client of nats-py's own, which notes what it is denied."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: list[str] = []

    async def note(self, error: Exception) -> None:
        self.denied.append(str(error).lower())


async def test_people_may_mend_everything(as_user: Users) -> None:
    async with as_user.named(ADMIN, "bus") as bus:
        await bus.provision("c1", BusSettings())
        for stream in streams("c1"):
            await bus.js.purge_stream(stream)
            await bus.js.delete_stream(stream)


def test_every_stream_that_is_made_may_be_made() -> None:
    configs = stream_configs("c1", replicas=1, facts_max_bytes=1, facts_max_age_s=1)

    assert {config.name for config in configs} == {*streams("c1")}


def test_every_fact_and_state_has_exactly_one_user_that_may_publish_it() -> None:
    patterns = {subjects.facts("c1", kind) for kind in FACTS}
    patterns |= {subjects.any_key(subjects.bucket("c1", kind)) for kind in STATES}
    published = [subject for name in SERVICES for subject in permissions(name, ["c1"]).publish]

    assert {pattern: published.count(pattern) for pattern in patterns if published.count(pattern) != 1} == {}


def test_every_question_says_who_asks_it() -> None:
    assert set(REQUESTED_BY) == set(REQUESTS)


def calls(service: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every call in the code of *service*: what is called, and each name among what it is given."""
    for path in (ROOT / "services" / service / "src").rglob("*.py"):
        if "testing" in path.parts or path.name == "testing.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id, {name.id for name in node.args if isinstance(name, ast.Name)}


def used(service: str, *functions: str) -> set[str]:
    return {name for called, given in calls(service) if called in functions for name in given}


@each_service
def test_a_service_may_read_what_its_code_reads_and_no_more(service: Service) -> None:
    names = {kind.__name__ for kind in STATES}
    own = {kind.__name__ for kind, owner in STATES.items() if owner == service}

    assert (used(service, "StateView") & names) - own == {kind.__name__ for kind in READS[service]}


@each_service
def test_a_service_answers_no_question_that_is_anothers(service: Service) -> None:
    own = {kind.__name__ for kind, (owner, _) in REQUESTS.items() if owner == service}

    assert used(service, "answering") & {kind.__name__ for kind in REQUESTS} <= own


@each_service
def test_a_service_may_ask_what_its_code_asks(service: Service) -> None:
    made = {called for called, _ in calls(service)}
    asked = {kind.__name__ for kind, askers in REQUESTED_BY.items() if service in askers}

    assert made & {kind.__name__ for kind in REQUESTS} <= asked


async def test_the_view_follows_states_and_asks_why(as_user: Users) -> None:
    async def answer(_: Request) -> Reply:
        return Noted()

    async with as_user.named(ADMIN, "bus") as admin:
        await admin.provision("c1", BusSettings())
    async with as_user.named(view_user.VIEW, view_user.VIEW) as bus:
        for kind in view_user.READS:
            view = StateView(bus, "c1", kind)
            async with following(view):
                await until(lambda view=view: view.is_complete)
        lease = subjects.key_subject(subjects.lease_bucket("c1"), "syncer")
        assert await bus.last(subjects.bucket_stream(subjects.lease_bucket("c1")), lease) is None
        for kind in view_user.QUESTIONS:
            async with as_user.service(owner_of(kind)) as owner, answering(owner, "c1", kind, answer):
                assert await ask(bus, "c1", decode_request(kind, sample(kind))) == Noted()


async def test_the_view_writes_nothing_and_asks_nothing_that_looks_into_slurm(as_user: Users) -> None:
    async with as_user.named(ADMIN, "bus") as admin:
        await admin.provision("c1", BusSettings())
    verbs = ("CREATE", "DELETE", "PURGE", "UPDATE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN")
    denied = [
        *(some(subjects.facts("c1", kind)) for kind in FACTS),
        *(subjects.key_subject(subjects.bucket("c1", kind), "x") for kind in STATES),
        *(some(subjects.dead_letters("c1", one)) for one in (*SERVICES, view_user.VIEW)),
        *foreign_leases("nodeset-controller"),
        *(some(subjects.questions("c1", kind)) for kind in REQUESTS if kind not in view_user.QUESTIONS),
        *(f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs for stream in streams("c1")),
    ]
    async with as_user.named(view_user.VIEW, view_user.VIEW) as bus:
        assert [subject for subject in denied if not await is_denied(bus, subject)] == []
        for subject in ("sunk.>", "$KV.>", "_INBOX.>", f"{subjects.inbox(ADMIN)}.>"):
            assert await is_deaf(bus, subject)
