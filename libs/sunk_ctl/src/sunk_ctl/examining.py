"""What is wrong with an installed SUNK: its workloads, and the figures of its services, by the API server.

What must stay true: nothing is written; a Pod that does not answer is named, for what it would have said is
not known.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import msgspec

from sunk_ctl import figures, runbook_rules
from sunk_ctl.bundle import Json, part, parts
from sunk_ctl.cluster import Cluster
from sunk_ctl.figures import Figures, Look, Reading
from sunk_ctl.listing import OF_CHARTS, WORKLOADS, answer_of, items_of, namespaces_of
from sunk_ctl.refusals import NOT_FOUND, REFUSED, NoAnswerError, of_kubernetes, of_reading
from sunk_ctl.runbook_rules import Symptom
from sunk_ctl.unready import Objects, unready
from sunk_events.view import GROUP, VERSION
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.resources import NODESETS, PODS
from sunk_kube.wellknown import LABEL_NODESET
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError

METRICS_S: Final = 10.0
SERVICES: Final = frozenset(
    f"sunk-{name}"
    for name in ("syncer", "scheduler", "hook-gateway", "metrics-exporter", "nodeset-controller", "view")
)
"""The label by which the charts name them."""
_PORTS: Final = ("metrics", "http")
"""Names of the container ports that serve figures; the first that a Pod has."""
_CLUSTER: Final = "sunk.coreweave.com/cluster"
_NAME: Final = "app.kubernetes.io/name"
_OWN: Final = {"labelSelector": f"{OF_CHARTS['labelSelector']},!{LABEL_NODESET}"}
"""Selects Pods of the charts that are of no NodeSet: there may be thousands of those."""
_AT_ONCE: Final = 8
_APISERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
_VIEW: Final = {"fieldSelector": f"metadata.name={VERSION}.{GROUP}"}
_SELF: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what could not be looked at."""

    findings: tuple[Symptom, ...]
    not_seen: tuple[str, ...]
    is_refused: bool = False
    """The user may not see some of that."""
    pods: int
    """How many Pods told their figures."""


class _Target(msgspec.Struct, frozen=True):
    """A Pod of a service."""

    namespace: str
    name: str
    service: str
    cluster: str
    port: int

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Looking:
    """Asks Pods for their figures."""

    def __init__(self, cluster: Cluster, ahead_s: float) -> None:
        self._cluster = cluster
        self._ahead_s = ahead_s
        self.failed: dict[_Target, NoAnswerError] = {}
        """At the last look."""

    async def look(self, targets: Sequence[_Target]) -> dict[_Target, Look]:
        """Return what each of *targets* says now."""
        found: dict[_Target, Look] = {}
        self.failed = {}
        limit = anyio.CapacityLimiter(_AT_ONCE)

        async def ask(target: _Target) -> None:
            path = PODS.path(target.namespace, f"{target.name}:{target.port}", "proxy/metrics")
            async with limit:
                try:
                    text = await self._cluster.api.send("GET", path, timeout_s=METRICS_S)
                    samples = figures.read(text.decode(), runbook_rules.SERIES)
                    found[target] = Look(self.time_s(), samples)
                except SunkError as error:
                    self.failed[target] = of_reading(error)
                except ValueError as error:
                    self.failed[target] = NoAnswerError(f"its metrics cannot be read: {error}", 1)

        async with anyio.create_task_group() as tasks:
            for target in targets:
                tasks.start_soon(partial(ask, target))
        return found

    def time_s(self) -> float:
        """Return the API server's time, in seconds of the epoch: our clock may be off."""
        return now().timestamp() + self._ahead_s


async def examined(cluster: Cluster, wanted: Sequence[str], apart_s: float) -> Diagnosis:
    """Return what is wrong in the namespaces *wanted* (none: all in which the charts are).

    Raises:
        NoAnswerError: the charts are in no namespace, or their workloads and Pods are not known.
    """
    namespaces = await namespaces_of(cluster, wanted)
    missing: dict[str, NoAnswerError] = {}
    try:
        workloads = [
            (kind, one)
            for namespace in namespaces
            for kind in WORKLOADS
            async for one in items_of(cluster, f"/apis/apps/v1/namespaces/{namespace}/{kind}", OF_CHARTS)
        ]
        pods = [
            one for namespace in namespaces async for one in items_of(cluster, PODS.path(namespace), _OWN)
        ]
    except SunkError as error:
        raise of_kubernetes(error, "") from error
    if not workloads:
        raise NoAnswerError(f"no release of the charts in {', '.join(namespaces)}", NOT_FOUND)
    paths = [NODESETS.path(namespace) for namespace in namespaces]
    nodesets = await _some(cluster, "NodeSets", paths, None, missing)
    apiservices = await _some(cluster, "APIService of sunk-view", [_APISERVICES], _VIEW, missing)
    bounds = await _bounds(cluster, missing)
    targets = [found for pod in pods if (found := _target(pod)) is not None]
    looking = _Looking(cluster, await _ahead_s(cluster))
    before = await looking.look(targets)
    await anyio.sleep(apart_s)
    after = await looking.look(targets)
    readings = [
        Reading(pod=one.pod, service=one.service, cluster=one.cluster, before=before.get(one), now=after[one])
        for one in targets
        if one in after
    ]
    silent = frozenset((one.cluster, one.service) for one in looking.failed)
    seen = Figures(readings=readings, time_s=looking.time_s(), silent=silent)
    missing |= {one.pod: why for one, why in looking.failed.items()}
    objects = Objects(workloads=workloads, pods=pods, nodesets=nodesets, apiservices=apiservices)
    return Diagnosis(
        findings=(*unready(objects), *runbook_rules.symptoms(seen, bounds)),
        not_seen=tuple(f"{what}: {why}" for what, why in sorted(missing.items())),
        is_refused=any(why.status == REFUSED for why in missing.values()),
        pods=len(readings),
    )


async def _some(
    cluster: Cluster,
    what: str,
    paths: Sequence[str],
    query: dict[str, str] | None,
    missing: dict[str, NoAnswerError],
) -> list[Json]:
    """Return what is listed at *paths*: of a kind that does not exist nothing. What fails is *missing*."""
    found: list[Json] = []
    for path in paths:
        try:
            found += [one async for one in items_of(cluster, path, query)]
        except KubeNotFoundError:
            continue
        except SunkError as error:
            missing[what] = of_reading(error)
    return found


async def _bounds(cluster: Cluster, missing: dict[str, NoAnswerError]) -> dict[str, float]:
    """Return the bounds of the installed alerts, wherever they are."""
    what = "PrometheusRules (without them the limits of the charts apply)"
    path = "/apis/monitoring.coreos.com/v1/prometheusrules"
    found: dict[str, float] = {}
    for one in await _some(cluster, what, [path], OF_CHARTS, missing):
        for group in parts(part(one, "spec"), "groups"):
            found |= runbook_rules.bounds(parts(group, "rules"))
    return found


async def _ahead_s(cluster: Cluster) -> float:
    """Return how far the API server's clock is ahead of ours; 0 where it does not say.

    Source: a SelfSubjectReview is stored nowhere, and has the time at which it was answered.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = await answer_of(cluster, _SELF, body=body)
        moment = datetime.fromisoformat(str(part(found, "metadata").get("creationTimestamp", "")))
        return (moment - now()).total_seconds()
    except (SunkError, ValueError, TypeError):
        return 0.0


def _target(pod: Json) -> _Target | None:
    """Return where *pod* tells its figures; None: it is of no service, or does not run."""
    metadata = part(pod, "metadata")
    labels = part(metadata, "labels")
    service = str(labels.get(_NAME, ""))
    if (
        service not in SERVICES
        or part(pod, "status").get("phase") != "Running"
        or "deletionTimestamp" in metadata
    ):
        return None
    ports = {
        str(port.get("name", "")): port.get("containerPort")
        for container in parts(part(pod, "spec"), "containers")
        for port in parts(container, "ports")
    }
    found = next((ports[name] for name in _PORTS if isinstance(ports.get(name), int)), None)
    if found is None:
        return None
    where = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    return _Target(*where, service, str(labels.get(_CLUSTER, "")), found)
