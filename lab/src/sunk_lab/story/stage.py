"""The stage that the steps play on: the two sides, as they need them."""

from functools import cached_property
from typing import Protocol

from sunk_lab.errors import LabError
from sunk_lab.stack.kubeapi import KubeApi
from sunk_lab.stack.raw import Object, dig_text
from sunk_lab.stack.slurmapi import SlurmApi
from sunk_lab.stack.stack import Stack
from sunk_lab.story import manifests
from sunk_lab.story.deeds import Deeds
from sunk_lab.story.observe import ComputeNode, Eyes
from sunk_lab.story.scrape import Series


class Sides(Protocol):
    """A Kubernetes and the Slurm on it, whoever has brought them up."""

    @cached_property
    def kube(self) -> KubeApi:
        """Return a connection to the API server."""
        ...

    @cached_property
    def slurm(self) -> SlurmApi:
        """Return a connection to slurmrestd, as root."""
        ...

    def nodeset_pods(self) -> list[tuple[str, Object]]:
        """Return namespace and Pod of every NodeSet Pod, sorted by name."""
        ...

    def kubectl(self, *args: str) -> str:
        """Run kubectl and return what it prints."""
        ...

    def exec_in(self, namespace: str, pod: str, *argv: str) -> str:
        """Run a program in the first container of a Pod and return what it prints."""
        ...

    def slurm_command(self, *argv: str) -> str:
        """Run one of Slurm's commands and return what it prints."""
        ...

    def scrape(self) -> str:
        """Return what the exporter says."""
        ...


class Scene:
    """Both sides without an audience."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    @cached_property
    def deeds(self) -> Deeds:
        """Hands and eyes on both sides."""
        return Deeds(Eyes(self._sides.kube, self._sides.slurm))

    @cached_property
    def nodes(self) -> list[ComputeNode]:
        """The compute nodes, sorted by name."""
        return [
            ComputeNode(kube_node=pod["spec"]["nodeName"], node=pod["metadata"]["name"], namespace=namespace)
            for namespace, pod in self._sides.nodeset_pods()
        ]

    def in_slurmd(self, node: ComputeNode, *argv: str) -> str:
        """Run a program in the slurmd container of *node* and return what it wrote."""
        return self._sides.exec_in(node.namespace, node.node, *argv)

    def scrape(self) -> Series:
        """Return what the exporter's /metrics says."""
        return Series(self._sides.scrape())

    def show(self, text: str, *nodes: ComputeNode) -> None:
        """Tell whoever watches what just happened, and what both sides show of *nodes*; here nobody does."""

    def both_sides(self, *nodes: ComputeNode) -> list[str]:
        """Return what ``sinfo`` and ``kubectl`` print of *nodes*."""
        if not nodes:
            return []
        names = ",".join(node.node for node in nodes)
        sinfo = self._sides.slurm_command("sinfo", "-h", "-N", "-n", names, "-o", "%N %T %E")
        columns = (
            "NODE:.metadata.name,UNSCHEDULABLE:.spec.unschedulable,"
            "LOCK:.metadata.annotations.sunk\\.coreweave\\.com/lock,"
            'SLURMCORDON:.status.conditions[?(@.type=="SlurmCordon")].status,'
            'SLURMDRAIN:.status.conditions[?(@.type=="SlurmDrain")].message'
        )
        kube = self._sides.kubectl(
            "get", "nodes", *(node.kube_node for node in nodes), "-o", f"custom-columns={columns}"
        )
        return [f"sinfo    {line}" for line in sinfo.splitlines()] + [
            f"kubectl  {line.rstrip()}" for line in kube.splitlines()
        ]


class Stage(Scene):
    """The lab's own stack as a scene, whose servers may be killed, too."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.stack = stack

    def end_program(self, pod: Object, exit_code: int) -> None:
        """Have the program of *pod*, which waits for the file /tmp/end, exit with what it holds."""
        command = f"echo {exit_code} >/tmp/told; mv /tmp/told /tmp/end"
        try:
            self.stack.exec_in(
                manifests.NAMESPACE, dig_text(pod, "metadata", "name"), "/bin/bash", "-c", command
            )
        except LabError as error:
            if "exit code 137" not in str(error):  # The program, and so its container, may end before mv has.
                raise
