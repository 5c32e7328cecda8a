"""Which nodes Slurm may choose from for a Pod, when that is chosen anew, and what the end shows."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import anyio
import pytest
from msgspec.structs import replace

from sunk_kube.objects import Node, Taint
from sunk_kube.pods import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
)
from sunk_kube.testing import node
from sunk_pod_scheduler.controller import node_chooser
from sunk_pod_scheduler.controller.node_chooser import LASTS, SLICE, NodeChoiceCache
from sunk_pod_scheduler.placement.node_filter import (
    HOST_PORTS_MAX,
    Holders,
    NodeChoice,
    NodeConstraints,
    Nodes,
    host_ports,
    on_nodes,
    ports_taken,
    problem,
)
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.testing.builders import T0, manifest
from sunk_slurm import hostlist

pytestmark = pytest.mark.anyio


def model_in(*models: str) -> Affinity:
    term = NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key="model", operator="In", values=models),)
    )
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector((term,))))


UPGRADE = (Taint("upgrade", "", "NoSchedule"),)
ANY = NodeConstraints()
NODES = {
    "gpu-01": node("node1", labels={"model": "h100"}),
    "gpu-02": node("node2", labels={"model": "l4"}),
    "gpu-03": node("node3", labels={"model": "l4"}),
    "login-1": None,
}


@pytest.mark.parametrize(
    ("spec", "required", "excluded", "expected"),
    [
        pytest.param(PodSpec(), (), (), NodeChoice(excluded=("login-1",)), id="any node of a NodeSet"),
        pytest.param(
            PodSpec(node_selector={"kubernetes.io/hostname": "node2"}),
            (),
            (),
            NodeChoice(excluded=("gpu-[01,03],login-1",)),
            id="one by hostname",
        ),
        pytest.param(
            PodSpec(affinity=model_in("l4")),
            (),
            ("gpu-03",),
            NodeChoice(excluded=("gpu-[01,03],login-1",)),
            id="affinity",
        ),
        pytest.param(PodSpec(), ("gpu-02",), (), NodeChoice(required=("gpu-02",)), id="one required"),
        pytest.param(
            PodSpec(),
            ("gpu-02", "gpu-03"),
            (),
            NodeChoice(excluded=("gpu-01,login-1",)),
            id="one of two required",
        ),
        pytest.param(
            PodSpec(affinity=model_in("b200")),
            (),
            (),
            NodeChoice(excluded=("gpu-[01-03],login-1",), is_possible=False),
            id="nothing fits",
        ),
    ],
)
async def test_slurm_may_only_choose_what_the_pod_may_run_on(
    spec: PodSpec, required: tuple[str, ...], excluded: tuple[str, ...], expected: NodeChoice
) -> None:
    found = await choose(manifest(spec=spec), asks=NodeConstraints(required=required, excluded=excluded))

    assert {*",".join(found.excluded).split(",")} == {*",".join(expected.excluded).split(",")}
    assert (found.required, found.is_possible) == (expected.required, expected.is_possible)


async def choose(
    *pods: Pod,
    nodes: Nodes | None = None,
    asks: NodeConstraints = ANY,
    placed: tuple[Pod, ...] = (),
    pins: bool = True,
) -> NodeChoice:
    return await NodeChoiceCache().choose(
        pods, lambda: nodes or NODES, asks, T0, holders=holders_of(placed), pins=pins
    )


def holders_of(pods: Iterable[Pod]) -> Holders:
    return lambda port: on_nodes(pod for pod in pods if port in host_ports(pod))


async def test_pods_that_are_alike_share_one_choice_until_a_node_changes_in_what_pods_look_at() -> None:
    choices, looks = NodeChoiceCache(), list[datetime]()
    picky = manifest(spec=PodSpec(containers=manifest().spec.containers, node_selector={"zone": "nowhere"}))
    known: dict[str, Node | None] = dict(NODES)

    async def chosen(pod: Pod, moment: datetime) -> NodeChoice:
        def nodes() -> Mapping[str, Node | None]:
            looks.append(moment)
            return {**known}

        return await choices.choose((pod,), nodes, NodeConstraints(), moment)

    later = T0 + LASTS + timedelta(seconds=1)
    first, alike, other = [await chosen(pod, T0) for pod in (manifest(), manifest(name="other"), picky)]
    assert (first, other) == (await choose(manifest()), await choose(picky))
    assert alike is first
    assert other != first

    known["gpu-02"] = node("node2", labels={"model": "l4"})  # The same in all that matters.
    assert await chosen(manifest(), later) is first
    known["gpu-02"] = tainted = node("node2", labels={"model": "l4"}, taints=UPGRADE)
    known["gpu-04"] = node("node4")
    assert await chosen(manifest(), later) is first
    assert await chosen(manifest(), later + LASTS * 2) == NodeChoice(excluded=("gpu-02,login-1",))
    assert looks == [T0, later, later + LASTS * 2]
    assert "upgrade" in problem(manifest(), tainted, holders_of(()))


async def test_choices_are_remembered_up_to_so_many_characters_of_names_that_do_not_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_chooser, "KEPT_CHARACTERS_MAX", 5000)
    choices = NodeChoiceCache()

    async def chosen(user: int) -> NodeChoice:
        names = tuple(f"{'x' * 200}{number}y{user}" for number in range(12))
        return await choices.choose((manifest(),), lambda: NODES, NodeConstraints(excluded=names), T0)

    first = await chosen(1)
    assert await chosen(1) is first
    assert await chosen(2) is await chosen(2)  # Each is about half of what may be kept.
    third = await chosen(3)
    assert await chosen(3) is third
    assert await chosen(1) is not first


async def test_a_gang_gets_nodes_that_fit_each_member_and_enough_of_them() -> None:
    first, second = manifest(), manifest(uid="2", name="other")
    picky = replace(second, spec=replace(second.spec, node_selector={"disk": "fast"}))
    nodes = {"gpu-1": node("a", labels={"disk": "fast"}), "gpu-2": node("b")}
    choice = await choose(first, picky, nodes=nodes, pins=False)

    assert choice == NodeChoice(excluded=("gpu-2",))
    assert not (
        await choose(first, picky, nodes=nodes, asks=NodeConstraints(least=2), pins=False)
    ).is_possible
    one = await choose(first, nodes=nodes, asks=NodeConstraints(required=("gpu-1",)), pins=False)
    assert one == NodeChoice(excluded=("gpu-2",))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (JobOptions(required_nodes=("gpu-02", "gpu-03")), "none of those that the Pod requires"),
        (JobOptions(excluded_nodes=("gpu-01",)), "one that the Pod excludes"),
        (JobOptions(required_nodes=("gpu-01",), excluded_nodes=("gpu-02",)), ""),
    ],
)
def test_a_pod_is_not_bound_to_a_node_that_its_job_may_not_have_however_slurm_came_to_it(
    asked: JobOptions, words: str
) -> None:
    found = problem(manifest(), node("node1"), holders_of(()), "gpu-01", asked)

    assert words in found
    assert bool(words) == bool(found)


def listening(port: int, *, uid: str = "u", kube_node: str = "", protocol: str = "TCP") -> Pod:
    ports = (ContainerPort(host_port=port, protocol=protocol),)
    spec = PodSpec(containers=(Container(ports=ports),), node_name=kube_node)
    return manifest(uid=uid, spec=spec)


async def test_a_node_where_another_pod_has_the_host_port_is_neither_chosen_nor_bound_to() -> None:
    web = listening(8080)
    there = [
        web,
        listening(8080, uid="a", kube_node="node2"),
        listening(9090, uid="b", kube_node="node3"),
        listening(8080, uid="c", kube_node="node1", protocol="UDP"),
    ]
    used = holders_of(there)
    taken = ports_taken(web, used)
    choice = await choose(web, placed=tuple(there))

    assert taken == {"node2"}
    assert "gpu-02" in hostlist.expand(choice.excluded[0])
    assert choice.is_possible
    busy, free = NODES["gpu-02"], NODES["gpu-01"]
    assert busy is not None
    assert free is not None
    assert "host port" in problem(web, busy, used)
    assert problem(web, free, used) == ""
    assert ports_taken(manifest(), used) == frozenset()


def test_no_more_of_a_pods_ports_are_read_than_a_pod_through_slurm_may_have() -> None:
    ports = tuple(ContainerPort(host_port=number) for number in range(1, 60_000))

    assert len(host_ports(manifest(spec=PodSpec(containers=(Container(ports=ports),))))) == HOST_PORTS_MAX


async def test_who_asks_for_many_kinds_of_nodes_keeps_nobody_elses_choice_waiting() -> None:
    nodes: Nodes = {f"gpu-{number}": node(f"n{number}") for number in range(SLICE * 4)}
    choices, ended, found = NodeChoiceCache(), list[str](), list[NodeChoice]()
    specs = [
        PodSpec(containers=manifest().spec.containers, node_selector={"model": str(kind)})
        for kind in range(9)
    ]

    async def chosen(who: str, *pods: Pod) -> None:
        found.append(await choices.choose(pods, lambda: nodes, ANY, T0))
        ended.append(who)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chosen, "many", *(manifest(spec=spec) for spec in specs))
        for _ in range(2):
            tasks.start_soon(chosen, "one", manifest())

    assert ended == ["one", "one", "many"]
    assert found[0] is found[1]  # It was chosen once.
