"""The kinds of objects that we talk to the API server about: where they live, and the struct of each."""

import re
from typing import Final, Generic, TypeVar

import msgspec

from sunk_kube.errors import KubeRejectedError
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import ControllerRevision, NodeSet
from sunk_kube.objects import ConfigMap, KubeObject, Lease, Node, Secret
from sunk_kube.pods import Pod
from sunk_kube.wellknown import GROUP

T = TypeVar("T", bound=KubeObject)

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?", re.ASCII)


def is_name(text: str) -> bool:
    """Whether an object can be called so: a slash or a question mark would ask for something else.

    Users write names that the API server does not check, such as those of owners.
    """
    return _NAME.fullmatch(text) is not None


class Resource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One kind of object."""

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    is_namespaced: bool = True
    struct: type[T]
    keeps_json: bool = False
    """Its objects hold JSON as the bytes that came, which must never change. See `bodies.yaml`."""

    @property
    def api_version(self) -> str:
        """As manifests spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object, or of a sub-resource of it.

        Raises:
            KubeRejectedError: no object can have that name or namespace. The API server is not asked.
        """
        for text in filter(None, (namespace, name)):
            if not is_name(text):
                raise KubeRejectedError(f"{self.kind} {text[:80]!r}: not a name of Kubernetes", status=400)
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


PODS: Final = Resource(kind="Pod", plural="pods", struct=Pod)
NODES: Final = Resource(kind="Node", plural="nodes", is_namespaced=False, struct=Node)
NAMESPACES: Final = Resource(kind="Namespace", plural="namespaces", is_namespaced=False, struct=KubeObject)
EVENTS: Final = Resource(kind="Event", plural="events", struct=KubeObject)
LEASES: Final = Resource(group="coordination.k8s.io", kind="Lease", plural="leases", struct=Lease)
NODESETS: Final = Resource(group=GROUP, version="v1alpha1", kind="NodeSet", plural="nodesets", struct=NodeSet)
NODESLICES: Final = Resource(
    group=GROUP, version="v1alpha1", kind="NodeSlice", plural="nodeslices", struct=NodeSlice
)
CONFIG_MAPS: Final = Resource(kind="ConfigMap", plural="configmaps", struct=ConfigMap)
SECRETS: Final = Resource(kind="Secret", plural="secrets", struct=Secret)
CONTROLLER_REVISIONS: Final = Resource(
    group="apps",
    kind="ControllerRevision",
    plural="controllerrevisions",
    struct=ControllerRevision,
    keeps_json=True,
)
DISRUPTION_BUDGETS: Final = Resource(
    group="policy", kind="PodDisruptionBudget", plural="poddisruptionbudgets", struct=KubeObject
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    is_namespaced=False,
    struct=KubeObject,
)
