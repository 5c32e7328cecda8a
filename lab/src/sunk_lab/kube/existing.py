"""An existing cluster instead of the lab's own: used as it is, never started, stopped or broken."""

import shutil
from pathlib import Path
from typing import NoReturn

from sunk_lab.config import LabConfig
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab
from sunk_lab.kube.prerequisites import Report
from sunk_lab.processes import ProcessStatus, run


class ExistingKube:
    """The cluster that *kubeconfig* names; the same shape as `KubeLab`."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def build(self) -> None:
        """Do nothing: nothing of ours runs there."""

    def up(self, nodes: int = 3) -> None:
        """Do nothing if the cluster has *nodes* nodes.

        Raises:
            LabError: It does not answer, or has fewer.
        """
        found = self.kubectl("get", "nodes", "-o", "name").split()
        if len(found) < nodes:
            raise LabError(f"{nodes} nodes are needed, the cluster of {self.kubeconfig} has {len(found)}")

    def down(self) -> None:
        """Do nothing: the cluster is somebody else's."""

    def is_up(self) -> bool:
        """Return True: whether it answers, `up` tells."""
        return True

    def kubectl(self, *args: str | Path, input: str | None = None) -> str:  # noqa: A002 - as run() has it.
        """Run the machine's kubectl and return what it prints."""
        program = shutil.which("kubectl")
        if program is None:
            raise LabError("an existing cluster needs kubectl in PATH: install it")
        return run(program, "--kubeconfig", self.kubeconfig, *args, input=input)

    def status(self) -> list[ProcessStatus]:
        """Return nothing: its processes are not ours."""
        return []

    def load(self, *archives: Path) -> NoReturn:
        """Refuse: images get into that cluster its own way."""
        names = " ".join(archive.name for archive in archives)
        raise LabError(f"images cannot be loaded into an existing cluster: push {names} to its registry")

    def shell(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"a shell on {name}")

    def start_node(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"starting {name}")

    def stop_kubelet(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"stopping {name}")

    def kill_node(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"killing {name}")

    def cut_node(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"cutting {name} off")

    def join_node(self, name: str) -> NoReturn:
        """Refuse: its nodes are not ours."""
        _refuse(f"joining {name}")


Kube = KubeLab | ExistingKube


def kube_of(config: LabConfig, report: Report) -> Kube:
    """Return the cluster that the settings choose; starts nothing."""
    if config.kubeconfig is not None:
        return ExistingKube(config.kubeconfig)
    return KubeLab(config.number, folder=config.folder / "kube", cache=config.cache, report=report)


def _refuse(what: str) -> NoReturn:
    raise LabError(f"{what} needs the lab's own Kubernetes: unset SUNK_LAB_KUBE")
