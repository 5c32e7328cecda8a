"""The nodes: started, killed as if their power failed, cut off the network.

Kill one pid and a whole node is gone: containers, shims, mounts, its end of the cable.
"""

import contextlib
import signal
from pathlib import Path
from typing import BinaryIO, Final

from sunk_lab.errors import LabError
from sunk_lab.kube import cgroups, images, network, node_files
from sunk_lab.kube.network import MAX_NODES
from sunk_lab.kube.place import Place, write
from sunk_lab.processes import run, start_time, wait_for

DAEMONS: Final = ("containerd", "kube-proxy", "kubelet")
_UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--net")


def number(name: str) -> int:
    """Return the number of a node by its name.

    Raises:
        LabError: There can be no such node.
    """
    digits = name.removeprefix("node")
    if name.startswith("node") and digits.isdecimal() and 0 < int(digits) <= MAX_NODES:
        return int(digits)
    raise LabError(f"no node {name}: they are called node1 to node{MAX_NODES}")


class Nodes:
    """The nodes of one lab."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._processes = place.processes

    def running(self) -> list[str]:
        """Return the nodes that run, in order of their number."""
        return [name for name in self._place.names() if self._processes.pid_of(name)]

    def start(self, index: int) -> None:
        """Start node *index* or what does not run of it; its kubelet registers it.

        Raises:
            LabError: Something of it does not start; names the log.
        """
        name, place = f"node{index}", self._place
        if not self._is_whole(name):  # New, dead, or left half made by a run that was killed.
            self.kill(name)
            self._boot(index)
        address = place.network.node(index)
        place.authority.issue(
            name, f"system:node:{name}", group="system:nodes", names=f"DNS:{name},IP:{address}"
        )
        self._spawn(name, "containerd")
        wait_for(f"{name}'s containerd", lambda: self._has_containerd(name), pause_s=0.02)
        if images.PAUSE not in self.ctr(name, "images", "ls", "-q"):
            archive = images.pause_archive((place.programs / "pause").read_bytes())
            self.ctr(name, "images", "import", "-", input=archive)
        self._start_proxy(name)
        self._start_kubelet(index)

    def kill(self, name: str) -> None:
        """End node *name* at once and with it all that runs on it; its disk stays."""
        self._processes.kill(name, signal.SIGKILL)
        for daemon in DAEMONS:
            self._processes.forget(f"{name}.{daemon}")
        group = self._place.network.cgroup(number(name))
        wait_for(f"the cgroups of {name} to empty", lambda: cgroups.remove(group), pause_s=0.01)

    def stop_kubelet(self, name: str) -> None:
        """End the kubelet only: containers run on."""
        self._processes.kill(f"{name}.kubelet")

    def set_cable(self, name: str, *, is_plugged: bool) -> None:
        """Cut node *name* off the network, or join it again."""
        run("ip", "link", "set", self._place.network.veth(number(name)), "up" if is_plugged else "down")

    def load(self, name: str, archive: Path) -> None:
        """Import an archive into node *name*, unless that very file has been."""
        done = self._place.node(name) / "loaded" / images.mark(archive)
        if done.exists():
            return
        with archive.open("rb") as file:
            self.ctr(name, "images", "import", "--local", "-", stdin=file, timeout_s=600)
        done.parent.mkdir(exist_ok=True)
        done.touch()

    def enter(self, name: str) -> tuple[str, ...]:
        """Return what to put before a command so that it runs on node *name*.

        Raises:
            GivenUpError: It does not run.
        """
        pid = self._processes.require(name)
        return ("nsenter", "-t", str(pid), "-m", "-p", "-n", "-u", "--")

    def run(self, name: str, *argv: str | Path, input: str | None = None) -> str:  # noqa: A002 - as run() has it.
        """Run a command on node *name* and return what it prints."""
        return run(*self.enter(name), *argv, input=input)

    def ctr(
        self,
        name: str,
        *args: str,
        input: bytes | None = None,  # noqa: A002 - as run() has it.
        stdin: BinaryIO | None = None,
        timeout_s: float = 120.0,
    ) -> str:
        """Run containerd's own client on node *name*, in the kubelet's namespace."""
        client = (self._place.programs / "ctr", "-n", "k8s.io")
        return run(*self.enter(name), *client, *args, input=input, stdin=stdin, timeout_s=timeout_s)

    def _is_whole(self, name: str) -> bool:
        pid = self._processes.pid_of(name)
        with contextlib.suppress(FileNotFoundError):
            is_made = pid is not None and self._made(name).read_text() == f"{pid} {start_time(pid)}"
            return is_made and network.is_plugged_in(self._place.network, number(name))
        return False

    def _made(self, name: str) -> Path:
        return self._place.node(name) / "made"

    def _boot(self, index: int) -> None:
        name, place = f"node{index}", self._place
        folder = place.node(name)
        folder.mkdir(parents=True, exist_ok=True)
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        cgroups.make(place.network.cgroup(index))
        prefix = (*_UNSHARE, "--propagation", "private")
        init = ["bash", "-c", node_files.INIT, "init", folder, place.programs, name]
        pid = place.spawn(name, init, prefix=prefix)

        def has_disks() -> bool:
            self._processes.require(name)
            return ready.exists()

        wait_for(f"the file systems of {name}", has_disks, pause_s=0.01)
        network.plug_in(place.network, index, pid)
        self.run(name, "ip", "-batch", "-", input=place.network.routes_of_node(index))
        self.run(name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        with contextlib.suppress(LabError):  # Only there with br_netfilter.
            self.run(name, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1")
        root = Path(f"/proc/{pid}/root")
        (root / "etc/cni/net.d/10-sunk-lab.conflist").write_text(place.network.cni(index))
        config = node_files.containerd(place.programs, images.PAUSE)
        (root / "etc/containerd/config.toml").write_text(config)
        self._made(name).write_text(f"{pid} {start_time(pid)}")

    def _start_proxy(self, name: str) -> None:
        settings = self._place.settings
        text = node_files.kube_proxy(name, settings / "kube-proxy.kubeconfig")
        file = write(settings / f"{name}.kube-proxy", text)
        self._spawn(name, "kube-proxy", "--config", file)

    def _start_kubelet(self, index: int) -> None:
        name, place = f"node{index}", self._place
        user = place.settings / f"{name}.kubeconfig"
        place.authority.kubeconfig(user, name, place.network.api)
        config = node_files.kubelet(place.network, index, place.authority)
        file = write(place.settings / f"{name}.kubelet", config)
        where = ("--hostname-override", name, "--node-ip", place.network.node(index))
        self._spawn(name, "kubelet", "--config", file, "--kubeconfig", user, *where, "--v=1")

    def _spawn(self, name: str, daemon: str, *flags: str | Path) -> None:
        argv = [self._place.programs / daemon, *flags]
        self._place.spawn(f"{name}.{daemon}", argv, prefix=self.enter(name))

    def _has_containerd(self, name: str) -> bool:
        self._processes.require(f"{name}.containerd")
        socket = Path(f"/proc/{self._processes.require(name)}/root", "run/containerd/containerd.sock")
        return socket.exists() and bool(self.ctr(name, "version"))
