"""What the objects behind gangs say, on a real API server that knows JobSets and PodGroups."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeExistsError
from sunk_kube.objects import KubeObject
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from sunk_pod_scheduler.adapters.workload_client import JOB_SETS, POD_GROUPS, WorkloadClient
from sunk_pod_scheduler.gangs.model import Size
from sunk_pod_scheduler.placement.gang_membership import GangMembership
from sunk_pod_scheduler.testing.builders import definition
from sunk_runtime.errors import SunkError
from sunk_runtime.testing import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture
async def known(kube: KubeClient) -> AsyncGenerator[None]:
    """The API server knows both kinds."""
    for resource in (JOB_SETS, POD_GROUPS):
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, definition(resource))
    try:
        yield
    finally:
        with anyio.move_on_after(WITHIN_S, shield=True):
            for resource in (JOB_SETS, POD_GROUPS):
                name = f"{resource.plural}.{resource.group}"
                await kube.delete(CUSTOM_RESOURCE_DEFINITIONS, name)
                while await kube.find(CUSTOM_RESOURCE_DEFINITIONS, name) is not None:  # noqa: ASYNC110 - nobody tells us
                    await anyio.sleep(0.1)


async def put(
    kube: KubeClient, resource: Resource[Any], namespace: str, name: str, spec: dict[str, Any]
) -> KubeObject:
    """Make an object of a kind that the API server has just learnt."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await kube.create(resource, body, namespace)
            except KubeExistsError:
                return await kube.get(resource, name, namespace)
            except SunkError:
                await anyio.sleep(0.1)


def job(parallelism: int) -> dict[str, Any]:
    return {"spec": {"parallelism": parallelism, "completions": parallelism, "template": {}}}


@pytest.mark.usefixtures("known")
async def test_a_job_set_and_a_pod_group_say_how_many_pods_they_have(
    kube: KubeClient, namespace: str
) -> None:
    workloads = WorkloadClient(kube)
    replicated = [
        {"name": "leader", "replicas": 1, "template": job(1)},
        {"name": "workers", "replicas": 2, "template": job(3)},
    ]
    in_order = {"replicatedJobs": replicated, "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    await put(kube, JOB_SETS, namespace, "train", {"replicatedJobs": replicated})
    await put(kube, JOB_SETS, namespace, "steps", in_order)
    await put(kube, POD_GROUPS, namespace, "ring", {"minMember": 5})

    assert await workloads.size(GangMembership(kind="JobSet", namespace=namespace, name="train")) == Size(
        count=7
    )
    assert await workloads.size(GangMembership(kind="PodGroup", namespace=namespace, name="ring")) == Size(
        count=5
    )
    ordered = await workloads.size(GangMembership(kind="JobSet", namespace=namespace, name="steps"))
    assert "InOrder" in ordered.problem


async def test_without_such_an_object_the_pods_have_to_say_it(kube: KubeClient, namespace: str) -> None:
    workloads = WorkloadClient(kube)

    for kind in ("JobSet", "PodGroup"):
        found = await workloads.size(GangMembership(kind=kind, namespace=namespace, name="none"))
        assert found.count is None
        assert f"{kind} {namespace}/none does not exist" in found.problem
        assert "sunk.coreweave.com/gang-size" in found.problem
