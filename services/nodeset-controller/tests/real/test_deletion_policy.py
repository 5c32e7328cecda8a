"""The admission policy of the chart on a real API server: no NodeSet is deleted under its jobs."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import helm_python as helm
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.objects import KubeObject
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODESETS, Resource
from sunk_lab.charts import render
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.testing import WITHIN_S, until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

PATIENCE_S = WITHIN_S
CHART = Path(__file__).parents[4] / "helm" / "sunk"
GROUP = "admissionregistration.k8s.io"
POLICY = "ValidatingAdmissionPolicy"
POLICIES: Resource[Any] = Resource(
    group=GROUP, kind=POLICY, plural="validatingadmissionpolicies", is_namespaced=False, struct=KubeObject
)
BINDINGS: Resource[Any] = Resource(
    group=GROUP,
    kind=f"{POLICY}Binding",
    plural="validatingadmissionpolicybindings",
    is_namespaced=False,
    struct=KubeObject,
)


@pytest.fixture
async def kube(kube_lab: KubeLab) -> AsyncGenerator[KubeClient]:
    async with connect("test", kubeconfig=kube_lab.kubeconfig) as client:
        for crd in crds():
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncGenerator[str]:
    """A namespace in which the policy holds."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-deletion-"}}
    name = (await kube.create(NAMESPACES, body)).metadata.name
    values: dict[str, Any] = {"clusters": [{"name": "lab", "namespace": name}]}
    made = render(helm.Chart.load(CHART), values, name="sunk", namespace="sunk")
    policy, binding = (made[kind, "sunk-nodesets-deletion"] for kind in (POLICY, f"{POLICY}Binding"))
    policy["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    binding["spec"]["matchResources"] = {"namespaceSelector": selector}
    try:
        await kube.create(POLICIES, policy)
        await kube.create(BINDINGS, binding)
        yield name
    finally:
        with anyio.move_on_after(PATIENCE_S, shield=True):
            await kube.delete(BINDINGS, name)
            await kube.delete(POLICIES, name)
            await kube.delete(NAMESPACES, name)


async def test_a_nodeset_is_deleted_in_the_background_or_without_its_pods_and_not_in_the_foreground(
    kube: KubeClient, namespace: str, kube_lab: KubeLab
) -> None:
    async def is_made() -> bool:
        body = {
            "apiVersion": NODESETS.api_version,
            "kind": NODESETS.kind,
            "metadata": {"name": "gpu"},
            "spec": {"cluster": "lab", "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
        }
        try:
            await kube.create(NODESETS, body, namespace)
        except KubeNotFoundError:  # The definition is not served yet.
            return False
        return True

    async def said(cascade: str) -> str:
        """Return why a NodeSet is not deleted; nothing if it is."""
        if await kube.find(NODESETS, "gpu", namespace) is None:
            await until(is_made, within_s=PATIENCE_S)
        words = ("delete", "nodeset", "gpu", "-n", namespace, f"--cascade={cascade}")
        try:
            await anyio.to_thread.run_sync(lambda: kube_lab.kubectl(*words))
        except LabError as error:
            return str(error)
        return ""

    async def is_refused() -> bool:  # Nobody tells when an API server has taken a policy in.
        return "--cascade=background" in await said("foreground")

    await until(is_refused, within_s=PATIENCE_S)
    found = await kube.get(NODESETS, "gpu", namespace)
    assert found.metadata.deletion_timestamp is None
    assert [await said(cascade) for cascade in ("background", "orphan")] == ["", ""]
