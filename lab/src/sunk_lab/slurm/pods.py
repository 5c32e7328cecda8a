"""Slurm in Pods, as Kubernetes objects: slurmctld, slurmrestd and the template of a slurmd Pod.

One slurmd per Node registers itself under its Pod's name and gets slurm.conf with the hooks from slurmctld
(configless). Nothing is privileged. The NodeSet that owns the slurmd Pods adds name, affinity, labels and
tolerations to the template.

Source: Slurm's configless_slurm.html, dynamic_nodes.html, authentication.html.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any, Final

from sunk_lab.slurm.conf import (
    RESTD_ENVIRONMENT,
    SlurmConf,
    render_cgroup_conf,
    render_dynamic_node,
    render_slurm_conf,
)
from sunk_lab.slurm.releases import Release
from sunk_lab.slurm.tokens import Keys

Manifest = dict[str, Any]
"""An object as the API server takes it; Kubernetes' own schema is its type."""

SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
SLURMRESTD_PORT: Final = 6820
COMPUTE: Final = "slurmd"
"""The headless Service of slurmd Pods, by which DNS knows each under its node's name."""
HOOKS_AUDIENCE: Final = "sunk-hooks"
TOKEN_FILE: Final = "/var/run/secrets/sunk/token"  # noqa: S105 - a path, not a token.
HOOKS_CA_FILE: Final = "/etc/sunk/ca.crt"
SECRET_KEYS: Final = "slurm-keys"  # noqa: S105 - a name, not a secret.

_KEYS_FOLDER: Final = "/run/slurm-keys"
# A Secret's files are root's, slurmctld insists on owning its keys and slurmd that /run/slurm is root's.
_START: Final = f"""#!/bin/bash
set -e
install -d -o slurm -g slurm -m 755 /run/slurmctld /var/spool/slurmctld
install -d -o root -g root -m 755 /run/slurm
install -d -o slurm -g slurm -m 700 {_KEYS_FOLDER}
install -o slurm -g slurm -m 600 /secret/*.key {_KEYS_FOLDER}/
exec "$@"
"""
_SMALL: Final[Manifest] = {"requests": {"cpu": "5m", "memory": "16Mi"}}


@dataclass(frozen=True, kw_only=True)
class PodSlurm:
    """One Slurm cluster in Kubernetes."""

    release: Release
    keys: Keys
    hooks_url: str
    """The hook gateway, as slurmd Pods reach it."""
    hooks_ca: str = ""
    """The authority of its certificate, as PEM; empty where it speaks no TLS."""
    prolog: str = ""
    """The scripts' text; empty: none."""
    epilog: str = ""
    gateway: str = ""
    """What both source from beside their settings."""
    cluster: str = "lab"
    namespace: str = "slurm"
    control_selector: tuple[tuple[str, str], ...] = (("kubernetes.io/hostname", "node1"),)
    """Labels of the Nodes for slurmctld and slurmrestd: not those of the NodeSet."""
    lock_key: str = "sunk.coreweave.com/lock"
    hooks_deadline_s: int = 60
    kill_wait_s: int = 40
    more: tuple[str, ...] = ()
    """Lines at the end of slurm.conf."""


@dataclass(frozen=True, kw_only=True)
class SlurmdShape:
    """What a slurmd says its node has, whatever Kubernetes gives its Pod."""

    cpus: int = 8
    memory_mib: int = 16000
    features: tuple[str, ...] = ()
    grace_s: int = 2
    """How long its Pod may take to end; never 0, which would remove the Pod before it has ended."""


def cluster_manifests(slurm: PodSlurm) -> list[Manifest]:
    """Return everything but the slurmd Pods, in the order to apply."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": slurm.namespace}},
        _keys(slurm),
        _config_map(slurm, "slurm", _slurm_files(slurm)),
        _config_map(slurm, "slurm-start", {"start": _START}),
        _config_map(
            slurm,
            "slurm-hooks",
            {
                "hooks.env": render_hooks_env(slurm),
                "gateway.sh": slurm.gateway,
                **({HOOKS_CA_FILE.rpartition("/")[2]: slurm.hooks_ca} if slurm.hooks_ca else {}),
            },
        ),
        # Without an address of its own: srun and slurmd want to speak to the Pod itself.
        _service(slurm, "slurmctld", SLURMCTLD_PORT, is_headless=True),
        _controller(slurm),
        _service(slurm, "slurmrestd", SLURMRESTD_PORT),
        _rest_server(slurm),
        _service(slurm, COMPUTE, SLURMD_PORT, is_headless=True),
    ]


def slurmd_pod_template(slurm: PodSlurm, shape: SlurmdShape = SlurmdShape()) -> Manifest:
    """Return the Pod template for a NodeSet's ``spec.template``; the Pod's name becomes the Slurm node's."""
    node = render_dynamic_node(
        cpus=shape.cpus, memory_mib=shape.memory_mib, address="$(POD_IP)", features=shape.features
    )
    where = ("--conf-server", f"slurmctld:{SLURMCTLD_PORT}")
    container: Manifest = {
        "name": "slurmd",
        "image": slurm.release.image,
        "args": ["/start/start", "slurmd", "-D", "-Z", "-N", "$(POD_NAME)", *where, "--conf", node],
        "env": [
            {"name": "SLURM_SACK_KEY", "value": f"{_KEYS_FOLDER}/slurm.key"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "slurmd", "containerPort": SLURMD_PORT}],
        # Ready is local: that slurmd answers, not that slurmctld does or that the node takes jobs.
        "readinessProbe": {"tcpSocket": {"port": SLURMD_PORT}, "periodSeconds": 1},
        "resources": _SMALL,
        "volumeMounts": [
            {"name": "start", "mountPath": "/start"},
            {"name": "keys", "mountPath": "/secret"},
            {"name": "hooks", "mountPath": "/etc/sunk"},
            {"name": "hook-token", "mountPath": TOKEN_FILE.rpartition("/")[0], "readOnly": True},
        ],
    }
    volumes: list[Manifest] = [
        _config_volume("start", "slurm-start", mode=0o755),
        _keys_volume("slurm.key"),
        _config_volume("hooks", "slurm-hooks"),
        _token_volume(),
    ]
    return {
        "metadata": {"labels": _labels(COMPUTE)},
        "spec": {
            "subdomain": COMPUTE,
            "dnsConfig": {"searches": [f"{COMPUTE}.{slurm.namespace}.svc.cluster.local"]},
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": shape.grace_s,
            "containers": [container],
            "volumes": volumes,
        },
    }


def render_hooks_env(slurm: PodSlurm) -> str:
    """Return the settings of prolog and epilog, which Slurm starts with next to no environment."""
    return (
        f"SUNK_HOOKS_URL={slurm.hooks_url}\n"
        f"SUNK_HOOKS_TOKEN_FILE={TOKEN_FILE}\n"
        f"SUNK_HOOKS_DEADLINE_S={slurm.hooks_deadline_s}\n"
        + (f"SUNK_HOOKS_CA_FILE={HOOKS_CA_FILE}\n" if slurm.hooks_ca else "")
    )


def conf_of(slurm: PodSlurm) -> SlurmConf:
    """Return the cluster's configuration."""
    return SlurmConf(
        cluster=slurm.cluster,
        controller="slurmctld-0(slurmctld)",  # The Pod's host name; the address is the headless Service's.
        controller_port=SLURMCTLD_PORT,
        slurmd_port=SLURMD_PORT,
        jwt_key=f"{_KEYS_FOLDER}/jwt.key",
        state_folder="/var/spool/slurmctld",
        spool_folder="/var/spool/slurmd",
        run_folder="/run/slurmctld",
        is_configless=True,
        prolog="prolog.sh" if slurm.prolog else "",
        epilog="epilog.sh" if slurm.epilog else "",
        prolog_epilog_timeout_s=slurm.hooks_deadline_s + 30,
        kill_wait_s=slurm.kill_wait_s,
        more=slurm.more,
    )


def _slurm_files(slurm: PodSlurm) -> dict[str, str]:
    scripts = {"prolog.sh": slurm.prolog, "epilog.sh": slurm.epilog}
    return {
        "slurm.conf": render_slurm_conf(conf_of(slurm)),
        "cgroup.conf": render_cgroup_conf(),
        **{name: text for name, text in scripts.items() if text},
    }


def _controller(slurm: PodSlurm) -> Manifest:
    container: Manifest = {
        "name": "slurmctld",
        "image": slurm.release.image,
        "args": ["/start/start", "slurmctld", "-D"],
        "env": [{"name": "SLURM_SACK_KEY", "value": f"{_KEYS_FOLDER}/slurm.key"}],
        "readinessProbe": {"tcpSocket": {"port": SLURMCTLD_PORT}, "periodSeconds": 1},
        "resources": _SMALL,
        "volumeMounts": [
            {"name": "conf", "mountPath": "/etc/slurm"},
            {"name": "start", "mountPath": "/start"},
            {"name": "keys", "mountPath": "/secret"},
            {"name": "state", "mountPath": "/var/spool/slurmctld"},
        ],
    }
    volumes = [
        _config_volume("conf", "slurm", mode=0o755),
        _config_volume("start", "slurm-start", mode=0o755),
        _keys_volume("slurm.key", "jwt.key"),
    ]
    claim = {
        "metadata": {"name": "state"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}},
    }
    spec = {
        "serviceName": "slurmctld",
        "selector": {"matchLabels": _labels("slurmctld")},
        "template": _pod(slurm, "slurmctld", container, volumes),
        "volumeClaimTemplates": [claim],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _named(slurm, "slurmctld"),
        "spec": spec,
    }


def _rest_server(slurm: PodSlurm) -> Manifest:
    who = ("-u", "daemon", "-g", "daemon", "-s", "slurmctld", "-a", "rest_auth/jwt")
    container: Manifest = {
        "name": "slurmrestd",
        "image": slurm.release.image,
        "args": ["slurmrestd", *who, f"0.0.0.0:{SLURMRESTD_PORT}"],
        # It speaks to slurmctld with its callers' tokens, so it needs no key.
        "env": [{"name": name, "value": value} for name, value in RESTD_ENVIRONMENT.items()],
        "readinessProbe": {"tcpSocket": {"port": SLURMRESTD_PORT}, "periodSeconds": 1},
        "resources": _SMALL,
        "volumeMounts": [{"name": "conf", "mountPath": "/etc/slurm"}],
    }
    spec = {
        "selector": {"matchLabels": _labels("slurmrestd")},
        "template": _pod(slurm, "slurmrestd", container, [_config_volume("conf", "slurm")]),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _named(slurm, "slurmrestd"),
        "spec": spec,
    }


def _pod(slurm: PodSlurm, name: str, container: Manifest, volumes: list[Manifest]) -> Manifest:
    # A change of these is a new Pod; of the keys only their hash is told.
    content = repr((sorted(_slurm_files(slurm).items()), slurm.keys))
    return {
        "metadata": {
            "labels": _labels(name),
            "annotations": {"checksum/config": hashlib.sha256(content.encode()).hexdigest()},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": dict(slurm.control_selector),
            # What must answer while a Node is locked may never be evicted by the lock.
            "tolerations": [{"key": slurm.lock_key, "operator": "Exists"}],
            "containers": [container],
            "volumes": volumes,
        },
    }


def _service(slurm: PodSlurm, name: str, port: int, *, is_headless: bool = False) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(slurm, name),
        "spec": {
            "selector": _labels(name),
            "ports": [{"port": port}],
            **({"clusterIP": "None"} if is_headless else {}),
        },
    }


def _keys(slurm: PodSlurm) -> Manifest:
    content = {"slurm.key": slurm.keys.slurm, "jwt.key": slurm.keys.jwt}
    data = {name: base64.b64encode(key).decode() for name, key in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _named(slurm, SECRET_KEYS), "data": data}


def _config_map(slurm: PodSlurm, name: str, files: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(slurm, name), "data": files}


def _config_volume(name: str, config_map: str, mode: int = 0o644) -> Manifest:
    return {"name": name, "configMap": {"name": config_map, "defaultMode": mode}}


def _keys_volume(*files: str) -> Manifest:
    items = [{"key": file, "path": file} for file in files]
    return {"name": "keys", "secret": {"secretName": SECRET_KEYS, "defaultMode": 0o400, "items": items}}


def _token_volume() -> Manifest:
    token = {"audience": HOOKS_AUDIENCE, "expirationSeconds": 3600, "path": TOKEN_FILE.rpartition("/")[2]}
    sources = [{"serviceAccountToken": token}]
    return {"name": "hook-token", "projected": {"defaultMode": 0o400, "sources": sources}}


def _named(slurm: PodSlurm, name: str) -> Manifest:
    return {"name": name, "namespace": slurm.namespace}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}
