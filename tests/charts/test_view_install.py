"""Users who ask why, and their administrator, on both charts with `view.enabled` on a real kubelet."""

import base64
import binascii
import json
import os
import re
import tarfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import expect, sync_playwright
from typer.testing import CliRunner, Result

from sunk_ctl.main import app
from sunk_ctl.testing import sunkctl, ui
from sunk_events.view import HIDDEN
from sunk_lab import service_images
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import NAMESPACE, SMALL, SUNK_NAMESPACE, Installation, install
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.prerequisites import require
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES

pytestmark = [
    pytest.mark.lab,
    pytest.mark.install,
    pytest.mark.timeout(900),  # The images are made from the code as it is now.
]
NODE: Final = "node2"
"""Where slurmd is, and nothing else: its machine restarts."""
OTHERS: Final = {"example.com/services": "yes"}
"""A label of the other two Nodes, so that each has a replica of the view."""
TEAMS: Final = {"team-a": "alice", "team-b": "bob"}
SECONDS: Final = 40
"""So long an ordinary Pod takes to leave."""
SECRET_BYTES: Final = 12
"""Shorter values of Secrets are words such as a user's name."""
APISERVICE: Final = "v1alpha1.view.sunk.coreweave.com"
CONDITION: Final = "PhaseState"
CHROMIUM: Final = "/usr/bin/chromium"
PATIENCE_MS: Final = 90_000
SERVICES: Final = (
    *("syncer", "scheduler", "hook-gateway", "metrics-exporter"),
    *("sunk-nodeset-controller", "sunk-view"),
)


class Cluster(Installation):
    """Both releases with the view, two teams, and an administrator with the chart's ClusterRole."""

    folder: Path

    def make_namespaces(self) -> None:
        super().make_namespaces()
        words = [f"{key}={value}" for key, value in OTHERS.items()]
        self.lab.kubectl("label", "node", "node1", "node3", *words)

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["accounting"] |= {"enforce": "limits"}
        return values | {"podDefaults": {"nodeSelector": OTHERS}}

    def sunk_values(self) -> dict[str, Any]:
        image = {
            "registry": service_images.REGISTRY,
            "repository": service_images.repository("view"),
            "tag": service_images.version(),
        }
        view = {"enabled": True, "image": image, "resources": SMALL}
        return super().sunk_values() | {"view": view, "podDefaults": {"nodeSelector": OTHERS}}

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

    def environment(self, user: str) -> dict[str, str]:
        """Return that of a program of *user*."""
        return {**os.environ, "KUBECONFIG": str(self._config(user)), "NO_PROXY": "*"}  # noqa: TID251 - a program's own

    def replicas(self) -> dict[str, str]:
        """Return the Node of each ready Pod of the view."""
        chosen = ("-l", "app.kubernetes.io/name=sunk-view", "-o", "json")
        items = json.loads(self.lab.kubectl("-n", SUNK_NAMESPACE, "get", "pods", *chosen))["items"]
        ready = {"type": "Ready", "status": "True"}
        return {
            one["metadata"]["name"]: one["spec"]["nodeName"]
            for one in items
            if "deletionTimestamp" not in one["metadata"]
            and any(ready.items() <= condition.items() for condition in one["status"].get("conditions", ()))
        }

    def asked(self) -> list[dict[str, str]]:
        """Return the condition of the Node that asks for a reboot, if it stands there."""
        found = json.loads(self.lab.kubectl("get", "node", NODE, "-o", "json"))
        return [one for one in found["status"]["conditions"] if one["type"] == CONDITION]

    def slurm_node(self) -> str:
        """Return the name of the only node that Slurm has."""
        (node,) = set(self.login("sinfo -h -N -o %N").split())
        return node

    def sunkctl(self, user: str, *words: str, status: int = 0) -> str:
        """Run `sunkctl` as *user*; return what it prints."""
        done = self.run(user, *words)
        assert done.exit_code == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def run(self, user: str, *words: str) -> Result:
        """Run `sunkctl` as *user*."""
        config = ("--kubeconfig", str(self._config(user)))
        return CliRunner(env={"NO_PROXY": "*"}).invoke(app, [words[0], *config, *words[1:]])

    def findings(self, user: str, *words: str) -> str:
        """Return what `sunkctl explain` finds, in a line each."""
        found = json.loads(self.sunkctl(user, "explain", *words, "-o", "json"))
        return "\n".join(json.dumps(one) for part in found["parts"] for one in part["findings"])

    def place(self, team: str, name: str, **more: Any) -> None:  # noqa: ANN401 - fields of a Pod's spec
        """Apply a Pod that Slurm is to place."""
        self._start(team, name, {"schedulerName": "slurm-slurm", "restartPolicy": "Never", **more}, {})

    def stay(self, team: str, name: str) -> None:
        """Start an ordinary Pod on the Node that takes its time to leave."""
        grace = {"nodeName": NODE, "terminationGracePeriodSeconds": SECONDS + 20}
        self._start(team, name, grace, {"lifecycle": {"preStop": {"sleep": {"seconds": SECONDS}}}})
        wait_for(f"{name} to run", lambda: self.phase(team, name) == "Running", 60)

    def phase(self, team: str, name: str) -> str:
        """Return a Pod's phase."""
        return self.lab.kubectl("-n", team, "get", "pod", name, "-o", "jsonpath={.status.phase}")

    def move_port(self, target: str) -> None:
        """Have the API server connect to the port *target* of the view's Pods, a number or a name."""
        value = int(target) if target.isdecimal() else target
        patch = [{"op": "replace", "path": "/spec/ports/0/targetPort", "value": value}]
        words = ("patch", "service", "sunk-view", "--type=json", "-p", json.dumps(patch))
        self.lab.kubectl("-n", SUNK_NAMESPACE, *words)

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


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    config = from_environment()
    require({CHROMIUM.removeprefix("/"): "chromium"}, report=print)
    with reserved_lab() as lab:
        made = Cluster(lab, nodes=(NODE,), slurm=request.param)
        archive = service_images.archive_of(["view"], config.cache, lambda _line: None)
        lab.up(nodes=3)
        lab.load(archive)
        install(made, config.cache, lambda _line: None)
        made.admit(tmp_path_factory.mktemp("users"))
        yield made


def test_the_api_is_available_and_an_administrator_sees_the_whole(cluster: Cluster) -> None:
    service = (
        "wait",
        "--for=condition=Available",
        "--timeout=120s",
        f"apiservice/{APISERVICE}",
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
    assert cluster.sunkctl("carol", "top", "--count", "2").count("Slurm cluster prod") == 2


def test_an_explanation_changes_as_what_holds_the_pod_up_does(cluster: Cluster) -> None:
    job = cluster.login(
        "sbatch --parsable --exclusive -N1 --chdir=/ --output=/dev/null --wrap 'sleep 600'"
    ).strip()
    wait_for("the job", lambda: "RUNNING" in cluster.login(f"squeue -h -j {job} -o %T"), 60)
    cluster.place("team-a", "train")

    def says(*words: str, pod: str = "train") -> str:
        def are_there() -> bool:
            told[0] = cluster.findings("alice", "pod", f"team-a/{pod}")
            return all(word in told[0] for word in words)

        told = [""]
        try:
            wait_for(f"{words}", are_there, SECONDS + 120, pause_s=1.0)
        except LabError as error:
            raise LabError(f"{error}: {told[0]}") from error
        return told[0]

    says("waits for its turn in Slurm", "Resources", "in the queue")
    own = cluster.login("squeue -h -t PENDING -o %i").strip()
    cluster.login(f"scontrol hold {own}")
    says(f"job {own}", "JobHeldAdmin")
    cluster.login(f"scontrol release {own}; sacctmgr -i modify user sunk set GrpJobs=0")
    says(f"job {own}", "AssocGrpJobsLimit")
    cluster.login(f"sacctmgr -i modify user sunk set GrpJobs=-1; scontrol hold {own}")
    cluster.login(f"scancel {job}")
    taints = ("get", "node", NODE, "-o", "jsonpath={.spec.taints}")
    wait_for("the unlocked Node", lambda: "sunk.coreweave.com/lock" not in cluster.lab.kubectl(*taints), 120)
    cluster.stay("team-b", "web")
    cluster.login(f"scontrol release {own}")
    # The next answer may be older: another replica has one of up to three seconds ago.
    of_pod = says("its prologs run", "waits for Pods to leave")

    assert "team-b/web" in cluster.findings("carol", "node", cluster.slurm_node())
    assert HIDDEN in of_pod
    assert "web" not in of_pod
    says(f"bound to {NODE} for job {own}")
    cluster.place("team-a", "fast", nodeSelector={"example.com/disk": "nvme"})
    says("no Slurm node fits what the Pod requires of its Node", pod="fast")
    cluster.lab.kubectl("label", "node", NODE, "example.com/disk=nvme")
    says(f"bound to {NODE}", pod="fast")
    cluster.lab.kubectl("-n", "team-a", "delete", "pod", "fast")


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
    node = cluster.slurm_node()

    cluster.sunkctl("carol", "drain", node, "--reason", "bad fan")
    wait_for("the drain", lambda: cluster.drains() == {node: "k8s: cordon: bad fan"}, 60)
    told = cluster.findings("carol", "node", node)
    cluster.sunkctl("carol", "undrain", node, "--reason", "bad fan")

    assert "bad fan" in told
    wait_for("the undrain", lambda: cluster.drains() == {}, 60)


def test_an_undrain_says_that_a_drain_of_slurms_administrators_stays_and_what_lifts_it(
    cluster: Cluster,
) -> None:
    node = cluster.slurm_node()
    lift = f"scontrol update nodename={node} state=undrain"
    cluster.login(f"scontrol update nodename={node} state=drain reason='bad cable'")

    def says() -> str:
        done = cluster.run("carol", "undrain", node)
        assert done.exit_code == 0, done.stderr
        return done.stderr

    try:
        wait_for("what stays", lambda: "bad cable" in says(), 120, pause_s=1.0)
        assert f"To end it in Slurm: {lift}" in says()
        assert cluster.drains() == {node: "bad cable"}
    finally:
        cluster.login(lift)
    wait_for("no word of it", lambda: "bad cable" not in says(), 120, pause_s=1.0)
    assert cluster.drains() == {}


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


def test_the_live_page_goes_on_while_each_of_two_replicas_is_replaced(cluster: Cluster) -> None:
    node, first, carol = cluster.slurm_node(), cluster.replicas(), cluster.environment("carol")

    def change(verb: str, reason: str) -> None:
        # As a process: Playwright has an event loop in this one.
        done = sunkctl(carol, verb, node, "--reason", reason)
        assert done.returncode == 0, done.stderr

    with sync_playwright() as playwright, ui(carol) as address:
        # As root Chromium has no sandbox of its own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        expect.set_options(timeout=PATIENCE_MS)
        page.goto(address)
        cell, live = page.locator(f'[data-node="{node}"]'), page.locator("#live")
        for number, replica in enumerate(first):
            cluster.lab.kubectl("-n", SUNK_NAMESPACE, "delete", "pod", replica)
            wait_for("the next replica", lambda: len(cluster.replicas()) == len(first), 120)
            change("drain", f"fan {number}")
            expect(cell).to_have_class(re.compile(r"\bs-drain(ed|ing)\b"))
            expect(live).to_have_class("live")
            label = cell.get_attribute("aria-label") or ""
            change("undrain", f"fan {number}")
            expect(cell).not_to_have_class(re.compile(r"\bs-drain(ed|ing)\b"))

            assert f"k8s: cordon: fan {number}" in label
        page.click("#tab-Pods")
        expect(page.locator("table")).to_contain_text("team-b/serve")
        browser.close()

    assert sorted(first.values()) == ["node1", "node3"]
    assert not first.keys() & cluster.replicas().keys()


def test_doctor_finds_nothing_wrong_and_then_what_is_taken_away(cluster: Cluster) -> None:
    def said() -> dict[str, str]:
        done = cluster.run("carol", "doctor", "--seconds", "10", "-o", "json")
        if done.exit_code not in {0, 1}:  # A Pod went meanwhile.
            raise LabError(done.stderr)
        found = json.loads(done.stdout)
        assert found["pods"] >= len(SERVICES)
        return {one["runbook"] or one["where"]: one["what"] for one in found["findings"]}

    def scale(kind: str, name: str, namespace: str, replicas: int) -> None:
        cluster.lab.kubectl("-n", namespace, "scale", f"{kind}/{name}", f"--replicas={replicas}")

    def says(*wanted: str) -> None:
        last: list[dict[str, str]] = [{}]

        def are_found() -> bool:
            last[0] = said()
            return last[0].keys() >= set(wanted)

        try:
            wait_for(f"{wanted}", are_found, 300)
        except LabError as error:
            raise LabError(f"{error}: {last[0]}") from error

    def is_well() -> bool:
        if found := said():
            raise LabError(f"{found}")
        return True

    wait_for("nothing wrong", is_well, 240)
    kinds = {
        ("deployment", "slurm-rest", NAMESPACE): {"SunkSlurmCallsFail", "SunkSlurmStateStale"},
        ("deployment", "slurm-metrics-exporter", NAMESPACE): {"SunkExporterSilent"},
        ("statefulset", "sunk-nats", SUNK_NAMESPACE): {"SunkBusSilent"},
    }
    for (kind, name, namespace), wanted in kinds.items():
        found = cluster.lab.kubectl("-n", namespace, "get", kind, name, "-o", "jsonpath={.spec.replicas}")
        scale(kind, name, namespace, 0)
        says(f"{namespace}/{name}", *wanted)
        scale(kind, name, namespace, int(found))
        wait_for("nothing wrong again", is_well, 240)
    cluster.move_port("8444")  # As with a firewall: its Pods are ready, and the API server reaches none.
    says(APISERVICE)
    cluster.move_port("https")
    wait_for("nothing wrong again", is_well, 240)
    refused = cluster.run("alice", "doctor", "--namespace", NAMESPACE)

    assert refused.exit_code == 3
    assert "cannot list" in refused.stderr


def test_a_drained_node_is_rebooted_and_serves_again(cluster: Cluster) -> None:
    node = cluster.slurm_node()
    words = ("reboot", node, "--reason", "new firmware")
    not_drained = cluster.sunkctl("carol", *words, status=1)
    for team, pod in (("team-a", "train"), ("team-b", "serve")):
        cluster.lab.kubectl("-n", team, "delete", "pod", pod, "--ignore-not-found")
    cluster.lab.kubectl("-n", "team-b", "delete", "pod", "web", "--ignore-not-found")
    cluster.sunkctl("carol", "drain", node, "--reason", "new firmware")

    def is_asked() -> bool:
        try:
            cluster.sunkctl("carol", *words)
        except AssertionError as error:
            raise LabError(str(error)) from error
        return True

    wait_for("a node without work", is_asked, 180, pause_s=5.0)
    (asked,) = cluster.asked()
    cluster.restart_machine(NODE, CONDITION)
    cluster.sunkctl("carol", "undrain", node, "--reason", "new firmware")

    def is_idle() -> bool:
        if set(cluster.login("sinfo -h -N -o %T").split()) != {"idle"}:
            raise LabError(cluster.login(f"scontrol show node {node}"))
        return True

    wait_for("it to be idle", is_idle, 300, pause_s=2.0)
    ran = cluster.login("cd /tmp && timeout 100 srun --immediate=90 -n1 hostname")

    assert "cordon" in not_drained
    assert asked["message"] == f"sunkctl requested a reboot of {node}: new firmware"
    assert ran.strip() == node
    assert cluster.asked() == []
