"""Calls of prologs and epilogs; who would answer on the bus is stood in for."""

from collections.abc import Callable
from datetime import UTC, datetime

import anyio
import httpx
import pytest
from msgspec.structs import replace

from sunk_events.base import Reply
from sunk_events.locks import LockHolder, LockState
from sunk_events.requests import (
    AcquireLock,
    BlockingPod,
    JobNotRunning,
    Later,
    LockGranted,
    LockWaiting,
    Noted,
    PlacementReleased,
    ReleaseLock,
    ReleasePlacement,
)
from sunk_hook_gateway.testing.hooks import (
    CLUSTER,
    NOW,
    Gateway,
    bearer,
    call,
    forget_leaves,
    is_held,
    lock_of,
    place,
    register,
    standing_in,
    store,
    token_of,
)
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import answering
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


async def test_a_prolog_goes_on_when_its_node_is_locked(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a1")
    answers, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:
        body = {"job": 11, "level": "normal", "deadline_s": 5}
        told = await call(http, "/v1/nodes/a1/prehook", issuer.token("a1"), body)

    assert told == {"locked": True}
    (asked,) = answers.requests
    assert isinstance(asked, AcquireLock)
    assert (asked.node, asked.job, asked.level) == ("a1", 11, "normal")
    assert asked.deadline > datetime.now(UTC)


async def test_a_prolog_waits_while_nobody_answers_or_knows_and_while_pods_leave(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a2")
    replies = (Later(reason="views", retry_after_s=0.01), LockWaiting(in_the_way=("ns/web",)), LockGranted())
    answers, answering_locks = standing_in(bus, AcquireLock, *replies)
    told: list[object] = []

    async def prolog() -> None:
        body = {"job": 12, "deadline_s": 60}
        told.append(await call(http, "/v1/nodes/a2/prehook", issuer.token("a2"), body))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prolog)
        await until(lambda: is_held(http, "prehook"))
        await anyio.sleep(0.5)  # Nobody answers yet.
        async with answering_locks:
            await until(lambda: bool(told))

    assert told == [{"locked": True}]
    assert len(answers.requests) == 3


async def test_a_prolog_that_is_held_for_less_than_it_waits_calls_again_and_is_told_at_once_when_it_may_go_on(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a5")
    path, token = "/v1/nodes/a5/prehook", issuer.token("a5")
    _, answering_locks = standing_in(bus, AcquireLock, LockWaiting(in_the_way=("ns/web",)))
    async with answering_locks:
        body = {"job": 15, "deadline_s": 60, "hold_s": 0.5}
        assert await call(http, path, token, body, expect=202) == {"locked": False}

    await store(bus, "a5", lock_of("a5", 15, None))
    told: list[object] = []

    async def again() -> None:
        more = {"job": 15, "deadline_s": 3000, "hold_s": 60, "waited_s": 3000}
        told.append(await call(http, path, token, more))

    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    async with answering_locks, anyio.create_task_group() as tasks:
        tasks.start_soon(again)
        await until(lambda: is_held(http, "prehook"))
        await store(bus, "a5", lock_of("a5", 15, NOW))
        await until(lambda: bool(told))

    assert told == [{"locked": True}]


async def test_a_prolog_is_told_what_to_say_before_its_call_has_an_end(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a6")
    way = replace(lock_of("a6", 17, None), in_the_way=("secret/web",), leaving=2)
    await store(bus, "a6", way)
    _, answering_locks = standing_in(bus, AcquireLock, LockWaiting(in_the_way=("secret/web",)))

    async with answering_locks:
        body = {"job": 17, "deadline_s": 600, "said": ""}
        told = await call(http, "/v1/nodes/a6/prehook", issuer.token("a6"), body, expect=202)

    assert told == {"locked": False, "say": "2 Pods have to leave node a6"}


async def test_the_prolog_of_a_cancelled_job_does_not_fail(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a3")
    _, answering_locks = standing_in(bus, AcquireLock, JobNotRunning(state="CANCELLED"))

    async with answering_locks:
        told = await call(http, "/v1/nodes/a3/prehook", issuer.token("a3"), {"job": 13})

    assert told == {"locked": False, "state": "CANCELLED"}


async def test_a_placeholders_prolog_locks_strictly_whatever_it_asks_for(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "a4")
    await place(bus, 14, "released")
    answers, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:

        async def is_strict() -> bool:
            await call(http, "/v1/nodes/a4/prehook", issuer.token("a4"), {"job": 14})
            return isinstance(asked := answers.requests[-1], AcquireLock) and asked.level == "strict"

        await until(is_strict)


async def test_at_the_deadline_a_prolog_is_told_what_the_lock_has_decided(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "b0")
    kept = BlockingPod(pod="default/web-1", because="finalizer test.example/never")
    last = LockWaiting(
        in_the_way=("default/web-1",), blocking=(kept,), is_drain_allowed=False, is_hold_needed=True
    )
    _, answering_locks = standing_in(bus, AcquireLock, LockWaiting(in_the_way=("default/web-1",)), last)

    async with answering_locks:
        body = {"job": 20, "deadline_s": 4}
        told = await call(http, "/v1/nodes/b0/prehook", issuer.token("b0"), body, expect=409)

    assert told == {
        "in_the_way": ["default/web-1"],
        "reason": "k8s: prolog pre-hook failed: default/web-1 (finalizer test.example/never)"
        " (sunk:verify-undrain)",
        "drain": False,
        "hold": True,
        "blocking": [{"pod": "default/web-1", "since": None, "because": "finalizer test.example/never"}],
    }


async def test_while_no_lock_answers_no_more_than_two_nodes_are_drained_by_all_replicas_together(
    bus: Bus, start_gateway: Callable[[], Gateway], issuer: Issuer
) -> None:
    await forget_leaves(bus)
    _, url = start_gateway()  # They have not told anybody to drain yet.
    _, other = start_gateway()
    nodes = ("b1", "b2", "b3")
    for node in (*nodes, "b4"):
        await register(bus, node)
    told: dict[str, dict[str, object]] = {}

    async def prolog(url: str, node: str) -> None:
        body, headers = {"job": 21, "deadline_s": 0.3}, bearer(issuer.token(node))
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http:
            answer = await http.post(f"/v1/nodes/{node}/prehook", json=body, headers=headers)
        assert answer.status_code == 409
        told[node] = answer.json()

    async with anyio.create_task_group() as tasks:
        for node in nodes:
            tasks.start_soon(prolog, url, node)  # At once: no state shows the first two drains yet.
    await prolog(other, "b4")

    assert (told["b4"]["drain"], told["b4"]["hold"]) == (False, True)
    assert sorted((told[node]["drain"], told[node]["hold"]) for node in nodes) == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert {str(said["reason"]) for said in told.values()} == {
        "k8s: prolog pre-hook failed: the lock did not answer (sunk:verify-undrain)"
    }


async def test_leaves_that_were_given_to_a_whole_fleet_before_the_last_question_drain_no_more_than_two_nodes(
    bus: Bus, start_gateway: Callable[[], Gateway], issuer: Issuer
) -> None:
    await forget_leaves(bus)
    _, url = start_gateway()
    nodes = ("b6", "b7", "b8", "b9")
    for node in nodes:
        await register(bus, node)
    early = LockWaiting(in_the_way=("default/web",), is_drain_allowed=True)
    answers, answering_locks = standing_in(bus, AcquireLock, early)
    drained: list[bool] = []

    async def prolog(node: str) -> None:
        body = {"job": 26, "deadline_s": 4}
        answer = await http.post(f"/v1/nodes/{node}/prehook", json=body, headers=bearer(issuer.token(node)))
        drained.append(answer.json()["drain"])

    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http,
        anyio.create_task_group() as tasks,
        answering_locks,  # And then nobody answers: whoever gave those leaves did not count them.
    ):
        for node in nodes:
            tasks.start_soon(prolog, node)
        await until(lambda: len(answers.requests) >= len(nodes))

    assert sorted(drained) == [False, False, True, True]


async def test_a_former_leader_that_hangs_holds_no_prolog_up(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "b5a")
    asked = anyio.Event()

    async def hang(_: AcquireLock) -> Reply:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    async with answering(bus, CLUSTER, AcquireLock, hang), answering_locks:
        body = {"job": 27, "deadline_s": 60}
        assert await call(http, "/v1/nodes/b5a/prehook", issuer.token("b5a"), body) == {"locked": True}

    assert asked.is_set()


async def test_a_lock_that_never_answers_refuses_at_the_deadline(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "b4")

    body = {"job": 24, "deadline_s": 0.3}
    told = await call(http, "/v1/nodes/b4/prehook", issuer.token("b4"), body, expect=409)

    assert isinstance(told, dict)
    assert "the lock did not answer" in str(told["reason"])  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - JSON


async def test_where_no_lock_answers_the_refusal_names_the_pods_that_were_in_the_way_last(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "b4a")
    await store(bus, "b4a", replace(lock_of("b4a", 28, None), in_the_way=("default/web",)))

    async def is_named() -> bool:  # Once the gateway has read it.
        body = {"job": 28, "deadline_s": 0.3}
        told = await call(http, "/v1/nodes/b4a/prehook", issuer.token("b4a"), body, expect=409)
        return "k8s: prolog pre-hook failed: default/web (sunk:verify-undrain)" in str(told)

    await until(is_named)


async def test_a_caller_that_hangs_up_is_no_longer_asked_for(
    bus: Bus, gateway: Gateway, issuer: Issuer
) -> None:
    await register(bus, "b5")
    answers, answering_locks = standing_in(bus, AcquireLock, Later(reason="", retry_after_s=0.01))

    async with answering_locks:
        async with (
            httpx.AsyncClient(base_url=gateway[1], trust_env=False, timeout=120) as http,
            anyio.create_task_group() as tasks,
        ):

            async def prolog() -> None:
                body = {"job": 25, "deadline_s": 60}
                await http.post("/v1/nodes/b5/prehook", json=body, headers=bearer(issuer.token("b5")))

            tasks.start_soon(prolog)
            await until(lambda: bool(answers.requests))
            tasks.cancel_scope.cancel()

        async def is_quiet() -> bool:
            before = len(answers.requests)
            await anyio.sleep(0.3)
            return len(answers.requests) == before

        await until(is_quiet)


async def test_the_epilog_of_an_ordinary_job_only_gives_the_lock_back(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c1")
    answers, answering_locks = standing_in(bus, ReleaseLock, Noted())

    async with answering_locks:
        told = await call(http, "/v1/nodes/c1/release", issuer.token("c1"), {"job": 31})

    assert told == {"gone": True}
    assert answers.requests == [ReleaseLock(node="c1", job=31)]


async def is_placed(http: httpx.AsyncClient, job: int) -> None:
    """Return when the gateway has read the placement of *job*: it then refuses a token that is another's."""

    async def is_refused() -> bool:
        path, token = f"/v1/jobs/{job}/started", token_of(job + 1)
        answer = await http.post(path, json={"node": "c2"}, headers=bearer(token), timeout=120)
        return answer.status_code == 403

    await until(is_refused)


async def test_the_epilog_of_a_placeholder_waits_for_its_pod_before_the_lock_is_given_back(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c2")
    await place(bus, 32, node="c2", token=token_of(32))
    await is_placed(http, 32)
    pods, answering_pods = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=False, pod="p"))
    locks, answering_locks = standing_in(bus, ReleaseLock, Noted())
    path, token = "/v1/nodes/c2/release", issuer.token("c2")
    async with answering_locks:
        async with answering_pods:
            still = await call(http, path, token, {"job": 32}, expect=202)
        assert still == {"gone": False, "pod": "p"}
        assert not locks.requests

        _, answering_gone = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))
        async with answering_gone:
            gone = await call(http, path, token, {"job": 32})

    assert gone == {"gone": True}
    assert pods.requests[0] == ReleasePlacement(job=32, node="c2")
    assert locks.requests == [ReleaseLock(node="c2", job=32)]


async def test_whether_an_epilog_is_that_of_a_placeholder_without_a_node_is_for_its_owner_to_say(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c6")
    await place(bus, 36, "released", token=token_of(36))
    await is_placed(http, 36)
    pods, answering_pods = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))
    locks, answering_locks = standing_in(bus, ReleaseLock, Noted())
    async with answering_locks, answering_pods:
        told = await call(http, "/v1/nodes/c6/release", issuer.token("c6"), {"job": 36})

    assert told == {"gone": True}
    assert pods.requests == [ReleasePlacement(job=36, node="c6")]
    assert locks.requests == [ReleaseLock(node="c6", job=36)]


async def test_the_epilog_of_a_placeholder_whose_placement_is_lost_waits_for_its_pod_too(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c4")
    holder = LockHolder(job=34, level="strict", granted=NOW)
    lock = LockState(changed=NOW, node="c4", kube_node="k4", lock="locked_strict", holders=(holder,))
    await store(bus, "c4", lock)
    _, answering_pods = standing_in(bus, ReleasePlacement, Later(reason="the placement is made anew"))
    locks, answering_locks = standing_in(bus, ReleaseLock, Noted())
    path, token = "/v1/nodes/c4/release", issuer.token("c4")

    async def is_held_up() -> bool:  # Once the gateway has read the lock.
        answer = await http.post(path, json={"job": 34}, headers=bearer(token), timeout=120)
        return answer.status_code == 202

    async with answering_locks:
        async with answering_pods:
            await until(is_held_up)
            locks.requests.clear()
            await call(http, path, token, {"job": 34}, expect=202)
        # Users' jobs may have such a lock too: where nobody says that a Pod is left, no node is kept for it.
        await call(http, path, token, {"job": 34}, expect=503)

    assert not locks.requests


async def test_the_epilog_of_a_placeholder_waits_also_while_nobody_says_whether_its_pod_is_gone(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c5")
    await place(bus, 35, node="c5", token=token_of(35))
    await is_placed(http, 35)
    locks, answering_locks = standing_in(bus, ReleaseLock, Noted())
    async with answering_locks:
        told = await call(http, "/v1/nodes/c5/release", issuer.token("c5"), {"job": 35}, expect=202)

    assert told == {"gone": False, "pod": "ns/p35"}
    assert not locks.requests


async def test_an_epilog_that_nobody_answers_is_told_to_try_again(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await register(bus, "c3")

    told = await call(http, "/v1/nodes/c3/release", issuer.token("c3"), {"job": 33}, expect=503)

    assert told == {"retry": True}
