"""A leader's writes: each asks first whether it still leads, and carries the token of its lease."""

import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.base import event_id
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, LostLeadershipError
from sunk_runtime.fencing import FENCE_HEADER
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.leases import BusLease, Leadership, lead
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter, publish

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = SlurmNodeState(node="n1", state="IDLE", changed=NOW)
BUCKET = subjects.bucket("c1", SlurmNodeState)
FACT = NodeDrained(
    id=event_id("node_drained", "n1", 0),
    source="/c1/test",
    subject="n1",
    time=NOW,
    data=NodeSnapshot(node="n1", state="IDLE"),
)

NodeView = StateView[SlurmNodeState]


def leadership(token: int = 7, left_s: float = 60.0) -> Leadership:
    return Leadership("test", token, time.monotonic() + left_s)


class EndsAfter:
    """Leave to write a few times, as when the lease ends between two writes."""

    token = 7

    def __init__(self, writes: int) -> None:
        self._left = writes

    def check(self) -> None:
        if not self._left:
            raise LostLeadershipError("the lease may have ended")
        self._left -= 1


async def stored(bus: Bus, stream: str) -> int:
    return (await bus.js.stream_info(stream)).state.messages


@pytest.fixture
async def view(bus: Bus) -> AsyncGenerator[NodeView]:
    view = StateView(bus, "c1", SlurmNodeState)
    async with following(view):
        with anyio.fail_after(WITHIN_S):
            await view.complete()
        yield view


async def test_what_a_leader_stores_carries_its_token(bus: Bus, view: NodeView) -> None:
    await StateWriter(bus, view, fence=leadership(1718)).record("n1", NODE, [FACT], revision=0)

    for stream, subject in (
        (subjects.bucket_stream(BUCKET), subjects.key_subject(BUCKET, "n1")),
        (subjects.fact_stream("c1"), subjects.fact("c1", FACT)),
    ):
        found = await bus.last(stream, subject)
        assert found is not None
        assert found[1].headers[FENCE_HEADER] == "1718"


async def test_a_deposed_leader_writes_neither_fact_nor_state(bus: Bus, view: NodeView) -> None:
    writer = StateWriter(bus, view, fence=leadership(left_s=-1))

    with pytest.raises(LostLeadershipError):
        await writer.record("n1", NODE, [FACT], revision=0)

    assert await stored(bus, subjects.fact_stream("c1")) == 0
    assert await stored(bus, subjects.bucket_stream(BUCKET)) == 0


async def test_a_deposed_leader_deletes_nothing(bus: Bus, view: NodeView) -> None:
    await StateWriter(bus, view, fence=leadership()).record("n1", NODE, revision=0)

    with pytest.raises(LostLeadershipError):
        await StateWriter(bus, view, fence=leadership(left_s=-1)).forget("n1", revision=view.revision("n1"))

    assert view.get("n1") == NODE


async def test_a_lease_that_ends_between_fact_and_state_leaves_the_state_to_the_next_leader(
    bus: Bus, view: NodeView
) -> None:
    with pytest.raises(LostLeadershipError):
        await StateWriter(bus, view, fence=EndsAfter(1)).record("n1", NODE, [FACT], revision=0)
    assert await stored(bus, subjects.bucket_stream(BUCKET)) == 0

    await StateWriter(bus, view, fence=leadership(8)).record("n1", NODE, [FACT], revision=0)

    assert await stored(bus, subjects.fact_stream("c1")) == 1  # The same fact under the same id.
    assert view.get("n1") == NODE


async def test_a_leader_without_a_connection_leaves_nothing_behind_to_be_sent_later(
    bus: Bus, server: NatsServer
) -> None:
    server.kill()
    await until(lambda: not bus.is_connected)

    with pytest.raises(BusUnavailableError, match="no connection"):
        await publish(bus, "c1", FACT, fence=leadership())
    server.start()
    await until(lambda: bus.is_connected)
    await bus.flush()

    assert await stored(bus, subjects.fact_stream("c1")) == 0


async def test_what_is_written_on_a_renewed_lease_carries_the_token_of_its_leadership(
    bus: Bus, view: NodeView
) -> None:
    lease = BusLease(bus, "c1", "syncer", "a", ttl_s=5)
    leases = subjects.bucket_stream(subjects.lease_bucket("c1"))
    tokens: list[int] = []

    async def is_renewed(since: int) -> bool:
        return (await bus.js.stream_info(leases)).state.last_seq > since

    async def work(led: Leadership) -> None:
        taken = (await bus.js.stream_info(leases)).state.last_seq
        await until(lambda: is_renewed(taken))
        await StateWriter(bus, view, fence=led).record("n1", NODE, revision=0)
        tokens.append(led.token)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead, lease, work)

    found = await bus.last(subjects.bucket_stream(BUCKET), subjects.key_subject(BUCKET, "n1"))
    assert found is not None
    assert found[1].headers[FENCE_HEADER] == str(tokens[0])


async def test_a_publish_while_no_server_leads_the_stream_is_repeated_until_one_does(
    settings: BusSettings, server: NatsServer
) -> None:
    """A stream that is not there yet answers as one does whose servers choose a leader: nobody listens."""
    async with connect(BusSettings(url=server.url, publish_retry_s=WITHIN_S), "test") as bus:
        repeated = _value("sunk_publish_retries_total")

        async def make_streams() -> None:
            await until(lambda: _value("sunk_publish_retries_total") > repeated + 1)
            await bus.provision("c1", settings)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make_streams)
            await publish(bus, "c1", FACT)

        assert await stored(bus, subjects.fact_stream("c1")) == 1


async def test_a_publish_that_finds_no_leader_in_its_time_says_so(server: NatsServer) -> None:
    async with connect(BusSettings(url=server.url, publish_retry_s=0.2), "test") as bus:
        failed = _value("sunk_publishes_failed_total", reason="unavailable")

        with anyio.fail_after(WITHIN_S), pytest.raises(BusUnavailableError, match="NoStreamResponseError"):
            await publish(bus, "c1", FACT)

        assert _value("sunk_publishes_failed_total", reason="unavailable") == failed + 1


async def test_a_lease_that_ends_while_a_publish_is_repeated_ends_it(server: NatsServer) -> None:
    async with connect(BusSettings(url=server.url, publish_retry_s=60), "test") as bus:
        with anyio.fail_after(WITHIN_S), pytest.raises(LostLeadershipError):
            await publish(bus, "c1", FACT, fence=EndsAfter(3))


@pytest.mark.parametrize(("replicas", "retry_s"), [(1, 0.0), (3, 15.0)])
def test_only_where_servers_elect_is_a_publish_repeated(replicas: int, retry_s: float) -> None:
    assert BusSettings(replicas=replicas).retry_s == retry_s


def _value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
