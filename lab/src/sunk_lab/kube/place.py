"""Where things of one lab's Kubernetes are, and what starts them there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.network import Network
from sunk_lab.processes import Processes

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Place:
    """One lab's addresses, folders and processes."""

    network: Network
    folder: Path
    """Everything that `down` removes."""
    programs: Path
    """The compiled programs; every lab's."""
    authority: Authority
    processes: Processes

    @classmethod
    def of(cls, number: int, folder: Path, programs: Path) -> "Place":
        """Return the place of lab *number*; touches nothing."""
        return cls(Network(number), folder, programs, Authority(folder / "pki"), Processes(folder))

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def settings(self) -> Path:
        """Return the folder of the components' configuration files."""
        return self.folder / "etc"

    def node(self, name: str) -> Path:
        """Return the folder of one node: its disks."""
        return self.folder / "nodes" / name

    def names(self) -> list[str]:
        """Return the nodes that were ever started, running or not, in order of their number."""
        found = (path.name for path in (self.folder / "nodes").glob("node*"))
        return sorted(found, key=lambda name: int(name.removeprefix("node")))

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path | int],
        *,
        prefix: Sequence[str | Path | int] = (),
    ) -> int:
        """Start one of the programs, unless it runs; what it starts in turn finds the others."""
        path = {"PATH": f"{self.programs}:{_SYSTEM_PATH}"}
        return self.processes.spawn(name, argv, env=path, prefix=prefix, forks=bool(prefix))


def write(path: Path, text: str) -> Path:
    """Make *path* say *text*; a file that says so already is not written to.

    kube-proxy ends itself when its file is written to, even with the same text.
    """
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_text(text)
        new.rename(path)
    return path
