"""Both charts on a lab's Kubernetes, as a user with a cluster and Helm installs them.

One compute Pod on each of the Nodes that are for it. Requests are small, for each Node believes that it has
the machine to itself.
"""

import contextlib
import json
import time
from collections.abc import Generator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import helm_python as helm

from sunk_lab import nats_image, service_images
from sunk_lab.charts import helm_of, sunk_values
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab
from sunk_lab.kube.nodes import number
from sunk_lab.kube.prerequisites import Report
from sunk_lab.processes import wait_for
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import SLURM_24_11, Release

CHARTS: Final = Path(__file__).resolve().parents[3] / "helm"
NAMESPACE: Final = "slurm"
SUNK_NAMESPACE: Final = "sunk"
SMALL: Final = {"requests": {"cpu": "10m"}}
_BASELINE: Final = {"pod-security.kubernetes.io/enforce": "baseline"}
_READY_S: Final = 900


class Installation:
    """The releases ``sunk`` and ``slurm`` on *lab*, with *nodes* as compute Nodes of the Slurm *slurm*.

    *more* are values of helm/slurm that go before those of the lab.
    """

    def __init__(
        self,
        lab: KubeLab,
        *,
        nodes: tuple[str, ...] = ("node2", "node3"),
        slurm: Release = SLURM_24_11,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.lab = lab
        self.nodes = nodes
        self.slurm = slurm
        self._more = more

    @cached_property
    def helm(self) -> helm.Config:
        """Return Helm for the namespace of Slurm; the lab must be up."""
        return helm_of(self.lab, NAMESPACE)

    def make_namespaces(self) -> None:
        """Make both namespaces; that of Slurm has the baseline standard of Pod security."""
        for name, labels in ((SUNK_NAMESPACE, {}), (NAMESPACE, _BASELINE)):
            metadata = {"name": name, "labels": labels}
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def install_sunk(self) -> None:
        """Install or upgrade the release of the Kubernetes cluster; its Pods are ready afterwards."""
        _install(helm_of(self.lab, SUNK_NAMESPACE), "sunk", self.sunk_values())

    def install_slurm(self, values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade the release of the Slurm cluster; its Pods are ready afterwards.

        Raises:
            LabError: They are not, or Helm refuses; says what the Pods said last.
        """
        try:
            _install(self.helm, "slurm", dict(values or self.values()))
        except LabError as error:
            raise LabError(f"{error}\n{self._last_words()}") from error

    def sunk_values(self) -> dict[str, Any]:
        """Return the values of the release of the Kubernetes cluster."""
        return sunk_values(replicas=1)

    def values(self) -> dict[str, Any]:
        """Return the values of the Slurm cluster ``prod``."""
        return merged(slurm_values(self.nodes, self.slurm), self._more)

    def uninstall_slurm(self) -> None:
        """Uninstall the release of the Slurm cluster, with everything that it does not keep.

        Raises:
            LabError: Nodes run jobs; the release is as it was.
        """
        with _helms_errors("slurm"):
            self.helm.uninstall("slurm", wait="watcher", timeout=_READY_S)

    def await_idle(self) -> None:
        """Wait until Slurm has every compute Node, idle."""
        wanted = ["idle"] * len(self.nodes)

        def are_idle() -> bool:
            return self.login("sinfo -h -N -p cpu -t idle -o '%T'").split() == wanted

        wait_for(f"{len(wanted)} idle nodes", are_idle)

    def how_to_look_around(self) -> list[str]:
        """Return the commands that one may want next."""
        login = f"kubectl -n {NAMESPACE} exec slurm-login-0 -c sshd --"
        return [
            f"export KUBECONFIG={self.lab.kubeconfig} PATH={self.lab.programs}:$PATH",
            f"{login} sinfo",
            f"{login} srun -N{len(self.nodes)} hostname",
            f"kubectl -n {NAMESPACE} get nodesets,pods",
            "./task cluster:down    # removes everything",
        ]

    def login(self, command: str) -> str:
        """Run *command* where users are, as root."""
        return self.kubectl("exec", "slurm-login-0", "-c", "sshd", "--", "bash", "-c", command)

    def drains(self) -> dict[str, str]:
        """Return why nodes are drained, by node."""
        lines = self.login("sinfo -h -N -o '%N|%E|%T'").splitlines()
        rows = (line.split("|") for line in lines)
        return {node: reason for node, reason, state in rows if state.startswith("drain")}

    def slurmd_on(self, node: str) -> str:
        """Return the Slurm node, and compute Pod, on the Node *node*."""
        (name,) = (
            pod["metadata"]["name"]
            for pod in self.items("pod")
            if "sunk.coreweave.com/nodeset" in pod["metadata"]["labels"] and pod["spec"]["nodeName"] == node
        )
        return str(name)

    def uids_of(self, deployment: str) -> list[str]:
        """Return the uids of the Pods of *deployment*, which is in the namespace of Slurm."""
        return [uid for name, uid in self.uids("pod").items() if name.startswith(f"{deployment}-")]

    @contextlib.contextmanager
    def without_pods(self, deployment: str) -> Generator[None]:
        """Have no Pod of *deployment* meanwhile; one is ready afterwards."""
        scale = ("scale", f"deployment/{deployment}")
        self.kubectl(*scale, "--replicas=0")
        try:
            wait_for(f"{deployment} to go", lambda: not self.uids_of(deployment))
            yield
        finally:
            self.kubectl(*scale, "--replicas=1")
            self.await_rollout(deployment)

    def await_rollout(self, deployment: str) -> None:
        """Wait until the Pods of *deployment* are the newest, and ready."""
        self.kubectl("rollout", "status", f"deployment/{deployment}", "--timeout=110s")

    @contextlib.contextmanager
    def without_rights(self, namespace: str, binding: str) -> Generator[None]:
        """Have no RoleBinding *binding* meanwhile."""
        name = ("-n", namespace, "rolebinding", binding)
        found = json.loads(self.lab.kubectl("get", *name, "-o", "json"))
        kept = {key: found["metadata"].get(key, {}) for key in ("name", "namespace", "labels", "annotations")}
        self.lab.kubectl("delete", *name)
        try:
            yield
        finally:
            self.lab.kubectl("create", "-f", "-", input=json.dumps(found | {"metadata": kept}))

    def restart_machine(self, node: str, condition: str) -> None:
        """Do as a platform that a Node's *condition* asks for a reboot: power off, no condition, power on."""
        self.lab.kill_node(node)
        gone = {"status": {"conditions": [{"type": condition, "$patch": "delete"}]}}
        patch = ("--subresource=status", "--type=strategic", "-p", json.dumps(gone))
        self.lab.kubectl("patch", "node", node, *patch)
        self.lab.start_node(node)

    def _last_words(self) -> str:
        parts = [self.kubectl("get", "pods", "-o", "wide")]
        for name in self.uids("pod"):
            with contextlib.suppress(LabError):  # Not every container has begun to speak.
                log = self.kubectl("logs", name, "--all-containers", "--prefix", "--tail=8")
                parts.append(log)
        return "\n".join(parts)

    def kubectl(self, *args: str) -> str:
        """Run kubectl in the namespace of Slurm."""
        return self.lab.kubectl("-n", NAMESPACE, *args)

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply *manifest*."""
        self.lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest))

    def uids(self, kind: str) -> dict[str, str]:
        """Return which objects of *kind* are there, by name."""
        return {found["metadata"]["name"]: found["metadata"]["uid"] for found in self.items(kind)}

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of *kind*; Kubernetes' own schema is their type."""
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]


def install(made: Installation, cache: Path, report: Report) -> None:
    """Bring the lab up with both charts on it, of the code as it is now; Slurm's nodes are idle afterwards.

    What is there already is upgraded.
    """
    archives = images(cache, report, made.slurm)
    made.lab.up(nodes=max(map(number, made.nodes)))
    made.lab.load(*archives)
    made.make_namespaces()
    began = time.monotonic()
    for name, step in (("sunk", made.install_sunk), ("slurm", made.install_slurm)):
        step()
        report(f"release {name} is ready, {time.monotonic() - began:.1f} s")
    made.await_idle()
    report(f"Slurm's nodes are idle, {time.monotonic() - began:.1f} s after the first helm install")


def images(cache: Path, report: Report, release: Release = SLURM_24_11) -> tuple[Path, ...]:
    """Return the archives of every image that both charts need, made now unless they are there."""
    return (
        nats_image.archive_of(cache),
        service_images.archive_of(list(service_images.SERVICES), cache, report),
        cluster_images.slurm_image_of(release, cache, report),
        cluster_images.database_image_of(cache, report),
    )


def slurm_values(nodes: tuple[str, ...], slurm: Release = SLURM_24_11) -> dict[str, Any]:
    """Return values of helm/slurm: the cluster ``prod`` with a compute Pod on each of *nodes*."""
    image = {
        "registry": cluster_images.REGISTRY,
        "repository": cluster_images.SLURM,
        "tag": slurm.version,
    }
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
    one = {"replicas": 1, "resources": SMALL}
    database = {"registry": cluster_images.REGISTRY, "repository": cluster_images.DATABASE}
    return {
        "clusterName": "prod",
        "slurmImage": image,
        "serviceImage": {"registry": service_images.REGISTRY, "tag": service_images.version()},
        "mariadb": {"image": database, "resources": SMALL, "bufferPoolSize": "64M"},
        "controller": {"resources": SMALL},
        "accounting": {"resources": SMALL},
        **dict.fromkeys(("rest", "login", "syncer", "scheduler", "hookGateway", "metricsExporter"), one),
        "users": [{"name": "ada", "uid": 2000}],
        "compute": {
            "nodes": {
                "cpu": {
                    "slurm": {"cpus": 4, "memory": 4000},
                    "terminationGracePeriodSeconds": 2,
                    "affinity": {
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                    },
                }
            }
        },
    }


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values* with *more* over them, as Helm does it: mappings key by key, all else as a whole."""
    found = dict(values)
    for key, value in more.items():
        before = found.get(key)
        is_both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[key] = (
            merged(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value)) if is_both else value
        )
    return found


def _install(config: helm.Config, name: str, values: dict[str, Any]) -> None:
    is_there = any(found["name"] == name for found in config.list())
    act = config.upgrade if is_there else config.install
    with _helms_errors(name):
        act(CHARTS / name, name, values, wait="watcher", timeout=_READY_S)


@contextlib.contextmanager
def _helms_errors(name: str) -> Generator[None]:
    try:
        yield
    except helm.HelmError as error:
        raise LabError(f"helm: {name}: {error}") from error
