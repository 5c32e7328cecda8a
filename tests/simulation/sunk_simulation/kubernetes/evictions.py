# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Evictions, and the budgets that forbid them.

Source: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go and pkg/controller/disruption.
"""

import math
from typing import Any, Final

from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.kinds import BUDGETS, PODS, Object
from sunk_simulation.kubernetes.registry import Registry
from sunk_simulation.kubernetes.selectors import by_selector
from sunk_simulation.kubernetes.store import Stored

_TARGET: Final = "DisruptionTarget"


def evict(registry: Registry, key: str, body: Object) -> None:
    """Delete a Pod, unless its budget forbids it."""
    found = registry.get(PODS, key)
    options: Object = body.get("deleteOptions") or {}
    uid = (options.get("preconditions") or {}).get("uid") or ""
    if uid and uid != found.meta["uid"]:
        raise pods.precondition(found.meta["name"], uid, found.meta["uid"])
    is_dry_run = bool(options.get("dryRun"))
    if not _is_free(found):
        _take(registry, found, is_dry_run=is_dry_run)
    if is_dry_run:
        return
    disrupt(registry, key, reason="EvictionByEvictionAPI", message="Eviction API: evicting")
    registry.delete(PODS, key, uid=found.meta["uid"], grace_s=options.get("gracePeriodSeconds"))


def disrupt(registry: Registry, key: str, *, reason: str, message: str) -> None:
    """Say on a Pod why it is about to be deleted."""
    condition = {
        "type": _TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": registry.moment(),
    }

    def change(pod: Object) -> Object:
        if pod["metadata"].get("deletionTimestamp") is None:
            pods.set_condition(pod, condition)
        return pod

    registry.update(PODS, key, change, manager="kube-apiserver", subresource="status", is_patch=True)


def budgets_of(registry: Registry, pod: Stored) -> list[Stored]:
    """Return the budgets that a Pod counts for."""
    labels = pod.meta.get("labels") or {}
    return [
        one
        for one in registry.store.of(BUDGETS.resource).values()
        if one.meta["namespace"] == pod.meta["namespace"]
        and by_selector(one.object["spec"].get("selector"))(labels)
    ]


def _is_free(pod: Stored) -> bool:
    """Whether no budget is asked about it."""
    is_pending = pod.object["status"]["phase"] == "Pending"
    return is_pending or pods.is_over(pod.object) or "deletionTimestamp" in pod.meta


def _take(registry: Registry, pod: Stored, *, is_dry_run: bool) -> None:
    """Take the Pod from its budget."""
    budgets = budgets_of(registry, pod)
    if len(budgets) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise StatusError("InternalError", text)
    for budget in budgets:
        spec, status = budget.object["spec"], budget.object.get("status") or {}
        if not pods.is_ready(pod.object):
            if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
                continue
        name = budget.meta["name"]
        if status.get("observedGeneration", 0) < budget.meta["generation"]:
            why = f"The disruption budget {name} is still being processed by the server."
            raise _forbids(why, retry_after_s=10)
        if status.get("disruptionsAllowed", 0) <= 0:
            raise _forbids(
                f"The disruption budget {name} needs {status.get('desiredHealthy')} healthy pods"
                f" and has {status.get('currentHealthy')} currently"
            )
        if not is_dry_run:
            _count(registry, budget, pod.meta["name"])


def _forbids(why: str, *, retry_after_s: int = 0) -> StatusError:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError("TooManyRequests", text, fields={"": why}, retry_after_s=retry_after_s)


def _count(registry: Registry, budget: Stored, pod: str) -> None:
    def change(found: Object) -> Object:
        status = found["status"]
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: registry.moment()}
        return found

    key = f"{budget.meta['namespace']}/{budget.meta['name']}"
    registry.update(BUDGETS, key, change, subresource="status", is_patch=True)


def status_of(registry: Registry, budget: Stored) -> Object:
    """Return what a budget allows, by the Pods that there are."""
    spec = budget.object["spec"]
    matches = by_selector(spec.get("selector"))
    counted = [
        one
        for one in registry.store.of(PODS.resource).values()
        if one.meta["namespace"] == budget.meta["namespace"]
        and matches(one.meta.get("labels") or {})
        and not pods.is_over(one.object)
    ]
    was: Object = (budget.object.get("status") or {}).get("disruptedPods") or {}
    by_name = {one.meta["name"]: one for one in counted}
    disrupted = {
        name: when
        for name, when in was.items()
        if name in by_name and "deletionTimestamp" not in by_name[name].meta
    }
    healthy = sum(
        pods.is_ready(one.object)
        and "deletionTimestamp" not in one.meta
        and one.meta["name"] not in disrupted
        for one in counted
    )
    expected, desired = _expected(registry, spec, counted)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return {
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "observedGeneration": budget.meta["generation"],
        **({"disruptedPods": disrupted} if disrupted else {}),
    }


def _expected(registry: Registry, spec: Object, counted: list[Stored]) -> tuple[int, int]:
    """Return how many Pods there should be, and how many of them must stay."""
    least = spec.get("minAvailable")
    if isinstance(least, int):
        return len(counted), least
    expected = _scale(registry, counted)
    if least is not None:
        return expected, _share(least, expected)
    return expected, max(0, expected - _share(spec.get("maxUnavailable", 0), expected))


def _share(value: Any, of: int) -> int:
    return value if isinstance(value, int) else math.ceil(of * int(value.removesuffix("%")) / 100)


def _scale(registry: Registry, counted: list[Stored]) -> int:
    """Return how many Pods their controllers want; those of nobody count for nothing."""
    owners = {
        one["uid"]: one
        for pod in counted
        for one in pod.meta.get("ownerReferences") or ()
        if one.get("controller")
    }
    kinds = {kind.kind: kind for kind in registry.kinds().values()}
    total = 0
    for uid, owner in owners.items():
        kind = kinds.get(owner["kind"])
        found = (
            registry.store.get(kind.resource, f"{counted[0].meta['namespace']}/{owner['name']}")
            if kind
            else None
        )
        if found is not None and found.meta["uid"] == uid:
            total += found.object["spec"].get("replicas") or 0
    return total
