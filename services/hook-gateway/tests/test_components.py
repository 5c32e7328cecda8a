"""Heterogeneous jobs: the prolog where the script starts is answered last."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest

from sunk_events.requests import AcquireLock, JobNotRunning, LockGranted
from sunk_hook_gateway.bodies import Component, Prehook
from sunk_hook_gateway.components import is_granted, reason_of, since, waited_for
from sunk_hook_gateway.testing.hooks import NOW, bearing, call, is_held, lock_of, register, standing_in, store
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


def body(job: int, *components: tuple[int, str], deadline_s: float = 120) -> dict[str, Any]:
    return {
        "job": job,
        "deadline_s": deadline_s,
        "started": NOW.timestamp(),
        "components": [{"job": job, "nodes": nodes} for job, nodes in components],
    }


def test_each_node_of_each_other_component_is_waited_for() -> None:
    components = (
        Component(job=7, nodes="a"),
        Component(job=8, nodes="b[1-2],c"),
        Component(job=9, nodes="c"),
    )

    assert waited_for(Prehook(job=7, components=components)) == ((8, "b1"), (8, "b2"), (8, "c"), (9, "c"))


@pytest.mark.parametrize("nodes", ["n[1-150000]", "n[1-6000]"])
def test_components_name_no_more_nodes_than_a_cluster_has(nodes: str) -> None:
    components = tuple(Component(job=job, nodes=nodes) for job in (8, 9))

    with pytest.raises(ValueError, match="more than"):
        waited_for(Prehook(job=7, components=components))


@pytest.mark.parametrize(
    ("job", "granted", "expected"),
    [
        pytest.param(8, NOW, True, id="granted since"),
        pytest.param(8, NOW - timedelta(seconds=59), True, id="by a clock that is behind"),
        pytest.param(8, NOW - timedelta(seconds=61), False, id="to the run before it was requeued"),
        pytest.param(8, None, False, id="not yet"),
        pytest.param(9, NOW, False, id="to another job"),
    ],
)
def test_a_lock_counts_once_it_is_granted_to_this_run(
    job: int, granted: datetime | None, *, expected: bool
) -> None:
    after = since(Prehook(job=7, started=NOW.timestamp()))

    assert is_granted(lock_of("b1", job, granted), 8, after) is expected
    assert is_granted(None, 8, after) is False


def test_a_refusal_names_the_first_few_nodes() -> None:
    assert reason_of([(8, "b")]) == "other components are not locked: b"
    assert reason_of([(8, f"b{n}") for n in range(1, 7)]).endswith(": b1, b2, b3, b4 and 2 more")


async def test_a_prolog_goes_on_when_all_components_are_locked_and_then_asks_for_its_own_once_more(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "h1")
    answers, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    told: list[object] = []
    before = 0

    async def prolog() -> None:
        while True:  # As the script does.
            answer = await http.post(
                "/v1/nodes/h1/prehook", json=body(101, (102, "h[2-3]")), headers=bearing(issuer.token("h1"))
            )
            if answer.status_code != 503:
                told.append(answer.json())
                return

    async with answering_locks, anyio.create_task_group() as tasks:
        tasks.start_soon(prolog)
        await until(lambda: bool(answers.asked))
        await store(bus, "h1", lock_of("h1", 101, datetime.now(UTC)))
        await store(bus, "h2", lock_of("h2", 102, datetime.now(UTC)))
        await store(bus, "h3", lock_of("h3", 102, None))
        await anyio.sleep(1)
        before = len(answers.asked)
        assert await is_held(http, "prehook")
        assert not told
        await store(bus, "h3", lock_of("h3", 102, datetime.now(UTC)))
        await until(lambda: bool(told))

    assert told == [{"locked": True}]
    assert {asked.node for asked in answers.asked if isinstance(asked, AcquireLock)} == {"h1"}
    assert len(answers.asked) == before + 1


async def test_a_component_that_is_not_locked_in_time_gives_the_job_back_and_drains_no_node_of_another(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "i1")
    await store(bus, "i2", lock_of("i2", 202, None))
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:
        asked = body(201, (202, "i2"), deadline_s=1)
        told = await call(http, "/v1/nodes/i1/prehook", issuer.token("i1"), asked, expect=409)

    assert told == {
        "in_the_way": [],
        "reason": "k8s: prolog pre-hook failed: other components are not locked: i2 (sunk:verify-undrain)",
        "drain": False,
        "hold": False,
    }


async def test_a_prolog_of_many_components_looks_at_them_anew_after_a_while(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "j1")
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:
        asked = body(301, (302, "j2"))
        told = await call(http, "/v1/nodes/j1/prehook", issuer.token("j1"), asked, expect=503)

    assert told == {"retry": True, "error": "other components are not locked: j2"}


async def test_a_cancelled_heterogeneous_job_is_not_held_up(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "k1")
    _, answering_locks = standing_in(bus, AcquireLock, JobNotRunning(state="CANCELLED"))

    async with answering_locks:
        asked = body(401, (402, "k2"))
        told = await call(http, "/v1/nodes/k1/prehook", issuer.token("k1"), asked)

    assert told == {"locked": False, "state": "CANCELLED"}


async def test_nodes_that_are_no_hostlist_are_refused_with_the_reason(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "l1")
    for nodes in ("l[1-", "l[1-999999999]"):
        asked = body(501, (502, nodes))
        told = await call(http, "/v1/nodes/l1/prehook", issuer.token("l1"), asked, expect=400)
        assert "hostlist" in str(told)
