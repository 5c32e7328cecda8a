"""Facts from the streams of a real NATS: the last ones, and those after where a reader stands."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sunk_events import subjects
from sunk_events.base import event_id
from sunk_events.codec import encode
from sunk_events.nodes import NodeDrained, NodeSnapshot
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_view.event_rows import PAGE, Position, Wanted
from sunk_view.facts import CALLS_MAX, FIRST_SPAN, LOOKED_AT_MAX, Facts, Page

pytestmark = [pytest.mark.anyio, pytest.mark.lab]
T0 = datetime.now(UTC)
ALL = Wanted()


class Counted:
    """JetStream that is counted, and falls silent after so many messages."""

    def __init__(self, bus: Bus, calls_max: int) -> None:
        self.calls = 0
        self.stream_info = bus.js.stream_info
        self._get_msg = bus.js.get_msg
        self._calls_max = calls_max

    async def get_msg(self, *words: Any, **named: Any) -> Any:  # noqa: ANN401 - as the library's own
        self.calls += 1
        if self.calls > self._calls_max:
            await anyio.sleep_forever()
        return await self._get_msg(*words, **named)

    def facts(self, answer_s: float = 5) -> Facts:
        return Facts(cast("Bus", SimpleNamespace(js=self)), answer_s=answer_s)


async def publish(bus: Bus, node: str, numbers: range) -> None:
    for number in numbers:
        fact = NodeDrained(
            id=event_id("node_drained", node, number),
            source="/c1/syncer",
            subject=node,
            time=T0 + timedelta(seconds=number),
            data=NodeSnapshot(node=node, state="IDLE", reason=f"r{number}"),
        )
        await bus.publish(subjects.fact("c1", fact), encode(fact))


def of(node: str) -> Wanted:
    return Wanted(entities=(node,))


def sequences(page: Page) -> list[int]:
    return [row.sequence for row in page.rows]


async def test_the_last_of_one_node_are_found_however_many_others_came_since(bus: Bus) -> None:
    facts = Facts(bus, answer_s=60)
    await publish(bus, "quiet", range(5))
    await publish(bus, "busy", range(700))

    assert sequences(await facts.newest("c1", of("quiet"), 3, None)) == [3, 4, 5]
    assert sequences(await facts.newest("c1", of("quiet"), 50, None)) == [1, 2, 3, 4, 5]
    assert sequences(await facts.newest("c1", ALL, 1, None)) == [705]
    assert sequences(await facts.newest("c1", ALL, 200, None)) == list(range(506, 706))
    assert sequences(await facts.newest("c1", of("busy"), 50, None)) == list(range(656, 706))
    assert sequences(await facts.newest("c1", of("none"), 50, None)) == []
    since = T0 + timedelta(seconds=697)
    assert sequences(await facts.newest("c1", of("busy"), 50, since)) == [703, 704, 705]


async def test_a_reader_goes_on_page_by_page_and_has_each_once(bus: Bus) -> None:
    facts = Facts(bus, answer_s=60)
    await publish(bus, "d1", range(PAGE + 10))
    start = await facts.newest("c1", ALL, 5, None)
    await publish(bus, "d1", range(PAGE + LOOKED_AT_MAX))
    await publish(bus, "d2", range(3))

    async def rest(wanted: Wanted) -> list[list[int]]:
        pages, at, is_more = list[list[int]](), start.at, True
        while is_more:
            page = await facts.after("c1", wanted, at)
            at, is_more = page.at, page.is_more
            pages.append(sequences(page))
        assert sequences(await facts.after("c1", wanted, at)) == []
        return pages

    pages = await rest(ALL)
    last = 2 * PAGE + 10 + LOOKED_AT_MAX + 3
    assert sequences(start)[-1] == PAGE + 10
    assert [one for page in pages for one in page] == list(range(PAGE + 11, last + 1))
    assert max(map(len, pages)) == PAGE
    assert await rest(of("d2")) == [[last - 2, last - 1, last]]


async def test_what_is_missing_is_said(bus: Bus) -> None:
    facts = Facts(bus)
    await publish(bus, "d1", range(10))
    at = (await facts.newest("c1", ALL, 1, None)).at
    stream = subjects.fact_stream("c1")

    async def told(position: Position) -> tuple[list[int], tuple[str, ...]]:
        page = await facts.after("c1", ALL, position)
        return sequences(page), page.problems

    of_another = Position(created=at.created - 1, sequence=99)
    assert await told(of_another) == (
        list(range(1, 11)),
        ("c1: its stream was created again; events may be missing",),
    )
    lost = Position(created=at.created, sequence=99)
    assert await told(lost) == ([], ("c1: its stream has lost its latest messages; events may be missing",))
    await bus.js.purge_stream(stream, seq=6)
    old = Position(created=at.created, sequence=2)
    assert await told(old) == (
        list(range(6, 11)),
        ("c1: up to 3 events were too old to be kept, and are missing",),
    )
    assert await told(Position(created=at.created, sequence=5)) == (list(range(6, 11)), ())


async def test_a_bus_that_is_away_is_no_answer_and_moves_no_reader(bus: Bus, server: NatsServer) -> None:
    facts = Facts(bus)
    await publish(bus, "d1", range(3))
    at = (await facts.newest("c1", ALL, 1, None)).at
    server.kill()
    with pytest.raises(BusUnavailableError):
        await facts.after("c1", ALL, at)
    server.start()
    await until(lambda: bus.is_connected)
    await publish(bus, "d1", range(3))

    assert sequences(await facts.after("c1", ALL, at)) == [4, 5, 6]


async def test_a_question_about_a_cluster_without_facts_is_asked_to_come_again(bus: Bus) -> None:
    with pytest.raises(TransientError, match="there is no stream of facts yet"):
        await Facts(bus).newest("c9", ALL, 1, None)


async def test_what_is_no_fact_of_ours_keeps_nobody_from_the_rest(bus: Bus) -> None:
    await bus.publish("sunk.ev.c1.slurm.node.d1.drained", b"\x00no json")
    await bus.publish("sunk.ev.c1.placement.pod.uid-x.bound", b'{"type":"sunk.pod_scheduler.v9.x"}')
    await bus.publish("sunk.ev.c1.odd", b"{}")
    await publish(bus, "d1", range(1))

    rows = (await Facts(bus).newest("c1", ALL, 50, None)).rows

    assert [(row.about, row.name, row.namespace) for row in rows] == [
        ("slurm.node", "d1", ""),
        ("placement.pod", "a Pod of another team", ""),
        ("slurm.node", "d1", ""),
    ]


async def test_what_is_never_wanted_is_read_up_to_a_limit_which_is_said(bus: Bus) -> None:
    await publish(bus, "busy", range(2 * CALLS_MAX))
    counted = Counted(bus, 10 * CALLS_MAX)

    page = await counted.facts(60).newest(
        "c1", Wanted(entities=("busy",), takes=lambda row: row.sequence < 5), 200, None
    )

    assert page.rows == ()
    assert page.problems == (
        f"c1: older events are left out, because one answer reads about {CALLS_MAX} messages",
    )
    assert counted.calls <= CALLS_MAX + 1


async def test_many_events_of_long_ago_are_found_within_the_limit(bus: Bus) -> None:
    await publish(bus, "quiet", range(600))
    await publish(bus, "busy", range(3000))

    page = await Facts(bus, answer_s=60).newest("c1", of("quiet"), 50, None)

    assert (sequences(page), page.problems) == (list(range(551, 601)), ())


async def test_a_slow_bus_hides_no_newest_event_from_who_goes_on(bus: Bus) -> None:
    await publish(bus, "d1", range(300))
    page = await Counted(bus, 10).facts().newest("c1", ALL, 200, None)
    begin = 300 - FIRST_SPAN + 1

    assert sequences(page) == list(range(begin, begin + 10))
    assert page.problems == (
        "c1: newer and older events are left out, because reading took too long. Ask again",
    )
    assert page.is_more
    assert sequences(await Facts(bus).after("c1", ALL, page.at)) == list(range(begin + 10, 301))


async def test_a_slow_bus_keeps_the_newest_events_that_were_read(bus: Bus) -> None:
    await publish(bus, "d1", range(300))
    page = await Counted(bus, 60).facts().newest("c1", ALL, 200, None)

    assert sequences(page) == list(range(300 - FIRST_SPAN + 1, 301))
    assert page.problems == ("c1: older events are left out, because reading took too long",)
    assert (page.at.sequence, page.is_more) == (300, False)
