"""One lab's Kubernetes as a whole: up, down, images, nodes."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sunk_lab.errors import LabError
from sunk_lab.kube import build, cgroups, control_plane, controllers, network, policies
from sunk_lab.kube.controllers import Controller
from sunk_lab.kube.network import MAX_NODES, Network
from sunk_lab.kube.nodes import Nodes, number
from sunk_lab.kube.place import Place
from sunk_lab.kube.prerequisites import TO_RUN, Report, require
from sunk_lab.locks import alone
from sunk_lab.processes import ProcessStatus, run, wait_for


class KubeLab:
    """The Kubernetes of lab *number*, whose state is in *folder* and whose programs are in *cache*."""

    def __init__(self, number: int, *, folder: Path, cache: Path, report: Report) -> None:
        self._cache = cache
        self._report = report
        self._place = Place.of(number, folder, cache / "kube" / build.key())
        self._nodes = Nodes(self._place)
        self._lock = folder.with_name(f"{folder.name}.lock")

    @property
    def network(self) -> Network:
        """Return the lab's addresses."""
        return self._place.network

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig; there while the lab is up."""
        return self._place.kubeconfig

    @property
    def programs(self) -> Path:
        """Return the folder of kubectl and the others."""
        return self._place.programs

    @property
    def logs(self) -> Path:
        """Return the folder of the logs."""
        return self._place.folder / "log"

    def is_built(self) -> bool:
        """Return whether the programs are there, so that `up` takes seconds."""
        return self._place.programs.is_dir()

    def build(self) -> None:
        """Compile the programs, unless they are there."""
        build.build(self._cache, self._report)

    def up(self, nodes: int = 3, *, is_audited: bool = False) -> None:
        """Start what does not run; afterwards *nodes* nodes are Ready; none: the control plane alone.

        *is_audited*: `requests` says what the services' accounts ask the API server for from now on.

        Raises:
            LabError: The machine cannot do it, or something does not start; names the log.
        """
        if not 0 <= nodes <= MAX_NODES:
            raise LabError(f"a lab has at most {MAX_NODES} nodes, not {nodes}")
        check_machine()
        require(TO_RUN, report=self._report)
        self.build()
        began = time.monotonic()
        with alone(self._lock):
            self._refuse_somebody_elses()
            control_plane.start(self._place, is_audited=is_audited)
            self._report(f"control plane up after {time.monotonic() - began:.1f} s")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(self._nodes.start, range(1, nodes + 1)))
            self._route_services()
            self._await_ready([f"node{index}" for index in range(1, nodes + 1)])
        self._report(f"{nodes} nodes Ready after {time.monotonic() - began:.1f} s")

    def up_api(self, *, authentication: Mapping[str, object] | None = None) -> None:
        """Start etcd and the API server alone: nothing acts on objects, and there is no node.

        *authentication*: an AuthenticationConfiguration, with the issuers that it trusts.

        Raises:
            LabError: The machine cannot do it, or something does not start; names the log.
        """
        check_machine()
        require(TO_RUN, report=self._report)
        self.build()
        with alone(self._lock):
            self._refuse_somebody_elses()
            control_plane.start_api(self._place, authentication=authentication)

    def down(self) -> None:
        """End and remove everything of this lab, however much of it there is.

        Raises:
            LabError: Something of it stays; names it.
        """
        net, folder = self._place.network, self._place.folder
        if not folder.exists() and network.owner(net) != folder:
            return
        with alone(self._lock):
            self._refuse_somebody_elses()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(self._nodes.kill, self._place.names()))
            controllers.kill_all(self._place)
            control_plane.stop(self._place)
            network.take_down(net)
            for name in cgroups.names(f"{net.bridge}-"):
                wait_for(f"cgroup {name} to empty", lambda name=name: cgroups.remove(name), pause_s=0.02)
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                raise LabError(f"cannot remove {folder}: something of it is still in use")
            self._lock.unlink()
        with contextlib.suppress(OSError):  # Other parts of the lab may be in it.
            folder.parent.rmdir()

    def is_up(self) -> bool:
        """Return whether its API server runs."""
        return self._place.processes.pid_of("kube-apiserver") is not None

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002 - as run() has it.
        timeout_s: float = 240.0,
    ) -> str:
        """Run kubectl as the lab's administrator and return what it prints."""
        self._require_up()
        return control_plane.kubectl(self._place, *args, input=input, timeout_s=timeout_s)

    def requests(self) -> list[dict[str, Any]]:
        """Return what the services' accounts have asked for, if it is up with *is_audited*: audit Events."""
        lines = (self.logs / control_plane.AUDIT_LOG).read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def load(self, *archives: Path) -> None:
        """Import docker or OCI archives into every running node; one that is there costs nothing."""
        running = self._nodes.running()
        if not running:
            raise LabError(f"lab {self._place.network.number} has no running node to load images into")
        for archive in archives:
            if not archive.is_file():
                raise LabError(f"no image archive {archive}")
            began = time.monotonic()
            with ThreadPoolExecutor(2) as pool:  # Hashing and unpacking: more only get into each other's way.
                list(pool.map(self._nodes.load, running, [archive] * len(running)))
            self._report(f"{archive.name} is on {len(running)} nodes, {time.monotonic() - began:.1f} s")

    def node_names(self) -> list[str]:
        """Return the lab's nodes, running or not, in order of their number."""
        return self._place.names()

    def start_node(self, name: str) -> None:
        """Start a node, or its kubelet, or add a new one; returns before it is Ready."""
        self._require_up()
        with alone(self._lock):
            self._nodes.start(number(name))
            self._route_services()

    def stop_kubelet(self, name: str) -> None:
        """End a node's kubelet: NotReady after ten seconds, its containers run on."""
        self._require_node(name)
        self._nodes.stop_kubelet(name)

    def kill_node(self, name: str) -> None:
        """End a node as if its power failed."""
        self._require_node(name)
        with alone(self._lock):
            self._nodes.kill(name)
            self._route_services()

    def cut_node(self, name: str) -> None:
        """Unplug a node from the network."""
        self._require_node(name)
        self._nodes.set_cable(name, is_plugged=False)

    def join_node(self, name: str) -> None:
        """Plug a node into the network again."""
        self._require_node(name)
        self._nodes.set_cable(name, is_plugged=True)

    @contextlib.contextmanager
    def running(self, controller: Controller) -> Generator[None]:
        """Have another project's controller run meanwhile; it is compiled first unless it was before.

        Raises:
            LabError: It cannot be built or does not start; names its log.
        """
        self._require_up()
        folder = controllers.build(controller, self.programs, self._cache, self._report)
        try:
            controllers.start(self._place, controller, folder)
            yield
        finally:
            controllers.stop(self._place, controller, folder)

    def enforce_policies(self) -> None:
        """Have Pods reach each other as the NetworkPolicies of now say; nothing follows changes."""

        def found(kind: str) -> list[policies.Object]:
            return json.loads(self.kubectl("get", kind, "--all-namespaces", "-o", "json"))["items"]

        rules = policies.ruleset(found("networkpolicies"), found("pods"), found("namespaces"))
        for name in self._nodes.running():
            self._nodes.run(name, "nft", "-f", "-", input=rules)

    def shell(self, name: str) -> tuple[str, ...]:
        """Return what to put before a command so that it runs on node *name*."""
        self._require_node(name)
        return self._nodes.enter(name)

    def exec(self, name: str, *argv: str | Path) -> str:
        """Run a command on a node and return what it prints."""
        return run(*self.shell(name), *argv)

    def status(self) -> list[ProcessStatus]:
        """Return every process, sorted by name."""
        return self._place.processes.status()

    def _refuse_somebody_elses(self) -> None:
        found = network.owner(self._place.network)
        if found is not None and found != self._place.folder and found.exists():
            number = self._place.network.number
            raise LabError(f"lab {number} is in use, from {found}: choose another with SUNK_LAB_NUMBER")

    def _require_up(self) -> None:
        if not self.is_up():
            raise LabError(f"lab {self._place.network.number} is down: bring it up first")

    def _require_node(self, name: str) -> None:
        self._require_up()
        if name not in self.node_names():
            raise LabError(f"no node {name}: there are {' '.join(self.node_names())}")

    def _route_services(self) -> None:
        if running := self._nodes.running():
            network.route_services(self._place.network, number(running[0]))

    def _await_ready(self, names: list[str]) -> None:
        def are_ready() -> bool:
            for name in names:
                self._place.processes.require(f"{name}.kubelet")
            template = (
                '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
            )
            lines = self.kubectl("get", "nodes", "-o", f"jsonpath={template}").split()
            return {f"{name}=True" for name in names} <= set(lines)

        wait_for(f"the nodes to be Ready (logs: {self.logs})", are_ready, pause_s=0.1)


def check_machine() -> None:
    """Refuse a machine that cannot run the lab.

    Raises:
        LabError: Not root, no namespaces, or cgroup v2 only; says what else there is.
    """
    ways_out = (
        "ways out: another machine, a privileged container of a container engine (--privileged), or, for the "
        "tests of single services, an existing cluster (SUNK_LAB_KUBE=existing and KUBECONFIG)"
    )
    if os.geteuid():
        raise LabError(f"the lab's Kubernetes needs root; {ways_out}")
    try:
        subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--uts", "--net", "true"],
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", b"") or str(error).encode()
        text = why.decode(errors="replace").strip()
        raise LabError(f"this machine lets us make no namespaces ({text}); {ways_out}") from error
    if not cgroups.is_supported():
        raise LabError(
            f"the lab's nodes need cgroup v1 in {cgroups.ROOT}, and this machine has v2 only; {ways_out}"
        )
