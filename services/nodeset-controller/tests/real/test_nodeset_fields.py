"""Every field of NodeSet with valid, boundary and wrong values, on a real API server.

What must stay true of each: the API server refuses it and names the field; or all that the controller decides
of it works, and the Pods that it makes of it are its own. `./task test:nightly` tries many changes at once.
"""

import json
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import pytest

from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.crds import crds, nodeset_crd
from sunk_kube.errors import KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_kube.nodesets import NodeSet
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODESETS, PODS
from sunk_kube.testing import T0, node
from sunk_lab.kube.lab import KubeLab
from sunk_nodeset_controller.nodeset_controller import revisions
from sunk_nodeset_controller.nodesets.feasibility import fits
from sunk_nodeset_controller.nodesets.gpus import GpuRules, gpus_of, with_gpus
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed
from sunk_nodeset_controller.nodesets.owners import is_owned, refusal
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.protection import budget
from sunk_nodeset_controller.nodesets.status import status
from sunk_nodeset_controller.nodesets.template import Manifest, manifest, pinned_node, template_hash
from sunk_runtime.testing import until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER: Final = "lab"
NODE: Final = node("no-such-node", labels={"a": "1", "gpu.nvidia.com/model": "H100"})
AT_ONCE: Final = 8
FEW: Final = 6
"""Of so many odd values each run tries one."""
MANY: Final = 4000
Where = tuple[str | int, ...]
"""Keys and indexes from `spec` on."""
CONTAINER: Final[dict[str, Any]] = {
    "name": "slurmd",
    "image": "localhost/slurm:1",
    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"name": "slurmd", "containerPort": 6818}],
}
LABEL: Final[dict[str, Any]] = {"key": "a", "operator": "In", "values": ["1"]}
FIELD: Final[dict[str, Any]] = {"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}
TERM: Final[dict[str, Any]] = {"matchExpressions": [LABEL], "matchFields": [FIELD]}
WHOLE: Final[dict[str, Any]] = {
    "cluster": CLUSTER,
    "replicas": 1,
    "podNamePrefix": "gpu",
    "features": {"staticFeatures": ["a"], "dynamicFeatures": {"a": {"prefix": "a-"}}},
    "template": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
                }
            },
            "nodeSelector": {"a": "1"},
            "tolerations": [
                {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}
            ],
            "containers": [CONTAINER],
            "initContainers": [{**CONTAINER, "name": "before"}],
            "restartPolicy": "Always",
        },
    },
    "leaveRoomFor": "DaemonSets",
    "gpus": "FromNode",
    "gpuTypes": {"a": "h100"},
    "updateStrategy": {
        "type": "RollingUpdate",
        "rollingUpdate": {
            "maxUnavailable": 1,
            "requeue": {"runningSeconds": 1, "partitions": ["a"], "qos": ["a"]},
            "placeholders": "wait",
        },
    },
    "minReadySeconds": 1,
    "revisionHistoryLimit": 1,
}
"""A NodeSet with every field of the definition."""
OPEN: Final[tuple[Where, ...]] = tuple(
    ("template", "spec", *rest)
    for rest in (
        *(("containers", 0, name) for name in ("env", "ports", "readinessProbe", "volumeMounts")),
        *(("initContainers", 0, name) for name in ("env", "ports", "restartPolicy")),
        ("containers", 0, "env", 0),
        ("containers", 0, "env", 0, "name"),
        ("containers", 0, "ports", 0),
        ("containers", 0, "ports", 0, "name"),
        ("affinity", "podAffinity"),
        ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
        *((name,) for name in ("hostNetwork", "hostname", "overhead", "resources", "schedulingGates")),
        *(
            (name,)
            for name in ("terminationGracePeriodSeconds", "priorityClassName", "volumes", "schedulerName")
        ),
    )
)
"""Fields of Pods that the definition does not name, and that the controller reads or passes on."""
NOT_IN_WHOLE: Final[tuple[Where, ...]] = (("template", "spec", "nodeName"),)
"""Fields that no NodeSet may have."""


def nested(levels: int) -> Any:  # noqa: ANN401 - JSON.
    return {"a": nested(levels - 1)} if levels else 1


ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 101, 2**31, 2**63 - 1, 1.5, 1e300),
    *("", "x", "1", "-1", "101%", "A b", "é", "a,b", "../..", "x" * 64, "x" * 5000),
    *([], ["x"], [None], [[]], ["a"] * 300, {}, {"a": None}, {"x": "y"}, {"a b": "1"}, nested(200)),
)  # fmt: skip


class Case(NamedTuple):
    """A NodeSet with changes."""

    changes: tuple[tuple[Where, Any], ...]

    @property
    def spec(self) -> dict[str, Any]:
        """Return the spec."""
        made = json.loads(json.dumps(WHOLE))
        for where, value in self.changes:
            put(made, where, value)
        return made

    @property
    def names(self) -> set[str]:
        """Return the names of the fields that a refusal may name: what was changed, or what that is in."""
        parts = [str(part).lower() for where, _ in self.changes for part in where if part != 0]
        found = {part.removesuffix("classname") for part in parts}  # "no PriorityClass with name x".
        return found - {"template", "spec"} or found


def put(spec: Any, where: Where, value: Any) -> None:  # noqa: ANN401 - JSON.
    """Put *value* into *spec*; nothing if an earlier change took its place away."""
    *above, last = where
    for part in above:
        try:
            spec = spec[part]
        except (KeyError, IndexError, TypeError):
            return
    with suppress(IndexError, TypeError):  # An earlier change took its place away.
        spec[last] = value


def fields(schema: Any, where: Where = ()) -> Iterator[tuple[Where, dict[str, Any]]]:  # noqa: ANN401 - JSON Schema.
    """Yield each field below *schema*, with its own schema."""
    below: list[tuple[str | int, Any]] = list(schema.get("properties", {}).items())
    if each := schema.get("additionalProperties"):
        below.append(("cpu" if where[-1] in ("requests", "limits") else "a", each))
    if "items" in schema:
        below.append((0, schema["items"]))
    for part, found in below:
        yield (*where, part), found
        yield from fields(found, (*where, part))


def boundaries(schema: dict[str, Any], value: Any) -> Iterator[Any]:  # noqa: ANN401 - JSON.
    """Yield values at and past the limits of *schema*; *value* is a valid one."""
    for limit in ("minimum", "maximum"):
        if limit in schema:
            yield from (schema[limit] - 1, schema[limit], schema[limit] + 1)
    if "maxLength" in schema:
        yield from ("a" * schema["maxLength"], "a" * (schema["maxLength"] + 1))
    if "maxItems" in schema and isinstance(value, list):
        yield from (value * schema["maxItems"], value * (schema["maxItems"] + 1))
    if "maxProperties" in schema:
        yield {f"a{index}": "1" for index in range(schema["maxProperties"] + 1)}
    yield from schema.get("enum", ())


def spec_schema() -> dict[str, Any]:
    version = nodeset_crd()["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def at(where: Where) -> Any:  # noqa: ANN401 - JSON.
    """Return what the whole NodeSet has there."""
    found: Any = WHOLE
    for part in where:
        found = found[part]
    return found


def cases(one_in: int = 1) -> list[Case]:
    """Return each field with its boundaries, and with *one_in* so many of the odd values, other ones each."""
    known = [(where, schema) for where, schema in fields(spec_schema()) if where not in NOT_IN_WHOLE]
    found = [(where, value) for where, schema in known for value in boundaries(schema, at(where))]
    every = (*(where for where, _ in known), *OPEN, *NOT_IN_WHOLE)
    found += [(where, value) for index, where in enumerate(every) for value in ODD[index % one_in :: one_in]]
    return [Case((one,)) for one in found]


def bodies(nodeset: NodeSet) -> list[Manifest]:
    """Return the Pods that the controller makes of *nodeset*; all that it decides must work."""
    seen = Observed(
        nodeset=nodeset,
        nodes={NODE.metadata.name: NODE},
        fits=fits(nodeset, [NODE], wk.TAINT_LOCK),
        pods=(),
        refusal=refusal(nodeset, [nodeset], [CLUSTER]),
        now=T0,
    )
    found = plan(seen)
    written = status(seen, found)
    assert not found.invalid or any(found.invalid[:20] in one.message for one in written.conditions)
    budget(nodeset)
    revisions.manifest(nodeset, template_hash(nodeset), 1)
    rules = GpuRules()
    made = [one for one in found.actions if isinstance(one, CreatePod)]
    return [
        with_gpus(manifest(nodeset, NODE, one.name, wk.TAINT_LOCK), gpus_of(NODE, nodeset.spec, rules))
        for one in made
    ]


@pytest.fixture
async def kube(kube_lab: KubeLab) -> AsyncGenerator[KubeClient]:
    async with connect("test", kubeconfig=Path(kube_lab.kubeconfig)) as client:
        for crd in crds():
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncGenerator[str]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-fields-"}}
    name = (await kube.create(NAMESPACES, body)).metadata.name
    try:

        async def is_served() -> bool:
            return await judged(kube, name, "whole", Case(())) is not None

        await until(is_served, within_s=60)
        yield name
    finally:
        with anyio.move_on_after(30, shield=True):
            await kube.delete(NAMESPACES, name)


async def judged(kube: KubeClient, namespace: str, name: str, case: Case) -> str | None:
    """Return what is wrong with how *case* was taken; nothing: all is well; None: NodeSets are not served."""
    body = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "metadata": {"name": name},
        "spec": case.spec,
    }
    try:
        made = await kube.create(NODESETS, body, namespace)
    except KubeNotFoundError:
        return None
    except KubeRejectedError as error:
        text = str(error).lower().partition("http")[2]
        return "" if any(one in text for one in case.names) else f"the field is not named: {error}"
    for pod in bodies(made):
        pod["metadata"]["name"] = f"{name}-pod"  # Many are made at once.
        try:
            found = await kube.create(PODS, pod, namespace)
        except KubeRejectedError as error:  # As the status of the NodeSet says.
            if not any(one in str(error).lower() for one in case.names):
                return f"the field is not named: {error}"
        else:
            await kube.delete(PODS, found.metadata.name, namespace, uid=found.metadata.uid, grace_period_s=0)
            labels = found.metadata.labels
            is_ours = is_owned(found, made) and labels[wk.LABEL_CLUSTER] == CLUSTER
            if not is_ours or pinned_node(found) != NODE.metadata.name or found.spec.node_name:
                return f"a Pod that is not its own: {pod}"
    await kube.delete(NODESETS, name, namespace, uid=made.metadata.uid)
    return ""


async def wrong(kube: KubeClient, namespace: str, chosen: list[Case]) -> list[str]:
    """Return what is wrong with how each of *chosen* was taken."""
    found: list[str] = []
    left = list(enumerate(chosen))

    async def work() -> None:
        while left:
            index, case = left.pop()
            try:
                said = await judged(kube, namespace, f"n{index}", case)
            except KubeUnavailableError:  # It says nothing of the field.
                left.append((len(chosen) + index, case))
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for.
                said = repr(error)
            if said:
                found.append(f"{str(case.changes)[:300]}: {said[:600]}")

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)
    return found


def test_the_whole_nodeset_has_every_field_of_the_definition() -> None:
    missing: list[Where] = []
    for where, _ in fields(spec_schema()):
        try:
            at(where)
        except (KeyError, IndexError):
            missing.append(where)

    assert tuple(missing) == NOT_IN_WHOLE


@pytest.mark.timeout(300)
async def test_each_field_is_refused_by_its_name_or_decided_on(kube: KubeClient, namespace: str) -> None:
    found = await wrong(kube, namespace, cases(FEW))
    assert not found, "\n".join(found)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_many_fields_at_once_are_refused_by_name_or_decided_on(
    kube: KubeClient, namespace: str
) -> None:
    chosen, every = random.Random(27), cases()  # noqa: S311 - no secret.
    made = every + [
        Case(tuple(chosen.choice(every).changes[0] for _ in range(chosen.randint(2, 5)))) for _ in range(MANY)
    ]

    found = await wrong(kube, namespace, made)
    assert not found, "\n".join(found)
