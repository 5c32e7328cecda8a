"""Generated topology files, read by a real slurmctld of both releases; nodes that bring their places."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pytest

from sunk_lab.errors import LabError
from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11, SLURM_26_05, Release
from sunk_lab.slurm.testing import running_slurm
from sunk_nodeset_controller.nodesets.topology import (
    Topology,
    blocks_of,
    node_topology,
    topology_conf,
    topology_yaml,
)

LIBRARY: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts/lib.sh"
FABRIC, LEAF, DOMAIN = "fabric", "leafgroup", "domain"
BOTH: Final = Topology(kind="both", labels=(FABRIC, LEAF), block_label=DOMAIN)
HOSTILE: Final = 'x" Nodes=ALL\n- topology: flat:,[0-9999999]' + "y" * 300
NODES: Final[Mapping[str, Mapping[str, str]]] = {
    "a1": {FABRIC: "f1", LEAF: "l1", DOMAIN: "b1"},
    "a2": {FABRIC: "f1", LEAF: "l2", DOMAIN: "b2"},
    "a3": {FABRIC: "f1", LEAF: "l2", DOMAIN: "b1"},
    "a4": {FABRIC: HOSTILE, LEAF: HOSTILE, DOMAIN: HOSTILE},
    "a5": {},
}


def start_nodes(slurm: HostSlurm) -> None:
    """Start a slurmd for each node, as a compute Pod does."""
    library = slurm.write_file("lib.sh", LIBRARY.read_text())
    for name, labels in NODES.items():
        place = node_topology(BOTH, labels)
        take = f'source {library}\nSUNK_NODE_TOPOLOGY="{place}"\ntopology=$(node_topology)\n'
        slurm.add_node(
            name, cpus=1, memory_mib=500, prepare=take + 'set -- "$1" "$2${topology:+ Topology=$topology}"'
        )
        wait_for(f"{name} to be idle", lambda name=name: state(slurm, name) == "idle", 60, 0.1)


def state(slurm: HostSlurm, name: str) -> str:
    try:
        return slurm.exec("sinfo", "-h", "-N", "-n", name, "-o", "%T").strip()
    except LabError:
        return ""


def shown(slurm: HostSlurm, *which: str) -> dict[str, str]:
    """Return the nodes of each switch or block that Slurm has."""
    lines = slurm.exec("scontrol", "show", "topology", *which).splitlines()
    words = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return {one.get("SwitchName") or one["BlockName"]: one.get("Nodes", "") for one in words}


def configure(slurm: HostSlurm, **files: str) -> None:
    for name, content in files.items():
        slurm.write_file(name.replace("_", "."), content)
    slurm.exec("scontrol", "reconfigure")
    wait_for("slurmctld", lambda: "UP" in slurm.exec("scontrol", "ping"), 60, 0.1)


def job_on(slurm: HostSlurm, *options: str) -> set[str]:
    """Run a job of two nodes and return them."""
    return set(slurm.exec("srun", "-N2", "--mem=100", *options, "printenv", "SLURMD_NODENAME").split())


@pytest.mark.lab
@pytest.mark.parametrize("kind", ["tree", "block"])
def test_slurm_24_11_reads_the_generated_topology_conf(kind: str) -> None:
    labels = (FABRIC, LEAF) if kind == "tree" else (DOMAIN,)
    kinds: Literal["tree", "block"] = "tree" if kind == "tree" else "block"
    # Without sizes Slurm 24.11 takes those of a block, and ends where another is smaller.
    text = topology_conf(Topology(kind=kinds, labels=labels, block_sizes=(1,)), NODES)
    with running_slurm(SLURM_24_11, nodes=1) as slurm:
        start_nodes(slurm)
        slurm.exec("bash", "-c", f"echo TopologyPlugin=topology/{kind} >>/lab/etc/slurm.conf")
        configure(slurm, topology_conf=text)
        wait_for("the topology", lambda: bool(shown(slurm)), 60, 0.1)
        for name in NODES:
            wait_for(f"{name} to be idle", lambda name=name: state(slurm, name) == "idle", 60, 0.1)
        found = shown(slurm)
        if kind == "tree":
            assert found["f1-l1"] == "a1"
            assert found["f1-l2"] == "a[2-3]"
            assert found["f1"] == "a[1-3]"
            assert job_on(slurm, "--switches=1") == {"a2", "a3"}
        else:
            assert found["b1"] == "a[1,3]"
            assert found["b2"] == "a2"


@pytest.mark.lab
def test_slurm_24_11_ends_with_tree_and_block_in_one_file() -> None:
    tree, block = (topology_conf(Topology(kind=kind, labels=(DOMAIN,)), NODES) for kind in ("tree", "block"))
    with running_slurm(SLURM_24_11, nodes=1) as slurm:
        slurm.exec("bash", "-c", "echo TopologyPlugin=topology/tree >>/lab/etc/slurm.conf")
        slurm.write_file("topology.conf", tree + block)

        with pytest.raises(LabError, match="unrecognized key: BlockName"):
            slurm.exec("slurmctld", "-D", timeout_s=30)


@pytest.mark.lab
def test_slurm_26_05_has_tree_and_block_at_once_and_a_node_moves_without_a_reconfigure() -> None:
    with running_slurm(SLURM_26_05, nodes=1, more=("TopologyPlugin=topology/default",)) as slurm:
        configure(slurm, topology_yaml=topology_yaml(BOTH, NODES))
        wait_for("the topology", lambda: "all" in shown(slurm), 60, 0.1)
        start_nodes(slurm)
        tree, blocks = shown(slurm), shown(slurm, "block")

        assert (tree["f1.l1"], tree["f1.l2"], tree["f1"], tree["none"]) == ("a1", "a[2-3]", "a[1-3]", "a5")
        assert tree["all"] == "a[1-5]"
        assert (blocks["b1"], blocks["b2"]) == ("a[1,3]", "a2")
        assert len(tree) == 7
        assert len(blocks) == 3
        assert job_on(slurm, "--switches=1", "--nodelist=a2") == {"a2", "a3"}

        log = slurm.logs / "slurmctld.log"
        told = log.read_text().count("slurmctld version")
        started = [line for line in json_of(slurm) if line]
        moved = node_topology(BOTH, {FABRIC: "new", LEAF: "l9", DOMAIN: "b2"})
        slurm.exec("scontrol", "update", "nodename=a3", f"topology={moved}")

        assert shown(slurm)["new.l9"] == "a3"
        assert (shown(slurm, "block")["b1"], shown(slurm, "block")["b2"]) == ("a1", "a[2-3]")
        assert log.read_text().count("slurmctld version") == told
        assert json_of(slurm) == started

        configure(slurm)
        wait_for("the topology", lambda: shown(slurm).get("new.l9") == "a3", 60, 0.1)


@pytest.mark.lab
def test_slurmctld_26_05_goes_on_when_the_last_node_of_a_block_has_another_label_or_is_gone() -> None:
    with running_slurm(SLURM_26_05, nodes=1, more=("TopologyPlugin=topology/default",)) as slurm:
        before = topology_yaml(BOTH, NODES)
        configure(slurm, topology_yaml=before)
        wait_for("the topology", lambda: "all" in shown(slurm), 60, 0.1)
        start_nodes(slurm)
        moved = {"a2": {DOMAIN: "b9"}}
        configure(slurm, topology_yaml=topology_yaml(BOTH, moved, blocks_of(before)))
        wait_for("the new block", lambda: "b9" in shown(slurm, "block"), 60, 0.1)

        assert shown(slurm, "block")["b2"] == "a2"
        slurm.exec("scontrol", "update", "nodename=a2", f"topology={node_topology(BOTH, moved['a2'])}")
        assert shown(slurm, "block")["b9"] == "a2"
        assert "b2" in shown(slurm, "block")


@pytest.mark.lab
def test_slurmctld_26_05_goes_on_without_topology_yaml_once_no_node_has_a_place() -> None:
    """The way back that the documents describe."""
    with running_slurm(SLURM_26_05, nodes=1, more=("TopologyPlugin=topology/default",)) as slurm:
        configure(slurm, topology_yaml=topology_yaml(BOTH, NODES))
        wait_for("the topology", lambda: "all" in shown(slurm), 60, 0.1)
        start_nodes(slurm)
        slurm.exec("scontrol", "update", "nodename=ALL", "topology=")
        slurm.exec("rm", "/lab/etc/topology.yaml")
        configure(slurm)

        wait_for("all nodes", lambda: all(state(slurm, name) == "idle" for name in NODES), 60, 0.1)


def json_of(slurm: HostSlurm) -> list[object]:
    """Return when each slurmd started: a reconfigure has each start again."""
    nodes = json.loads(slurm.exec("scontrol", "show", "node", "--json"))["nodes"]
    return [(node["name"], node["slurmd_start_time"]) for node in nodes]


@pytest.mark.lab
@pytest.mark.parametrize("release", [SLURM_24_11, SLURM_26_05], ids=lambda release: release.version)
def test_a_slurmd_starts_where_its_slurmctld_has_no_topology_or_no_such_block(release: Release) -> None:
    with running_slurm(release, nodes=1) as slurm:
        start_nodes(slurm)
        if release is SLURM_26_05:
            configure(slurm, topology_yaml=topology_yaml(BOTH, {}))
            wait_for("the topology", lambda: "all" in shown(slurm), 60, 0.1)
            library = slurm.write_file("lib.sh", LIBRARY.read_text())
            take = f"source {library}; SUNK_NODE_TOPOLOGY=tree:all:f1,block:b1 node_topology"
            assert slurm.exec("bash", "-c", take) == "tree:all:f1"


@pytest.mark.lab
def test_a_slurmd_finds_its_place_among_thousands_of_blocks_and_switches() -> None:
    many = {f"n{number:04}": {DOMAIN: f"b{number:04}"} for number in range(2000)}
    place = "tree:all:none,block:b0000"
    with running_slurm(SLURM_26_05, nodes=1, more=("TopologyPlugin=topology/default",)) as slurm:
        configure(slurm, topology_yaml=topology_yaml(BOTH, many))
        wait_for("the topology", lambda: "all" in shown(slurm), 60, 0.1)
        library = slurm.write_file("lib.sh", LIBRARY.read_text())
        take = f"set -euo pipefail; source {library}; SUNK_NODE_TOPOLOGY={place} node_topology"

        assert slurm.exec("bash", "-c", take) == place
        assert slurm.exec("bash", "-c", take.replace("b0000", "b")) == "tree:all:none"
