"""Looks at a Kubernetes cluster before helm/slurm is installed: version, rights, storage, Nodes, Pods.

`sunkctl doctor values.yaml`, with `--namespace` (slurm) and `--release` (slurm). It only reads, by the user's
kubeconfig. Each finding says what to do about it. What the chart itself warns of after an install (NOTES.txt)
is said before it, and is no finding. Nor is what the sunk release leaves open to others, or how few servers
its bus has.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import msgspec
import yaml

from sunk_kube.api import Api
from sunk_kube.errors import KubeRejectedError
from sunk_kube.matching import selects, untolerated
from sunk_kube.objects import Node
from sunk_kube.pages import Page
from sunk_kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from sunk_kube.resources import NODES
from sunk_runtime.errors import ConfigError

CHART: Final = Path(__file__).parents[4] / "helm/slurm"
"""In a checkout."""
OLDEST: Final = (1, 31)
RIGHTS: Final = (
    "customresourcedefinitions.apiextensions.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
)
STANDARD: Final = "pod-security.kubernetes.io/enforce"
BEARERS: Final = "sunk-lock-bearers"
EXAMPLE: Final = "helm/sunk/examples/high-availability.yaml"
HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    """The NATS of the sunk release."""

    servers: int
    is_spread: bool
    """Kubernetes puts no two of its servers on one Node."""
    has_tls: bool = False


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What there is."""

    version: tuple[int, int]
    denied: tuple[str, ...] = ()
    """What we may not create."""
    class_is_default: Mapping[str, bool] = {}
    nodes: tuple[Node, ...] = ()
    standard: str = ""
    """Of Pod security, which the namespace enforces; empty: none, or no namespace yet."""
    bearers: tuple[str, ...] = ()
    """What is done with Pods that could stay on locked Nodes; nothing: no policy for them is seen."""
    bus: Bus | None = None
    """None where none is seen: the sunk release is not there, or has another's NATS."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the values ask for."""

    classes: tuple[str, ...] = ()
    """Storage classes; empty text for the default."""
    sets: Mapping[str, PodSpec] = {}
    """What Pods of each NodeSet are."""
    replicas: Mapping[str, int] = {}
    """How many a set wants, where it says so."""
    warnings: tuple[str, ...] = ()
    """What the chart says that users will miss."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be installed, and as what."""

    values: Path
    namespace: str = "slurm"
    release: str = "slurm"
    chart: Path = CHART


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say before an install."""

    remarks: tuple[str, ...]
    """They keep nothing from working."""
    findings: tuple[str, ...]


def findings(cluster: Cluster, wanted: Wanted) -> Iterator[str]:
    """Yield what would keep *wanted* from working on *cluster*, each with what to do."""
    if cluster.version < OLDEST:
        shown = ".".join(map(str, cluster.version))
        yield f"version: Kubernetes {shown} lacks admission policies or sidecars: upgrade to 1.31 or newer"
    for kind in cluster.denied:
        yield f"rights: you may not create {kind}: let an administrator install the charts"
    for name in sorted(set(wanted.classes)):
        if name and name not in cluster.class_is_default:
            known = ", ".join(cluster.class_is_default)
            yield f"storage: there is no StorageClass {name}: name one of {known}"
        if not name and not any(cluster.class_is_default.values()):
            yield "storage: no StorageClass is the default: make one the default, or name one in the values"
    if cluster.standard == "restricted":
        yield f"Pod security: slurmd and sshd start as root: label the namespace {STANDARD}=baseline"
    for name, spec in wanted.sets.items():
        yield from _of_set(cluster, name, spec, wanted.replicas.get(name, 1))


def left_open(cluster: Cluster) -> Iterator[str]:
    """Yield what others may do on *cluster* that they should not, each with how to close it."""
    if "Deny" not in cluster.bearers:
        why = f"the policy {BEARERS} only warns" if cluster.bearers else f"there is no policy {BEARERS}"
        yield (
            f"WARNING: Pods of any tenant can stay on a Node that is locked for a Slurm job: {why}. In the "
            "values of helm/sunk list the namespaces whose daemons stay "
            "(admissionPolicies.lockBearers.namespaces), "
            "then set admissionPolicies.lockBearers.action to Deny"
        )
    if cluster.bus and not cluster.bus.has_tls:
        yield (
            "WARNING: NATS does not encrypt. A program that can read the traffic between Nodes reads the "
            "passwords of the services. Set nats.tls.generate in the values of helm/sunk (docs/security.md, "
            '"TLS of NATS")'
        )


def recommended(cluster: Cluster) -> Iterator[str]:
    """Yield what would keep the bus of *cluster* up where a Node fails."""
    bus = cluster.bus
    if bus is None:
        return
    if bus.servers == 1:
        yield (
            "RECOMMENDED: three NATS servers, each on a Node of its own. The one server has the only copy of "
            "the stored facts; while it restarts, or its Node is away, locks and Pods through Slurm wait. "
            f"Values: {EXAMPLE}; how to add servers: helm/sunk/README.md"
        )
    elif not bus.is_spread:
        yield (
            f"RECOMMENDED: the {bus.servers} NATS servers may be on one Node, and its loss would stop the "
            f"bus: require different Nodes ({EXAMPLE})"
        )


def bus_of(stateful_set: dict[str, Any]) -> Bus:
    """Return what the StatefulSet of NATS says; Kubernetes defines its type."""
    pod = stateful_set["spec"]["template"]["spec"]
    rules = pod.get("affinity", {}).get("podAntiAffinity", {})
    apart = rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    spread = [
        rule
        for rule in pod.get("topologySpreadConstraints", [])
        if rule.get("whenUnsatisfiable") == "DoNotSchedule" and rule.get("maxSkew") == 1
    ]
    is_spread = any(rule.get("topologyKey") == HOSTNAME for rule in (*apart, *spread))
    has_tls = any(volume["name"] == "tls" for volume in pod.get("volumes", []))
    return Bus(servers=stateful_set["spec"]["replicas"], is_spread=is_spread, has_tls=has_tls)


def _of_set(cluster: Cluster, name: str, spec: PodSpec, replicas: int) -> Iterator[str]:
    chosen = [node for node in cluster.nodes if all(selects(one, node) for one in _selectors(spec))]
    fit = [node for node in chosen if not untolerated(spec.tolerations, node.spec.taints)]
    if not chosen:
        yield f"compute.nodes.{name}: no Node matches its nodeSelector and affinity: label some Nodes"
    elif len(fit) < replicas:
        keys = sorted({one.key for node in chosen for one in untolerated(spec.tolerations, node.spec.taints)})
        why = f"{len(chosen) - len(fit)} have taints that it does not tolerate ({', '.join(keys)})"
        yield (
            f"compute.nodes.{name}: wants {replicas} Nodes, and {len(fit)} fit"
            + (f"; {why}: add tolerations" if keys else ": label more Nodes, or set replicas")
        )


def _selectors(spec: PodSpec) -> Iterator[NodeSelector]:
    if spec.node_selector:
        labels = tuple(
            NodeSelectorRequirement(key=key, operator="In", values=(value,))
            for key, value in spec.node_selector.items()
        )
        yield NodeSelector((NodeSelectorTerm(match_expressions=labels),))
    if spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required:
        yield spec.affinity.node_affinity.required


def wanted_of(values: dict[str, Any], release: str, namespace: str, chart: Path = CHART) -> Wanted:
    """Return what *values* ask for, by what the chart makes of them.

    Raises:
        HelmError: The values are refused.
    """
    loaded = helm.Chart.load(chart)
    loaded.validate_schema(values)
    texts = loaded.render(values, name=release, namespace=namespace)
    notes = "".join(texts.pop(path) for path in [*texts] if path.endswith("NOTES.txt"))
    ours = [text for path, text in texts.items() if not path.endswith("/extra-objects.yaml")]
    found = [one for text in ours for one in yaml.safe_load_all(text) if one]
    sets = {
        one["metadata"]["name"].removeprefix(f"{release}-"): one["spec"]
        for one in found
        if one["kind"] == "NodeSet"
    }
    claims = [claim for one in found for claim in one.get("spec", {}).get("volumeClaimTemplates", [])]
    return Wanted(
        classes=tuple(claim["spec"].get("storageClassName", "") for claim in claims),
        sets={name: msgspec.convert(spec["template"]["spec"], PodSpec) for name, spec in sets.items()},
        replicas={name: spec["replicas"] for name, spec in sets.items() if "replicas" in spec},
        warnings=tuple(" ".join(part.split()) for part in notes.split("\n\n") if part.startswith("WARNING:")),
    )


async def cluster_of(api: Api, namespace: str) -> Cluster:
    """Return what the API server says.

    Raises:
        SunkError: it refuses, or does not answer.
    """
    server = msgspec.json.decode(await api.send("GET", "/version"))
    classes = await _items(api, "/apis/storage.k8s.io/v1/storageclasses")
    labels = {one.metadata.name: one.metadata.labels for one in await _objects(api, "/api/v1/namespaces")}
    return Cluster(
        version=(int(server["major"]), int(server["minor"].rstrip("+"))),
        denied=tuple([kind for kind in RIGHTS if not await _may_create(api, kind)]),
        class_is_default={
            one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"
            for one in classes
        },
        nodes=tuple(await _objects(api, NODES.path())),
        standard=labels.get(namespace, {}).get(STANDARD, ""),
        bearers=await _bearers(api),
        bus=await _bus(api),
    )


async def _bus(api: Api) -> Bus | None:
    query = {"labelSelector": "app.kubernetes.io/name=sunk-nats"}
    try:
        found = await _items(api, "/apis/apps/v1/statefulsets", query)
    except KubeRejectedError:  # We may not read them.
        return None
    return bus_of(found[0]) if found else None


async def _bearers(api: Api) -> tuple[str, ...]:
    kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    try:
        found = msgspec.json.decode(await api.send("GET", f"{kind}/{BEARERS}"))
    except KubeRejectedError:  # It is not there, or we may not read it, or the API server is too old.
        return ()
    return tuple(found["spec"].get("validationActions", ()))


async def _may_create(api: Api, kind: str) -> bool:
    resource, _, group = kind.partition(".")
    attributes = {"verb": "create", "group": group, "resource": resource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(msgspec.json.decode(await api.send("POST", path, body=body))["status"]["allowed"])


async def _items(api: Api, path: str, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(await api.send("GET", path, query=query))["items"])


async def _objects(api: Api, path: str) -> list[Node]:
    return msgspec.json.decode(await api.send("GET", path), type=Page[Node]).items or []


async def examined(api: Api, given: Given) -> Examined:
    """Return what is found before an install of *given*.

    Raises:
        ConfigError: the values cannot be read, or the chart refuses them.
        SunkError: the API server refuses, or does not answer.
    """
    try:
        values: dict[str, Any] = msgspec.convert(
            yaml.safe_load(given.values.read_text()) or {}, dict[str, Any]
        )
        wanted = wanted_of(values, given.release, given.namespace, given.chart)
    except (OSError, ValueError, yaml.YAMLError, helm.HelmError) as error:
        raise ConfigError(f"{given.values}: {error}") from error
    cluster = await cluster_of(api, given.namespace)
    return Examined(
        remarks=(*wanted.warnings, *left_open(cluster), *recommended(cluster)),
        findings=tuple(findings(cluster, wanted)),
    )
