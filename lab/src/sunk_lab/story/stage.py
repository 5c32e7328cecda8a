"""The stage that the steps play on: the stack, as they need it."""

from functools import cached_property

from sunk_lab.stack.stack import Stack
from sunk_lab.story.deeds import Deeds
from sunk_lab.story.observe import ComputeNode, Eyes
from sunk_lab.story.scrape import Series


class Stage:
    """A stage without an audience."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    @cached_property
    def deeds(self) -> Deeds:
        """Hands and eyes on both sides."""
        return Deeds(Eyes(self.stack.kube, self.stack.slurm))

    @cached_property
    def nodes(self) -> list[ComputeNode]:
        """The compute nodes, sorted by name."""
        return [
            ComputeNode(kube_node=pod["spec"]["nodeName"], node=pod["metadata"]["name"], namespace=namespace)
            for namespace, pod in self.stack.nodeset_pods()
        ]

    def in_slurmd(self, node: ComputeNode, *argv: str) -> str:
        """Run a program in the slurmd container of *node* and return what it wrote."""
        return self.stack.exec_in(node.namespace, node.node, *argv)

    def scrape(self) -> Series:
        """Return what the exporter's /metrics says."""
        return Series(self.stack.scrape())

    def show(self, text: str, *nodes: ComputeNode) -> None:
        """Tell whoever watches what just happened, and what both sides show of *nodes*; here nobody does."""

    def both_sides(self, *nodes: ComputeNode) -> list[str]:
        """Return what ``sinfo`` and ``kubectl`` print of *nodes*."""
        if not nodes:
            return []
        names = ",".join(node.node for node in nodes)
        sinfo = self.stack.slurm_command("sinfo", "-h", "-N", "-n", names, "-o", "%N %T %E")
        columns = (
            "NODE:.metadata.name,UNSCHEDULABLE:.spec.unschedulable,"
            "LOCK:.metadata.annotations.sunk\\.coreweave\\.com/lock,"
            'SLURMCORDON:.status.conditions[?(@.type=="SlurmCordon")].status,'
            'SLURMDRAIN:.status.conditions[?(@.type=="SlurmDrain")].message'
        )
        kube = self.stack.kubectl(
            "get", "nodes", *(node.kube_node for node in nodes), "-o", f"custom-columns={columns}"
        )
        return [f"sinfo    {line}" for line in sinfo.splitlines()] + [
            f"kubectl  {line.rstrip()}" for line in kube.splitlines()
        ]
