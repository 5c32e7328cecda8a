"""The GPUs that slurmd announces are those of its Node."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice, NodeSliceEntry
from sunk_kube.nodesets import AwaitedGpus, NodeSet
from sunk_kube.objects import Condition, Node, ObjectMeta, condition
from sunk_kube.testing import T0, node, nodeset
from sunk_nodeset_controller.config import Config
from sunk_nodeset_controller.nodeset_controller.observer import GpuWaits
from sunk_nodeset_controller.nodesets.feasibility import fits
from sunk_nodeset_controller.nodesets.gpus import GpuRules, gpus_of, is_unread, with_gpus
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, UnreadGpus
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.slices import wanted_entries
from sunk_nodeset_controller.nodesets.status import status
from sunk_nodeset_controller.nodesets.template import manifest
from sunk_slurm.gres import Gres

MODEL, PRODUCT, GPU = "gpu.nvidia.com/model", "nvidia.com/gpu.product", "nvidia.com/gpu"
RULES = GpuRules()
H100 = {MODEL: "NVIDIA_H100"}
WHY = "its device plugin announces no nvidia.com/gpu yet, though label gpu.nvidia.com/model is NVIDIA_H100"


def reading(**types: str) -> NodeSet:
    """A NodeSet that has its GPUs from its Nodes."""
    made = nodeset()
    return replace(made, spec=replace(made.spec, gpus="FromNode", gpu_types=types))


def having(count: str | None, name: str = "node1", **labels: str) -> Node:
    made = node(name, labels={key.replace("__", "/"): value for key, value in labels.items()} or H100)
    more = {} if count is None else {GPU: count}
    return replace(
        made, status=replace(made.status, capacity=more, allocatable=dict(made.status.allocatable))
    )


@pytest.mark.parametrize(
    ("kube_node", "types", "announced"),
    [
        (having("8"), {}, "gpu:h100:8"),
        (having("8"), {"NVIDIA_H100": "hopper"}, "gpu:hopper:8"),
        (having("4", **{PRODUCT: "NVIDIA-A100-SXM4-80GB"}), {}, "gpu:a100-sxm4-80gb:4"),
        (having("1", **{PRODUCT: "Tesla-T4", MODEL: "NVIDIA_T4"}), {}, "gpu:t4:1"),
        (having("2", disk="fast"), {}, "gpu:2"),
        (having("0"), {}, None),
        (having(None), {}, None),
    ],
)
def test_a_nodes_gpus_are_what_its_device_plugin_and_its_label_say(
    kube_node: Node, types: dict[str, str], announced: str | None
) -> None:
    found = gpus_of(kube_node, reading(**types).spec, RULES)
    assert (None if found is None else str(found)) == announced


def test_a_device_plugin_that_starts_again_takes_no_gpu_from_a_new_pod() -> None:
    restarting = having("8")
    none_free = {**restarting.status.allocatable, GPU: "0"}
    restarting = replace(restarting, status=replace(restarting.status, allocatable=none_free))

    assert str(gpus_of(restarting, reading().spec, RULES)) == "gpu:h100:8"


def test_a_set_that_says_its_gpus_itself_has_none_of_its_node() -> None:
    assert gpus_of(having("8"), nodeset().spec, RULES) is None
    assert not is_unread(having(None), nodeset().spec, RULES)


def test_slurmd_learns_of_the_gpus_and_the_pod_is_labelled() -> None:
    made = manifest(reading(), having("8"), "gpu-000-001", wk.TAINT_LOCK)
    found = with_gpus(made, gpus_of(having("8"), reading().spec, RULES))
    (container,) = found["spec"]["containers"]

    assert container["env"][0] == {"name": "SUNK_NODE_GRES", "value": "gpu:h100:8"}
    assert found["metadata"]["labels"]["sunk.coreweave.com/gres-gpu"] == "h100-8"
    assert with_gpus(made, None, is_listed=True) == made


@pytest.mark.parametrize(
    ("generated", "is_listed"),
    [((), False), (("cpu=core",), False), (("nvidia.com/gpu=gpu:/dev/nvidia",), True)],
)
def test_slurmd_learns_whether_the_generated_gres_conf_names_its_gpus(
    generated: tuple[str, ...],
    *,
    is_listed: bool,
) -> None:
    rules = Config(clusters=("lab",), gres=generated).gpu_rules
    made = manifest(reading(), having("8"), "gpu-000-001", wk.TAINT_LOCK)
    (container,) = with_gpus(made, Gres("gpu", "h100", 8), is_listed=rules.is_listed)["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}

    assert env["SUNK_NODE_GRES"] == "gpu:h100:8"
    assert (env.get("SUNK_NODE_GRES_LISTED") == "true") is is_listed


@pytest.mark.parametrize(
    ("kind", "count", "value"),
    [
        ("x" * 63, 8, "x" * 61 + "-8"),
        ("", 8, "8"),
        ("-_.h100", 8, "h100-8"),
        ("_", 8, "8"),
        ("h100", 8, "h100-8"),
    ],
)
def test_the_label_of_gpus_is_what_a_label_can_hold(kind: str, count: int, value: str) -> None:
    made = manifest(reading(), having("8"), "gpu-000-001", wk.TAINT_LOCK)
    found = with_gpus(made, Gres("gpu", kind, count))

    assert found["metadata"]["labels"][wk.LABEL_GRES_GPU] == value


def observed(*nodes: Node, **unread: UnreadGpus) -> Observed:
    of = reading()
    return Observed(
        nodeset=of,
        nodes={one.metadata.name: one for one in nodes},
        fits=fits(of, nodes, wk.TAINT_LOCK),
        pods=(),
        unread=unread,
        now=T0,
    )


def scheduled(seen: Observed) -> Condition | None:
    return condition(status(seen, plan(seen)).conditions, "Scheduled")


def test_a_node_whose_gpus_are_not_announced_yet_gets_its_pod_later_and_that_is_said() -> None:
    seen = observed(having("8", "node1"), having(None, "node2"), node2=UnreadGpus(WHY, 120.0, T0))
    found = plan(seen)

    assert found.actions == (CreatePod("gpu-000-011", "node1"),)
    assert (found.again_s, found.feasible) == (120.0, {"node1"})
    told = scheduled(seen)
    assert told is not None
    assert (told.status, told.reason) == ("False", "GPUsNotAnnounced")
    assert told.message == f"feasible Nodes: 1; 1 Node: {WHY}"


def test_the_only_node_of_a_set_says_what_it_waits_for() -> None:
    told = scheduled(observed(having(None), node1=UnreadGpus(WHY, 120.0, T0)))

    assert told is not None
    assert (told.reason, told.message) == ("GPUsNotAnnounced", f"feasible Nodes: 0; 1 Node: {WHY}")


def test_a_node_that_waits_for_its_gpus_still_belongs_to_the_set() -> None:
    """Its record in Slurm would be deleted, and an administrator's drain with it."""
    entry = NodeSliceEntry(name="gpu-1", kube_node="node1")
    slices = (NodeSlice(metadata=ObjectMeta(name="gpu-0"), node_set="gpu", nodes=(entry,)),)
    seen = replace(observed(having(None), node1=UnreadGpus(WHY, 120.0, T0)), slices=slices)
    foreign = replace(seen, foreign={"node1": "slurm/other"})
    released = replace(seen, slices=(replace(slices[0], nodes=(replace(entry, released=True),)),))

    assert wanted_entries(seen, plan(seen)) == {"node1": entry}
    assert wanted_entries(foreign, plan(foreign))["node1"].released
    assert wanted_entries(released, plan(released))["node1"].released


def test_a_node_that_does_not_fit_waits_for_no_gpus() -> None:
    small = having(None)
    seen = observed(replace(small, metadata=replace(small.metadata, deletion_timestamp=T0)))
    seen = replace(seen, unread={"node1": UnreadGpus(WHY, 120.0, T0)})

    assert plan(seen).obstacles == {"node1": "is being deleted"}
    told = scheduled(seen)
    assert told is not None
    assert told.reason == "TooFewFeasibleNodes"


def waiting(wait_s: float, began_s: float) -> dict[str, UnreadGpus]:
    return {"node1": UnreadGpus(WHY, wait_s, T0 + timedelta(seconds=began_s))}


def test_gpus_are_waited_for_so_long_and_no_longer() -> None:
    clock = [0.0]
    waits = GpuWaits(GpuRules(wait_s=300.0), lambda: clock[0])

    def at(now: float, *nodes: Node) -> dict[str, UnreadGpus]:
        clock[0] = now
        return waits.of(reading(), nodes, T0 + timedelta(seconds=now))

    assert at(0, having(None), having("8", "node2")) == waiting(300.0, 0)
    assert at(100, having("0")) == waiting(200.0, 0)
    assert at(300, having("0")) == waiting(0.0, 0)
    assert at(400, having("0")) == waiting(0.0, 0)
    assert at(500, having("8")) == {}
    assert at(600, having("0")) == waiting(300.0, 600)
    waits.forget(reading().key)
    assert at(700, having("0")) == waiting(300.0, 700)


def test_a_pod_that_has_waited_long_enough_is_made_without_gpus() -> None:
    seen = observed(having(None), node1=UnreadGpus(WHY, 0.0, T0))

    assert plan(seen).actions == (CreatePod("gpu-000-011", "node1"),)
    assert status(seen, plan(seen)).gpus_awaited == (AwaitedGpus(kube_node="node1", since=T0),)


@pytest.mark.parametrize(
    ("told_s", "created_s", "began_s"),
    [(-100, None, -100), (-100, -200, -100), (-400, None, -400), (-100, -50, 0), (50, None, 0)],
    ids=["goes on", "of this node", "it is over", "of an earlier node", "of a clock that was ahead"],
)
def test_a_new_leader_goes_on_with_the_wait_that_the_nodeset_tells_of(
    told_s: float, created_s: float | None, began_s: float
) -> None:
    def moment(seconds: float) -> datetime:
        return T0 + timedelta(seconds=seconds)

    of, found = reading(), having(None)
    told = (AwaitedGpus(kube_node="node1", since=moment(told_s)),)
    of = replace(of, status=replace(of.status, gpus_awaited=told))
    created = None if created_s is None else moment(created_s)
    found = replace(found, metadata=replace(found.metadata, creation_timestamp=created))

    unread = GpuWaits(GpuRules(wait_s=300.0), lambda: 7000.0).of(of, (found,), T0)

    assert unread == waiting(max(300.0 + began_s, 0.0), began_s)


def test_nothing_is_waited_for_where_it_is_set_so_or_no_label_speaks_of_gpus() -> None:
    unlabelled = having(None, disk="fast")
    assert GpuWaits(GpuRules(wait_s=0.0)).of(reading(), (having(None),), T0) == {}
    assert GpuWaits(RULES).of(reading(), (unlabelled,), T0) == {}
    assert GpuWaits(GpuRules(resources=())).of(reading(), (having(None),), T0) == {}
