"""What every lab's API server is given at its start: DNS and a StorageClass. Pure."""

from typing import Any, Final

from sunk_lab.kube.network import Network

Manifest = dict[str, Any]

PROVISIONER: Final = "sunk-lab/local"  # As main.go spells it.
_RBAC: Final = "rbac.authorization.k8s.io"


def addons(network: Network) -> tuple[Manifest, ...]:
    """Return the objects to apply, in this order."""
    return (*_dns(network), *_dns_rights(), _storage_class())


def corefile(network: Network, kubeconfig: str) -> str:
    """Return CoreDNS' configuration: the cluster's names and nothing else."""
    return f"""
.:53 {{
    bind {network.host}
    errors
    ready {network.host}:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
    cache 1
}}
"""


def _dns(network: Network) -> tuple[Manifest, ...]:
    # CoreDNS is a process of the machine: a Service without selector, and its EndpointSlice by hand.
    name = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    labels = {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**name, "labels": labels},
            "spec": {"clusterIP": network.dns_service, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {**name, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "ports": ports,
            "endpoints": [{"addresses": [network.host], "conditions": {"ready": True}}],
        },
    )


def _dns_rights() -> tuple[Manifest, ...]:
    name = "system:coredns"
    rules = [
        {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
        for group, resources in (
            ("", ["services", "pods", "namespaces", "endpoints"]),
            ("discovery.k8s.io", ["endpointslices"]),
        )
    ]
    return (
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name}],
        },
    )


def _storage_class() -> Manifest:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": annotations},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
