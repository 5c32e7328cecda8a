# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The kinds of objects that the API server knows, and those that CustomResourceDefinitions add."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

Object = dict[str, Any]
"""An object as JSON has it. Whoever is given one that is stored changes nothing of it."""


class Kind(msgspec.Struct, frozen=True):
    """One of them."""

    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True
    has_status: bool = False
    """Whether its status is written by itself, and nothing else then."""
    is_custom: bool = False
    needs_version: bool = False
    """Whether who replaces one has to say which version of it."""
    schema: Mapping[str, Any] = {}
    scale: Mapping[str, str] = {}
    """Where its numbers of replicas are, by the words of CustomResourceDefinitions."""

    @property
    def resource(self) -> str:
        """Its name among all: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """As manifests spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version


_STATUS: Final[Mapping[str, Any]] = {"has_status": True}
_CLUSTER: Final[Mapping[str, Any]] = {"is_namespaced": False}
_TABLE: Final[tuple[tuple[str, str, str, str, Mapping[str, Any]], ...]] = (
    ("", "v1", "Pod", "pods", _STATUS),
    ("", "v1", "Node", "nodes", {**_STATUS, **_CLUSTER}),
    ("", "v1", "Namespace", "namespaces", {**_STATUS, **_CLUSTER}),
    ("", "v1", "Event", "events", {}),
    ("", "v1", "ConfigMap", "configmaps", {}),
    ("", "v1", "Secret", "secrets", {}),
    ("", "v1", "Service", "services", _STATUS),
    ("", "v1", "ServiceAccount", "serviceaccounts", {}),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", {}),
    ("apps", "v1", "DaemonSet", "daemonsets", _STATUS),
    ("apps", "v1", "Deployment", "deployments", _STATUS),
    ("apps", "v1", "ReplicaSet", "replicasets", _STATUS),
    ("apps", "v1", "StatefulSet", "statefulsets", _STATUS),
    ("batch", "v1", "Job", "jobs", _STATUS),
    ("coordination.k8s.io", "v1", "Lease", "leases", {"needs_version": True}),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", {**_STATUS, "needs_version": True}),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", _CLUSTER),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        {**_STATUS, **_CLUSTER, "needs_version": True},
    ),
)


def built_in() -> dict[str, Kind]:
    """Return those that are always there, by their resource."""
    kinds = (Kind(group, version, kind, plural, **more) for group, version, kind, plural, more in _TABLE)
    return {kind.resource: kind for kind in kinds}


BUILT_IN: Final = built_in()
PODS: Final = BUILT_IN["pods"]
NODES: Final = BUILT_IN["nodes"]
NAMESPACES: Final = BUILT_IN["namespaces"]
EVENTS: Final = BUILT_IN["events"]
SERVICE_ACCOUNTS: Final = BUILT_IN["serviceaccounts"]
DAEMON_SETS: Final = BUILT_IN["daemonsets.apps"]
BUDGETS: Final = BUILT_IN["poddisruptionbudgets.policy"]
DEFINITIONS: Final = BUILT_IN["customresourcedefinitions.apiextensions.k8s.io"]


def defined_by(definition: Object) -> Kind:
    """Return the kind that a CustomResourceDefinition adds."""
    spec = definition["spec"]
    version = next(one for one in spec["versions"] if one.get("storage"))
    subresources = version.get("subresources") or {}
    return Kind(
        spec["group"],
        version["name"],
        spec["names"]["kind"],
        spec["names"]["plural"],
        is_namespaced=spec["scope"] == "Namespaced",
        has_status="status" in subresources,
        is_custom=True,
        needs_version=True,
        schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
        scale=subresources.get("scale") or {},
    )


def key_of(found: Object) -> str:
    """Return ``namespace/name``, or ``name`` where there is no namespace."""
    meta = found["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else meta["name"]
