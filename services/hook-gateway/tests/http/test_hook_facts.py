"""Each call that was answered is told on the bus; reboots and nudges, with who asked."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.codec import decode_event
from sunk_events.hooks import (
    JobNudgeCalled,
    NodeNudgeCalled,
    PlacementReleaseCalled,
    PrehookCalled,
    RebootCalled,
    StartedCalled,
)
from sunk_events.requests import (
    AcquireLock,
    Later,
    LockGranted,
    Noted,
    NudgeJob,
    NudgeNode,
    PlacementAnnounced,
    PlacementReleased,
    RebootNode,
    Refused,
    ReleasePlacement,
)
from sunk_hook_gateway.testing.hooks import CLUSTER, Gateway, call, place, register, standing_in, token_of
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def hearing(bus: Bus, kind: type[Event]) -> AsyncGenerator[list[Event]]:
    heard: list[Event] = []

    async def receive(message: object) -> None:
        heard.append(decode_event(getattr(message, "data")))  # noqa: B009 - the bus' own type

    async with bus.subscribed(subjects.facts(CLUSTER, kind), receive):
        yield heard


def first(heard: list[Event]) -> Callable[[], bool]:
    return lambda: bool(heard)


async def test_each_answered_prolog_is_told(bus: Bus, http: httpx.AsyncClient, issuer: Issuer) -> None:
    await register(bus, "b6")
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with hearing(bus, PrehookCalled) as heard, answering_locks:
        await call(http, "/v1/nodes/b6/prehook", issuer.token("b6"), {"job": 26})
        await until(first(heard))

    (fact,) = heard
    assert isinstance(fact, PrehookCalled)
    assert (fact.data.node, fact.data.job, fact.data.status) == ("b6", 26, 200)
    assert fact.source == f"/{CLUSTER}/hook-gateway"


async def test_a_reboot_is_asked_for_and_told_with_who_asked(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "r1")
    answers, answering_reboots = standing_in(bus, RebootNode, Later(reason="", retry_after_s=0.01), Noted())

    async with hearing(bus, RebootCalled) as heard, answering_reboots:
        assert await call(http, "/v1/nodes/r1/reboot", issuer.token("r1")) == {}
        await until(first(heard))

    assert answers.requests[-1] == RebootNode(node="r1", who="slurm/r1")
    (fact,) = heard
    assert isinstance(fact, RebootCalled)
    assert (fact.data.node, fact.data.who, fact.data.status) == ("r1", "slurm/r1", 200)


async def test_a_reboot_that_is_not_permitted_names_the_value_to_set_and_is_told_too(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "r2")
    why = "set syncer.nodePermissions.enabled"
    _, answering_reboots = standing_in(bus, RebootNode, Refused(code="forbidden", reason=why))

    async with hearing(bus, RebootCalled) as heard, answering_reboots:
        told = await call(http, "/v1/nodes/r2/reboot", issuer.token("r2"), expect=403)
        await until(first(heard))

    assert told == {"error": why}
    assert isinstance(heard[0], RebootCalled)
    assert heard[0].data.status == 403


async def test_where_reboots_are_turned_off_none_is_asked_for_and_the_call_is_told(
    bus: Bus, start_gateway: Callable[..., Gateway], issuer: Issuer
) -> None:
    await register(bus, "r6")
    _, url = start_gateway(REBOOTS="false")
    answers, answering_reboots = standing_in(bus, RebootNode, Noted())

    async with (
        hearing(bus, RebootCalled) as heard,
        answering_reboots,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http,
    ):
        told = await call(http, "/v1/nodes/r6/reboot", issuer.token("r6"), expect=403)
        await until(first(heard))

    assert "syncer.nodePermissions.enabled" in str(told)
    assert not answers.requests
    assert isinstance(heard[0], RebootCalled)
    assert (heard[0].data.node, heard[0].data.status) == ("r6", 403)


async def test_no_node_reboots_another_and_nobody_reboots_an_unknown_one(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "r3")
    answers, answering_reboots = standing_in(bus, RebootNode, Noted())

    async with answering_reboots:
        await call(http, "/v1/nodes/r3/reboot", issuer.token("r4"), expect=403)
        await call(http, "/v1/nodes/nobody/reboot", issuer.token("nobody"), expect=503)

    assert not answers.requests


async def test_slurmctld_reboots_every_node_and_may_do_nothing_else_to_nodes(
    bus: Bus, start_gateway: Callable[..., Gateway], issuer: Issuer
) -> None:
    await register(bus, "r7")
    _, url = start_gateway(SLURMCTLD_ACCOUNTS="ctld")
    token = issuer.token("slurm-controller-0", account="ctld")
    answers, answering_reboots = standing_in(bus, RebootNode, Noted())

    async with answering_reboots, httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http:
        await call(http, "/v1/nodes/r7/reboot", token)
        elsewhere = issuer.token("slurm-controller-0", "default", account="ctld")
        await call(http, "/v1/nodes/r7/reboot", elsewhere, expect=403)
        await call(http, "/v1/nodes/r7/reboot", issuer.token("slurm-controller-0"), expect=403)
        await call(http, "/v1/nodes/r7/prehook", token, {"job": 1}, expect=403)
        await call(http, "/v1/nodes/r7/release", token, {"job": 1}, expect=403)
        await call(http, "/v1/nudges", token, {"node": "r7"}, expect=503)

    assert answers.requests == [RebootNode(node="r7", who="slurm/slurm-controller-0")]


async def test_a_reboot_that_nobody_answers_is_to_be_asked_for_again(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "r5")

    assert await call(http, "/v1/nodes/r5/reboot", issuer.token("r5"), expect=503) == {"retry": True}


async def test_a_placeholders_calls_are_told(bus: Bus, http: httpx.AsyncClient) -> None:
    await place(bus, 71, token=token_of(71))
    _, answering_starts = standing_in(bus, PlacementAnnounced, Noted())
    _, answering_ends = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))

    async with hearing(bus, StartedCalled) as started, answering_starts:
        await call(http, "/v1/jobs/71/started", token_of(71), {"node": "d7"})
        await until(first(started))
    async with hearing(bus, PlacementReleaseCalled) as released, answering_ends:
        await call(http, "/v1/jobs/71/release", token_of(71))
        await until(first(released))

    assert isinstance(started[0], StartedCalled)
    assert (started[0].data.job, started[0].data.node, started[0].data.status) == (71, "d7", 200)
    assert isinstance(released[0], PlacementReleaseCalled)
    assert (released[0].data.job, released[0].data.status) == (71, 200)


async def test_what_somebody_without_a_token_asks_for_is_not_told(
    bus: Bus, gateway: Gateway, http: httpx.AsyncClient
) -> None:
    """Facts are kept by their number of bytes, so those of strangers would end those of others."""
    await place(bus, 72, token=token_of(72))
    _, answering_ends = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))
    unknown = range(4_000_001, 4_000_007)

    async with hearing(bus, PlacementReleaseCalled) as released, answering_ends:
        async with anyio.create_task_group() as calls:
            for job in unknown:
                calls.start_soon(call, http, f"/v1/jobs/{job}/release", "nobodys")
        await call(http, "/v1/jobs/72/release", token_of(72))
        await until(first(released))

    assert [event.data.job for event in released if isinstance(event, PlacementReleaseCalled)] == [72]
    lines = gateway[0].log.read_text().splitlines()
    assert len([line for line in lines if any(str(job) in line for job in unknown)]) < len(unknown)


async def test_nudges_are_told(bus: Bus, http: httpx.AsyncClient, issuer: Issuer) -> None:
    _, answering_nodes = standing_in(bus, NudgeNode, Noted())
    _, answering_jobs = standing_in(bus, NudgeJob, Noted())
    await register(bus, "n1")
    token = issuer.token("n1")

    async with (
        hearing(bus, NodeNudgeCalled) as nodes,
        hearing(bus, JobNudgeCalled) as jobs,
        answering_nodes,
        answering_jobs,
    ):
        await call(http, "/v1/nudges", token, {"node": "n1"})
        await call(http, "/v1/nudges", token, {"job": 72})
        await until(lambda: bool(nodes) and bool(jobs))

    assert isinstance(nodes[0], NodeNudgeCalled)
    assert (nodes[0].data.node, nodes[0].data.who) == ("n1", "slurm/n1")
    assert isinstance(jobs[0], JobNudgeCalled)
    assert (jobs[0].data.job, jobs[0].data.node) == (72, "n1")
