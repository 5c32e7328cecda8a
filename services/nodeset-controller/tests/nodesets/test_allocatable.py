"""What a Node has left for Slurm beside slurmd's own Pod and the DaemonSets there."""

import json
from typing import Any

import msgspec
import pytest

from sunk_kube import wellknown as wk
from sunk_kube.objects import Taint
from sunk_kube.pods import PodSpec
from sunk_kube.testing import node, nodeset
from sunk_nodeset_controller.locks.daemonsets import DaemonSet
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodesets.allocatable import Allocatable, left_for_slurm, with_room
from sunk_nodeset_controller.nodesets.template import manifest

BEARS_ALL: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
OFFERED = {"cpu": "7910m", "memory": "32Gi"}
NODE = node(labels={"disk": "fast"}, allocatable=OFFERED)
SLURMD = {"cpu": "100m", "memory": "256Mi"}
WITHOUT_DAEMONS = Allocatable(cpus=7, memory_mib=32 * 1024 - 256)
WITH_ONE = Allocatable(cpus=6, memory_mib=32 * 1024 - 256 - 100)


def daemon(cpu: str = "1", memory: str = "100Mi", *, is_going: bool = False, **spec: object) -> DaemonSet:
    """A DaemonSet as the API server tells of it."""
    deleted = {"deletionTimestamp": "2026-01-01T12:00:00Z"} if is_going else {}
    container = {"name": "agent", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    told: dict[str, Any] = {
        "metadata": {"name": "agent", "namespace": "monitoring", **deleted},
        "spec": {"template": {"spec": {"containers": [container], **spec}}},
    }
    return msgspec.json.decode(json.dumps(told), type=DaemonSet)


def slurmd(**requests: str) -> PodSpec:
    containers = [{"name": "slurmd", "resources": {"requests": SLURMD | requests}}]
    return msgspec.convert({"containers": containers}, PodSpec)


@pytest.mark.parametrize(
    ("daemons", "left"),
    [
        pytest.param([], WITHOUT_DAEMONS, id="nobody but slurmd"),
        pytest.param([daemon(**BEARS_ALL)], WITH_ONE, id="one that bears the lock"),
        pytest.param([daemon()], WITHOUT_DAEMONS, id="one that each lock drives out"),
        pytest.param([daemon(**BEARS_ALL, is_going=True)], WITHOUT_DAEMONS, id="one that is being deleted"),
        pytest.param([daemon(**BEARS_ALL, nodeSelector={"disk": "slow"})], WITHOUT_DAEMONS, id="not here"),
        pytest.param([daemon(**BEARS_ALL, nodeSelector={"disk": "fast"})], WITH_ONE, id="just here"),
        pytest.param(
            [daemon("40", "900Gi", **BEARS_ALL)], Allocatable(cpus=0, memory_mib=0), id="more than all"
        ),
        pytest.param(
            [daemon("600m", "50Mi", **BEARS_ALL), daemon("210m", "50Mi", **BEARS_ALL)],
            Allocatable(cpus=7, memory_mib=WITH_ONE.memory_mib),
            id="rounded down once, not for each",
        ),
        pytest.param(
            [daemon("810001u", "1", **BEARS_ALL)],
            Allocatable(cpus=6, memory_mib=WITHOUT_DAEMONS.memory_mib - 1),
            id="a little too much for a whole one",
        ),
    ],
)
def test_what_is_left_is_whole_cpus_and_mib_without_what_stays_there(
    daemons: list[DaemonSet], left: Allocatable
) -> None:
    assert left_for_slurm(NODE, slurmd(), daemons, EvictionPolicy()) == left


def test_a_taint_that_every_daemon_bears_keeps_none_away_and_another_does() -> None:
    lock = {"key": wk.TAINT_LOCK, "operator": "Exists"}
    agent = daemon(tolerations=[lock])
    pressed = node(allocatable=OFFERED, taints=(Taint(key=wk.TAINT_NOT_READY, effect="NoExecute"),))
    special = node(allocatable=OFFERED, taints=(Taint(key="special", effect="NoSchedule"),))

    assert [left_for_slurm(one, slurmd(), [agent], EvictionPolicy()) for one in (pressed, special)] == [
        WITH_ONE,
        WITHOUT_DAEMONS,
    ]


def test_where_locks_evict_and_daemons_may_stay_each_of_them_counts() -> None:
    assert (
        left_for_slurm(NODE, slurmd(), [daemon()], EvictionPolicy(LockTaint(effect="NoSchedule"))) == WITH_ONE
    )


def test_what_slurmds_own_pod_requests_is_gone_too() -> None:
    assert left_for_slurm(NODE, slurmd(cpu="2"), [], EvictionPolicy()).cpus == 5


def test_each_container_is_told_and_the_template_stays_as_it_is() -> None:
    mine = {"name": "SUNK_LEFT_CPUS", "value": "3"}
    spec = {
        "initContainers": [{"name": "init", "image": "i"}],
        "containers": [{"name": "slurmd", "image": "i", "env": [mine]}],
    }
    plain = manifest(nodeset(spec=spec), NODE, "gpu-1", wk.TAINT_LOCK)

    made = with_room(plain, WITH_ONE)

    told = [
        {one["name"]: one.get("value") for one in container["env"] if one["name"].startswith("SUNK_LEFT")}
        for container in (*made["spec"]["initContainers"], *made["spec"]["containers"])
    ]
    left = {"SUNK_LEFT_CPUS": "6", "SUNK_LEFT_MIB": str(WITH_ONE.memory_mib)}
    assert told == [left, {**left, mine["name"]: mine["value"]}]  # What a template says itself holds.
    assert plain == manifest(nodeset(spec=spec), NODE, "gpu-1", wk.TAINT_LOCK)
