"""What the client and the API server say to each other, on a real one."""

import math
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from sunk_kube import wellknown
from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.crds import nodeset_crd
from sunk_kube.errors import KubeExistsError, KubeNotFoundError, KubeRejectedError
from sunk_kube.leases import KubeLease
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import KubeObject
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, NODES, NODESETS, PODS, Resource
from sunk_kube.testing import SampleReason
from sunk_runtime.errors import ConflictError
from sunk_runtime.testing import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CONFIG_MAPS = Resource(kind="ConfigMap", plural="configmaps", struct=KubeObject)

CONTAINER = {"name": "slurmd", "image": "localhost/slurm:1"}


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def pod(name: str) -> dict[str, Any]:
    """A Pod that no scheduler takes, so that nothing but the test touches it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "localhost/sunk-pause:1"}],
        },
    }


async def test_an_object_can_be_created_changed_and_deleted_twice(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    patch = {"metadata": {"labels": {"x": "y"}, "annotations": {"n": None}}}
    changed = await kube.patch(CONFIG_MAPS, "a", patch, namespace, uid=made.metadata.uid)
    await kube.delete(CONFIG_MAPS, "a", namespace, uid=made.metadata.uid)
    await kube.delete(CONFIG_MAPS, "a", namespace, uid=made.metadata.uid)

    assert changed.metadata.labels == {"x": "y"}
    assert await kube.find(CONFIG_MAPS, "a", namespace) is None


async def test_creating_twice_says_that_it_exists(kube: KubeClient, namespace: str) -> None:
    await kube.create(CONFIG_MAPS, config_map("a"), namespace)

    with pytest.raises(KubeExistsError):
        await kube.create(CONFIG_MAPS, config_map("a"), namespace)


async def test_a_later_object_of_the_same_name_is_never_hit(kube: KubeClient, namespace: str) -> None:
    await kube.create(CONFIG_MAPS, config_map("a"), namespace)

    with pytest.raises(ConflictError):
        await kube.delete(CONFIG_MAPS, "a", namespace, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(ConflictError):
        await kube.patch(CONFIG_MAPS, "a", {}, namespace, uid="00000000-0000-0000-0000-000000000000")


async def test_a_patch_on_a_stale_version_conflicts(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    await kube.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": "1"}}}, namespace)
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version, "labels": {"x": "2"}}}

    with pytest.raises(ConflictError):
        await kube.patch(CONFIG_MAPS, "a", stale, namespace)


async def test_a_refusal_carries_the_servers_own_words(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(KubeRejectedError, match=r"spec\.containers") as refused:
        await kube.create(PODS, {**pod("a"), "spec": {"containers": []}}, namespace)
    assert refused.value.status == 422
    with pytest.raises(KubeNotFoundError, match='"nobody" not found'):
        await kube.get(PODS, "nobody", namespace)


async def test_a_list_of_many_pages_is_whole(kube: KubeClient, namespace: str) -> None:
    for name in "abcde":
        await kube.create(CONFIG_MAPS, config_map(name, of="test"), namespace)

    found, version = await kube.list_with_version(CONFIG_MAPS, namespace, labels="of=test", page_size=2)

    assert [one.metadata.name for one in found] == list("abcde")
    assert int(version) > 0


async def test_a_pod_is_bound_once_and_to_one_node(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(PODS, pod("a"), namespace)
    nodes = await kube.list_all(NODES)

    await kube.bind_pod(made, nodes[0].metadata.name)
    with pytest.raises(ConflictError):
        await kube.bind_pod(made, nodes[-1].metadata.name)

    bound = await kube.get(PODS, "a", namespace)
    assert bound.spec.node_name == nodes[0].metadata.name
    assert nodes[0].internal_ip
    assert "cpu" in nodes[0].status.allocatable


async def test_conditions_merge_by_type_and_eviction_ends_a_pod(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(PODS, pod("a"), namespace)
    condition = {"type": wellknown.CONDITION_SLURM_DRAIN, "status": "True", "reason": "Slurm", "message": "m"}
    body = {"status": {"conditions": [condition]}}
    patched = await kube.patch_status(PODS, "a", body, namespace, kind="strategic", uid=made.metadata.uid)
    await kube.evict(patched)
    await kube.evict(patched)

    assert {found.type for found in patched.status.conditions} >= {wellknown.CONDITION_SLURM_DRAIN}
    assert await kube.find(PODS, "a", namespace) is None


async def test_an_event_is_said_once(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(PODS, pod("a"), namespace)
    text = EventText(reason=SampleReason.WAITING, action="Schedule", note="no Node fits", type="Warning")

    await kube.record(PODS, made, text)
    await kube.record(PODS, made, text)

    events = await kube.list_all(EVENTS, namespace)
    assert [found.metadata.name.startswith("a.") for found in events] == [True]


async def test_an_event_that_is_said_late_tells_when_it_was(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(PODS, pod("a"), namespace)

    await kube.record(
        PODS,
        made,
        EventText(reason=SampleReason.WAITING, action="Schedule", note="then"),
        at=datetime(2026, 1, 5, tzinfo=UTC),
    )

    assert b'"lastTimestamp":"2026-01-05T00:00:00Z"' in await kube.get_raw(EVENTS.path(namespace))


async def test_the_api_server_takes_the_definition_of_nodeset(kube: KubeClient, namespace: str) -> None:
    crd = nodeset_crd()
    await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
    body = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": "gpu"},
        "spec": {
            "cluster": "lab",
            "template": {"spec": {"containers": [CONTAINER]}},
        },
    }
    made = await _once_served(kube, body, namespace)

    assert made.spec.template.spec["containers"] == [CONTAINER]
    with pytest.raises(KubeRejectedError, match=r"spec\.cluster"):
        await kube.patch(NODESETS, "gpu", {"spec": {"cluster": "No Name"}}, namespace)
    scaled = await kube.patch(NODESETS, "gpu", {"spec": {"replicas": 3}}, namespace, subresource="scale")
    assert scaled.spec.replicas == 3


async def _once_served(kube: KubeClient, body: dict[str, Any], namespace: str) -> NodeSet:
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await kube.create(NODESETS, body, namespace)
            except KubeNotFoundError:
                await anyio.sleep(0.1)


async def test_one_holder_at_a_time_and_no_wait_after_a_release(kube: KubeClient, namespace: str) -> None:
    first = KubeLease(kube, namespace, "leader", "one", ttl_s=30)
    second = KubeLease(kube, namespace, "leader", "two", ttl_s=30)

    before = await first.acquire()
    assert before is not None
    assert await second.acquire() is None
    assert await first.renew() == before
    await first.release()
    after = await second.acquire()
    assert after is not None
    assert after > before
    assert await first.renew() is None
    await first.release()  # Not its own any more: nothing happens.
    assert await second.renew() == after


async def test_a_holder_that_falls_silent_loses_the_lease(kube: KubeClient, namespace: str) -> None:
    first = KubeLease(kube, namespace, "leader", "one", ttl_s=1)
    second = KubeLease(kube, namespace, "leader", "two", ttl_s=1)
    before = await first.acquire()

    token = None
    with anyio.fail_after(WITHIN_S):
        while token is None:
            token = await second.acquire()
            await anyio.sleep(0.05)

    assert before is not None
    assert token > before
    assert await first.renew() is None


async def test_a_holder_that_comes_back_under_its_own_name_takes_over_at_once(
    kube: KubeClient, namespace: str
) -> None:
    before = await KubeLease(kube, namespace, "leader", "one", ttl_s=30).acquire()
    after = await KubeLease(kube, namespace, "leader", "one", ttl_s=30).acquire()

    assert before is not None
    assert after is not None
    assert after > before


async def test_a_lease_that_somebody_removed_goes_on_with_larger_tokens(
    kube: KubeClient, namespace: str
) -> None:
    first = KubeLease(kube, namespace, "leader", "one", ttl_s=30)
    second = KubeLease(kube, namespace, "leader", "two", ttl_s=30)
    before = await first.acquire()
    await kube.delete(LEASES, "leader", namespace)
    after = await second.acquire()

    assert before is not None
    assert after is not None
    assert after > before
    assert not second.was_given_up
    assert await first.renew() is None


async def test_a_renewal_whose_answer_was_lost_is_still_a_renewal(kube: KubeClient, namespace: str) -> None:
    lease = KubeLease(kube, namespace, "leader", "one", ttl_s=30)
    token = await lease.acquire()

    await kube.patch(LEASES, "leader", {"metadata": {"labels": {"touched": "by-us"}}}, namespace)

    assert token is not None
    assert await lease.renew() == token
    assert math.isclose(lease.ttl_s, 30)
