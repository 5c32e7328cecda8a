"""The view behind a real API server, with the chart's own objects and a real NATS with its users."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import helm_python as helm
from typer.testing import CliRunner, Result

from sunk_ctl.main import app
from sunk_events import subjects
from sunk_events.permissions import configuration, users
from sunk_events.view import ROOT
from sunk_lab import charts
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_lab.processes import wait_for
from sunk_runtime.jetstream import Bus, BusSettings

CHART: Final = Path(__file__).parents[4] / "helm/sunk"
NAMESPACE: Final = "sunk"
CLUSTER: Final = "c1"
RIGHTS: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-pods}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-pods}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: carol}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sunk-view}
subjects: [{kind: User, name: carol, apiGroup: rbac.authorization.k8s.io}]
"""
"""Of alice, who may read the Pods of team-a, and of carol, who has the chart's cluster role."""


@dataclass(frozen=True)
class ViewStage:
    """An API server with the view behind it."""

    lab: KubeLab
    folder: Path
    pid: int
    """Of the view."""
    port: int
    """Where the API server reaches the view."""

    @property
    def authority(self) -> Authority:
        """What signs certificates of users."""
        return Authority(self.lab.kubeconfig.parent / "pki")

    def context(self, user: str) -> ssl.SSLContext:
        """Return how *user* connects."""
        made = ssl.create_default_context(cafile=self.authority.crt())
        made.load_cert_chain(self.authority.crt(user), self.authority.key(user))
        return made

    def get(self, user: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """Ask the API server as *user*; ``Any``, because JSON has every shape."""
        status, found, body = self.raw(user, path, headers)
        if found.get("content-type") != "application/json":
            raise OSError(f"{status}: {body!r}")  # The aggregator itself, before it is ready.
        return status, json.loads(body)

    def raw(
        self, user: str, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers with names in lower case, and body."""
        request = urllib.request.Request(f"{self.lab.network.api}{ROOT}{path}", headers=dict(headers or {}))  # noqa: S310 - https
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context(user))
        )
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, _lower(answer.headers.items()), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _lower(error.headers.items()), error.read()

    def kubeconfig(self, user: str) -> Path:
        """Return that of *user*."""
        return self.authority.kubeconfig(self.folder / f"{user}.kubeconfig", user, self.lab.network.api)

    def environment(self, user: str) -> dict[str, str]:
        """Return that of a program of *user*."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig(user)), "NO_PROXY": "*"}  # noqa: TID251 - a program's own

    def sunkctl(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `sunkctl` as a process of *user*."""
        return sunkctl(self.environment(user), *words)

    def run(self, user: str, *words: str) -> Result:
        """Run `sunkctl` in this process: a new one costs seconds of a busy machine."""
        config = ("--kubeconfig", str(self.kubeconfig(user)))
        return CliRunner(env={"NO_PROXY": "*"}).invoke(app, [words[0], *config, *words[1:]])

    @contextmanager
    def ui(self, user: str) -> Generator[str]:
        """Run `sunkctl ui` as a process of *user*; yield the address that it prints."""
        with ui(self.environment(user)) as address:
            yield address


def sunkctl(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run `sunkctl` as a process."""
    command = [Path(sys.executable).with_name("sunkctl"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def ui(environment: Mapping[str, str]) -> Generator[str]:
    """Run `sunkctl ui` as a process; yield the address that it prints."""
    command = [Path(sys.executable).with_name("sunkctl"), "ui"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "sunkctl ui ended: its standard error says why"
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


@contextmanager
def nats_with_users(folder: Path) -> Generator[NatsServer]:
    """Run a NATS with the users that the chart makes."""
    wanted = users([CLUSTER])
    extra = configuration(wanted, {user.name: f"secret-of-{user.name}" for user in wanted})
    with NatsServer(folder / "nats", extra=extra) as server:
        yield server


def bus_settings(server: NatsServer, folder: Path, user: str) -> BusSettings:
    """Return how *user* reaches that NATS."""
    file = folder / user
    file.write_text(f"secret-of-{user}\n")
    return BusSettings(url=server.url, user=user, password_file=file)


async def have_syncer_lead(bus: Bus) -> None:
    """Have a lease on the bus of a syncer, which leads from now on."""
    key = subjects.key_subject(subjects.lease_bucket(CLUSTER), "syncer")
    await bus.publish(key, json.dumps({"holder": "syncer-0"}).encode())


@contextmanager
def view_stage(
    lab: KubeLab,
    server: NatsServer,
    folder: Path,
    *,
    people: Iterable[str],
    objects: str,
    settings: Mapping[str, object],
    authentication: Mapping[str, object] | None = None,
) -> Generator[ViewStage]:
    """Bring an API server up with the view behind it; yield once the view is ready.

    Args:
        lab: A lab that is down.
        server: Holds the states, or is given them meanwhile.
        folder: For files.
        people: Users who get certificates.
        objects: YAML to apply besides those of the chart: their rights.
        settings: Of the view, besides the needed ones.
        authentication: Issuers that the API server trusts, as an AuthenticationConfiguration.
    """
    lab.up_api(authentication=authentication)
    port, probes = free_port(), free_port()
    made = _objects()
    _apply(lab, made, port, objects)
    secret = made["Secret", "sunk-view-tls"]["data"]
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(b64decode(secret[name]))
    bus = bus_settings(server, folder, "view")
    authority = Authority(lab.kubeconfig.parent / "pki")
    for name in people:
        authority.issue(name, name)
    needed = {
        "CLUSTERS": CLUSTER,
        "NAMESPACES": "slurm",
        "NAMESPACE": NAMESPACE,
        "NATS_URL": server.url,
        "NATS_USER": "view",
        "NATS_PASSWORD_FILE": bus.password_file,
        "HTTP_PORT": probes,
        "HTTP_HOST": "0.0.0.0",  # noqa: S104 - the API server comes by the bridge
        "TLS_PORT": port,
        "TLS_CERT_FILE": folder / "tls.crt",
        "TLS_KEY_FILE": folder / "tls.key",
        "KUBECONFIG": kubeconfig_of_account(lab, folder / "account.kubeconfig", "sunk-view", NAMESPACE),
    }
    variables = {f"SUNK_VIEW_{name}": str(value) for name, value in (needed | dict(settings)).items()}
    with (
        (folder / "view.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "sunk_view"],
            env={**os.environ, **variables, "NO_PROXY": "*"},  # noqa: TID251 - a program's own
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            wait_for("the view", lambda: _is_ready(process, probes, folder))
            yield ViewStage(lab, folder, process.pid, port)
        finally:
            process.terminate()
            process.wait(30)


def _objects() -> charts.Objects:
    values = {"clusters": [{"name": CLUSTER, "namespace": "slurm"}], "view": {"enabled": True}}
    return charts.render(helm.Chart.load(CHART), values, name="sunk", namespace=NAMESPACE)


def _apply(lab: KubeLab, made: charts.Objects, port: int, objects: str) -> None:
    """Apply what the chart makes for the view, without Pods: a process of this machine is there instead."""
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    wanted |= {"Service", "APIService"}
    found = [one for (kind, name), one in made.items() if kind in wanted and "view" in name]
    names = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (NAMESPACE, "team-a", "team-b")
    ]
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "sunk-view-1",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": "sunk-view"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [lab.network.host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    for one in (*names, *found, endpoints, _lease()):
        wait_for("the object", lambda one=one: lab.kubectl("apply", "-f", "-", input=json.dumps(one)))
    lab.kubectl("apply", "-f", "-", input=objects)


def _lease() -> dict[str, object]:
    """Return that of a nodeset-controller which leads for as long as tests last."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "sunk-nodeset-controller", "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "controller-1",
            "leaseDurationSeconds": 86400,
            "renewTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        },
    }


def kubeconfig_of_account(lab: KubeLab, file: Path, account: str, namespace: str) -> Path:
    """Return *file* as the kubeconfig of a ServiceAccount, with a token."""
    token = lab.kubectl("create", "token", account, "--namespace", namespace).strip()
    found = json.loads(lab.kubeconfig.read_text())
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    file.write_text(json.dumps(found))
    return file


def _is_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> bool:
    assert process.poll() is None, (folder / "view.log").read_text()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
        return answer.status == 200  # noqa: PLR2004 - HTTP: OK
