"""From a NodeSet and a Node to the Pod that runs its slurmd there; pure.

The template is passed on as it is. Ours are: name, owner, labels, the one Node it is pinned to, the
tolerations of the lock and of a DaemonSet, so that no outage of the API server ends jobs, and what the
template leaves open: small requests, the environment of slurmd, readiness by slurmd's own port, and the
hostname, which is the Pod's name. With a ``subdomain`` that is a headless Service's name, DNS then knows
each Pod by its Slurm node's name: Kubernetes publishes a Pod's name only where ``hostname`` is set.

Requests are small on purpose: what jobs use is Slurm's to count, and a slurmd that asked Kubernetes for its
whole Node would leave no room for the Pods that Slurm places there; where a request is missing Kubernetes
takes the limit for it. GPUs are never asked for.

Source: SUNK's documents, NodeSet, "Pod creation"; Kubernetes, DaemonSet, "Taints and tolerations".
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import Features, NodeSet
from sunk_kube.objects import KubeStruct, Node
from sunk_kube.pods import Pod, PodSpec, Toleration
from sunk_kube.quantity import number
from sunk_nodeset_controller.nodesets.owners import owner_reference

Manifest = dict[str, Any]
"""A Pod to be. ``Any``, because a template has every shape."""

_EVERY: Final = (
    (wk.TAINT_NOT_READY, "NoExecute"),
    (wk.TAINT_UNREACHABLE, "NoExecute"),
    (wk.TAINT_DISK_PRESSURE, "NoSchedule"),
    (wk.TAINT_MEMORY_PRESSURE, "NoSchedule"),
    (wk.TAINT_PID_PRESSURE, "NoSchedule"),
    (wk.TAINT_UNSCHEDULABLE, "NoSchedule"),
)
"""What a DaemonSet's Pods bear."""
_WITHOUT_NETWORK: Final = (wk.TAINT_NETWORK_UNAVAILABLE, "NoSchedule")
"""What those bear besides that have their Node's own network."""

SMALL: Final = {"cpu": "100m", "memory": "256Mi"}
"""What a container requests that does not say how much."""
SLURMD_PORT: Final = "slurmd"
"""The name of the container port whose answer is readiness, where the template has no readinessProbe."""
_ENVIRONMENT: Final = (
    ("SUNK_NODE", "metadata.name"),
    ("SUNK_KUBE_NODE", "spec.nodeName"),
    ("SUNK_NAMESPACE", "metadata.namespace"),
    ("SUNK_POD_IP", "status.podIP"),
    ("SUNK_CLUSTER", f"metadata.labels['{wk.LABEL_CLUSTER}']"),
    ("SUNK_NODESET", f"metadata.labels['{wk.LABEL_NODESET}']"),
    ("SUNK_FEATURES", f"metadata.annotations['{wk.ANNOTATION_FEATURES}']"),
)
"""Variables that every container has, and the field of its Pod that each shows."""


class _Named(KubeStruct, frozen=True):
    name: str = ""


class _PreparedContainer(KubeStruct, frozen=True):
    """What `manifest` reads of a container besides what every Pod is read for."""

    env: tuple[_Named, ...] | None = None
    ports: tuple[_Named, ...] | None = None


class _Containers(KubeStruct, frozen=True):
    containers: tuple[_PreparedContainer, ...] = ()
    init_containers: tuple[_PreparedContainer, ...] = ()


def pod_spec(nodeset: NodeSet, lock_key: str) -> PodSpec:
    """Return what the set's Pods ask for, the tolerations that we add included.

    Raises:
        msgspec.ValidationError: the template is no Pod's spec; the text names the field.
    """
    spec = msgspec.convert(nodeset.spec.template.spec, PodSpec)
    msgspec.convert(nodeset.spec.template.spec, _Containers)
    return msgspec.structs.replace(
        spec, tolerations=(*spec.tolerations, *_added(lock_key, spec.host_network))
    )


def _added(lock_key: str, is_host_network: object) -> tuple[Toleration, ...]:
    return Toleration(key=lock_key, operator="Exists"), *daemon_tolerations(is_host_network)


def daemon_tolerations(is_host_network: object) -> tuple[Toleration, ...]:
    """Return what Kubernetes adds to the tolerations of a DaemonSet's Pods."""
    tolerated = (*_EVERY, _WITHOUT_NETWORK) if is_host_network else _EVERY
    return tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in tolerated)


def template_hash(nodeset: NodeSet) -> str:
    """Return what tells two templates apart."""
    canonical = msgspec.json.encode(nodeset.spec.template, order="sorted")
    return hashlib.sha256(canonical).hexdigest()[:16]


def features(wanted: Features, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Slurm features of a node on a Node with *labels*, sorted."""
    dynamic = (
        feature.prefix + labels[name] for name, feature in wanted.dynamic_features.items() if labels.get(name)
    )
    return tuple(sorted({*wanted.static_features, *dynamic}))


def pod_labels(nodeset: NodeSet) -> dict[str, str]:
    """Return the labels by which the set's Pods are known."""
    return {
        wk.LABEL_NODESET: nodeset.metadata.name,
        wk.LABEL_CLUSTER: nodeset.spec.cluster,
        wk.LABEL_ROLE: wk.ROLE_COMPUTE,
    }


def manifest(nodeset: NodeSet, node: Node, name: str, lock_key: str) -> Manifest:
    """Return the Pod *name* of *nodeset* on *node*."""
    given = nodeset.spec.template
    meta = nodeset.metadata
    annotations = {
        **given.metadata.get("annotations", {}),
        wk.ANNOTATION_FEATURES: ",".join(features(nodeset.spec.features, node.metadata.labels)),
        wk.ANNOTATION_TEMPLATE_HASH: template_hash(nodeset),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {**given.metadata.get("labels", {}), **pod_labels(nodeset), wk.LABEL_PROTECTED: "true"},
            "annotations": annotations,
            "ownerReferences": [{**owner_reference(nodeset), "blockOwnerDeletion": True}],
        },
        "spec": {"hostname": name} | _pinned(given.spec, node.metadata.name, lock_key),
    }


def _pinned(spec: Mapping[str, Any], kube_node: str, lock_key: str) -> Manifest:
    made = dict(spec)  # What is changed below is made anew: the template itself stays as it is.
    by_name = {"key": "metadata.name", "operator": "In", "values": [kube_node]}
    made["affinity"] = {
        **made.get("affinity", {}),
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [by_name]}]
            }
        },
    }
    added = _plain(_added(lock_key, made.get("hostNetwork")))
    made["tolerations"] = [*made.get("tolerations", ()), *added]
    made["restartPolicy"] = "Always"
    for kind in ("initContainers", "containers"):
        if kind in made:
            is_shared, ends = bool(made.get("resources")), kind == "initContainers"
            made[kind] = [_furnished(one, is_shared=is_shared, may_end=ends) for one in made[kind]]
    return made


def _furnished(container: Mapping[str, Any], *, is_shared: bool, may_end: bool) -> Manifest:
    """Return *container* with what its template leaves open.

    *is_shared*: what to ask for, the Pod says. *may_end*: it is an init container; without
    ``restartPolicy: Always`` Kubernetes takes no probe of it.
    """
    made = dict(container)
    given: list[Manifest] = made.get("env") or []
    names = {one.get("name") for one in given}
    own = [(name, path) for name, path in _ENVIRONMENT if name not in names]
    made["env"] = [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in own),
        *given,
    ]
    if not is_shared:
        made["resources"] = _small_requests(made.get("resources") or {})
    is_served = not may_end or made.get("restartPolicy") == "Always"
    if (
        is_served
        and "readinessProbe" not in made
        and SLURMD_PORT in {one.get("name") for one in made.get("ports", [])}
    ):
        made["readinessProbe"] = {"tcpSocket": {"port": SLURMD_PORT}, "periodSeconds": 5}
    return made


def _small_requests(given: Mapping[str, Any]) -> Manifest:
    """Return the resources of a container: small requests where *given* has none, whatever its limits."""
    limits: Manifest = given.get("limits") or {}
    requests: Manifest = given.get("requests") or {}
    small = {
        name: limits[name] if name in limits and number(limits[name]) < number(amount) else amount
        for name, amount in SMALL.items()
    }
    return {**given, "requests": {**small, **requests}}


def _plain(tolerations: Iterable[Toleration]) -> list[Manifest]:
    return [msgspec.to_builtins(one) for one in tolerations]


def pinned_node(pod: Pod) -> str:
    """Return the Node that *pod* is bound or pinned to, or nothing."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""


def with_variable(made: Manifest, name: str, value: str) -> Manifest:
    """Return the Pod *made*, with a variable for each of its containers."""
    variable = {"name": name, "value": value}
    spec = dict(made["spec"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [{**one, "env": [variable, *one["env"]]} for one in spec[kind]]
    return {**made, "spec": spec}


def with_topology(made: Manifest, topology: str) -> Manifest:
    """Return the Pod *made*, with the variable by which slurmd learns its place in the *topology*."""
    return with_variable(made, "SUNK_NODE_TOPOLOGY", topology) if topology else made
