"""What we write on Pods, on a real API server."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from msgspec import structs

from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.matching import tolerates
from sunk_kube.objects import KubeObject, Taint, condition
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource
from sunk_kube.wellknown import ANNOTATION_JOB, TAINT_LOCK
from sunk_pod_scheduler.adapters import event_recorder
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.adapters.pod_store import PodStore
from sunk_pod_scheduler.placement.gang_membership import LABEL_POD_GROUP
from sunk_pod_scheduler.placement.job_claims import keys_of
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.errors import ConflictError
from sunk_runtime.testing import WITHIN_S, until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

OURS = "sunk-test-scheduler"
BUDGETS = Resource(
    group="policy",
    version="v1",
    kind="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    struct=KubeObject,
)
LOCK = Taint(key=TAINT_LOCK, value="true", effect="NoExecute")
OTHER = {"key": "other", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 60}


@asynccontextmanager
async def watching(kube: KubeClient, namespace: str, lock_key: str = TAINT_LOCK) -> AsyncGenerator[PodStore]:
    watched = Reflector(kube, PODS, namespace=namespace, fields=f"spec.schedulerName={OURS}")
    nodes = Reflector(kube, NODES)
    recorder = EventRecorder(kube)
    pods = PodStore(kube, [watched], nodes, recorder, [watched.index(keys_of(b"k" * 32))], lock_key)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.run)
        tasks.start_soon(nodes.run)
        tasks.start_soon(recorder.run)
        await watched.complete()
        await nodes.complete()
        yield pods
        tasks.cancel_scope.cancel()


async def create(kube: KubeClient, namespace: str, name: str = "infer") -> Pod:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": OURS,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [OTHER],
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
            ],
        },
    }
    with anyio.fail_after(WITHIN_S):
        # A new namespace has no default ServiceAccount for a moment.
        while (made := await _created(kube, namespace, body)) is None:  # noqa: ASYNC110 - nobody tells us
            await anyio.sleep(0.1)
    return made


async def _created(kube: KubeClient, namespace: str, body: Mapping[str, object]) -> Pod | None:
    try:
        return await kube.create(PODS, body, namespace)
    except KubeRejectedError:
        return None


async def test_binding_adds_the_locks_toleration_and_keeps_the_others(
    kube: KubeClient, namespace: str
) -> None:
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        node = min(found.metadata.name for found in await kube.list_all(NODES))
        await pods.annotate(made, '{"job":7}')
        await pods.bind(made, node)
        found = await kube.get(PODS, "infer", namespace)

        assert found.spec.node_name == node
        assert found.metadata.annotations[ANNOTATION_JOB] == '{"job":7}'
        assert any(tolerates(given, LOCK) for given in found.spec.tolerations)
        assert [given.toleration_seconds for given in found.spec.tolerations if given.key == "other"] == [60]
        with pytest.raises(ConflictError):
            await pods.bind(made, node)


async def test_a_disruption_budget_that_forbids_an_eviction_keeps_no_pod_whose_job_is_preempted(
    kube: KubeClient, namespace: str
) -> None:
    budget: dict[str, object] = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all-of-them"},
        "spec": {"minAvailable": "100%", "selector": {}},
    }
    # A Node without a kubelet: that would write that the Pod is Pending, and no budget protects such a Pod.
    await kube.create(NODES, {"metadata": {"name": "budgeted"}})
    try:
        async with watching(kube, namespace) as pods:
            made = await create(kube, namespace)
            await pods.bind(made, "budgeted")
            running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
            await kube.patch_status(PODS, "infer", running, namespace)
            await kube.create(BUDGETS, budget, namespace)
            with pytest.raises(KubeUnavailableError, match="disruption budget"):
                await kube.evict(made)
            await pods.delete(await kube.get(PODS, "infer", namespace))
            found = await kube.find(PODS, "infer", namespace)
    finally:
        await kube.delete(NODES, "budgeted")

    assert found is None or found.is_terminating


async def test_the_toleration_comes_with_the_claim_unless_the_pod_was_changed_meanwhile(
    kube: KubeClient, namespace: str
) -> None:
    async with watching(kube, namespace) as pods:
        first, second = [await create(kube, namespace, name) for name in ("first", "second")]
        theirs = {"spec": {"tolerations": [OTHER, {"key": "more", "operator": "Exists"}]}}
        await kube.patch(PODS, "second", theirs, namespace)
        for made in (first, second):
            await pods.annotate(made, '{"job":7}')
        found = {name: await kube.get(PODS, name, namespace) for name in ("first", "second")}
        await pods.bind(found["second"], min(node.metadata.name for node in await kube.list_all(NODES)))
        bound = await kube.get(PODS, "second", namespace)

        assert [pod.metadata.annotations[ANNOTATION_JOB] for pod in found.values()] == ['{"job":7}'] * 2
        assert [any(tolerates(given, LOCK) for given in pod.spec.tolerations) for pod in found.values()] == [
            True,
            False,
        ]
        assert {"other", "more", TAINT_LOCK} <= {given.key for given in bound.spec.tolerations}


async def test_a_lock_of_another_key_is_tolerated_and_no_reason_to_shun_its_node(
    kube: KubeClient, namespace: str
) -> None:
    taints = [{"key": key, "effect": "NoExecute"} for key in ("example.com/lock", "theirs")]
    body = {"metadata": {"name": "locked"}, "spec": {"taints": taints}}
    await kube.create(NODES, body)
    try:
        async with watching(kube, namespace, "example.com/lock") as pods:
            made = await create(kube, namespace)
            await pods.annotate(made, '{"job":7}')
            found = await kube.get(PODS, "infer", namespace)
            locked = pods.node("locked")
    finally:
        await kube.delete(NODES, "locked")

    assert any(tolerates(given, Taint(key="example.com/lock")) for given in found.spec.tolerations)
    assert locked is not None
    assert {"theirs"} == {taint.key for taint in locked.spec.taints} - {"node.kubernetes.io/not-ready"}


async def test_a_pod_that_came_after_under_the_same_name_is_never_hit(
    kube: KubeClient, namespace: str
) -> None:
    async with watching(kube, namespace) as pods:
        first = await create(kube, namespace)
        await pods.delete(first)
        second = await create(kube, namespace)
        await pods.delete(first)  # Gone already: success.

        for attempt in (
            pods.annotate(first, "x"),
            pods.bind(first, "node1"),
            pods.refuse(first, PodReason.VALIDATION_FAILED, "b"),
        ):
            with pytest.raises(ConflictError):
                await attempt
        assert await pods.find(first.metadata.uid, namespace, "infer") is None
        left = await kube.get(PODS, "infer", namespace)
        assert (left.metadata.uid, left.is_terminating) == (second.metadata.uid, False)
        assert ANNOTATION_JOB not in left.metadata.annotations


async def test_a_refusal_stands_in_the_condition_and_in_an_event(kube: KubeClient, namespace: str) -> None:
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        await pods.refuse(made, PodReason.VALIDATION_FAILED, "no cpu")
        found = await kube.get(PODS, "infer", namespace)
        told = condition(found.status.conditions, "PodScheduled")

        assert told is not None
        assert (told.status, told.reason, told.message) == ("False", PodReason.VALIDATION_FAILED, "no cpu")
        with anyio.fail_after(WITHIN_S):
            while not await kube.list_all(EVENTS, namespace):  # noqa: ASYNC110 - nobody tells us
                await anyio.sleep(0.02)

        await pods.refuse(found, PodReason.VALIDATION_FAILED, "no cpu")
        again = await kube.get(PODS, "infer", namespace)

        assert (
            again.metadata.resource_version == found.metadata.resource_version
        )  # Else we would enqueue ourselves.


async def test_what_waits_to_be_said_is_said_before_the_end(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_recorder, "FAREWELL_S", WITHIN_S)
    made = await create(kube, namespace)
    recorder = EventRecorder(kube)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        for number in range(30):
            recorder.record(
                made, EventText(reason=PodReason.BOUND, action="Binding", note=f"number {number}")
            )
        with anyio.fail_after(WITHIN_S):
            while not await kube.list_all(EVENTS, namespace):  # noqa: ASYNC110 - nobody tells us
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()

    assert len(await kube.list_all(EVENTS, namespace)) == 30


async def test_pods_are_told_by_uid_when_they_come_and_when_they_go(kube: KubeClient, namespace: str) -> None:
    async with watching(kube, namespace) as pods:
        told: list[str] = []

        async def listen() -> None:
            async for uid in pods.changes():
                told.append(uid)  # noqa: PERF401 - each is looked at when it comes

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            made = await create(kube, namespace)
            uid = made.metadata.uid
            await until(lambda: uid in told)
            found = await pods.find(uid, "", "")
            assert found is not None
            told.clear()
            await pods.annotate(made, '{"job":7}')
            await pods.refuse(made, PodReason.VALIDATION_FAILED, "no cpu")
            await kube.patch(PODS, "infer", {"metadata": {"annotations": {"other": "x"}}}, namespace)
            await until(lambda: bool(told))
            assert told == [uid]  # Of what we write nobody is told.
            told.clear()
            await kube.patch(PODS, "infer", {"metadata": {"labels": {LABEL_POD_GROUP: "g"}}}, namespace)
            await until(lambda: told == [uid])  # It may be in another gang by now.
            told.clear()
            await pods.delete(made)
            with anyio.fail_after(WITHIN_S):
                while await pods.find(uid, namespace, "infer") is not None:  # noqa: ASYNC110 - nobody tells us
                    await anyio.sleep(0.02)
            await until(lambda: uid in told)
            tasks.cancel_scope.cancel()


async def test_a_namespace_that_goes_takes_its_pods_with_it_and_nobody_is_told_in_vain(
    kube: KubeClient, namespace: str
) -> None:
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        await pods.bind(made, min(found.metadata.name for found in await kube.list_all(NODES)))
        await kube.patch(PODS, "infer", {"metadata": {"finalizers": ["sunk.test/stays"]}}, namespace)
        await kube.delete(NAMESPACES, namespace)

        async def is_leaving() -> bool:
            found = await pods.find(made.metadata.uid, namespace, "infer")
            return found is not None and found.is_terminating

        with anyio.fail_after(WITHIN_S):
            while not await is_leaving():  # noqa: ASYNC110 - nobody tells us
                await anyio.sleep(0.05)
        leaving = await kube.get(PODS, "infer", namespace)
        pods.record_event(leaving, PodReason.BOUND, "no Event can be made here any more")  # Must end nothing.
        await pods.delete(leaving)
        await kube.patch(PODS, "infer", {"metadata": {"finalizers": None}}, namespace)


async def test_a_pod_that_somebody_deleted_with_a_grace_of_a_day_has_its_specs_grace_again(
    kube: KubeClient, namespace: str
) -> None:
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        await kube.bind_pod(made, "nowhere")
        await kube.delete(PODS, made.metadata.name, namespace, grace_period_s=86_400)
        leaving = await kube.get(PODS, made.metadata.name, namespace)

        await pods.delete(leaving)

        left = await kube.get(PODS, made.metadata.name, namespace)
        assert leaving.metadata.deletion_grace_period_seconds == 86_400
        assert left.metadata.deletion_grace_period_seconds == 1


async def test_why_a_pod_is_deleted_is_said_on_it_and_on_its_controller_before_it_is(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAST_WORDS_S", "LAST_WORDS_MAX_S"):
        monkeypatch.setattr(event_recorder, name, WITHIN_S)
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        for number in range(300):  # A burst of other Events waits.
            pods.record_event(made, PodReason.BOUND, f"number {number}")
        owner = await kube.create(LEASES, {"metadata": {"name": "web"}}, namespace)
        refers = {"apiVersion": LEASES.api_version, "kind": "Lease", "name": "web", "uid": owner.metadata.uid}
        body = {"metadata": {"ownerReferences": [{**refers, "controller": True}]}}
        await kube.patch(PODS, "infer", body, namespace)
        owned = await kube.get(PODS, "infer", namespace)
        await pods.report_end((owned,), PodReason.POD_ENDS, "job 7 was cancelled (scancel):\nit is CANCELLED")
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=PodEnds"
        found = msgspec.json.decode(await kube.get_raw(path))["items"]

        assert {(one["involvedObject"]["kind"], one["involvedObject"]["name"]) for one in found} == {
            ("Pod", "infer"),
            ("Lease", "web"),
        }
        assert {one["message"] for one in found} == {"job 7 was cancelled (scancel):\ufffdit is CANCELLED"}
        assert not (await kube.get(PODS, "infer", namespace)).is_terminating


async def test_a_pod_goes_though_nothing_can_be_said_of_it(kube: KubeClient, namespace: str) -> None:
    async with watching(kube, namespace) as pods:
        made = await create(kube, namespace)
        nowhere = structs.replace(
            made, metadata=structs.replace(made.metadata, namespace="no-such-namespace")
        )
        await pods.report_end((nowhere,), PodReason.POD_ENDS, "why")
        await pods.delete(made)

        with anyio.fail_after(WITHIN_S):
            while await kube.find(PODS, "infer", namespace) is not None:  # noqa: ASYNC110 - nobody tells us
                await anyio.sleep(0.02)
