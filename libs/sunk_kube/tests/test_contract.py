"""What our services rely on of an API server, its controllers and kubelets: on a real one.

The simulator's model of Kubernetes passes these too.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from sunk_kube import bodies
from sunk_kube.client import KubeClient, PatchKind, connect
from sunk_kube.crds import nodeslice_crd
from sunk_kube.errors import KubeBusyError, KubeNotFoundError, KubeRejectedError
from sunk_kube.following import Following, split_lines
from sunk_kube.objects import KubeObject, Node, condition
from sunk_kube.pages import Page
from sunk_kube.pods import Pod
from sunk_kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    NODESLICES,
    PODS,
)
from sunk_runtime.errors import ConflictError
from sunk_runtime.testing import until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

FINALIZER = "sunk.test/stays"


class Event(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: KubeObject


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"of": "test"} | labels}}


def pod(name: str, node: str, *, grace_s: int = 1, stops_s: int = 0, **more: object) -> dict[str, Any]:
    """A Pod on that Node that ends *stops_s* seconds after it is told to."""
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": stops_s}}}} if stops_s else {}
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace_s,
        "containers": [{"name": "main", "image": "localhost/sunk-pause:1", **hook}],
    }
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "spec": {**spec, **more}}


async def node_of(kube: KubeClient) -> str:
    return min(found.metadata.name for found in await kube.list_all(NODES))


async def running(kube: KubeClient, namespace: str, body: dict[str, Any]) -> Pod:
    """Make a Pod and return it when it is ready."""
    name = body["metadata"]["name"]
    await kube.create(PODS, body, namespace)

    async def is_ready() -> bool:
        return (await kube.get(PODS, name, namespace)).is_ready

    await until(is_ready)
    return await kube.get(PODS, name, namespace)


async def gone(kube: KubeClient, namespace: str, name: str) -> None:
    async def is_gone() -> bool:
        return await kube.find(PODS, name, namespace) is None

    await until(is_gone)


async def watched(
    kube: KubeClient,
    namespace: str,
    version: str,
    *,
    lasts_s: int = 1,
    count: int = 1000,
    labels: str = "of=test",
) -> list[Event]:
    """Return what a watch tells until it ends, or until there are *count* lines."""
    query = {
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(lasts_s),
        **bodies.selectors("", labels),
    }
    found: list[Event] = []
    async with kube.watch(CONFIG_MAPS, namespace, query, silence_s=lasts_s + 10) as chunks:
        async for line in split_lines(chunks):
            found.append(msgspec.json.decode(line, type=Event))
            if len(found) == count:
                break
    return found


async def test_a_watch_tells_each_change_after_its_version(kube: KubeClient, namespace: str) -> None:
    _, version = await kube.list_with_version(CONFIG_MAPS, namespace)
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    changed = await kube.patch(CONFIG_MAPS, "a", {"data": {"x": "y"}}, namespace)
    await kube.delete(CONFIG_MAPS, "a", namespace)
    told = await watched(kube, namespace, version, lasts_s=10, count=3)

    versions = [int(one.object.metadata.resource_version) for one in told]
    assert [one.type for one in told] == ["ADDED", "MODIFIED", "DELETED"]
    assert versions[:2] == [int(one.metadata.resource_version) for one in (made, changed)]
    assert versions == sorted(set(versions))


async def test_a_watch_that_has_nothing_to_tell_tells_where_it_is(kube: KubeClient, namespace: str) -> None:
    _, version = await kube.list_with_version(CONFIG_MAPS, namespace)
    made = await kube.create(CONFIG_MAPS, config_map("a", of="other"), namespace)
    told = await watched(kube, namespace, version, lasts_s=90, count=1)

    assert [one.type for one in told] == ["BOOKMARK"]
    assert int(told[0].object.metadata.resource_version) >= int(made.metadata.resource_version)


async def test_what_no_longer_fits_a_selector_is_told_as_gone_and_what_fits_now_as_new(
    kube: KubeClient, namespace: str
) -> None:
    _, version = await kube.list_with_version(CONFIG_MAPS, namespace)
    await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    for label in ("other", "test"):
        await kube.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"of": label}}}, namespace)
    told = await watched(kube, namespace, version, lasts_s=10, count=3)

    assert [one.type for one in told] == ["ADDED", "DELETED", "ADDED"]
    assert [one.object.metadata.labels["of"] for one in told] == ["test"] * 3


async def test_a_watch_from_a_version_that_is_forgotten_has_to_begin_anew(
    kube: KubeClient, namespace: str
) -> None:
    told: list[str] = []

    async def is_served() -> bool:  # What is defined just now has no older versions.
        crd = nodeslice_crd()
        await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
        try:
            await kube.list_all(NODESLICES, namespace)
        except KubeNotFoundError:
            return False
        return True

    async def begin() -> str:
        _, version = await kube.list_with_version(NODESLICES, namespace)
        told.append("begins")
        return "1" if len(told) == 1 else version

    def changed(found: KubeObject, *, is_gone: bool) -> None:
        told.append(f"{found.metadata.name} {is_gone}")

    await until(is_served)
    following = Following(kube, NODESLICES, begin=begin, changed=changed, namespace=namespace)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(following.run)
        await until(lambda: told == ["begins", "begins"])
        body = {"apiVersion": NODESLICES.api_version, "kind": NODESLICES.kind, "metadata": {"name": "a"}}
        await kube.create(NODESLICES, {**body, "cluster": "lab", "nodeSet": "gpu", "nodes": []}, namespace)
        await until(lambda: told[2:] == ["a False"])
        tasks.cancel_scope.cancel()


async def test_the_pages_of_a_list_are_of_one_moment(kube: KubeClient, namespace: str) -> None:
    for name in "abcd":
        await kube.create(CONFIG_MAPS, config_map(name), namespace)
    path = f"{CONFIG_MAPS.path(namespace)}?labelSelector=of%3Dtest&limit=2"
    first = msgspec.json.decode(await kube.get_raw(path), type=Page[KubeObject])
    await kube.delete(CONFIG_MAPS, "d", namespace)
    await kube.create(CONFIG_MAPS, config_map("c2"), namespace)
    second = msgspec.json.decode(
        await kube.get_raw(f"{path}&continue={first.metadata.continue_}"), type=Page[KubeObject]
    )

    assert [one.metadata.name for one in (*(first.items or ()), *(second.items or ()))] == list("abcd")
    assert second.metadata.resource_version == first.metadata.resource_version


async def test_a_name_may_be_made_up(kube: KubeClient, namespace: str) -> None:
    body = {"metadata": {"generateName": "made-"}}
    names = {(await kube.create(CONFIG_MAPS, body, namespace)).metadata.name for _ in range(3)}

    assert len(names) == 3
    assert all(re.fullmatch(r"made-[a-z0-9]{5}", name) for name in names)


async def test_what_changes_nothing_gets_no_version(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    patched = await kube.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"of": "test"}}}, namespace)

    assert patched.metadata.resource_version == made.metadata.resource_version


async def test_an_object_with_a_finalizer_stays_until_it_is_taken_off(
    kube: KubeClient, namespace: str
) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    made = await kube.create(CONFIG_MAPS, body, namespace)
    await kube.delete(CONFIG_MAPS, "a", namespace)
    leaving = await kube.get(CONFIG_MAPS, "a", namespace)
    await kube.delete(CONFIG_MAPS, "a", namespace)
    added = {"metadata": {"finalizers": [FINALIZER, "sunk.test/more"]}}
    with pytest.raises(KubeRejectedError, match="finalizer"):
        await kube.patch(CONFIG_MAPS, "a", added, namespace)
    again = await kube.get(CONFIG_MAPS, "a", namespace)
    await kube.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, namespace)

    assert leaving.metadata.uid == made.metadata.uid
    assert leaving.metadata.deletion_timestamp is not None
    assert again == leaving
    assert await kube.find(CONFIG_MAPS, "a", namespace) is None


async def test_what_belongs_to_what_is_gone_goes_too(kube: KubeClient, namespace: str) -> None:
    owner = await kube.create(CONFIG_MAPS, config_map("owner"), namespace)
    refers = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owned, stray = config_map("owned"), config_map("stray")
    owned["metadata"]["ownerReferences"] = [{**refers, "uid": owner.metadata.uid}]
    stray["metadata"]["ownerReferences"] = [{**refers, "uid": "11111111-1111-1111-1111-111111111111"}]
    for body in (owned, stray):
        await kube.create(CONFIG_MAPS, body, namespace)

    async def left() -> set[str]:
        return {one.metadata.name for one in await kube.list_all(CONFIG_MAPS, namespace, labels="of=test")}

    async def is_left(names: set[str]) -> bool:
        return await left() == names

    await until(lambda: is_left({"owner", "owned"}))
    await kube.delete(CONFIG_MAPS, "owner", namespace)
    await until(lambda: is_left(set()))


async def test_a_deleted_pod_stays_until_its_containers_have_ended(kube: KubeClient, namespace: str) -> None:
    made = await running(kube, namespace, pod("a", await node_of(kube), grace_s=30, stops_s=10))
    await kube.delete(PODS, "a", namespace, uid=made.metadata.uid)
    leaving = await kube.get(PODS, "a", namespace)
    await kube.delete(PODS, "a", namespace, grace_period_s=60)  # Longer is not granted.
    again = await kube.get(PODS, "a", namespace)
    await gone(kube, namespace, "a")

    assert leaving.metadata.deletion_grace_period_seconds == 30
    assert again.metadata.deletion_timestamp == leaving.metadata.deletion_timestamp


async def test_a_pods_grace_may_be_shortened_but_its_hook_goes_on(kube: KubeClient, namespace: str) -> None:
    node = await node_of(kube)
    await running(kube, namespace, pod("a", node, grace_s=600, stops_s=180))
    await running(kube, namespace, pod("b", node))
    await kube.delete(PODS, "a", namespace)
    before = await kube.get(PODS, "a", namespace)
    # A kubelet ends a Pod only once it has listed again what runs: it has when the next one is gone.
    await kube.delete(PODS, "b", namespace)
    await gone(kube, namespace, "b")
    await kube.delete(PODS, "a", namespace, grace_period_s=1)
    after = await kube.get(PODS, "a", namespace)
    await anyio.sleep(10)  # Many times the second that remains of its grace.
    later = await kube.find(PODS, "a", namespace)
    await kube.delete(PODS, "a", namespace, grace_period_s=0)

    assert before.metadata.deletion_timestamp is not None
    assert after.metadata.deletion_timestamp is not None
    assert after.metadata.deletion_grace_period_seconds == 1
    assert after.metadata.deletion_timestamp < before.metadata.deletion_timestamp
    assert later is not None


async def test_a_pods_end_is_never_moved_into_the_past(kube: KubeClient, namespace: str) -> None:
    await running(kube, namespace, pod("a", await node_of(kube), grace_s=600, stops_s=20))
    await kube.delete(PODS, "a", namespace)
    before = await kube.get(PODS, "a", namespace)
    await anyio.sleep(3)  # More than the second that remains, as the API server counts it.
    await kube.delete(PODS, "a", namespace, grace_period_s=1)
    after = await kube.get(PODS, "a", namespace)

    assert before.metadata.deletion_timestamp is not None
    assert after.metadata.deletion_timestamp is not None
    moved = before.metadata.deletion_timestamp - after.metadata.deletion_timestamp
    assert timedelta() < moved < timedelta(seconds=599)
    assert after.metadata.deletion_grace_period_seconds == 1


async def test_a_pod_deleted_without_grace_is_gone_at_once(kube: KubeClient, namespace: str) -> None:
    await running(kube, namespace, pod("a", await node_of(kube), grace_s=600, stops_s=500))
    await kube.delete(PODS, "a", namespace, grace_period_s=0)

    assert await kube.find(PODS, "a", namespace) is None


async def test_a_pod_is_bound_only_as_it_was_read(kube: KubeClient, namespace: str) -> None:
    body = pod("a", "", schedulerName="nobody")
    del body["spec"]["nodeName"]
    read = await kube.create(PODS, body, namespace)
    written = await kube.patch(PODS, "a", {"metadata": {"annotations": {"a": "b"}}}, namespace)
    with pytest.raises(ConflictError):
        await kube.bind_pod(read, await node_of(kube))
    assert (await kube.get(PODS, "a", namespace)).spec.node_name == ""
    await kube.bind_pod(written, await node_of(kube))

    assert (await kube.get(PODS, "a", namespace)).spec.node_name == await node_of(kube)


async def test_a_pod_that_is_leaving_is_bound_no_more(kube: KubeClient, namespace: str) -> None:
    body = pod("a", "", schedulerName="nobody")
    del body["spec"]["nodeName"]
    body["metadata"]["finalizers"] = [FINALIZER]
    made = await kube.create(PODS, body, namespace)
    await kube.delete(PODS, "a", namespace)
    with pytest.raises(ConflictError):
        await kube.bind_pod(made, await node_of(kube))
    await kube.patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace)


async def test_a_pod_may_gain_tolerations_and_lose_none(kube: KubeClient, namespace: str) -> None:
    first, second = ({"key": key, "operator": "Exists"} for key in ("first", "second"))
    body = pod("a", "", schedulerName="nobody", tolerations=[first])
    del body["spec"]["nodeName"]
    await kube.create(PODS, body, namespace)
    both = await kube.patch(PODS, "a", {"spec": {"tolerations": [first, second]}}, namespace)
    with pytest.raises(KubeRejectedError, match="toleration"):
        await kube.patch(PODS, "a", {"spec": {"tolerations": [second]}}, namespace)
    with pytest.raises(KubeRejectedError, match="may not change"):
        await kube.patch(PODS, "a", {"spec": {"nodeName": "node1"}}, namespace)

    assert {"first", "second"} <= {one.key for one in both.spec.tolerations}


async def test_a_budget_forbids_an_eviction_until_there_are_enough(kube: KubeClient, namespace: str) -> None:
    node = await node_of(kube)
    first = await running(kube, namespace, pod("a", node))
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "test"}}}
    await kube.create(DISRUPTION_BUDGETS, {"metadata": {"name": "one"}, "spec": spec}, namespace)
    with pytest.raises(KubeBusyError, match="disruption budget"):
        await kube.evict(first)
    with pytest.raises(KubeBusyError):
        await kube.evict(first, is_dry_run=True)
    await running(kube, namespace, pod("b", node))

    async def is_evicted() -> bool:
        try:
            await kube.evict(first)
        except KubeBusyError:  # The budget has not heard of the second yet.
            return False
        return True

    await until(is_evicted)
    await gone(kube, namespace, "a")
    with pytest.raises(KubeBusyError, match="disruption budget"):
        await kube.evict(await kube.get(PODS, "b", namespace))


async def test_a_dry_run_evicts_nobody_and_another_pod_of_the_name_is_not_meant(
    kube: KubeClient, namespace: str
) -> None:
    made = await running(kube, namespace, pod("a", await node_of(kube)))
    await kube.evict(made, is_dry_run=True)
    left = await kube.get(PODS, "a", namespace)
    other = msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, uid="11111111-1111-1111-1111-111111111111")
    )
    with pytest.raises(ConflictError):
        await kube.evict(other)

    assert not left.is_terminating


async def taint(kube: KubeClient, node: str, key: str, *, is_there: bool) -> None:
    """Put a NoExecute taint on a Node, or take it off."""
    while True:
        found: Node = await kube.get(NODES, node)
        others = [msgspec.to_builtins(one) for one in found.spec.taints if one.key != key]
        taints = [*others, *([{"key": key, "effect": "NoExecute"}] if is_there else [])]
        version = {"resourceVersion": found.metadata.resource_version}
        try:
            await kube.patch(NODES, node, {"metadata": version, "spec": {"taints": taints}})
        except ConflictError:
            continue
        return


async def test_a_taint_drives_out_who_does_not_bear_it_and_who_does_only_for_a_while(
    kube: KubeClient, namespace: str
) -> None:
    node, key = await node_of(kube), f"sunk.test/{namespace}"
    bears = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    await running(kube, namespace, pod("leaves", node))
    await running(kube, namespace, pod("stays", node, tolerations=[bears]))
    await running(kube, namespace, pod("for-a-while", node, tolerations=[{**bears, "tolerationSeconds": 2}]))
    try:
        await taint(kube, node, key, is_there=True)
        await gone(kube, namespace, "leaves")
        await gone(kube, namespace, "for-a-while")
        left = await kube.get(PODS, "stays", namespace)
        assert not left.is_over
    finally:
        await taint(kube, node, key, is_there=False)

    assert not left.is_terminating


async def test_a_pod_that_is_bound_past_a_taint_does_not_run(kube: KubeClient, namespace: str) -> None:
    node, key = await node_of(kube), f"sunk.test/{namespace}"
    try:
        await taint(kube, node, key, is_there=True)
        made = await kube.create(PODS, pod("a", node), namespace)

        async def is_over() -> bool:
            found = await kube.find(PODS, "a", namespace)
            return found is None or found.is_over

        await until(is_over)
        found = await kube.find(PODS, "a", namespace)
    finally:
        await taint(kube, node, key, is_there=False)

    assert made.spec.node_name == node
    # A kubelet that hears of the taint after the Pod starts it, and Kubernetes deletes it.
    assert found is None or found.is_terminating or found.status.reason == "TaintToleration"


async def test_the_status_of_a_pod_is_written_by_itself_with_its_labels(
    kube: KubeClient, namespace: str
) -> None:
    body = pod("a", "", schedulerName="nobody")
    del body["spec"]["nodeName"]
    await kube.create(PODS, body, namespace)
    said = {"type": "sunk.test/Said", "status": "True"}
    marks = {"metadata": {"labels": {"x": "y"}}, "status": {"conditions": [said]}}
    by_status = await kube.patch_status(PODS, "a", marks, namespace, kind="strategic")
    by_spec = await kube.patch(PODS, "a", {"status": {"phase": "Failed"}}, namespace)

    assert by_status.metadata.labels == {"app": "test", "x": "y"}
    assert condition(by_status.status.conditions, "sunk.test/Said") is not None
    assert by_spec.status.phase == "Pending"


async def test_nothing_new_comes_into_a_namespace_that_goes(kube: KubeClient, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = [FINALIZER]
    await kube.create(CONFIG_MAPS, body, namespace)
    await kube.delete(NAMESPACES, namespace)
    with pytest.raises(KubeRejectedError, match="being terminated"):
        await kube.create(CONFIG_MAPS, config_map("b"), namespace)

    async def is_leaving() -> bool:
        return (await kube.get(CONFIG_MAPS, "a", namespace)).metadata.deletion_timestamp is not None

    await until(is_leaving)
    await kube.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, namespace)

    async def is_gone() -> bool:
        return await kube.find(NAMESPACES, namespace) is None

    await until(is_gone)

    async def is_unknown() -> bool:
        try:
            await kube.create(CONFIG_MAPS, config_map("b"), namespace)
        except KubeNotFoundError:
            return True
        except KubeRejectedError:  # Admission has not heard of its end yet.
            return False
        return False

    await until(is_unknown)


class Data(KubeObject, frozen=True):
    """A ConfigMap with what it holds."""

    data: dict[str, str] = msgspec.field(default_factory=dict[str, str])


MAPS = msgspec.structs.replace(CONFIG_MAPS, struct=Data)


@pytest.mark.parametrize("kind", ["apply", "merge"])
async def test_text_of_any_kind_is_kept_as_it_was_sent(
    kube: KubeClient, namespace: str, kind: PatchKind
) -> None:
    text = "\U0001f525 \U0010ffff \\ud83d\\ude00 \x00\t\x7f\x85\u2028\ufeff\uffff <<: &a *a 1e3 é "
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": text}}
    await kube.create(MAPS, {"metadata": {"name": "a"}}, namespace)
    made = await kube.patch(MAPS, "a", body, namespace, kind=kind)

    assert made.data == {"x": text}


async def test_fields_of_another_manager_are_not_taken_without_force(
    kube: KubeClient, kubeconfig: Path, namespace: str
) -> None:
    def body(value: str, **more: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": {"x": value, **more},
        }

    await kube.patch(MAPS, "a", body("1", y="1"), namespace, kind="apply")
    kept = await kube.patch(MAPS, "a", body("1", y="1"), namespace, kind="apply")
    await kube.patch(MAPS, "a", {"data": {"z": "1"}}, namespace)
    less = await kube.patch(MAPS, "a", body("2"), namespace, kind="apply")
    async with connect("other", kubeconfig=kubeconfig) as other:
        with pytest.raises(ConflictError):
            await other.patch(MAPS, "a", body("3"), namespace, kind="apply", is_forced=False)
        forced = await other.patch(MAPS, "a", body("3"), namespace, kind="apply")

    assert less.data == {"x": "2", "z": "1"}
    assert forced.data == {"x": "3", "z": "1"}
    assert kept.metadata.uid == less.metadata.uid
