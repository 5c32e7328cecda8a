# pyright: reportUnknownMemberType=false
"""A subscriber of another team, as that team's own user, on the server of other teams (ADR 0034)."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo, StreamConfig
from nats.js.errors import NotFoundError

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.codec import encode
from sunk_events.nodes import NodeDown, NodeDrained, NodeSnapshot
from sunk_events.subscriber import (
    RefusedError,
    Subscriber,
    SubscriberError,
    UnknownEvent,
    UnreachableError,
    Unreadable,
)
from sunk_events.subscription.session import Session
from sunk_events.teams import SUBSCRIBER
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import WITHIN_S, until
from sunk_trials.teams import CLUSTER, FACT, FACTS, OTHER, PASSWORDS, Servers, has, mirror

pytestmark = pytest.mark.anyio

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def servers(tmp_path: Path) -> Generator[Servers]:
    made = Servers(tmp_path)
    with made.ours, made.theirs:
        yield made


def drained(node: str, number: int, kind: type[NodeDrained | NodeDown] = NodeDrained) -> Event:
    data = NodeSnapshot(node=node, state="IDLE")
    return kind(id=f"{node}:{number}", source=f"/{CLUSTER}/syncer", subject=node, time=NOW, data=data)


async def publish(admin: Bus, *facts: Event) -> None:
    for fact in facts:
        await admin.publish(subjects.fact(CLUSTER, fact), encode(fact))


def billing(server: NatsServer, **others: Any) -> Subscriber:  # noqa: ANN401 - whatever a subscriber takes
    given: dict[str, Any] = {"user": OTHER, "password": PASSWORDS[OTHER]} | others
    return Subscriber(server.url, CLUSTER, **given)


@asynccontextmanager
async def running(subscriber: Subscriber, handle: Callable[[Event], Awaitable[None]]) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subscriber.run, handle)
        yield
        tasks.cancel_scope.cancel()


class Heard:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.facts: list[Event] = []

    @property
    def ids(self) -> list[str]:
        return [fact.id for fact in self.facts]

    async def take(self, fact: Event) -> None:
        self.facts.append(fact)

    def has(self, *ids: str) -> Callable[[], bool]:
        return lambda: self.ids == list(ids)


class Fails(Heard):
    """A handler that fails for one node."""

    def __init__(self) -> None:
        super().__init__()
        self.is_failing = True

    async def take(self, fact: Event) -> None:
        if fact.subject == "bad" and self.is_failing:
            raise ValueError("of the team's own")
        await super().take(fact)


class Held(Heard):
    """A handler that lets a fact go when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def take(self, fact: Event) -> None:
        await super().take(fact)
        await self.gate.wait()


async def consumer(servers: Servers) -> ConsumerInfo:
    """Return what the server says of the consumer, waiting until there is one."""
    async with servers.team(OTHER) as team:
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    return await team.jetstream().consumer_info(FACTS, OTHER)
                except NotFoundError:
                    await anyio.sleep(0.05)


async def is_all_done(servers: Servers) -> bool:
    found = await consumer(servers)
    return found.num_ack_pending == found.num_pending == 0


async def is_caught_up(servers: Servers) -> bool:
    return (await consumer(servers)).num_pending == 0


async def test_facts_come_typed_in_order_and_are_acknowledged_when_they_are_done(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        facts = [drained("n2", 1), drained("n2", 2, NodeDown), drained("n.3", 1)]
        await publish(admin, *facts)
        held = Held()
        async with running(billing(servers.theirs), held.take):
            await until(lambda: is_pending(servers, 3))
            await until(held.has("n2:1"))
            assert (await consumer(servers)).num_ack_pending == 3
            held.gate.set()
            await until(lambda: is_all_done(servers))

        assert sorted(held.facts, key=lambda fact: fact.subject) == [facts[2], *facts[:2]]
        again = Heard()
        async with running(billing(servers.theirs), again.take):
            await publish(admin, drained("n1", 3))
            await until(again.has("n1:3"))


async def test_of_some_kinds_no_others_come_and_new_ones_only_where_that_is_wanted(servers: Servers) -> None:
    async with servers.mirrored() as (admin, keeper):
        await publish(admin, drained("n1", 1))
        await until(lambda: has(keeper, FACTS, 2))
        heard = Heard()
        async with running(billing(servers.theirs, kinds=[NodeDrained], deliver="new"), heard.take):
            await until(lambda: is_caught_up(servers))
            await publish(admin, drained("n1", 2, NodeDown), drained("n1", 3))
            await until(heard.has("n1:3"))
        async with running(billing(servers.theirs), heard.take):
            await publish(admin, drained("n1", 4, NodeDown))
            await until(heard.has("n1:3", "n1:4"))


async def test_a_fact_that_is_published_twice_is_handled_once(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        heard = Heard()
        await publish(admin, drained("n1", 1), drained("n1", 1), drained("n1", 2))
        async with running(billing(servers.theirs), heard.take):
            await until(lambda: "n1:2" in heard.ids)
            await until(lambda: is_all_done(servers))

        assert heard.ids == ["n1:1", "n1:2"]


async def test_a_fact_whose_handler_fails_comes_again_before_what_came_after_it(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers.mirrored() as (admin, _):
        heard, tried = Heard(), list[str]()

        async def fail_once(fact: Event) -> None:
            tried.append(fact.id)
            if tried.count("n1:1") == 1 and fact.id == "n1:1":
                raise ValueError("of the team's own")
            await heard.take(fact)

        await publish(admin, drained("n1", 1), drained("n1", 2), drained("n2", 1))
        async with running(billing(servers.theirs), fail_once):
            await until(lambda: len(heard.ids) == 3)
            await until(lambda: is_all_done(servers))

        assert [each for each in tried if each.startswith("n1")] == ["n1:1", "n1:1", "n1:2"]
        assert heard.ids == ["n2:1", "n1:1", "n1:2"]
        assert "of the team's own" in caplog.text


async def test_of_what_was_done_after_a_fact_that_fails_little_comes_again(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        heard, later = Fails(), Fails()
        first = [drained("bad", 1), *(drained(f"n{number}", 1) for number in range(9))]
        await publish(admin, *first)
        async with running(billing(servers.theirs, max_ack_pending=4), heard.take):
            await until(lambda: is_heard(heard, 3))
            servers.theirs.kill()
            servers.theirs.start()
            await until(lambda: is_pending(servers, 1))  # What was done has come again, and was not handled.
            assert heard.ids == ["n0:1", "n1:1", "n2:1"]

        async with running(billing(servers.theirs, max_ack_pending=4), later.take):
            await until(lambda: is_heard(later, 3))
            await until(lambda: is_pending(servers, 1))
            assert later.ids == heard.ids
            later.is_failing = False
            await until(lambda: is_all_done(servers))
        assert later.ids[3:] == ["bad:1", *(fact.id for fact in first[4:])]


async def test_who_holds_up_all_others_is_told(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sunk_events.subscription.work.STUCK_S", 0.5)
    async with servers.mirrored() as (admin, _):
        heard = Fails()
        await publish(admin, *(drained("bad", number) for number in range(4)), drained("n1", 1))
        async with running(billing(servers.theirs, max_ack_pending=4), heard.take):
            await until(lambda: "sunk.ev.c1.slurm.node.bad blocks all other facts" in caplog.text)
            assert heard.ids == []
            heard.is_failing = False
            await until(lambda: is_heard(heard, 5))
            await until(lambda: is_all_done(servers))


async def test_a_handler_that_gives_up_by_itself_is_one_that_fails(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        tried: list[str] = []

        async def give_up(fact: Event) -> None:
            tried.append(fact.id)
            if len(tried) == 1:
                raise anyio.get_cancelled_exc_class()

        await publish(admin, drained("n1", 1))
        async with running(billing(servers.theirs), give_up):
            await until(lambda: tried == ["n1:1", "n1:1"])
            await until(lambda: is_all_done(servers))


async def test_what_is_no_fact_is_told_apart_and_passed_over(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with servers.mirrored() as (admin, _):  # It has published one that is none.
        heard, unreadable = Heard(), list[Unreadable]()

        async def note(message: Unreadable) -> None:
            unreadable.append(message)

        newer = encode(drained("n1", 1)).replace(b"v1.node_drained", b"v7.node_melted")
        await admin.publish(f"sunk.ev.{CLUSTER}.slurm.node.n1.melted", newer)
        await publish(admin, drained("n1", 2))
        async with running(billing(servers.theirs, unreadable=note), heard.take):
            await until(lambda: is_heard(heard, 2))
        assert [(each.on, each.number, each.payload) for each in unreadable] == [(FACT, 1, b"{}")]
        assert "`type` is missing" in unreadable[0].reason
        assert [type(fact) for fact in heard.facts] == [UnknownEvent, NodeDrained]
        assert heard.facts[0].type == "sunk.syncer.v7.node_melted"

        async with running(billing(servers.theirs), heard.take):
            await admin.publish(FACT, b"no fact either")
            await until(lambda: "message 4 on" in caplog.text)
            await until(lambda: is_all_done(servers))


def is_heard(heard: Heard, count: int) -> bool:
    return len(heard.ids) >= count


async def test_a_slow_handler_holds_no_more_than_it_may(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        held = Held()
        facts = [drained(f"n{number}", 1) for number in range(2, 12)]
        await publish(admin, *facts)
        async with running(billing(servers.theirs, concurrency=2, max_ack_pending=3), held.take):
            await until(lambda: is_heard(held, 2))
            await until(lambda: is_pending(servers, 3))
            found = await consumer(servers)
            assert (found.num_ack_pending, found.num_waiting, len(held.ids)) == (3, 0, 2)
            held.gate.set()
            await until(lambda: is_all_done(servers))

        assert sorted(held.ids) == sorted(fact.id for fact in facts)


async def is_pending(servers: Servers, count: int) -> bool:
    return (await consumer(servers)).num_ack_pending == count


async def test_a_server_that_is_killed_and_comes_back_repeats_and_loses_nothing(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        held = Held()
        await publish(admin, drained("n1", 1), drained("n1", 2))
        async with running(billing(servers.theirs), held.take):
            await until(held.has("n1:1"))
            servers.theirs.kill()
            await publish(admin, drained("n1", 3))
            servers.theirs.start()
            await until(lambda: is_pending(servers, 3))  # What is handled since before has come again.
            held.gate.set()
            await until(held.has("n1:1", "n1:2", "n1:3"))
            await until(lambda: is_all_done(servers))


async def test_a_server_that_hangs_is_left(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sunk_events.subscription.session.HEARTBEAT_S", 0.2)
    monkeypatch.setattr("sunk_events.subscription.session.DEAD_S", 0.6)
    async with servers.mirrored() as (admin, _):
        heard = Heard()
        await publish(admin, drained("n1", 1))
        async with running(billing(servers.theirs), heard.take):
            await until(heard.has("n1:1"))
            servers.theirs.hang()
            await anyio.sleep(1.5)
            servers.theirs.resume()
            await publish(admin, drained("n1", 2))
            await until(heard.has("n1:1", "n1:2"))


async def test_what_a_program_held_when_it_ended_comes_to_the_next_one_in_order(servers: Servers) -> None:
    async with servers.mirrored() as (admin, _):
        held, heard = Held(), Heard()
        await publish(admin, drained("n1", 1), drained("n1", 2))
        async with running(billing(servers.theirs), held.take):
            await until(held.has("n1:1"))
        await publish(admin, drained("n1", 3))
        async with running(billing(servers.theirs), heard.take):
            await until(heard.has("n1:1", "n1:2", "n1:3"))


async def test_a_consumer_that_is_removed_is_made_again_and_no_fact_is_lost(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers.mirrored() as (admin, keeper):
        heard = Heard()
        async with running(billing(servers.theirs, deliver="new"), heard.take):
            await until(lambda: is_caught_up(servers))
            await keeper.js.delete_stream(FACTS)
            await publish(admin, drained("n1", 1))
            await mirror(keeper)
            await until(heard.has("n1:1"))
            await keeper.js.delete_stream(FACTS)
            await publish(admin, drained("n1", 2))
            await mirror(keeper)
            await until(heard.has("n1:1", "n1:2"))

        assert "was removed, and continues with messages from" in caplog.text


@pytest.mark.parametrize("is_there_again", [True, False], ids=["the stream is there again", "later"])
async def test_a_consumer_that_is_removed_while_it_is_made_is_made_again_with_the_facts_since(
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_there_again: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with servers.mirrored() as (admin, keeper):
        begin, began = Session.begin, list[Session]()

        async def removed(session: Session) -> None:
            began.append(session)
            if len(began) == 1:
                await keeper.js.delete_stream(FACTS)
                await publish(admin, drained("n1", 1))
                if is_there_again:
                    await mirror(keeper)
                    await until(lambda: has(keeper, FACTS, 2))
            await begin(session)

        monkeypatch.setattr(Session, "begin", removed)
        heard = Heard()
        async with running(billing(servers.theirs, deliver="new"), heard.take):
            if not is_there_again:
                await until(lambda: "NATS refuses the subscriber, which continues to try" in caplog.text)
                await mirror(keeper)
            await until(heard.has("n1:1"))

        assert "was removed, and continues with messages from" in caplog.text


async def test_facts_that_are_gone_before_they_were_handled_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard, admin = Heard(), Client()
    with NatsServer(tmp_path / "nats") as server:
        await admin.connect(server.url)
        js = admin.jetstream()
        stream = StreamConfig(name=FACTS, subjects=[f"sunk.ev.{CLUSTER}.>"], max_msgs=-1)
        await js.add_stream(stream)

        async def tell(*numbers: int, kind: type[NodeDrained | NodeDown] = NodeDrained) -> None:
            for fact in (drained("n1", number, kind) for number in numbers):
                await js.publish(subjects.fact(CLUSTER, fact), encode(fact))

        async def hear(number: int, **others: Any) -> None:  # noqa: ANN401 - whatever a subscriber takes
            async with running(billing(server, **others), heard.take):
                await tell(number)
                await until(lambda: f"n1:{number}" in heard.ids)
                await until(lambda: is_nothing_pending(js))
            # Else what comes next may go to the pull of a connection whose end the server has not seen.
            await until(lambda: is_nothing_waiting(js))

        await tell(1)
        await js.purge_stream(FACTS)
        await hear(2)
        await tell(3, 4, 5)
        for most in (1, -1):  # Age takes messages in the same way.
            await js.update_stream(stream.evolve(max_msgs=most))
        assert "gone" not in caplog.text
        await hear(6)
        assert f"messages 3 to 4 of {FACTS} are gone" in caplog.text

        caplog.clear()
        await tell(7, kind=NodeDown)
        await hear(8, kinds=[NodeDrained])
        await js.delete_consumer(FACTS, OTHER)
        async with running(billing(server, deliver="new"), heard.take):
            await until(lambda: is_nothing_pending(js))
        await hear(9, deliver="new")
        await admin.close()
    assert heard.ids == ["n1:2", "n1:5", "n1:6", "n1:8", "n1:9"]
    assert "gone" not in caplog.text


async def is_nothing_waiting(js: JetStreamContext) -> bool:
    return (await js.consumer_info(FACTS, OTHER)).num_waiting == 0


async def is_nothing_pending(js: JetStreamContext) -> bool:
    try:
        found = await js.consumer_info(FACTS, OTHER)
    except NotFoundError:
        return False
    return found.num_ack_pending == found.num_pending == 0


async def test_what_another_program_of_the_same_user_took_is_asked_for_again(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers.mirrored() as (admin, _), servers.team(OTHER) as other:
        heard = Heard()
        async with running(billing(servers.theirs), heard.take):
            await until(lambda: is_caught_up(servers))
            thief = await other.jetstream().pull_subscribe_bind(OTHER, FACTS)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(thief.fetch, 1, 30)
                await until(lambda: is_waiting(servers, 2))
                await publish(admin, *(drained(f"n{number}", 1) for number in range(2, 6)))
                await until(lambda: sorted(heard.ids) == ["n2:1", "n3:1", "n4:1", "n5:1"])

        assert "Run one program for each user" in caplog.text


async def is_waiting(servers: Servers, count: int) -> bool:
    return (await consumer(servers)).num_waiting == count


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        pytest.param({"password": "wrong"}, RefusedError, "wrong user or password", id="password"),
        pytest.param({"user": "billing"}, RefusedError, "subscriber-<team>", id="user"),
        pytest.param({"password_file": "/none"}, RefusedError, "password_file", id="no file"),
        pytest.param({"ca_file": "/none"}, RefusedError, "ca_file", id="no CA"),
        pytest.param({"consumer": "mine"}, RefusedError, "with the name of the user", id="consumer"),
        pytest.param({"cluster": "c2"}, RefusedError, "Check that 'c2' is the cluster's name", id="cluster"),
        pytest.param(
            {"user": SUBSCRIBER, "password": PASSWORDS[SUBSCRIBER], "consumer": OTHER},
            RefusedError,
            "NATS denies user 'subscriber'",
            id="another team's consumer",
        ),
        pytest.param(
            {"url": "nats://127.0.0.1:1", "connect_within_s": 0.1},
            UnreachableError,
            "Check url",
            id="address",
        ),
    ],
)
async def test_who_cannot_subscribe_is_told_what_to_change(
    servers: Servers, wrong: dict[str, Any], error: type[SubscriberError], told: str
) -> None:
    given: dict[str, Any] = {
        "url": servers.theirs.url,
        "cluster": CLUSTER,
        "user": OTHER,
        "password": PASSWORDS[OTHER],
        "connect_within_s": WITHIN_S,
    }
    async with servers.mirrored():
        with pytest.raises(error, match=told):
            await Subscriber(**(given | wrong)).run(Heard().take)


async def test_where_no_stream_is_the_cluster_is_asked_about(tmp_path: Path) -> None:
    told = r"no stream SUNK_EV_c1\. Check that 'c1' is a Slurm cluster's name"
    with NatsServer(tmp_path / "empty") as server, pytest.raises(RefusedError, match=told):
        await billing(server, user="any").run(Heard().take)


async def test_an_older_server_is_told_which_version_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_events.subscription.answers.NEEDED", (99, 0))
    told = r"NATS is version 2\.\d+\.\d+, and a Subscriber needs nats-server 99\.0 or newer"
    with NatsServer(tmp_path / "nats") as server, pytest.raises(RefusedError, match=told):
        await billing(server).run(Heard().take)


@pytest.mark.parametrize("url", ["tls://{}", "TLS://{}", "nats://{},tls://127.0.0.1:1"])
async def test_where_only_tls_will_do_no_password_is_sent_without_it(tmp_path: Path, url: str) -> None:
    with NatsServer(tmp_path / "nats") as server:
        address = url.format(server.url.removeprefix("nats://"))
        subscriber = Subscriber(address, CLUSTER, user=OTHER, password=PASSWORDS[OTHER])
        with anyio.fail_after(WITHIN_S), pytest.raises(RefusedError, match="NATS does not use TLS"):
            await subscriber.run(Heard().take)


async def test_a_password_that_is_changed_counts_at_the_next_connection(
    servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORDS[OTHER])
    async with servers.mirrored() as (admin, _):
        heard = Heard()
        async with running(billing(servers.theirs, password="", password_file=file), heard.take):
            await publish(admin, drained("n1", 1))
            await until(heard.has("n1:1"))
            file.write_text("wrong")
            servers.theirs.kill()
            servers.theirs.start()
            await until(lambda: "wrong user or password" in caplog.text)
            file.write_text(PASSWORDS[OTHER])
            await publish(admin, drained("n1", 2))
            await until(heard.has("n1:1", "n1:2"))
