"""Users who ask why, and their administrator, on both charts with `view.enabled` on a real kubelet."""

import base64
import binascii
import json
import tarfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from sunk_ctl.main import app
from sunk_events.view import HIDDEN
from sunk_lab import service_images
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import NAMESPACE, SMALL, SUNK_NAMESPACE, Installation, install
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.images import PAUSE
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.install,
    pytest.mark.timeout(900),  # The images are made from the code as it is now.
]
NODE: Final = "node1"
TEAMS: Final = {"team-a": "alice", "team-b": "bob"}
SECONDS: Final = 40
"""So long an ordinary Pod takes to leave."""
SECRET_BYTES: Final = 12
"""Shorter values of Secrets are words such as a user's name."""


class Cluster(Installation):
    """Both releases with the view, two teams, and an administrator with the chart's ClusterRole."""

    folder: Path

    def sunk_values(self) -> dict[str, Any]:
        image = {
            "registry": service_images.REGISTRY,
            "repository": service_images.repository("view"),
            "tag": service_images.version(),
        }
        view = {"enabled": True, "image": image, "resources": SMALL}
        return super().sunk_values() | {"view": view}

    def admit(self, folder: Path) -> None:
        """Make namespaces and rights of the teams' users, and of carol, who may see the whole."""
        self.folder = folder
        authority = Authority(self.lab.kubeconfig.parent / "pki")
        for user in (*TEAMS.values(), "carol"):
            authority.issue(user, user)
            authority.kubeconfig(self._config(user), user, self.lab.network.api)
        for team, user in TEAMS.items():
            self.lab.kubectl("create", "namespace", team)
            self.lab.kubectl(
                "-n", team, "create", "rolebinding", "edits", "--clusterrole=edit", f"--user={user}"
            )
        for role in ("sunk-view", "cluster-admin"):
            self.lab.kubectl(
                "create", "clusterrolebinding", f"carol-{role}", f"--clusterrole={role}", "--user=carol"
            )

    def sunkctl(self, user: str, *words: str, status: int = 0) -> str:
        """Run `sunkctl` as *user*; return what it prints."""
        config = ("--kubeconfig", str(self._config(user)))
        done = CliRunner(env={"NO_PROXY": "*"}).invoke(app, [words[0], *config, *words[1:]])
        assert done.exit_code == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def findings(self, user: str, *words: str) -> str:
        """Return what `sunkctl explain` finds, in a line each."""
        found = json.loads(self.sunkctl(user, "explain", *words, "-o", "json"))
        return "\n".join(json.dumps(one) for part in found["parts"] for one in part["findings"])

    def place(self, team: str, name: str) -> None:
        """Apply a Pod that Slurm is to place."""
        self._start(team, name, {"schedulerName": "slurm-slurm", "restartPolicy": "Never"}, {})

    def stay(self, team: str, name: str) -> None:
        """Start an ordinary Pod on the Node that takes its time to leave."""
        grace = {"nodeName": NODE, "terminationGracePeriodSeconds": SECONDS + 20}
        self._start(team, name, grace, {"lifecycle": {"preStop": {"sleep": {"seconds": SECONDS}}}})
        wait_for(f"{name} to run", lambda: self.phase(team, name) == "Running", 60)

    def phase(self, team: str, name: str) -> str:
        """Return a Pod's phase."""
        return self.lab.kubectl("-n", team, "get", "pod", name, "-o", "jsonpath={.status.phase}")

    def secrets(self) -> dict[str, str]:
        """Return each value of each Secret of both releases, in each form that a text may have of it."""
        found: dict[str, str] = {}
        for namespace in (NAMESPACE, SUNK_NAMESPACE):
            items = json.loads(self.lab.kubectl("-n", namespace, "get", "secret", "-o", "json"))["items"]
            for one in items:
                if one["type"] != "Opaque":
                    continue
                data_by_key: dict[str, str] = one.get("data") or {}
                for key, text in data_by_key.items():
                    data = base64.b64decode(text)
                    if len(data) >= SECRET_BYTES and not key.endswith((".crt", ".pub", ".conf")):
                        name = f"{namespace}/{one['metadata']['name']}/{key}"
                        found |= {f"{name} {n}": form for n, form in enumerate(_forms(data))}
        return found

    def _config(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def _start(self, team: str, name: str, spec: dict[str, Any], container: dict[str, Any]) -> None:
        resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        main = {"name": "main", "image": PAUSE, "resources": resources, **container}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": team},
                "spec": {"terminationGracePeriodSeconds": 1, **spec, "containers": [main]},
            }
        )


def _forms(data: bytes) -> list[str]:
    text = data.decode(errors="ignore").strip()
    found = [base64.b64encode(data).decode().rstrip("="), binascii.hexlify(data).decode(), text]
    return [form[:200] for form in found if len(form) >= SECRET_BYTES]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    config = from_environment()
    with reserved_lab() as lab:
        made = Cluster(lab, nodes=(NODE,), slurm=config.slurm)
        archive = service_images.archive_of(["view"], config.cache, lambda _line: None)
        lab.up(nodes=1)
        lab.load(archive)
        install(made, config.cache, lambda _line: None)
        made.admit(tmp_path_factory.mktemp("users"))
        yield made


def test_the_api_is_available_and_an_administrator_sees_the_whole(cluster: Cluster) -> None:
    service = (
        "wait",
        "--for=condition=Available",
        "--timeout=120s",
        "apiservice/v1alpha1.view.sunk.coreweave.com",
    )
    cluster.lab.kubectl(*service)

    def status() -> dict[str, Any]:
        return json.loads(cluster.sunkctl("carol", "status", "-o", "json"))["clusters"][0]

    def are_well() -> bool:
        services = {one["service"]: one["problem"] for one in status()["services"]}
        if any(services.values()):
            raise LabError(f"{services}")
        return True

    wait_for("all services", are_well, 120, pause_s=1.0)
    assert status()["nodes"] == {"idle": 1}
    assert {one["service"] for one in status()["services"] if one["leader"]} >= {"syncer", "metrics-exporter"}
    assert "ClusterRole sunk-view" in cluster.sunkctl("alice", "status", status=3)


def test_an_explanation_changes_as_what_holds_the_pod_up_does(cluster: Cluster) -> None:
    job = cluster.login(
        "sbatch --parsable --exclusive -N1 --chdir=/ --output=/dev/null --wrap 'sleep 600'"
    ).strip()
    wait_for("the job", lambda: "RUNNING" in cluster.login(f"squeue -h -j {job} -o %T"), 60)
    cluster.place("team-a", "train")

    def says(*words: str) -> None:
        def are_there() -> bool:
            told[0] = cluster.findings("alice", "pod", "team-a/train")
            return all(word in told[0] for word in words)

        told = [""]
        try:
            wait_for(f"{words}", are_there, SECONDS + 120, pause_s=1.0)
        except LabError as error:
            raise LabError(f"{error}: {told[0]}") from error

    says("waits for its turn in Slurm", "Resources", "in the queue")
    own = cluster.login("squeue -h -t PENDING -o %i").strip()
    cluster.login(f"scontrol hold {own}")
    says(f"job {own}", "JobHeldAdmin")
    cluster.login(f"scancel {job}")
    taints = ("get", "node", NODE, "-o", "jsonpath={.spec.taints}")
    wait_for("the unlocked Node", lambda: "sunk.coreweave.com/lock" not in cluster.lab.kubectl(*taints), 120)
    cluster.stay("team-b", "web")
    cluster.login(f"scontrol release {own}")
    says("its prologs run", "waits for Pods to leave")
    (node,) = set(cluster.login("sinfo -h -N -o %N").split())

    assert "team-b/web" in cluster.findings("carol", "node", node)
    assert HIDDEN in cluster.findings("alice", "pod", "team-a/train")
    assert "web" not in cluster.findings("alice", "pod", "team-a/train")
    says(f"bound to {NODE} for job {own}")


def test_each_of_two_users_explains_the_own_pods_and_not_the_others(cluster: Cluster) -> None:
    cluster.place("team-b", "serve")
    wait_for("it to run", lambda: cluster.phase("team-b", "serve") == "Running", 120)
    wait_for(
        "both on the bus",
        lambda: len(json.loads(cluster.sunkctl("carol", "pods", "-A", "-o", "json"))["items"]) == 2,
        60,
    )

    assert f"bound to {NODE}" in cluster.findings("bob", "pod", "team-b/serve")
    assert f"bound to {NODE}" in cluster.findings("alice", "pod", "team-a/train")
    assert "alice may not get pods serve" in cluster.sunkctl(
        "alice", "explain", "pod", "team-b/serve", status=3
    )
    assert "bob may not get pods train" in cluster.sunkctl("bob", "explain", "pod", "team-a/train", status=3)
    events = cluster.sunkctl("alice", "events", "--pod", "team-a/train")
    assert "bound" in events
    assert "serve" not in events


def test_a_node_is_drained_and_comes_back_by_the_services_behind_it(cluster: Cluster) -> None:
    (node,) = set(cluster.login("sinfo -h -N -o %N").split())

    cluster.sunkctl("carol", "drain", node, "--reason", "bad fan")
    wait_for("the drain", lambda: cluster.drains() == {node: "k8s: cordon: bad fan"}, 60)
    told = cluster.findings("carol", "node", node)
    cluster.sunkctl("carol", "undrain", node, "--reason", "bad fan")

    assert "bad fan" in told
    wait_for("the undrain", lambda: cluster.drains() == {}, 60)


def test_a_bundle_has_the_logs_of_both_releases_and_no_value_of_their_secrets(
    cluster: Cluster, tmp_path: Path
) -> None:
    file, secrets = tmp_path / "b.tar.gz", cluster.secrets()

    cluster.sunkctl("carol", "support-bundle", "--file", str(file))

    with tarfile.open(file) as archive:
        read = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive.getmembers()}
        files = {name: data.read().decode() for name, data in read.items() if data}
    leaks = {
        (name, file) for name, secret in secrets.items() for file, text in files.items() if secret in text
    }
    assert len(secrets) > 20
    assert leaks == set()
    logs = " ".join(name for name in files if "/logs/" in name)
    for pod in (
        "sunk-nats-0/nats",
        "sunk-nodeset-controller",
        "sunk-view",
        "slurm-controller-0/",
        "slurm-syncer",
        "cpu-",
    ):
        assert pod in logs, logs
    assert "ClusterName=prod" in "".join(text for name, text in files.items() if name.endswith("slurm.conf"))
    assert json.loads(files["view/status.json"])["clusters"][0]["cluster"] == "prod"
    assert files["README.txt"].endswith("Missing:\nnothing\n"), files["README.txt"]
