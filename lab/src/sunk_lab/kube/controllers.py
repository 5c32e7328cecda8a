"""Controllers of other projects next to the lab's control plane: JobSet, LeaderWorkerSet and Kueue.

Each is compiled on first use from its Go module, with the versions that its own go.mod names, and its custom
resources and webhooks come from the manifests in that module. The controllers run as processes of the machine
and with the lab's administrator as user. The API server reaches their webhooks at a URL, with a certificate
of an authority that each has of its own.

Source: the modules' ``config/default``; controller-runtime's configuration of webhooks.
"""

import base64
import hashlib
import json
import platform
import shutil
import socket
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from sunk_lab.kube import control_plane, go
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.place import Place, write
from sunk_lab.kube.prerequisites import Report
from sunk_lab.locks import alone
from sunk_lab.processes import run, wait_for

Object = dict[str, Any]
"""An object of Kubernetes as YAML has it: Kubernetes' own schema is its type."""

_PROGRAM: Final = "manager"
_MANIFESTS: Final = "manifests.yaml"
_DEFINITION: Final = "CustomResourceDefinition"
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# Kueue reads its certificate for metrics from a folder of a fixed name, although it serves no metrics here.
_WITH_METRICS_CERTIFICATE: Final = """
folder=$1; shift
mount -t tmpfs tmpfs /mnt && cp "$folder"/tls.* /mnt && mkdir -p /mnt/kueue/metrics/certs &&
mv /mnt/tls.* /mnt/kueue/metrics/certs && mount --move /mnt /etc && exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One controller: its module, and what it is configured with."""

    name: str
    module: str
    version: str
    digest: str
    """Of the module, as go.sum has it."""
    package: str
    """The program, relative to the module."""
    api: str
    """The version of its configuration file."""
    port: int
    """Of its webhooks, on the machine's address on the lab's bridge; its health has the next one."""
    settings: Object = field(default_factory=dict[str, Any])
    """What its configuration file has besides ports and certificates."""
    needs_metrics_certificate: bool = False


JOBSET: Final = Controller(
    name="jobset",
    module="sigs.k8s.io/jobset",
    version="v0.12.0",
    digest="h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
    package=".",
    api="config.jobset.x-k8s.io/v1alpha1",
    port=9441,
    settings={"featureGates": {"RestartJob": True}},
)
LEADER_WORKER_SET: Final = Controller(
    name="lws",
    module="sigs.k8s.io/lws",
    version="v0.8.0",
    digest="h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
    package="./cmd",
    api="config.lws.x-k8s.io/v1alpha1",
    port=9443,
)
KUEUE: Final = Controller(
    name="kueue",
    module="sigs.k8s.io/kueue",
    version="v0.15.0",
    digest="h1:9Khzc2ne6/eWuZx5o+R4KlVBzh3kZkTIMzpPC2e8Spg=",
    package="./cmd/kueue",
    api="config.kueue.x-k8s.io/v1beta2",
    port=9445,
    settings={
        "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
        "featureGates": {"VisibilityOnDemand": False},
    },
    needs_metrics_certificate=True,
)
ALL: Final = (JOBSET, LEADER_WORKER_SET, KUEUE)


def key(controller: Controller) -> str:
    """Return the name of the folder that holds what *controller* is compiled to on this machine."""
    made_of = (platform.machine(), controller.digest, controller.package, go.OLDEST)
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
    return f"{controller.name}-{controller.version}-{digest}"


def build(controller: Controller, programs: Path, cache: Path, report: Report) -> Path:
    """Return the folder of the program and its manifests; compile it first if this machine has not yet.

    Args:
        controller: What to compile.
        programs: The folder of the lab's kubectl.
        cache: Where the folder is kept.
        report: Called with each step.

    Raises:
        LabError: The module cannot be had or is another one, or does not compile.
    """
    folder = cache / "controllers" / key(controller)
    folder.parent.mkdir(parents=True, exist_ok=True)
    compiler = go.find(cache, report)
    with alone(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            _build(controller, folder, programs / "kubectl", compiler, report)
    return folder


def _build(controller: Controller, folder: Path, kubectl: Path, compiler: Path, report: Report) -> None:
    began = time.monotonic()
    report(f"compiling {controller.name} {controller.version}, once")
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    source = go.source(compiler, f"{controller.module}@{controller.version}", controller.digest, new)
    go.compiled(compiler, source, controller.package, new / _PROGRAM)
    # The folder's own name has an @, which kustomize takes for a version of a repository.
    manifests = run(kubectl, "kustomize", ".", cwd=source / "config" / "default")
    (new / _MANIFESTS).write_text(manifests)
    new.rename(folder)
    report(f"compiled {controller.name} {controller.version}  {time.monotonic() - began:.0f} s")


def start(place: Place, controller: Controller, folder: Path) -> None:
    """Start the controller that *folder* holds; afterwards its webhooks answer and the API server asks them.

    Raises:
        LabError: It does not start; names its log.
    """
    host, home = place.network.host, place.folder / "controllers" / controller.name
    authority = Authority(home)
    authority.found()
    authority.issue("tls", "webhook", names=f"IP:{host}")
    found = [one for one in yaml.safe_load_all((folder / _MANIFESTS).read_text()) if one]
    url, bundle = f"https://{host}:{controller.port}", base64.b64encode(authority.crt().read_bytes()).decode()
    definitions = [at_url(one, url, bundle) for one in found if one["kind"] == _DEFINITION]
    # Whoever played the controller may just have deleted them: what is applied to a deleted one is lost.
    names = [one["metadata"]["name"] for one in definitions]
    control_plane.kubectl(place, "delete", _DEFINITION, *names, "--ignore-not-found", "--timeout=110s")
    _apply(place, definitions)
    settings = write(home / "config.json", json.dumps(configuration(controller, host, home)))
    argv = [folder / _PROGRAM, f"--kubeconfig={place.kubeconfig}", f"--config={settings}"]
    apart = ["unshare", "--mount", "sh", "-c", _WITH_METRICS_CERTIFICATE, "sh", home]
    name = _process(controller)
    place.processes.spawn(name, argv, prefix=apart if controller.needs_metrics_certificate else ())

    def answers() -> bool:
        place.processes.require(name)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{host}:{controller.port + 1}/readyz", timeout=2) as reply:
            is_ready = reply.status == 200  # noqa: PLR2004 - HTTP's own number.
        with socket.create_connection((host, controller.port), timeout=2):
            return is_ready

    wait_for(f"{name}, see {place.processes.log_of(name)}", answers)
    _apply(place, [at_url(one, url, bundle) for one in found if one["kind"] in _WEBHOOKS])


def stop(place: Place, controller: Controller, folder: Path) -> None:
    """End the controller, and remove its webhooks, its custom resources and every object of them."""
    found = [one for one in yaml.safe_load_all((folder / _MANIFESTS).read_text()) if one]
    names = {kind: [one["metadata"]["name"] for one in found if one["kind"] == kind] for kind in _WEBHOOKS}
    for kind, some in names.items():
        control_plane.kubectl(place, "delete", kind, *some, "--ignore-not-found")
    definitions = [one["metadata"]["name"] for one in found if one["kind"] == _DEFINITION]
    # Its own finalizers are lifted by itself, so it ends last.
    control_plane.kubectl(place, "delete", _DEFINITION, *definitions, "--ignore-not-found", "--timeout=110s")
    place.processes.kill(_process(controller))


def kill_all(place: Place) -> None:
    """End every controller's process; what it has made goes with the API server."""
    for controller in ALL:
        place.processes.kill(_process(controller))


def configuration(controller: Controller, host: str, home: Path) -> Object:
    """Return what the configuration file of *controller* says."""
    return {
        "apiVersion": controller.api,
        "kind": "Configuration",
        "webhook": {"host": host, "port": controller.port, "certDir": str(home)},
        "health": {"healthProbeBindAddress": f"{host}:{controller.port + 1}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **controller.settings,
    }


def at_url(manifest: Object, url: str, bundle: str) -> Object:
    """Return *manifest* with each webhook at *url* in place of a Service, with a certificate of *bundle*."""

    def moved(webhook: Object) -> Object:
        path = webhook["clientConfig"]["service"].get("path", "/")
        return {**webhook, "clientConfig": {"url": url + path, "caBundle": bundle}}

    if manifest["kind"] in _WEBHOOKS:
        return {**manifest, "webhooks": [moved(one) for one in manifest["webhooks"]]}
    if (conversion := manifest["spec"].get("conversion", {})).get("webhook") is None:
        return manifest
    changed = {**conversion, "webhook": moved(conversion["webhook"])}
    return {**manifest, "spec": {**manifest["spec"], "conversion": changed}}


def _apply(place: Place, manifests: list[Object]) -> None:
    text = "\n---\n".join(map(json.dumps, manifests))
    control_plane.kubectl(place, "apply", "--server-side", "--force-conflicts", "-f", "-", input=text)


def _process(controller: Controller) -> str:
    return f"{controller.name}-controller"
