"""What is wrong with an installed SUNK: its workloads, and the figures of its services, by the API server.

What must stay true: nothing is written; a Pod that does not answer is named, for what it would have said is
not known.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from sunk_ctl import figures, runbook_rules
from sunk_ctl.bundle import Json, part, parts
from sunk_ctl.cluster import Cluster
from sunk_ctl.figures import Figures, Reading, Samples
from sunk_ctl.listing import OF_CHARTS, WORKLOADS, items_of, namespaces_of
from sunk_ctl.refusals import NoAnswerError, of_kubernetes
from sunk_ctl.runbook_rules import Symptom
from sunk_ctl.unready import unready
from sunk_kube.resources import PODS
from sunk_kube.wellknown import LABEL_NODESET
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError

METRICS_S: Final = 10.0
PORTS: Final = ("metrics", "http")
"""Names of the container ports that serve figures; the first that a Pod has."""
CLUSTER: Final = "sunk.coreweave.com/cluster"
_COMPONENT: Final = "app.kubernetes.io/name"
_SERVICES: Final = ("syncer", "scheduler", "hook-gateway", "metrics-exporter", "nodeset-controller", "view")
_AT_ONCE: Final = 8


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what could not be looked at."""

    findings: tuple[Symptom, ...]
    not_seen: tuple[str, ...]
    pods: int
    """How many Pods told their figures."""


class _Target(msgspec.Struct, frozen=True):
    """A Pod of a service."""

    namespace: str
    name: str
    cluster: str
    port: int

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}"


async def examined(cluster: Cluster, wanted: Sequence[str], apart_s: float) -> Diagnosis:
    """Return what is wrong in the namespaces *wanted* (none: all in which the charts are).

    Raises:
        NoAnswerError: the charts are in no namespace, or their Pods are not known.
    """
    namespaces = await namespaces_of(cluster, wanted)
    try:
        workloads = [
            (kind, one)
            for namespace in namespaces
            for kind in WORKLOADS
            async for one in items_of(cluster, f"/apis/apps/v1/namespaces/{namespace}/{kind}", OF_CHARTS)
        ]
        pods = [
            one
            for namespace in namespaces
            async for one in items_of(cluster, PODS.path(namespace), OF_CHARTS)
        ]
    except SunkError as error:
        raise of_kubernetes(error, "") from error
    targets = [found for pod in pods if (found := _target(pod)) is not None]
    not_seen: dict[str, str] = {}
    before = await _look(cluster, targets, not_seen)
    await anyio.sleep(apart_s)
    after = await _look(cluster, targets, not_seen)
    readings = [
        Reading(pod=one.pod, cluster=one.cluster, before=before.get(one.pod, {}), now=after[one.pod])
        for one in targets
        if one.pod in after
    ]
    found = Figures(readings=readings, time_s=now().timestamp(), apart_s=apart_s)
    return Diagnosis(
        findings=(*unready(workloads, pods), *runbook_rules.symptoms(found)),
        not_seen=tuple(f"{pod} told nothing: {why}" for pod, why in sorted(not_seen.items())),
        pods=len(readings),
    )


def _target(pod: Json) -> _Target | None:
    """Return where *pod* tells its figures; None: it is of no service, or has ended."""
    metadata = part(pod, "metadata")
    labels = part(metadata, "labels")
    is_service = str(labels.get(_COMPONENT, "")).endswith(_SERVICES) and LABEL_NODESET not in labels
    if not is_service or part(pod, "status").get("phase") != "Running":
        return None
    ports = {
        str(port.get("name", "")): port.get("containerPort")
        for container in parts(part(pod, "spec"), "containers")
        for port in parts(container, "ports")
    }
    found = next((ports[name] for name in PORTS if isinstance(ports.get(name), int)), None)
    if found is None:
        return None
    return _Target(
        str(metadata.get("namespace", "")), str(metadata.get("name", "")), str(labels.get(CLUSTER, "")), found
    )


async def _look(cluster: Cluster, targets: Sequence[_Target], not_seen: dict[str, str]) -> dict[str, Samples]:
    """Return what each of *targets* says now; those that do not answer are *not_seen*."""
    found: dict[str, Samples] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def look(target: _Target) -> None:
        path = PODS.path(target.namespace, f"{target.name}:{target.port}", "proxy/metrics")
        async with limit:
            try:
                text = await cluster.api.send("GET", path, timeout_s=METRICS_S)
                found[target.pod] = figures.read(text.decode(), runbook_rules.SERIES)
                not_seen.pop(target.pod, None)
            except (SunkError, ValueError) as error:
                not_seen[target.pod] = str(
                    of_kubernetes(error, "") if isinstance(error, SunkError) else error
                )

    async with anyio.create_task_group() as tasks:
        for target in targets:
            tasks.start_soon(partial(look, target))
    return found


def require_some(found: Diagnosis) -> None:
    """Raise `NoAnswerError` if no service told anything and nothing else is wrong."""
    if not found.pods and not found.findings:
        why = found.not_seen[0] if found.not_seen else "no Pod of a service runs"
        raise NoAnswerError(f"{why}. It needs the right to get pods/proxy in the namespaces of the charts", 5)
