"""What nodeset-controller may do where, by both charts on a real API server; no Node is there."""

import json
import signal
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import NODESET, helm_of, render, sunk_values
from sunk_lab.errors import LabError
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import Nats
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.stack.kubeapi import KubeApi, kubeconfig_with_token
from sunk_nodeset_controller.testing import Service

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

CHARTS: Final = Path(__file__).parents[2] / "helm"
NAME: Final = "sunk-nodeset-controller"
ACCOUNT: Final = f"system:serviceaccount:sunk:{NAME}"
BRIDGE: Final = "sunk-nodeset-controller-upgrade"
HERS: Final = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "hers", "namespace": "team"},
}
MADE: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "PodDisruptionBudget": ("policy/v1", {"spec": {}}),
    "ControllerRevision": ("apps/v1", {"revision": 1, "data": {}}),
    "NodeSlice": ("sunk.coreweave.com/v1alpha1", {"cluster": "prod", "nodes": []}),
}
"""What the service makes next to Pods: API version and contents."""


class Cluster:
    """A Kubernetes with the release of helm/sunk, and that of helm/slurm only if `bind` says so."""

    def __init__(self, lab: KubeLab) -> None:
        self.lab = lab

    def install(self) -> None:
        helm_of(self.lab, "sunk").install(CHARTS / "sunk", "sunk", sunk_values(), wait="hookOnly")

    def upgrade(self) -> None:
        """Upgrade helm/sunk, as a new process of Helm, which remembers no kinds from before."""
        helm_of(self.lab, "sunk").upgrade(CHARTS / "sunk", "sunk", sunk_values(), wait="hookOnly")

    def clear(self) -> None:
        """Leave what `helm uninstall` leaves."""
        for kind in ("nodeset", "rolebinding", "pod"):
            self.lab.kubectl("-n", "slurm", "delete", kind, "--all", "--wait=false")
        helm_of(self.lab, "sunk").uninstall("sunk")

    def bind(self) -> None:
        """Give the service what a release of helm/slurm in the namespace slurm gives it."""
        values = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
        made = render(helm.Chart.load(CHARTS / "slurm"), values, name="slurm", namespace="slurm")
        self.apply(made["RoleBinding", "slurm-nodeset-controller"])

    def apply(self, body: Mapping[str, Any]) -> None:
        self.lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))

    def get(self, *args: str) -> str:
        return self.lab.kubectl("get", "--ignore-not-found", "-o", "name", *args).strip()

    def refusal(self, *args: str, body: Mapping[str, Any] | None = None) -> str:
        """Return why kubectl as the service is refused; nothing if it is not."""
        try:
            self.lab.kubectl(f"--as={ACCOUNT}", *args, input=None if body is None else json.dumps(body))
        except LabError as error:
            return str(error)
        return ""

    def may_create(self, body: Mapping[str, Any]) -> bool:
        refused = self.refusal("create", "--dry-run=server", "-f", "-", body=body)
        assert not refused or "cannot create resource" in refused
        return not refused

    def accepted(self) -> str:
        """Return what the NodeSet says about whether it is carried out."""
        template = '{range .status.conditions[?(@.type=="Accepted")]}{.status} {.message}{end}'
        return self.lab.kubectl("-n", "slurm", "get", "nodeset", "cpu", "-o", f"jsonpath={template}")


def pod(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": PAUSE}]},
    }


@pytest.fixture(scope="module")
def control_plane() -> Generator[Cluster]:
    """A Kubernetes without Nodes, with the namespaces."""
    with reserved_lab() as lab:
        lab.up(nodes=0)
        made = Cluster(lab)
        for name in ("sunk", "slurm", "team"):
            made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("slurm", "team"):  # The account that Pods have unless they name another.
            wait_for("the account of Pods", lambda n=name: made.get("-n", n, "serviceaccount", "default"))
        yield made


@pytest.fixture
def cluster(control_plane: Cluster) -> Generator[Cluster]:
    """A cluster with helm/sunk, and with a Pod of a tenant."""
    control_plane.install()
    control_plane.apply(pod("hers", "team"))
    try:
        yield control_plane
    finally:
        control_plane.clear()


def test_pods_are_made_and_deleted_where_helm_slurm_is_and_only_evicted_elsewhere(cluster: Cluster) -> None:
    def made_by_it(namespace: str) -> set[bool]:
        others = (
            {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}} | more
            for kind, (version, more) in MADE.items()
        )
        return {cluster.may_create(one) for one in (pod("x", namespace), *others)}

    assert made_by_it("slurm") == {False}
    cluster.bind()
    wait_for("the rights", lambda: cluster.may_create(pod("x", "slurm")))
    cluster.apply(pod("own", "slurm"))

    assert (made_by_it("slurm"), made_by_it("team")) == ({True}, {False})
    assert cluster.refusal("-n", "slurm", "delete", "pod", "own") == ""
    assert 'cannot delete resource "pods"' in cluster.refusal("-n", "team", "delete", "pod", "hers")
    assert 'cannot patch resource "pods"' in cluster.refusal("-n", "team", "label", "pod", "hers", "a=b")
    for kind in ("secrets", "configmaps"):
        assert f'cannot list resource "{kind}"' in cluster.refusal("-n", "slurm", "get", kind)
    path = "/api/v1/namespaces/team/pods/hers/eviction"
    assert cluster.refusal("create", "--raw", path, "-f", "-", body=HERS) == ""
    assert cluster.get("-n", "team", "pod", "hers") == ""


def test_an_upgrade_with_nodesets_leaves_the_rights_until_helm_slurm_is_upgraded_too(
    cluster: Cluster,
) -> None:
    def bridge() -> str:
        return cluster.get("-n", "slurm", "rolebinding", BRIDGE)

    assert bridge() == ""  # Nothing is there that an upgrade could interrupt.
    cluster.apply(NODESET)
    cluster.upgrade()
    assert bridge()
    wait_for("the rights", lambda: cluster.may_create(pod("x", "slurm")))
    cluster.upgrade()
    assert bridge()

    cluster.bind()
    cluster.upgrade()
    assert bridge() == ""
    assert cluster.may_create(pod("x", "slurm"))


def test_a_nodeset_says_which_right_is_missing_and_goes_on_once_it_is_there(
    cluster: Cluster, nats_server: Nats, tmp_path: Path
) -> None:
    api = KubeApi(cluster.lab.kubeconfig)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(kubeconfig_with_token(api, api.service_account_token(NAME, "sunk"))))
    api.close()
    settings = {
        "CLUSTERS": "prod",
        "KUBECONFIG": str(kubeconfig),
        "NATS_URL": nats_server.url,
        "HTTP_PORT": "0",
        "LEASE_NAMESPACE": "sunk",
        "LEASE_NAME": NAME,
    }
    cluster.apply(NODESET)
    service = Service(settings, tmp_path / "service.log")
    service.start()
    try:
        wait_for("the NodeSet to say why", lambda: cluster.accepted().startswith("False"), 90)
        assert cluster.accepted() == (
            "False may not list controllerrevisions in namespace slurm: install or upgrade the helm/slurm "
            "release there, which gives this right"
        )
        cluster.bind()
        wait_for("the NodeSet to be accepted", lambda: cluster.accepted().startswith("True"), 90)
        assert cluster.get("-n", "slurm", "poddisruptionbudget") != ""
    finally:
        service.end(signal.SIGTERM)
    assert not service.bugs()
