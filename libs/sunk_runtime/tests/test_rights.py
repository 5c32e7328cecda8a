"""Rights of our NATS user, looked at once at start; and a clock that is off."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from sunk_lab.nats import NatsServer
from sunk_runtime import jetstream
from sunk_runtime.client import Client
from sunk_runtime.clock import ServerClock, skew_s
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.rights import covers, overlaps, require_rights
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Needs(msgspec.Struct, frozen=True):
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


USERS = """
authorization { users: [
  {user: "syncer", password: "right", permissions: {
    publish: {allow: ["$SYS.REQ.USER.INFO", "sunk.ev.c1.slurm.>"], deny: ["sunk.ev.c1.slurm.job.>"]},
    subscribe: ["_INBOX.syncer.>"]}},
] }
"""


async def test_each_right_that_our_user_lacks_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("right")
    needs = Needs(
        publish=("sunk.ev.c1.slurm.node.*.drained", "sunk.ev.c1.slurm.job.*.ended", "$KV.b.>"),
        subscribe=("_INBOX.syncer.>", "sunk.rpc.c1.slurm.node.*.confirm"),
    )
    with NatsServer(tmp_path / "nats", extra=USERS) as server:
        async with connect(BusSettings(url=server.url, user="syncer", password_file=file), "test") as bus:
            await require_rights(bus, Needs(publish=needs.publish[:1]))
            with pytest.raises(PermanentError) as raised:
                await require_rights(bus, needs)

    assert str(raised.value).startswith(
        "NATS user 'syncer' may not publish to sunk.ev.c1.slurm.job.*.ended; may not publish to $KV.b.>; "
        "may not subscribe to sunk.rpc.c1.slurm.node.*.confirm. Give it these rights"
    )


class Odd(Bus):
    """The connection, over which who we are is answered with *data*."""

    def __init__(self, real: Bus, data: bytes) -> None:
        self.__dict__.update(real.__dict__)
        self._data = data

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Message:  # noqa: ARG002 - as the real one
        return Message(Client(), subject, data=self._data)


@pytest.mark.parametrize("data", [b"", b"\xff", b'{"server":{},"error":{"code":503}}', b'{"data":[]}'])
async def test_a_server_that_does_not_say_is_taken_to_allow_it(bus: Bus, data: bytes) -> None:
    await require_rights(Odd(bus, data), Needs(publish=("anything.>",)))


async def test_where_nats_has_no_users_everything_is_allowed(bus: Bus) -> None:
    await require_rights(bus, Needs(publish=("anything.>",), subscribe=(">",)))


@pytest.mark.parametrize(
    ("pattern", "subject", "is_covered", "is_overlapping"),
    [
        ("a.b", "a.b", True, True),
        ("a.*", "a.b", True, True),
        ("a.*", "a.*", True, True),
        ("a.b", "a.*", False, True),
        ("a.>", "a.b.c", True, True),
        ("a.>", "a", False, False),
        ("a.>", "a.>", True, True),
        ("a.*", "a.>", False, True),
        ("a.b.>", "a.>", False, True),
        ("a.*.c", "a.b.d", False, False),
        ("a.b", "a.b.c", False, False),
        ("a.b.c", "a.b", False, False),
        (">", "$JS.API.INFO", True, True),
    ],
)
def test_a_pattern_covers_what_it_lets_through(
    pattern: str, subject: str, *, is_covered: bool, is_overlapping: bool
) -> None:
    assert (covers(pattern, subject), overlaps(pattern, subject)) == (is_covered, is_overlapping)


@pytest.mark.parametrize(
    ("server", "skew"),
    [
        (NOON, 0.0),
        (NOON + timedelta(seconds=0.5), 0.0),
        (NOON + timedelta(hours=3), 3 * 3600 - 1.0),
        (NOON - timedelta(hours=3), -3 * 3600.0),
    ],
    ids=["as we asked", "while it answered", "ahead", "behind"],
)
def test_the_skew_is_what_the_way_of_the_answer_does_not_explain(server: datetime, skew: float) -> None:
    assert skew_s(server, NOON, NOON + timedelta(seconds=1)) == skew


def test_a_clock_that_is_hours_off_is_said_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    watch = ServerClock()
    hours_off, right = NOON + timedelta(hours=3), NOON
    with caplog.at_level(logging.INFO):
        for server in (right, hours_off, hours_off, right, hours_off):
            watch.note(server.isoformat(), NOON, NOON)
        watch.note("not a time", NOON, NOON)

    assert caplog.messages == ["clock is off", "clock is right again", "clock is off"]
    assert vars(caplog.records[0])["skew_s"] == 3 * 3600.0


async def test_the_servers_clock_is_compared_with_ours_whenever_jetstream_answers(bus: Bus) -> None:
    """Server and test share one clock: the one that is off here is ours of yesterday."""
    await bus.js.stream_info("SUNK_EV_c1")
    assert bus.clock.skew_s == 0.0

    bus.clock.note(str(datetime.now(UTC)), NOON - timedelta(days=3650), NOON - timedelta(days=3650))
    assert bus.clock.skew_s > 86400

    await bus.js.stream_info("SUNK_EV_c1")
    assert bus.clock.skew_s == 0.0


async def test_a_clock_that_goes_wrong_while_nobody_calls_jetstream_is_seen_all_the_same(
    settings: BusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "CLOCK_S", 0.05)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yesterday = NOON - timedelta(days=3650)
        bus.clock.note(NOON.isoformat(), yesterday, yesterday)
        assert bus.clock.skew_s > 86400

        await until(lambda: bus.clock.skew_s == 0.0)
