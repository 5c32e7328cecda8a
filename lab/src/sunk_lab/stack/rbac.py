"""What each service may do in Kubernetes, as the chart will say it: the least that its work needs."""

from typing import Any, Final

Object = dict[str, Any]
NAMESPACE: Final = "sunk"
_GROUP: Final = "rbac.authorization.k8s.io"

_LEASES: Final = ("coordination.k8s.io", ("leases",), ("get", "create", "update"))
_EVENTS: Final = ("", ("events",), ("create",))
_READ: Final = ("get", "list", "watch")

Rules = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
"""API group, resources, verbs."""

RULES: Final[dict[str, Rules]] = {
    "nodeset-controller": (
        ("", ("nodes",), (*_READ, "patch")),
        ("", ("nodes/status",), ("patch",)),
        ("", ("pods",), _READ),
        ("", ("pods/eviction",), ("create",)),
        ("apps", ("daemonsets",), _READ),
        ("sunk.coreweave.com", ("nodesets",), _READ),
        ("sunk.coreweave.com", ("nodesets/status",), ("patch",)),
        ("sunk.coreweave.com", ("nodeslices",), ("list", "watch")),
        _LEASES,
        _EVENTS,
    ),
    "pod-scheduler": (
        ("", ("pods",), (*_READ, "patch", "delete")),
        ("", ("pods/binding",), ("create",)),
        ("", ("pods/status",), ("patch",)),
        ("", ("nodes",), ("list", "watch")),
        ("batch", ("jobs",), ("get",)),
        ("jobset.x-k8s.io", ("jobsets",), ("get",)),
        ("scheduling.x-k8s.io", ("podgroups",), ("get",)),
        ("coordination.k8s.io", ("leases",), ("list",)),  # Those of other schedulers.
        ("coordination.k8s.io", ("leases",), ("patch",)),  # Its own, by its names.
        _LEASES,
        _EVENTS,
    ),
    "hook-gateway": (),
}
"""By service. The gateway reads only the API server's public keys, which every ServiceAccount may.
The syncer and the exporter have no account at all."""


RULES_IN_NAMESPACES: Final[dict[str, Rules]] = {
    "nodeset-controller": (
        ("", ("pods",), ("create", "patch", "delete")),
        ("", ("pods/status",), ("patch",)),
        ("policy", ("poddisruptionbudgets",), ("create", "patch")),
        ("apps", ("controllerrevisions",), ("list", "create", "patch", "delete")),
        ("sunk.coreweave.com", ("nodesets",), ("patch",)),
        ("sunk.coreweave.com", ("nodesets/finalizers",), ("update",)),
        ("sunk.coreweave.com", ("nodeslices",), ("create", "update", "patch", "delete")),
    ),
}
"""What a service may do besides, in the namespaces of Slurm clusters only."""


def manifests(slurm_namespace: str) -> list[Object]:
    """Return the namespaces, the accounts, their roles and bindings; Slurm is in *slurm_namespace*."""
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (NAMESPACE, slurm_namespace)
    ]
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
        if there := RULES_IN_NAMESPACES.get(service):
            made += _role(name, there, slurm_namespace)
    return made


def _role(name: str, rules: Rules, namespace: str = "") -> list[Object]:
    """Return a role and its binding to the account *name*: everywhere, or in *namespace* only."""
    scope = "" if namespace else "Cluster"
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    role = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{scope}Role",
        "metadata": meta,
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in rules
        ],
    }
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _GROUP, "kind": f"{scope}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    return [role, binding]
