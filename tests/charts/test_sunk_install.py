"""The chart that a Kubernetes cluster has once, installed for real: upgraded, taken away, installed again."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_events.permissions import mirrored
from sunk_lab import nats_image, service_images
from sunk_lab.charts import NODESET, helm_of, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.install,
    pytest.mark.timeout(600),  # The images are made from the code as it is now.
]
CHART: Final = Path(__file__).parents[2] / "helm/sunk"
NAMESPACE: Final = "sunk"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
CONTROLLER: Final = "app.kubernetes.io/name=sunk-nodeset-controller"
BINDING: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "slurm-nodeset-controller", "namespace": "slurm"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "sunk-nodeset-controller-namespace",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "sunk-nodeset-controller", "namespace": NAMESPACE}],
}
"""What the release of helm/slurm makes there."""


class Installation:
    """The release in its namespace of a lab."""

    def __init__(self, lab: KubeLab, values: dict[str, Any]) -> None:
        self._lab = lab
        self._values = values
        self.helm = helm_of(lab, NAMESPACE)

    def install(self) -> None:
        self.helm.install(CHART, "sunk", self._values, wait="watcher", timeout=120)

    def upgrade(self, **more: Any) -> None:  # noqa: ANN401 - values are free-form.
        self.helm.upgrade(CHART, "sunk", self._values | more, wait="watcher", timeout=120)

    def kubectl(self, *args: str, namespace: str = NAMESPACE) -> str:
        return self._lab.kubectl("-n", namespace, *args)

    def items(self, kind: str, *, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """Return the objects of *kind*; Kubernetes' own schema is their type."""
        return json.loads(self.kubectl("get", kind, "-o", "json", namespace=namespace))["items"]

    def uids(self, kind: str) -> dict[str, str]:
        return {found["metadata"]["name"]: found["metadata"]["uid"] for found in self.items(kind)}

    def starts(self) -> dict[str, str]:
        """Return when each Pod's container was started, by name, of those that are to stay."""
        return {
            found["metadata"]["name"]: found["status"]["containerStatuses"][0]["state"]["running"][
                "startedAt"
            ]
            for found in self.items("pod")
            if "deletionTimestamp" not in found["metadata"]
        }

    def passwords(self) -> dict[str, str]:
        return json.loads(self.kubectl("get", "secret", "sunk-nats-users", "-o", "json"))["data"]

    def apply(self, manifest: dict[str, Any]) -> None:
        self._lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest))


@pytest.fixture(scope="module")
def installed() -> Generator[Installation]:
    """The release, ready, in a namespace that refuses Pods which may do more than they need."""
    cache = from_environment().cache
    archives = (
        service_images.archive_of(list(service_images.SERVICES), cache, lambda _line: None),
        nats_image.archive_of(cache),
    )
    with reserved_lab() as lab:
        lab.up(nodes=1)
        lab.load(*archives)
        release = Installation(lab, sunk_values())
        for name, labels in ((NAMESPACE, RESTRICTED), ("slurm", {})):
            metadata = {"name": name, "labels": labels}
            release.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        release.apply(BINDING)
        release.install()
        yield release


def test_two_controllers_are_ready_with_the_bus_of_the_chart(installed: Installation) -> None:
    (deployment,) = installed.items("deployment")
    told = installed.helm.test("sunk", timeout=240, logs=True)["logs"]

    assert deployment["status"]["readyReplicas"] == 2
    assert sorted(line.rpartition(": ")[2] for line in told.splitlines() if line.startswith("http")) == [
        "well",
        "well",
    ]


def test_a_nodeset_gets_its_pod(installed: Installation) -> None:
    installed.apply(NODESET)

    def pods() -> list[dict[str, Any]]:
        return installed.items("pod", namespace="slurm")

    wait_for("the NodeSet's Pod", pods, 30)
    (pod,) = pods()
    assert pod["metadata"]["name"].startswith("cpu-")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "NodeSet"


@pytest.mark.parametrize(
    ("cluster", "namespace", "why"),
    [
        ("prod", "default", "belong in namespace slurm"),
        ("other", "slurm", "there is no Slurm cluster other here"),
    ],
    ids=["somebody else's namespace", "an unknown cluster"],
)
def test_a_nodeset_that_would_take_nodes_for_somebody_else_is_refused_as_it_is_applied(
    installed: Installation, cluster: str, namespace: str, why: str
) -> None:
    metadata = {"name": "greedy", "namespace": namespace}

    with pytest.raises(LabError, match=why):
        installed.apply(NODESET | {"metadata": metadata, "spec": NODESET["spec"] | {"cluster": cluster}})


def test_a_team_gets_a_server_of_its_own_that_mirrors_every_stream_and_goes_again(
    installed: Installation,
) -> None:
    bus = sunk_values()["nats"]
    installed.upgrade(nats=bus | {"subscribers": ["billing"], "teams": {"resources": bus["resources"]}})

    def is_mirrored() -> bool:
        lines = installed.kubectl("logs", "sunk-nats-teams-0", "--container=mirrors").splitlines()
        kept = [json.loads(line) for line in lines if line.startswith("{") and "mirror kept" in line]
        return {line["stream"] for line in kept} == set(mirrored("prod"))

    wait_for("every mirror", is_mirrored, 120)
    installed.upgrade()
    wait_for(
        "the server of other teams to be gone", lambda: "sunk-nats-teams-0" not in installed.starts(), 90
    )


def test_a_certificate_is_made_and_every_part_waits_for_it_and_speaks_tls(installed: Installation) -> None:
    bus = sunk_values()["nats"]
    installed.upgrade(nats=bus | {"tls": {"generate": True}})
    installed.kubectl("rollout", "status", "statefulset/sunk-nats", "--timeout=120s")
    installed.kubectl("rollout", "status", "deployment/sunk-nodeset-controller", "--timeout=120s")

    def certificate() -> dict[str, str]:
        return json.loads(installed.kubectl("get", "secret", "sunk-nats-tls", "-o", "json"))["data"]

    made, log = certificate(), installed.kubectl("logs", "sunk-nats-0", "-c", "nats")
    assert set(made) == {"ca.crt", "tls.crt", "tls.key"}
    assert "TLS required for client connections" in log
    installed.upgrade(nats=bus | {"tls": {"generate": True}})
    assert certificate() == made
    installed.upgrade()


def test_an_upgrade_that_changes_nothing_restarts_nothing_and_keeps_every_password(
    installed: Installation,
) -> None:
    before = installed.starts(), installed.uids("pod"), installed.passwords()

    installed.upgrade()

    assert (installed.starts(), installed.uids("pod"), installed.passwords()) == before


def test_a_changed_setting_restarts_the_controllers_alone_and_a_rollback_does_the_same(
    installed: Installation,
) -> None:
    before = installed.starts()
    values = sunk_values()["nodesetController"] | {"resyncSeconds": 200}

    installed.upgrade(nodesetController=values)
    after = installed.starts()
    installed.helm.rollback("sunk", wait="watcher", timeout=120)

    assert after["sunk-nats-0"] == before["sunk-nats-0"] == installed.starts()["sunk-nats-0"]
    assert after.keys() & before.keys() == {"sunk-nats-0"}


def test_a_password_that_is_taken_away_is_made_anew_and_the_others_stay(installed: Installation) -> None:
    before = installed.passwords()
    removal = [{"op": "remove", "path": "/data/nodeset-controller"}]

    installed.kubectl("patch", "secret", "sunk-nats-users", "--type=json", "-p", json.dumps(removal))
    installed.upgrade()
    restarted = ("statefulset/sunk-nats", "deployment/sunk-nodeset-controller")
    installed.kubectl("rollout", "restart", *restarted)
    installed.kubectl("rollout", "status", "--timeout=120s", *restarted)

    after = installed.passwords()
    assert {name for name in before if after[name] != before[name]} == {"nodeset-controller"}


def test_what_cannot_be_changed_is_refused_before_anything_is(installed: Installation) -> None:
    before = installed.helm.history("sunk")

    with pytest.raises(
        helm.HelmError, match=r"nats\.replicas: there is 1 server, and its streams must be copied"
    ):
        installed.upgrade(nats=sunk_values()["nats"] | {"replicas": 3})

    assert installed.helm.history("sunk") == before


def test_a_cluster_that_has_another_sunk_is_refused_before_anything_changes(installed: Installation) -> None:
    before = installed.helm.history("sunk")
    name = "sunkclusters.sunk.coreweave.com"
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"kind": "SunkCluster", "plural": "sunkclusters", "singular": "sunkcluster"}
    spec = {"group": "sunk.coreweave.com", "scope": "Namespaced", "names": names, "versions": [version]}
    installed.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    try:
        with pytest.raises(helm.HelmError, match=rf"has another SUNK, .* {name} is not of this chart"):
            installed.upgrade()
    finally:
        installed.kubectl("delete", "crd", name)

    assert installed.helm.history("sunk") == before


def test_uninstall_keeps_passwords_facts_and_nodesets_and_a_new_release_takes_them_over(
    installed: Installation,
) -> None:
    installed.apply(NODESET)
    kept = installed.passwords(), installed.uids("persistentvolumeclaim")
    nodesets = installed.kubectl("get", "nodesets", "-o", "name", namespace="slurm")

    installed.helm.uninstall("sunk", wait="watcher", timeout=120)

    assert (installed.passwords(), installed.uids("persistentvolumeclaim")) == kept
    assert installed.kubectl("get", "nodesets", "-o", "name", namespace="slurm") == nodesets
    assert installed.items("deployment") == []
    installed.install()
    assert (installed.passwords(), installed.uids("persistentvolumeclaim")) == kept
