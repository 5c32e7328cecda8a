import logging
from typing import Any

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, LostLeadershipError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.leases import MARGIN_SHARE, BusLease, Leadership, call_s, lead, renew_after_s
from sunk_runtime.testing import WITHIN_S, LeaseConformance, MakeLease, until

pytestmark = pytest.mark.anyio

KEY = subjects.key_subject(subjects.lease_bucket("c1"), "syncer")


def lease(bus: Bus, holder: str, ttl_s: int = 30) -> BusLease:
    return BusLease(bus, "c1", "syncer", holder, ttl_s=ttl_s)


class Replica:
    """One of several processes that want to lead: remembers when it did."""

    def __init__(self, bus: Bus, name: str, ttl_s: int = 1) -> None:
        self.name = name
        self.lease = lease(bus, name, ttl_s)
        self.tokens: list[int] = []
        self.leadership: Leadership | None = None
        self.scope = anyio.CancelScope()

    @property
    def is_leading(self) -> bool:
        return self.leadership is not None

    async def run(self) -> None:
        with self.scope:
            await lead(self.lease, self._work)

    async def _work(self, leadership: Leadership) -> None:
        self.tokens.append(leadership.token)
        self.leadership = leadership
        try:
            await anyio.sleep_forever()
        finally:
            self.leadership = None


RENEWALS = 12
"""So many, one each second, take longer than a TTL of ten."""


async def revision(bus: Bus) -> int:
    found = await bus.last(subjects.bucket_stream(subjects.lease_bucket("c1")), KEY)
    return found[0] if found else 0


async def is_past(bus: Bus, wanted: int) -> bool:
    return await revision(bus) >= wanted


class TestBusLease(LeaseConformance):
    @pytest.fixture
    def make_lease(self, bus: Bus) -> MakeLease:
        return lambda holder, ttl_s: lease(bus, holder, ttl_s)


async def test_renewing_states_the_time_to_live_again(bus: Bus) -> None:
    holder = lease(bus, "a", ttl_s=10)
    await holder.acquire()
    for _ in range(4):
        await anyio.sleep(3)
        assert await holder.renew() is not None  # Well over one TTL by now, and it was never free.
        assert await lease(bus, "b").acquire() is None

    other = lease(bus, "b")
    taken: list[int | None] = []

    async def is_taken() -> bool:
        taken.append(await other.acquire())
        return taken[-1] is not None

    await until(is_taken)  # A renewal without a TTL would hold it for ever.


async def test_a_lease_that_ended_is_not_renewed_but_can_be_taken_again(bus: Bus) -> None:
    holder = lease(bus, "a", ttl_s=5)
    await holder.acquire()

    async def is_expired() -> bool:
        found = await bus.last(subjects.bucket_stream(subjects.lease_bucket("c1")), KEY)
        return found is None or "Nats-Marker-Reason" in found[1].headers

    await until(is_expired)

    assert await holder.renew() is None
    assert await holder.acquire() is not None


async def test_a_renewal_whose_answer_was_lost_does_not_cost_the_lease(bus: Bus) -> None:
    holder, twin = lease(bus, "a"), lease(bus, "a")
    await holder.acquire()
    stored = await twin.acquire()  # What the server stored for us and we never heard of.

    token = await holder.renew()

    assert stored is not None
    assert token is not None
    assert await twin.renew() is not None


class Unlucky(Bus):
    """The same connection, but the acknowledgement of the next write is lost."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)
        self.is_due = True

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        stored = await super().publish(subject, data, **more)
        if self.is_due:
            self.is_due = False
            raise BusUnavailableError("no acknowledgement")
        return stored


async def test_who_takes_a_lease_whose_record_was_lost_knows_so_though_the_answer_was_lost_too(
    bus: Bus,
) -> None:
    taken = lease(Unlucky(bus), "a")
    with pytest.raises(BusUnavailableError):
        await taken.acquire()

    assert await taken.acquire() is not None
    assert not taken.was_given_up


@pytest.mark.parametrize("garbage", [b"garbage", b'{"holder": "\xff"}', b'{"x": ' + b"[" * 9000])
async def test_a_lease_with_garbage_in_it_is_somebody_elses(bus: Bus, garbage: bytes) -> None:
    await bus.publish(KEY, garbage, ttl_s=60)

    assert await lease(bus, "a").acquire() is None


async def test_two_replicas_never_lead_at_once_and_the_other_takes_over_after_a_release(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_runtime.leases.RELEASE_S", WITHIN_S)  # However busy the machine is.
    ttl_s = 10 * int(WITHIN_S)  # It does not run out while the test waits.
    a, b = Replica(bus, "a", ttl_s), Replica(bus, "b", ttl_s)
    await give_up(lease(bus, "former"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.is_leading)
        tasks.start_soon(b.run)
        await anyio.sleep(0.1)
        assert not b.is_leading

        a.scope.cancel()  # As SIGTERM does.
        await until(lambda: b.is_leading)

        assert not a.is_leading
        assert b.tokens[0] > max(a.tokens)
        tasks.cancel_scope.cancel()


async def test_when_the_holder_is_killed_another_leads_after_the_time_to_live(
    bus: Bus, settings: BusSettings
) -> None:
    async with connect(settings, "killed") as killed:
        assert await lease(killed, "a", ttl_s=5).acquire() is not None  # It never renews again.
    b = Replica(bus, "b")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(b.run)
        assert not b.is_leading
        await until(lambda: b.is_leading)
        tasks.cancel_scope.cancel()


async def test_a_leader_renews_for_as_long_as_it_works(bus: Bus) -> None:
    a, b = Replica(bus, "a", ttl_s=10), Replica(bus, "b", ttl_s=10)
    await give_up(lease(bus, "former"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.is_leading)
        tasks.start_soon(b.run)
        first = await revision(bus)
        await until(lambda: is_past(bus, first + RENEWALS))

        assert a.leadership is not None
        a.leadership.check()
        assert (a.tokens[1:], b.tokens) == ([], [])
        tasks.cancel_scope.cancel()


async def test_the_holder_stops_before_its_lease_ends_when_nats_hangs(bus: Bus, server: NatsServer) -> None:
    a = Replica(bus, "a", ttl_s=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.is_leading)
        leadership = a.leadership
        assert leadership is not None

        server.hang()
        # Others wait for the whole TTL from when the last renewal came to the server.
        assert leadership.left_s < a.lease.ttl_s * (1 - MARGIN_SHARE)
        await until(lambda: not a.is_leading)

        with pytest.raises(LostLeadershipError):
            leadership.check()
        server.resume()
        await until(lambda: a.is_leading)
        tasks.cancel_scope.cancel()


async def test_a_leader_outlives_a_server_that_is_killed_and_started_again(
    bus: Bus, server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    a = Replica(bus, "a", ttl_s=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.is_leading)
        with caplog.at_level(logging.INFO):
            server.kill()
            server.start()
            await until(lambda: bus.reconnects == 1)
        await until(lambda: a.is_leading)
        tasks.cancel_scope.cancel()


async def test_a_lease_is_given_back_whose_renewal_was_under_way_when_its_holder_ended(bus: Bus) -> None:
    held = lease(bus, "a", ttl_s=30)
    assert await held.acquire() is not None
    renewal = lease(bus, "a", ttl_s=30)  # The same holder's: its answer does not come before the end.
    assert await renewal.acquire() is not None

    await held.release()

    assert await lease(bus, "b").acquire() is not None


async def test_a_holder_that_ends_gives_no_lease_back_that_another_has_in_a_new_store(
    bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    former, present = lease(bus, "a", ttl_s=30), lease(bus, "b", ttl_s=30)
    assert await former.acquire() is not None
    await lose_the_record(bus, server, settings, "wiped")
    assert await present.acquire() is not None  # Revisions begin anew: both have the first.

    await former.release()

    assert await lease(bus, "other").acquire() is None


async def test_work_that_fails_ends_the_process_and_gives_the_lease_back(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_runtime.leases.RELEASE_S", WITHIN_S)  # However busy the machine is.

    async def fail(_: Leadership) -> None:
        raise KeyError("bug")

    await give_up(lease(bus, "former"))
    with pytest.RaisesGroup(KeyError):
        await lead(lease(bus, "a", ttl_s=30), fail)

    assert await lease(bus, "b").acquire() is not None


async def lose_the_record(bus: Bus, server: NatsServer, settings: BusSettings, how: str) -> None:
    stream = subjects.bucket_stream(subjects.lease_bucket("c1"))
    match how:
        case "purged":
            await bus.js.purge_stream(stream)
        case "deleted":  # As `nats kv del` does.
            await bus.publish(KEY, b"", headers={"KV-Operation": "DEL"})
        case "made anew":
            await bus.js.delete_stream(stream)
            await bus.provision("c1", settings)
        case _:
            before = bus.reconnects
            server.kill()
            server.wipe()
            server.start()
            await until(lambda: bus.reconnects > before and bus.is_connected)
            await bus.provision("c1", settings)


@pytest.mark.parametrize("how", ["purged", "deleted", "made anew", "wiped"])
async def test_a_holder_whose_record_was_lost_stops_before_the_next_one_works_whose_token_is_larger(
    bus: Bus, server: NatsServer, settings: BusSettings, how: str
) -> None:
    a, b = Replica(bus, "a", ttl_s=5), Replica(bus, "b", ttl_s=5)
    await give_up(lease(bus, "former"))
    led_by_a: list[Leadership] = []
    both: list[bool] = []

    async def work_of_b(leadership: Leadership) -> None:
        both.append(led_by_a[0].is_valid or a.is_leading)
        b.tokens.append(leadership.token)
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.is_leading)
        tasks.start_soon(lead, b.lease, work_of_b)
        # Who held it may have it again first: in a new store its revision may be that of the next one, who
        # waits for that before it works.
        while not both:
            await until(lambda: (a.is_leading and a.leadership is not None) or bool(both))
            if both or a.leadership is None:
                break
            led_by_a[:] = [a.leadership]
            assert await lease(bus, "other").acquire() is None
            await lose_the_record(bus, server, settings, how)
            with anyio.move_on_after(10):
                await until(lambda: bool(both))
        tasks.cancel_scope.cancel()

    assert both == [False]
    assert b.tokens[0] > max(a.tokens)


async def give_up(former: BusLease) -> None:
    """Leave a record that nobody holds the lease: who takes it next need not wait."""
    assert await former.acquire() is not None
    await former.release()


class Cuttable(Bus):
    """The same connection, but nothing answers once it is cut."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)
        self.is_cut = False

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        if self.is_cut:
            await anyio.sleep_forever()
        return await super().publish(subject, data, **more)

    async def last(self, stream: str, subject: str) -> tuple[int, Message] | None:
        if self.is_cut:
            await anyio.sleep_forever()
        return await super().last(stream, subject)


async def test_the_next_one_works_only_once_a_holder_has_stopped_that_hears_nothing_of_its_lost_record(
    bus: Bus, server: NatsServer, settings: BusSettings
) -> None:
    cuttable = Cuttable(bus)
    a, b = Replica(cuttable, "a", ttl_s=5), Replica(bus, "b", ttl_s=5)
    both = True
    await give_up(lease(bus, "former"))
    both = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.run)
        await until(lambda: a.leadership is not None)
        led_by_a = a.leadership
        cuttable.is_cut = True
        await lose_the_record(bus, server, settings, "deleted")
        tasks.start_soon(b.run)
        await until(lambda: b.is_leading)
        both = led_by_a is None or led_by_a.is_valid or a.is_leading
        tasks.cancel_scope.cancel()

    assert not both


async def test_who_only_stands_by_says_that_it_does_not_lead() -> None:
    class Taken:
        name, ttl_s, was_given_up = "taken-by-another", 1, True

        async def acquire(self) -> int | None:
            return None

        async def renew(self) -> int | None:
            raise AssertionError

        async def release(self) -> None:
            raise AssertionError

    async def work(leadership: Leadership) -> None:
        raise AssertionError(leadership)

    with anyio.move_on_after(0):
        await lead(Taken(), work)

    assert REGISTRY.get_sample_value("sunk_leader", {"lease": "taken-by-another"}) == 0


async def test_a_bucket_of_leases_that_somebody_removed_is_made_again(bus: Bus) -> None:
    replica = Replica(bus, "a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(replica.run)
        await until(lambda: replica.is_leading)

        await bus.js.delete_stream(subjects.bucket_stream(subjects.lease_bucket("c1")))
        await until(lambda: not replica.is_leading)

        await until(lambda: replica.is_leading)
        tasks.cancel_scope.cancel()
    assert len(replica.tokens) > 1
    assert replica.tokens == sorted(set(replica.tokens))


@pytest.mark.parametrize("ttl_s", [2, 3, 4, 15])
def test_a_renewal_that_hangs_leaves_time_for_another(ttl_s: float) -> None:
    """Of all its time, which ends before others may begin."""
    begins = renew_after_s(ttl_s, has_failed=False)
    again = begins + call_s(ttl_s) + renew_after_s(ttl_s, has_failed=True)

    assert ttl_s * (1 - MARGIN_SHARE) - again >= ttl_s / 10


class SlowLease:
    """A lease on a server whose every call takes so long; nobody else wants it."""

    def __init__(self, ttl_s: float, latency_s: float) -> None:
        self.name, self.ttl_s, self.was_given_up = "slow", ttl_s, True
        self._latency_s = latency_s

    async def acquire(self) -> int | None:
        await anyio.sleep(self._latency_s)  # Who has it,
        await anyio.sleep(self._latency_s)  # and the write.
        return 1

    async def renew(self) -> int | None:
        await anyio.sleep(self._latency_s)
        return 1

    async def release(self) -> None:
        await anyio.sleep(self._latency_s)


async def test_a_server_whose_calls_are_slow_keeps_nobody_from_leading() -> None:
    """Two calls acquire the lease, and what is left of it then is enough for a renewal."""
    leaderships: list[Leadership] = []

    async def work(leadership: Leadership) -> None:
        leaderships.append(leadership)
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead, SlowLease(ttl_s=6, latency_s=1.2), work)
        await until(lambda: bool(leaderships), within_s=60)
        first = leaderships[0].left_s
        await until(lambda: leaderships[-1].left_s > first + 0.5, within_s=60)
        tasks.cancel_scope.cancel()
