"""Which workloads of the charts have Pods that are not ready, and why. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from sunk_ctl.bundle import Json, part, parts
from sunk_ctl.runbook_rules import Symptom

_KIND: Final = {"deployments": "Deployment", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet"}


def unready(workloads: Iterable[tuple[str, Json]], pods: Iterable[Json]) -> list[Symptom]:
    """Return the *workloads* (each after the plural of its kind) that lack Pods, then *pods* that say why."""
    return [*_lacking(workloads), *_waiting(pods)]


def _lacking(workloads: Iterable[tuple[str, Json]]) -> Iterator[Symptom]:
    for kind, found in workloads:
        spec, status = part(found, "spec"), part(found, "status")
        if kind == "daemonsets":
            wanted, ready = status.get("desiredNumberScheduled") or 0, status.get("numberReady") or 0
        else:
            replicas = spec.get("replicas")
            wanted, ready = 1 if replicas is None else replicas, status.get("readyReplicas") or 0
        if ready < wanted or (not wanted and kind != "daemonsets"):
            yield Symptom(
                runbook="",
                what=f"{_KIND[kind]}: {ready} of {wanted} Pods are ready",
                where=_name(found),
                fix="kubectl describe and kubectl logs of its Pods say why."
                if wanted
                else "It has replicas 0. If that is not meant, helm upgrade sets them as in the values.",
            )


def _waiting(pods: Iterable[Json]) -> Iterator[Symptom]:
    for pod in pods:
        if part(pod, "status").get("phase") in {"Succeeded", "Running"} and not _stuck(pod):
            continue
        why = "; ".join([*_stuck(pod), *_unscheduled(pod)]) or str(part(pod, "status").get("phase"))
        yield Symptom(runbook="", what=f"Pod: {why}", where=_name(pod), fix="kubectl describe says more.")


def _stuck(pod: Json) -> list[str]:
    """Return why containers of *pod* wait."""
    status = part(pod, "status")
    found: list[str] = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in parts(status, kind):
            waiting = part(part(one, "state"), "waiting")
            if waiting and waiting.get("reason") not in {"PodInitializing", "ContainerCreating"}:
                words = (f"{one.get('name')}:", waiting.get("reason"), waiting.get("message"))
                found.append(" ".join(str(word) for word in words if word))
    return found


def _unscheduled(pod: Json) -> list[str]:
    return [
        str(one.get("message") or one.get("reason"))
        for one in parts(part(pod, "status"), "conditions")
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]


def _name(found: Json) -> str:
    metadata = part(found, "metadata")
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
