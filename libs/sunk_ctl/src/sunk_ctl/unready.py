"""Which workloads of the charts have Pods that are not ready, and why; whether the view is reached. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from sunk_ctl.bundle import Json, part, parts
from sunk_ctl.runbook_rules import Symptom

_KIND: Final = {"deployments": "Deployment", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet"}
_REACH: Final = (
    "Let the API server reach port 8443 of the Pods of sunk-view, or set view.enabled=false in helm/sunk."
)
_STARTING: Final = frozenset({"PodInitializing", "ContainerCreating"})


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of the charts."""

    workloads: Sequence[tuple[str, Json]] = ()
    """Each after the plural of its kind."""
    pods: Sequence[Json] = ()
    """Those of no NodeSet."""
    nodesets: Sequence[Json] = ()
    apiservices: Sequence[Json] = ()
    """That of the view, if there is one."""


def unready(objects: Objects) -> list[Symptom]:
    """Return workloads and NodeSets that lack Pods, Pods that say why they wait, and a view out of reach."""
    return [
        *_lacking(objects.workloads),
        *_unreached(objects.apiservices),
        *_blocked(objects.nodesets),
        *_waiting(objects.pods),
    ]


def _lacking(workloads: Iterable[tuple[str, Json]]) -> Iterator[Symptom]:
    for kind, found in workloads:
        status = part(found, "status")
        if kind == "daemonsets":
            wanted, ready = status.get("desiredNumberScheduled") or 0, status.get("numberReady") or 0
        else:
            replicas = part(found, "spec").get("replicas")
            wanted, ready = 1 if replicas is None else replicas, status.get("readyReplicas") or 0
        if not wanted and kind != "daemonsets" and not _is_login(found):
            fix = "If you do not want that, helm upgrade sets its replicas as in the values."
            yield _symptom(found, f"{_KIND[kind]}: it has no replicas", fix)
        elif ready < wanted:
            fix = "See kubectl describe and kubectl logs of its Pods."
            yield _symptom(found, f"{_KIND[kind]}: {ready} of {wanted} Pods are ready", fix)
        elif status.get("unavailableReplicas"):
            fix = "Its new Pods are not ready: see kubectl rollout status, describe and logs."
            yield _symptom(found, f"{_KIND[kind]}: an update does not end", fix)


def _is_login(found: Json) -> bool:
    """Return whether the values may have no replicas of *found*."""
    labels = part(part(found, "metadata"), "labels")
    return "login" in str(labels.get("app.kubernetes.io/name", ""))


def _blocked(nodesets: Iterable[Json]) -> Iterator[Symptom]:
    for found in nodesets:
        for one in parts(part(found, "status"), "conditions"):
            if one.get("type") in {"Accepted", "SlurmKnown"} and one.get("status") == "False":
                text = f"NodeSet: {one.get('type')} is False: {one.get('reason')}: {one.get('message')}"
                yield _symptom(found, text, "docs/kubernetes-events.md explains the reason.")


def _unreached(apiservices: Iterable[Json]) -> Iterator[Symptom]:
    """Yield an APIService that the API server does not reach: its Pods may be ready all the same."""
    for found in apiservices:
        for one in parts(part(found, "status"), "conditions"):
            if one.get("type") == "Available" and one.get("status") == "False":
                why = f"{one.get('reason')}: {one.get('message')}"
                what = f"APIService: not available. Kubernetes deletes no namespace meanwhile: {why}"
                yield Symptom(
                    runbook="", what=what, where=str(part(found, "metadata").get("name")), fix=_REACH
                )


def _waiting(pods: Iterable[Json]) -> Iterator[Symptom]:
    for pod in pods:
        why = "; ".join([*_stuck(pod), *_unscheduled(pod)])
        is_over = part(pod, "status").get("phase") in {"Succeeded", "Failed"}
        if why and not is_over:
            yield _symptom(pod, f"Pod: {why}", "See kubectl describe.")


def _stuck(pod: Json) -> list[str]:
    """Return why containers of *pod* wait."""
    found: list[str] = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in parts(part(pod, "status"), kind):
            waiting = part(part(one, "state"), "waiting")
            if waiting and waiting.get("reason") not in _STARTING:
                words = (f"{one.get('name')}:", waiting.get("reason"), waiting.get("message"))
                found.append(" ".join(str(word) for word in words if word))
    return found


def _unscheduled(pod: Json) -> list[str]:
    return [
        str(one.get("message") or one.get("reason"))
        for one in parts(part(pod, "status"), "conditions")
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]


def _symptom(found: Json, what: str, fix: str) -> Symptom:
    metadata = part(found, "metadata")
    where = f"{metadata.get('namespace')}/{metadata.get('name')}"
    return Symptom(runbook="", what=what, where=where, fix=fix)
