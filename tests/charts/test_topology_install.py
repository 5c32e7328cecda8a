"""Nodes with labels of their places, and nothing else: both charts make the topology, on real kubelets."""

from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES, SLURM_24_11, Release

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
FABRIC, LEAF = "ib.coreweave.cloud/fabric", "ib.coreweave.cloud/leafgroup"
DOMAIN: Final = "ds.coreweave.com/nvlink.domain"
PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "node2": {FABRIC: "f1", LEAF: "l1", DOMAIN: "rack1"},
    "node3": {FABRIC: "f1", LEAF: "l2", DOMAIN: "rack1"},
    "node4": {FABRIC: "f1", LEAF: "l2", DOMAIN: "rack2"},
}
BLOCKS: Final = "PartitionName=blocks Nodes=ALL MaxTime=INFINITE State=UP Topology=block"


class Labelled(Installation):
    """A cluster whose Nodes have the labels before anything is installed."""

    def __init__(self, lab: KubeLab, slurm: Release) -> None:
        super().__init__(lab, nodes=tuple(PLACES), slurm=slurm)

    def make_namespaces(self) -> None:
        super().make_namespaces()
        for machine, labels in PLACES.items():
            self.label(machine, labels)

    def values(self) -> dict[str, Any]:
        values = super().values()
        if self.slurm is not SLURM_24_11:
            every = "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
            values["compute"]["partitions"] = f"{every}\n{BLOCKS}"
        return values

    def label(self, machine: str, labels: Mapping[str, str]) -> None:
        """Give a Node *labels*."""
        pairs = [f"{key}={value}" for key, value in labels.items()]
        self.lab.kubectl("label", "node", machine, "--overwrite", *pairs)

    def node_on(self, machine: str) -> str:
        """Return the Slurm node on a Node."""
        pods = self.items("pods")
        return next(
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeName") == machine
            and "sunk.coreweave.com/nodeset" in pod["metadata"].get("labels", {})
        )

    def together(self, *which: str) -> set[frozenset[str]]:
        """Return the nodes of each switch, or block, that Slurm has."""
        told = self.login(f"scontrol show topology {' '.join(which)}").splitlines()
        lists = [
            word.partition("=")[2] for line in told for word in line.split() if word.startswith("Nodes=")
        ]
        return {frozenset(self.login(f"scontrol show hostnames '{one}'").split()) for one in lists if one}

    def job_on(self, *options: str) -> set[str]:
        """Run a job of two nodes; return them."""
        words = " ".join(options)
        return set(self.login(f"cd /tmp && timeout 90 srun -N2 {words} printenv SLURMD_NODENAME").split())


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Labelled]:
    """Both charts, with no value about topology."""
    with reserved_lab() as lab:
        made = Labelled(lab, request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_labelled_nodes_have_their_places_and_a_job_of_one_switch_gets_its_nodes(cluster: Labelled) -> None:
    first, second, third = map(cluster.node_on, PLACES)
    leaf = frozenset({second, third})

    wait_for("the switches", lambda: {frozenset({first}), leaf} <= cluster.together(), 180)

    def has_run() -> bool:
        # 24.11 refuses such a job now and then while its nodes register again after the reconfigure.
        return cluster.job_on("--switches=1", f"--nodelist={third}") == {second, third}

    wait_for("a job of one switch", has_run, 120)


def test_a_job_gets_the_nodes_of_one_block(cluster: Labelled) -> None:
    if cluster.slurm is SLURM_24_11:
        pytest.skip("24.11 has a tree or blocks, and the charts choose the tree")
    first, second, third = map(cluster.node_on, PLACES)
    rack = frozenset({first, second})

    wait_for("the blocks", lambda: {rack, frozenset({third})} <= cluster.together("block"), 180)

    assert cluster.job_on("--partition=blocks", "--segment=2") == {first, second}


def test_a_node_with_another_label_is_at_another_place(cluster: Labelled) -> None:
    first, second, third = map(cluster.node_on, PLACES)
    cluster.label("node2", {LEAF: "l2"})

    everyone = frozenset({first, second, third})
    wait_for("one switch of all", lambda: everyone in cluster.together(), 240)
    cluster.await_idle()

    assert first in cluster.job_on("--switches=1", f"--nodelist={first}")
