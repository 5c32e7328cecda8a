"""The control plane, on the machine: etcd, API server, controller manager, scheduler, DNS, provisioner.

RBAC, Node authorizer, NodeRestriction and admission are on; certificates are checked in both directions.
Periods are shorter than the defaults so that a dead node is NotReady in ten seconds instead of fifty.
"""

import json
import signal
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.kube import manifests, network
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.network import Network
from sunk_lab.kube.place import Place, write
from sunk_lab.processes import run, wait_for

Argv = list[str]

PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "coredns",
    "provisioner",
)
# Each with the user and the group that Kubernetes sees.
_CLIENTS: Final = {
    "admin": ("admin", "system:masters"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
    "front-proxy": ("front-proxy-client", ""),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "coredns": ("system:coredns", ""),
}


AUDIT_LOG: Final = "audit.log"
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:sunk"]}],
}
"""What our services ask for. A watch is written when it begins, and again when it ends."""


def start(place: Place, *, is_audited: bool = False) -> None:
    """Bring up what does not run of the control plane; afterwards the API server answers.

    *is_audited*: it writes the requests of our services to `AUDIT_LOG`.

    Raises:
        LabError: A port is taken, or a program ended; names the log.
    """
    start_api(place, is_audited=is_audited)
    for name, flags_of in (("kube-controller-manager", _manager_flags), ("kube-scheduler", _scheduler_flags)):
        place.spawn(name, [place.programs / name, *flags_of(place)])
    objects = "\n---\n".join(map(json.dumps, manifests.addons(place.network)))
    # kube-system may not be there yet: repeated until it holds.
    wait_for("the add-ons", lambda: kubectl(place, "apply", "-f", "-", input=objects))
    config = str(place.settings / "coredns.kubeconfig")
    file = write(place.settings / "Corefile", manifests.corefile(place.network, config))
    place.spawn("coredns", [place.programs / "coredns", "-conf", file])
    volumes = place.folder / "volumes"
    volumes.mkdir(exist_ok=True)
    provisioner = ["--kubeconfig", place.kubeconfig, "--dir", volumes]
    place.spawn("provisioner", [place.programs / "provisioner", *provisioner])


def start_api(
    place: Place, *, is_audited: bool = False, authentication: Mapping[str, object] | None = None
) -> None:
    """Bring up etcd and the API server alone; afterwards the API server answers. Raises as `start`.

    *authentication*: an AuthenticationConfiguration, with the issuers that it trusts.
    """
    _certify(place)
    network.bring_up(place.network, place.folder)
    _refuse_taken_ports(place)
    place.spawn("etcd", [place.programs / "etcd", *etcd_flags(place.network, place.folder / "etcd-data")])
    flags = apiserver_flags(place.network, place.authority)
    if is_audited:
        policy = write(place.settings / "audit.json", json.dumps(_AUDIT_POLICY))
        log = place.folder / "log" / AUDIT_LOG
        flags += _flags({"audit-policy-file": policy, "audit-log-path": log, "audit-log-maxsize": "1000"})
    if authentication is not None:
        file = write(place.settings / "authentication.json", json.dumps(authentication))
        flags += _flags({"authentication-config": file})
    place.spawn("kube-apiserver", [place.programs / "kube-apiserver", *flags])
    wait_for("the API server", _answers(place), pause_s=0.05)


def stop(place: Place) -> None:
    """End the control plane at once, its clients first: nothing of it is kept."""
    for name in reversed(PROGRAMS):
        place.processes.kill(name, signal.SIGKILL)


def kubectl(
    place: Place,
    *args: str | Path,
    input: str | None = None,  # noqa: A002 - as run() has it.
    timeout_s: float = 240.0,
) -> str:
    """Run the lab's kubectl as its administrator and return what it prints."""
    command = (place.programs / "kubectl", "--kubeconfig", place.kubeconfig)
    return run(*command, *args, input=input, timeout_s=timeout_s)


def etcd_flags(net: Network, data: Path) -> Argv:
    """Return etcd's flags. It does not sync to disk: a lab need not survive a power failure."""
    peers = f"http://127.0.0.1:{net.port_by_use['etcd.peers']}"
    return _flags(
        {
            "data-dir": data,
            "listen-client-urls": net.etcd,
            "advertise-client-urls": net.etcd,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
    )


def apiserver_flags(net: Network, authority: Authority) -> Argv:
    """Return the API server's flags."""
    return _flags(
        {
            "etcd-servers": net.etcd,
            "bind-address": net.host,
            "advertise-address": net.host,
            "secure-port": "6443",
            "tls-cert-file": authority.crt("apiserver"),
            "tls-private-key-file": authority.key("apiserver"),
            "client-ca-file": authority.crt(),
            "kubelet-client-certificate": authority.crt("kubelet-client"),
            "kubelet-client-key": authority.key("kubelet-client"),
            "kubelet-certificate-authority": authority.crt(),
            "kubelet-preferred-address-types": "InternalIP",
            "requestheader-client-ca-file": authority.crt(),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": authority.crt("front-proxy"),
            "proxy-client-key-file": authority.key("front-proxy"),
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": authority.key("sa"),
            "service-account-signing-key-file": authority.key("sa"),
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "service-cluster-ip-range": net.services,
            "enable-aggregator-routing": "true",  # Webhooks are reached without a kube-proxy of its own.
        }
    )


def _manager_flags(place: Place) -> Argv:
    authority = place.authority
    return _flags(
        {
            "kubeconfig": place.settings / "kube-controller-manager.kubeconfig",
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": authority.key("sa"),
            "root-ca-file": authority.crt(),
            "cluster-signing-cert-file": authority.crt(),
            "cluster-signing-key-file": authority.key(),
            "bind-address": "127.0.0.1",
            "secure-port": str(place.network.port_by_use["kube-controller-manager"]),
            "cert-dir": place.folder / "pki",
            "node-monitor-period": "1s",
            "node-monitor-grace-period": "10s",
        }
    )


def _scheduler_flags(place: Place) -> Argv:
    return _flags(
        {
            "kubeconfig": place.settings / "kube-scheduler.kubeconfig",
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": str(place.network.port_by_use["kube-scheduler"]),
            "cert-dir": place.folder / "pki",
        }
    )


def _flags(value_by_name: dict[str, str | Path]) -> Argv:
    return [f"--{name}={value}" for name, value in value_by_name.items()]


def _certify(place: Place) -> None:
    net, authority = place.network, place.authority
    authority.found()
    suffixes = ("", ".default", ".default.svc", ".default.svc.cluster.local")
    names = ["localhost", *(f"kubernetes{suffix}" for suffix in suffixes)]
    addresses = (net.host, net.api_service, "127.0.0.1")
    alternatives = ",".join((*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)))
    authority.issue("apiserver", "kube-apiserver", names=alternatives)
    place.settings.mkdir(parents=True, exist_ok=True)
    for name, (user, group) in _CLIENTS.items():
        authority.issue(name, user, group=group)
        authority.kubeconfig(place.settings / f"{name}.kubeconfig", name, net.api)
    authority.kubeconfig(place.kubeconfig, "admin", net.api)


def _refuse_taken_ports(place: Place) -> None:
    # An API server would start happily on somebody else's etcd.
    running = {name for name in PROGRAMS if place.processes.pid_of(name)}

    def are_free() -> bool:
        for program, port in network.taken_ports(place.network, running):
            raise LabError(
                f"port {port} of {program} is taken: choose another lab with SUNK_LAB_NUMBER, "
                f"or end what listens there (ss -ltnp 'sport = {port}')"
            )
        return True

    # A process that was just killed keeps its port until the last of its threads is gone.
    wait_for("ports to be free", are_free, 3, 0.05)


def _answers(place: Place) -> Callable[[], bool]:
    tls = ssl.create_default_context(cafile=place.authority.crt())
    tls.load_cert_chain(place.authority.crt("admin"), place.authority.key("admin"))
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    opener = urllib.request.build_opener(*handlers)

    def answers() -> bool:
        for name in ("etcd", "kube-apiserver"):
            place.processes.require(name)
        with opener.open(f"{place.network.api}/readyz", timeout=2) as reply:
            return reply.status == 200  # noqa: PLR2004 - HTTP's own number.

    return answers
