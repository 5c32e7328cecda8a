"""What each service may do in Kubernetes, as the chart will say it: the least that its work needs."""

from typing import Any, Final

Object = dict[str, Any]
NAMESPACE: Final = "sunk"
_GROUP: Final = "rbac.authorization.k8s.io"

_LEASES: Final = ("coordination.k8s.io", ("leases",), ("get", "create", "update", "patch"))
_EVENTS: Final = ("", ("events",), ("create", "patch"))
_READ: Final = ("get", "list", "watch")

RULES: Final[dict[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]]] = {
    "nodeset-controller": (
        ("", ("nodes",), (*_READ, "patch")),
        ("", ("nodes/status", "pods/status"), ("patch",)),
        ("", ("pods",), (*_READ, "create", "patch", "delete")),
        ("", ("pods/eviction",), ("create",)),
        ("policy", ("poddisruptionbudgets",), ("create", "patch")),
        ("apps", ("controllerrevisions",), ("get", "list", "create", "patch", "delete")),
        ("apps", ("daemonsets",), _READ),
        ("sunk.coreweave.com", ("nodesets",), (*_READ, "patch")),
        ("sunk.coreweave.com", ("nodesets/status", "nodesets/finalizers"), ("patch", "update")),
        ("sunk.coreweave.com", ("nodeslices",), (*_READ, "create", "update", "patch", "delete")),
        _LEASES,
        _EVENTS,
    ),
    "pod-scheduler": (
        ("", ("pods",), (*_READ, "patch", "delete")),
        ("", ("pods/binding",), ("create",)),
        ("", ("pods/status",), ("patch",)),
        ("", ("nodes",), _READ),
        ("batch", ("jobs",), ("get",)),
        ("jobset.x-k8s.io", ("jobsets",), ("get",)),
        ("scheduling.x-k8s.io", ("podgroups",), ("get",)),
        ("coordination.k8s.io", ("leases",), ("list",)),  # Those of other schedulers.
        _LEASES,
        _EVENTS,
    ),
    "hook-gateway": (),
}
"""By service. The gateway reads only the API server's public keys, which every ServiceAccount may.
The syncer and the exporter have no account at all."""


def manifests() -> list[Object]:
    """Return the namespace, the accounts, their roles and bindings."""
    made: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for service, rules in RULES.items():
        name = f"sunk-{service}"
        made.append(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": NAMESPACE},
            }
        )
        if rules:
            made += _role(name, rules)
    return made


def _role(name: str, rules: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]) -> list[Object]:
    role = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in rules
        ],
    }
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    return [role, binding]
