import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_kube.objects import Node
from sunk_kube.testing import node
from sunk_nodeset_controller.config import Config
from sunk_nodeset_controller.node_controller.gres import FEWER_S, Counts, Gres, gres_conf, read_gres
from sunk_nodeset_controller.nodesets.topology import (
    BLOCKS_MAX,
    NO_VALUE,
    ROOT,
    Topology,
    block_of,
    blocks_of,
    node_topology,
    place_name,
    topology_conf,
    topology_yaml,
)
from sunk_runtime.errors import ConfigError

FABRIC, LEAF = "ib.coreweave.cloud/fabric", "ib.coreweave.cloud/leafgroup"
TREE = Topology(kind="tree", labels=(FABRIC, LEAF))
BLOCK = Topology(kind="block", labels=("ds.coreweave.com/nvlink.domain",))


def labels(fabric: str, leaf: str) -> Mapping[str, str]:
    return {FABRIC: fabric, LEAF: leaf}


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_tree_has_a_leaf_for_the_nodes_of_each_path_and_a_switch_above() -> None:
    nodes = {
        "gpu-000-001": labels("f1", "a"),
        "gpu-000-002": labels("f1", "a"),
        "gpu-000-003": labels("f1", "b"),
        "gpu-000-004": labels("f2", "a"),
    }

    assert lines(topology_conf(TREE, nodes)) == [
        "SwitchName=f1-a Nodes=gpu-000-[001-002]",
        "SwitchName=f1-b Nodes=gpu-000-003",
        "SwitchName=f2-a Nodes=gpu-000-004",
        "SwitchName=f1 Switches=f1-a,f1-b",
        "SwitchName=f2 Switches=f2-a",
    ]
    backwards = dict(reversed(nodes.items()))
    assert topology_conf(TREE, backwards) == topology_conf(TREE, nodes)


def test_a_node_without_labels_is_in_the_tree_too() -> None:
    assert "SwitchName=none-none Nodes=n1" in lines(topology_conf(TREE, {"n1": {}}))


def test_names_are_what_slurm_takes_and_no_two_are_the_same() -> None:
    nodes = {"n1": labels("a b", "c"), "n2": labels("a=b", "c"), "n3": labels("x" * 60, "y" * 60)}
    found = [line.split()[0].removeprefix("SwitchName=") for line in lines(topology_conf(TREE, nodes))]

    assert len(set(found)) == len(found) == 6
    assert all(len(name) <= 63 and " " not in name for name in found)


def test_blocks_hold_the_nodes_of_a_label_and_no_others() -> None:
    domain = "ds.coreweave.com/nvlink.domain"
    nodes = {"n1": {domain: "d1"}, "n2": {domain: "d1"}, "n3": {domain: "d2"}, "n4": {}}
    sized = Topology(kind="block", labels=(domain,), block_sizes=(2, 4))

    assert lines(topology_conf(BLOCK, nodes)) == ["BlockName=d1 Nodes=n[1-2]", "BlockName=d2 Nodes=n3"]
    assert lines(topology_conf(sized, nodes))[-1] == "BlockSizes=2,4"
    assert lines(topology_conf(sized, {})) == []


DOMAIN = "ds.coreweave.com/nvlink.domain"
BOTH = Topology(kind="both", labels=(FABRIC, LEAF), block_label=DOMAIN)


def test_a_nodes_place_is_its_path_below_one_switch_and_its_block() -> None:
    assert node_topology(BOTH, {**labels("f1", "a"), DOMAIN: "d1"}) == "tree:all:f1:f1.a,block:d1"
    assert node_topology(BOTH, {FABRIC: "f1"}) == "tree:all:f1:f1.none"
    assert node_topology(BOTH, {}) == "tree:all:none"
    assert node_topology(TREE, labels("f1", "a")) == ""


def test_topology_yaml_names_blocks_and_no_node_so_that_a_node_that_moves_does_not_change_it() -> None:
    before = {"n1": {**labels("f1", "a"), DOMAIN: "d1"}, "n2": {DOMAIN: "d2"}, "n3": {DOMAIN: "d2"}}
    after = {**before, "n3": {**labels("f9", "z"), DOMAIN: "d1"}}

    assert topology_yaml(BOTH, before) == topology_yaml(BOTH, after)
    assert [line.strip() for line in lines(topology_yaml(BOTH, before))[-2:]] == [
        '- {block: "d1"}',
        '- {block: "d2"}',
    ]
    assert f'{{block: "{NO_VALUE}"}}' in topology_yaml(BOTH, {})
    assert "block" not in topology_yaml(replace(BOTH, block_label=""), before)


def test_a_block_stays_in_topology_yaml_for_slurmctld_ends_where_a_node_is_in_one_that_is_not_there() -> None:
    before = topology_yaml(BOTH, {"n1": {DOMAIN: "d1"}, "n2": {DOMAIN: "d 2"}})
    after = topology_yaml(BOTH, {"n1": {DOMAIN: "d3"}}, blocks_of(before))
    without_label = topology_yaml(replace(BOTH, block_label=""), {}, blocks_of(after))

    assert blocks_of(before) == {"d1", place_name(("d 2",))}
    assert blocks_of(after) == blocks_of(without_label) == blocks_of(before) | {"d3"}
    assert blocks_of(topology_yaml(BOTH, {})) == set()
    assert blocks_of('  - {block: "a b"}\n  - {block: "x"} # y\n') == set()


def test_labels_add_no_more_blocks_than_so_many_and_those_that_are_there_stay() -> None:
    kept = {f"b{number}" for number in range(BLOCKS_MAX - 1)}
    found = blocks_of(topology_yaml(BOTH, {f"n{number}": {DOMAIN: f"x{number}"} for number in (1, 2)}, kept))

    assert found == kept | {"x1"}


def test_the_block_of_a_nodes_place_is_read() -> None:
    places = ("tree:all:f1:f1.a,block:d1", "block:d2,tree:all:none", "tree:block:x", "block:a b", "", None)

    assert [block_of(place) for place in places] == ["d1", "d2", "", "", "", ""]


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3).map(tuple), min_size=2, unique=True))
def test_whatever_labels_say_places_are_plain_short_and_no_two_are_the_same(
    paths: list[tuple[str, ...]],
) -> None:
    names = [place_name(path) for path in paths]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name) for name in names)
    assert not {ROOT, NO_VALUE} & set(names)


@pytest.mark.parametrize(
    "value", ["all", "none", "a.b", "x..0123456789abcdef", 'x"}\n- topology: y', "z" * 500]
)
def test_a_label_that_could_pass_for_another_place_gets_a_digest(value: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]*[.]{2}[0-9a-f]{16}", place_name((value,)))


def gpus(count: str | None, model: str = "H100_NVLINK_80GB") -> Node:
    allocatable: dict[str, str | int] = {"cpu": "8"}
    if count:
        allocatable["nvidia.com/gpu"] = count
    return node(labels={"gpu.nvidia.com/model": model}, allocatable=allocatable)


MODEL = ("gpu.nvidia.com/model",)
IN_FILES = (read_gres("nvidia.com/gpu=gpu:/dev/nvidia"),)


def test_gres_is_what_nodes_advertise_in_groups() -> None:
    nodes = {"n1": gpus("8"), "n2": gpus("8"), "n3": gpus("1", "A40"), "n4": gpus(None), "n5": gpus("0")}
    counted = gres_conf((Gres(resource="nvidia.com/gpu", name="mine"),), MODEL, nodes)
    files = gres_conf(IN_FILES, ("no/label",), nodes)

    assert lines(counted) == [
        "AutoDetect=off",
        "NodeName=n3 Name=mine Type=a40 Count=1",
        "NodeName=n[1-2] Name=mine Type=h100_nvlink_80gb Count=8",
    ]
    assert lines(files) == [
        "AutoDetect=off",
        "NodeName=n3 Name=gpu File=/dev/nvidia0",
        "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-7]",
    ]


def test_a_device_plugin_that_starts_again_takes_no_gpu_from_slurm() -> None:
    restarting = gpus("0")
    restarting = replace(
        restarting, status=replace(restarting.status, capacity={"nvidia.com/gpu": "8", "cpu": "8"})
    )

    assert "File=/dev/nvidia[0-7]" in gres_conf(IN_FILES, MODEL, {"n1": restarting})


def test_the_type_in_gres_conf_is_the_one_that_the_nodes_set_gives_its_model() -> None:
    tables: dict[str, Mapping[str, str]] = {"n1": {"H100_NVLINK_80GB": "h100"}, "n2": {}}
    nodes = {"n1": gpus("8"), "n2": gpus("8", "NVIDIA_L40S")}
    found = gres_conf(IN_FILES, MODEL, nodes, tables.__getitem__)

    assert lines(found)[1:] == [
        "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-7]",
        "NodeName=n2 Name=gpu Type=l40s File=/dev/nvidia[0-7]",
    ]


def test_fewer_gpus_are_believed_only_after_minutes_and_more_at_once() -> None:
    clock = [0.0]
    counts = Counts(lambda: clock[0])

    def at(now: float, count: str) -> int:
        clock[0] = now
        return counts.of(gpus(count), "nvidia.com/gpu")

    assert [at(0, "4"), at(1, "8"), at(2, "0"), at(FEWER_S + 1, "6")] == [4, 8, 8, 8]
    assert counts.again_s() == 1.0
    assert [at(FEWER_S + 2, "6"), counts.again_s()] == [6, None]
    assert [at(400, "0"), at(401, "6"), at(800, "0")] == [6, 6, 6]
    counts.keep(())
    assert at(801, "0") == 0


@pytest.mark.parametrize(
    "config",
    [
        Config(clusters=("lab",), gres=("nvidia.com/gpu",)),
        Config(clusters=("lab",), gres=("=gpu",)),
        Config(clusters=("lab",), gres=("nvidia.com/gpu=gpu",)),
        Config(clusters=("lab",), topology="tree"),
        Config(clusters=("lab",), topology="block", topology_labels=("a",), topology_block_label="b"),
        Config(clusters=("lab",), topology="both", topology_labels=tuple("abcdefghi")),
    ],
    ids=[
        "no name",
        "no resource",
        "GPUs without files",
        "a tree without labels",
        "a block label without effect",
        "a tree of nine levels",
    ],
)
def test_what_cannot_be_generated_is_said_at_the_start(config: Config) -> None:
    with pytest.raises(ConfigError):
        _ = config.generated
