"""Placements that came back with an older bucket and are as they were: others wait to hear that they hold."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from sunk_events.placements import PlacementState
from sunk_lab.nats import NatsServer
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.gangs.model import GangSeen, Notify
from sunk_pod_scheduler.placement.actions import Wait
from sunk_pod_scheduler.placement.events import EventSource, facts
from sunk_pod_scheduler.placement.model import JobUnknown, Observed
from sunk_runtime.errors import BusUnavailableError, ConflictError
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def placed(uid: str, node: str = "n1") -> PlacementState:
    return PlacementState(changed=T0, uid=uid, namespace="team", pod=uid, phase="bound", job=7, node=node)


def context(bus: Bus, view: StateView[PlacementState]) -> Context:
    """What stores placements, and nothing else."""
    nobody = cast("Any", None)
    return Context(
        event_source=nobody,
        pods=nobody,
        jobs=nobody,
        placements=StateWriter(bus, view, fence=None),
        views=nobody,
        rules=nobody,
        placeholder=nobody,
        refusals=nobody,
        check=lambda: None,
    )


async def test_what_is_as_it_was_or_gone_is_told_anew_and_of_a_job_that_is_unknown_nothing(
    bus: Bus, server: NatsServer
) -> None:
    mine, reader = (StateView(bus, "c1", PlacementState) for _ in "ab")
    having = context(bus, mine)
    writer, executor = having.placements, Executor(having)
    async with following(mine, reader):
        await mine.complete()
        for node in ("n1", "n2"):
            for uid in ("kept", "seat", "gang"):
                await writer.record(uid, placed(uid, node), revision=mine.revision(uid))
        server.keep_store()
        await until(lambda: bus.reconnects == 1 and mine.is_complete)
        for node in ("n1", "n2"):
            for uid in ("kept", "seat", "gang"):
                await writer.record(uid, placed(uid, node), revision=mine.revision(uid))
        await writer.record("gone", placed("gone"), revision=0)
        await until(lambda: len(reader) == 4)
        server.put_store_back()
        await until(lambda: bus.reconnects == 2 and len(mine) == len(reader) == 3)
        await mine.complete()

        kept, seat, gang = (mine.get(uid) for uid in ("kept", "seat", "gang"))
        assert seat is not None
        await executor.apply(Wait(), Observed(uid="kept", placement=kept, job=JobUnknown()), {})
        assert mine.is_doubtful("kept")
        await executor.apply(Wait(), Observed(uid="kept", placement=kept), {})
        await executor.apply(Wait(), Observed(uid="gone"), {})
        await until(lambda: {uid for uid in ALL if reader.is_doubtful(uid)} == {"seat", "gang"})
        assert not reader.is_complete
        members = GangSeen(uid="gang", placement=gang, seats={"seat": seat})
        await executor.apply(Notify(notes={}), members, {})

        await until(lambda: reader.is_complete)


ALL = ("kept", "gone", "seat", "gang")


async def test_what_was_to_be_told_of_a_pod_that_is_gone_by_now_is_told(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, publish = StateView(bus, "c1", PlacementState), bus.publish
    having = context(bus, view)

    async def full(subject: str, data: bytes, **how: Any) -> int:  # noqa: ANN401 - as `Bus.publish` has it
        raise BusUnavailableError(f"no space for {subject}, {len(data)} bytes, {len(how)}")

    async with following(view):
        await view.complete()
        monkeypatch.setattr(bus, "publish", full)
        with pytest.raises(BusUnavailableError):
            await having.placements.record(
                "u1",
                placed("u1"),
                facts(
                    None, placed("u1"), revision=0, event_source=EventSource("c1", "pod-scheduler"), now=T0
                ),
                revision=0,
            )
        monkeypatch.setattr(bus, "publish", publish)

        with pytest.raises(ConflictError, match="published only now"):
            await Executor(having).apply(Wait(), Observed(uid="u1"), {})
        assert view.get("u1") == placed("u1")
