"""Heterogeneous jobs: the prolog where the script starts is answered last."""

from datetime import UTC, datetime
from typing import Any

import anyio
import httpx
import pytest

from sunk_events.requests import AcquireLock, JobNotRunning, LockGranted
from sunk_hook_gateway.testing.hooks import (
    NOW,
    bearer,
    call,
    is_held,
    lock_of,
    register,
    standing_in,
    store,
)
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
                "/v1/nodes/h1/prehook",
                json=body(101, (102, "h[2-3]")),
                headers=bearer(issuer.token("h1")),
            )
            if answer.status_code != 503:
                told.append(answer.json())
                return

    async with answering_locks, anyio.create_task_group() as tasks:
        tasks.start_soon(prolog)
        await until(lambda: bool(answers.requests))
        await store(bus, "h1", lock_of("h1", 101, datetime.now(UTC)))
        await store(bus, "h2", lock_of("h2", 102, datetime.now(UTC)))
        await store(bus, "h3", lock_of("h3", 102, None))
        await anyio.sleep(1)
        before = len(answers.requests)
        assert await is_held(http, "prehook")
        assert not told
        await store(bus, "h3", lock_of("h3", 102, datetime.now(UTC)))
        await until(lambda: bool(told))

    assert told == [{"locked": True}]
    assert {asked.node for asked in answers.requests if isinstance(asked, AcquireLock)} == {"h1"}
    assert len(answers.requests) == before + 1


async def test_a_component_that_is_not_locked_in_time_gives_the_job_back_and_drains_no_node_of_another(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "i1")
    await store(bus, "i2", lock_of("i2", 202, None))
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:
        asked = body(201, (202, "i2"), deadline_s=5)  # By then its own lock is granted.
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
