"""What the API server refuses of a NodeSet when it is applied, and with which sentence: on a real one."""

from collections.abc import Mapping
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.crds import crds
from sunk_kube.errors import KubeNotFoundError, KubeRejectedError
from sunk_kube.objects import KubeObject
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODESETS, NODESLICES, Resource
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.testing import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

T = TypeVar("T", bound=KubeObject)
CONTAINER = {"name": "slurmd", "image": "localhost/slurm:1", "env": [{"name": "A", "value": "b"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def nodeset(pod: Mapping[str, Any] | None = None, name: str = "gpu", **spec: object) -> dict[str, Any]:
    template = {"spec": {"containers": [CONTAINER], **(pod or {})}}
    return {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": name},
        "spec": {"cluster": "lab", "template": template, **spec},
    }


def affinity(**requirement: object) -> dict[str, Any]:
    terms = [{"matchExpressions": [requirement]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def fields(**requirement: object) -> dict[str, Any]:
    terms = [{"matchFields": [requirement]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


async def served(kube: KubeClient, resource: Resource[T], body: dict[str, Any], namespace: str) -> T:
    """Create *body* as soon as its definition is served, and in its present form."""
    for crd in crds():
        await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await kube.create(resource, body, namespace)
            except KubeNotFoundError:
                await anyio.sleep(0.1)


async def refused(kube: KubeClient, namespace: str, body: dict[str, Any]) -> str:
    """Return why *body* is refused; until the newest definition is enforced it may not be."""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                made = await kube.create(NODESETS, body, namespace)
            except KubeNotFoundError:
                await anyio.sleep(0.1)
            except KubeRejectedError as error:
                return str(error)
            else:
                await kube.delete(NODESETS, made.metadata.name, namespace)
                await anyio.sleep(0.1)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(nodeset(replicas=-1), "greater than or equal to 0", id="fewer than no replicas"),
        pytest.param(nodeset({"containers": []}), "at least 1 items", id="no container"),
        pytest.param(nodeset(template={}), "spec.template.spec: Required", id="no template"),
        pytest.param(nodeset(cluster="No Name"), "spec.cluster", id="a cluster name with a blank"),
        pytest.param(nodeset(name="a.b"), "no dots", id="a name with a dot"),
        pytest.param(nodeset(name="a" * 49), "at most 48", id="a name too long for a Slurm node"),
        pytest.param(
            nodeset({"nodeName": "node1"}),
            "only the nodeset-controller chooses nodeName",
            id="a Node of one's own",
        ),
        pytest.param(nodeset({"restartPolicy": "Never"}), "restartPolicy", id="a Pod that ends"),
        pytest.param(
            nodeset({"nodeSelector": {"a": "b c"}}), "nodeSelector", id="a label value with a blank"
        ),
        pytest.param(
            nodeset({"nodeSelector": {"a key": "b"}}), "nodeSelector's keys are labels", id="no label key"
        ),
        pytest.param(
            nodeset(fields(key="metadata.namespace", operator="In", values=["a"])),
            "matchFields supports metadata.name only",
            id="a field that nobody selects by",
        ),
        pytest.param(
            nodeset(fields(key="metadata.name", operator="In", values=["a", "b"])),
            "matchFields supports metadata.name only",
            id="two names in a field",
        ),
        pytest.param(
            nodeset(affinity(key="a", operator="In")), "operators In and NotIn need values", id="In nothing"
        ),
        pytest.param(
            nodeset(affinity(key="a", operator="Exists", values=["b"])),
            "operators Exists and DoesNotExist take no values",
            id="Exists with a value",
        ),
        pytest.param(
            nodeset(affinity(key="a", operator="Gt", values=["many"])),
            "operators Gt and Lt need one whole number",
            id="greater than a word",
        ),
        pytest.param(nodeset(affinity(key="a", operator="Is")), "Unsupported value", id="no operator"),
        pytest.param(
            nodeset({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}),
            "at least 1 items",
            id="an affinity without terms",
        ),
        pytest.param(
            nodeset({"tolerations": [{"operator": "Exists", "value": "x", "key": "a"}]}),
            "a toleration with operator Exists takes no value",
            id="Exists tolerates a value",
        ),
        pytest.param(
            nodeset({"tolerations": [{"effect": "NoExecute"}]}),
            "a toleration without a key needs operator Exists",
            id="a toleration of nothing",
        ),
        pytest.param(
            nodeset(updateStrategy={"rollingUpdate": {"maxUnavailable": 0}}),
            "maxUnavailable is a number from 1",
            id="an update that may not begin",
        ),
        pytest.param(
            nodeset(updateStrategy={"rollingUpdate": {"maxUnavailable": "half"}}),
            "maxUnavailable is a number from 1",
            id="a share that is a word",
        ),
        pytest.param(nodeset(updateStrategy={"type": "Recreate"}), "Unsupported value", id="no strategy"),
        pytest.param(nodeset(features={"staticFeatures": ["a,b"]}), "staticFeatures", id="a feature of two"),
    ],
)
async def test_a_wrong_nodeset_is_refused_with_a_sentence(
    kube: KubeClient, namespace: str, body: dict[str, Any], sentence: str
) -> None:
    await served(kube, NODESETS, nodeset(name="first"), namespace)

    assert sentence in await refused(kube, namespace, body)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({"cluster": "other"}, "the Slurm cluster of a NodeSet cannot be changed", id="cluster"),
        pytest.param({"podNamePrefix": "h200"}, "podNamePrefix cannot be changed", id="prefix"),
        pytest.param({"podNamePrefix": None}, "podNamePrefix cannot be changed", id="no prefix"),
    ],
)
async def test_what_names_slurm_nodes_never_changes(
    kube: KubeClient, namespace: str, change: dict[str, Any], sentence: str
) -> None:
    await served(kube, NODESETS, nodeset(podNamePrefix="h100"), namespace)

    with pytest.raises(KubeRejectedError, match=sentence):
        await kube.patch(NODESETS, "gpu", {"spec": change}, namespace)


async def test_what_is_stored_is_what_was_applied(kube: KubeClient, namespace: str) -> None:
    pod: dict[str, Any] = {**affinity(key="a", operator="Exists"), "volumes": [{"name": "x", "emptyDir": {}}]}
    strategy = {"rollingUpdate": {"maxUnavailable": "25%", "requeue": {"qos": ["low"]}}}
    given = nodeset(pod, updateStrategy=strategy, minReadySeconds=5)
    made = await served(kube, NODESETS, given, namespace)
    stored = await kube.get_raw(NODESETS.path(namespace, made.metadata.name))

    assert _json(stored)["spec"] == given["spec"]
    assert made.spec.max_unavailable(10) == 3
    assert made.spec.rolling.requeue is not None


async def test_a_node_may_be_named_by_its_field_and_selected_by_a_labels_whole_name(
    kube: KubeClient, namespace: str
) -> None:
    pod = {
        **fields(key="metadata.name", operator="NotIn", values=["node7"]),
        "nodeSelector": {"node.kubernetes.io/instance-type": "h100", "role": "compute"},
    }

    assert (await served(kube, NODESETS, nodeset(pod), namespace)).metadata.generation == 1


async def test_a_set_is_scaled_by_its_sub_resource(kube: KubeClient, namespace: str) -> None:
    await served(kube, NODESETS, nodeset(), namespace)
    scaled = await kube.patch(NODESETS, "gpu", {"spec": {"replicas": 3}}, namespace, subresource="scale")

    assert scaled.spec.replicas == 3


async def test_a_slice_keeps_its_entries_and_no_more_than_a_hundred(kube: KubeClient, namespace: str) -> None:
    def body(count: int) -> dict[str, Any]:
        nodes = [{"name": f"gpu-{number}", "kubeNode": f"n{number}"} for number in range(count)]
        return {
            "apiVersion": NODESLICES.api_version,
            "kind": NODESLICES.kind,
            "metadata": {"name": "gpu-0"},
            "cluster": "lab",
            "nodeSet": "gpu",
            "nodes": nodes,
        }

    made = await served(kube, NODESLICES, body(100), namespace)

    assert [one.kube_node for one in made.nodes] == [f"n{number}" for number in range(100)]
    with pytest.raises(KubeRejectedError, match="at most 100 items"):
        await kube.patch(NODESLICES, "gpu-0", body(101), namespace)


def _json(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data)


async def test_kubectl_explains_every_field_and_shows_the_documented_columns(
    kube: KubeClient, namespace: str, kube_lab: KubeLab
) -> None:
    await served(kube, NODESETS, nodeset(), namespace)
    explained = kube_lab.kubectl("explain", "nodeset.spec", "--recursive=false")
    shown = [
        kube_lab.kubectl("get", "nset", "-n", namespace, *wide).splitlines()[0].split()
        for wide in ((), ("-o", "wide"))
    ]

    assert "Number of Nodes. Default: all Nodes that fit the template." in explained
    assert "<no description>" not in explained
    documented = ["NAME", "DESIRED", "FEASIBLE", "CURRENT", "READY", "RUNNING", "DRAIN", "UPDATED", "AGE"]
    assert shown == [documented, [*documented, "MISSCHEDULED", "UNAVAILABLE", "CLUSTER", "REASON"]]
