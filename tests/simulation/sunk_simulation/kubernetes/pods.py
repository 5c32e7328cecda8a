# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What the API server makes of Pods: defaults, what may change, how they are bound and deleted; pure."""

from typing import Any, Final

from sunk_simulation.kubernetes.errors import StatusError, conflict
from sunk_simulation.kubernetes.kinds import PODS, Object

GRACE_S: Final = 30
EVICT_AFTER_S: Final = 300
"""How long a Pod that says nothing else stays on a Node that is not ready, or cannot be reached."""
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_CHANGEABLE: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "containers",
        "initContainers",
        "schedulingGates",
        "terminationGracePeriodSeconds",
        "tolerations",
    }
)


def with_defaults(pod: Object) -> Object:
    """Return *pod* with all that it does not say."""
    spec: Object = pod.setdefault("spec", {})
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", GRACE_S),
        ("dnsPolicy", "ClusterFirst"),
        ("serviceAccountName", "default"),
        ("schedulerName", "default-scheduler"),
        ("enableServiceLinks", True),
        ("preemptionPolicy", "PreemptLowerPriority"),
    ):
        spec.setdefault(name, value)
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = "default"
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    priority = spec.get("priorityClassName") or ""
    spec["priority"] = PRIORITIES.get(priority, 0)
    if not priority:
        spec.pop("priorityClassName", None)
    with_tolerations(pod)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        _with_requests(container)
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if spec.get("nodeName"):
        _condition(pod, "PodScheduled", "True")
    return pod


def with_tolerations(pod: Object) -> None:
    """Have *pod* bear for a while that its Node is not ready, as admission does whenever it is written."""
    tolerations = list(pod["spec"].get("tolerations") or [])
    for key in (NOT_READY, UNREACHABLE):
        taint = {"key": key, "effect": "NoExecute"}
        if not any(tolerates(one, taint) for one in tolerations):
            tolerations.append({**taint, "operator": "Exists", "tolerationSeconds": EVICT_AFTER_S})
    pod["spec"]["tolerations"] = tolerations


def _with_requests(container: Object) -> None:
    resources: Object = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def wrong(pod: Object) -> dict[str, str]:
    """Return what is wrong with a new Pod, by field."""
    spec, found = pod["spec"], dict[str, str]()
    if not spec.get("containers"):
        found["spec.containers"] = "Required value"
    for index, container in enumerate(spec.get("containers") or ()):
        found |= {
            f"spec.containers[{index}].{name}": "Required value"
            for name in ("name", "image")
            if not container.get(name)
        }
    found |= _unmounted(spec)
    priority = spec.get("priorityClassName")
    if priority and priority not in PRIORITIES:
        found["spec.priorityClassName"] = f"no PriorityClass with name {priority} was found"
    return found


def _unmounted(spec: Object) -> dict[str, str]:
    """Return what containers mount that their Pod does not have, by field."""
    volumes = {one["name"] for one in spec.get("volumes") or ()}
    return {
        f"spec.{kind}[{index}].volumeMounts[{number}].name": f'Not found: "{mount["name"]}"'
        for kind in ("initContainers", "containers")
        for index, container in enumerate(spec.get(kind) or ())
        for number, mount in enumerate(container.get("volumeMounts") or ())
        if mount["name"] not in volumes
    }


def wrong_change(before: Object, after: Object) -> dict[str, str]:
    """Return what may not change so, by field."""
    was, becomes = before["spec"], after["spec"]
    fixed = {name: _shape(name, was.get(name)) for name in was.keys() | becomes.keys()}
    if fixed != {name: _shape(name, becomes.get(name)) for name in fixed}:
        return {
            "spec": "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, …"
        }
    kept = [{**one, "tolerationSeconds": 0} for one in becomes.get("tolerations") or []]
    if any({**one, "tolerationSeconds": 0} not in kept for one in was.get("tolerations") or []):
        return {"spec.tolerations": "Forbidden: existing toleration can not be modified"}
    return {}


def _shape(name: str, value: Any) -> Any:
    """Return what must stay of a field of a Pod's spec."""
    if name in {"containers", "initContainers"}:
        return [{**one, "image": "", "resources": None} for one in value or ()]
    return None if name in _CHANGEABLE else value or None


def bound(pod: Object, binding: Object) -> Object:
    """Return *pod* bound as *binding* says.

    Raises:
        StatusError: it is bound already, another, in another version, or on its way out.
    """
    meta, spec = pod["metadata"], pod["spec"]
    name = meta["name"]
    uid = binding["metadata"].get("uid")
    if uid and uid != meta["uid"]:
        raise precondition(name, uid, meta["uid"])
    if binding["metadata"].get("resourceVersion", meta["resourceVersion"]) not in {
        "",
        meta["resourceVersion"],
    }:
        raise _not_bound(name, "was changed")
    if meta.get("deletionTimestamp"):
        raise _not_bound(name, "is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _not_bound(name, f'is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _not_bound(name, "has non-empty .spec.schedulingGates")
    spec["nodeName"] = binding["target"]["name"]
    meta.setdefault("annotations", {}).update(binding["metadata"].get("annotations") or {})
    _condition(pod, "PodScheduled", "True")
    return pod


def _not_bound(name: str, why: str) -> StatusError:
    return StatusError(
        "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} {why}'
    )


def precondition(name: str, wanted: str, found: str) -> StatusError:
    """Return that the Pod is another one."""
    return conflict(
        PODS, name, f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )


def grace_s(pod: Object, asked: int | None) -> int:
    """Return how long a Pod that is deleted may take: one that runs nowhere takes no time."""
    spec = pod["spec"]
    if not spec.get("nodeName") or is_over(pod):
        return 0
    seconds = spec["terminationGracePeriodSeconds"] if asked is None else asked
    return 1 if seconds < 0 else seconds


def is_over(pod: Object) -> bool:
    """Whether it has succeeded or failed."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """Whether it says that it is ready."""
    return _status(pod, "Ready") == "True"


def _status(found: Object, kind: str) -> str:
    for one in found["status"].get("conditions") or ():
        if one["type"] == kind:
            return one["status"]
    return ""


def _condition(found: Object, kind: str, status: str, **more: str) -> None:
    set_condition(found, {"type": kind, "status": status, **more})


def set_condition(found: Object, condition: Object) -> bool:
    """Put a condition into an object; return whether that changed anything."""
    conditions: list[Object] = found["status"].setdefault("conditions", [])
    for index, one in enumerate(conditions):
        if one["type"] == condition["type"]:
            was = {name: one.get(name) for name in condition if name != "lastTransitionTime"}
            if was == {name: value for name, value in condition.items() if name != "lastTransitionTime"}:
                return False
            kept = one if one["status"] == condition["status"] else {}
            conditions[index] = {
                **condition,
                **(
                    {"lastTransitionTime": kept["lastTransitionTime"]} if "lastTransitionTime" in kept else {}
                ),
            }
            return True
    conditions.append(condition)
    return True


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration bears a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case _:
            return bool(toleration.get("key")) and (toleration.get("value") or "") == (
                taint.get("value") or ""
            )


def unborne(pod: Object, taints: list[Object], *effects: str) -> list[Object]:
    """Return those of *taints*, of these effects, that the Pod does not bear."""
    tolerations = pod["spec"].get("tolerations") or []
    return [
        taint
        for taint in taints
        if taint["effect"] in effects and not any(tolerates(one, taint) for one in tolerations)
    ]
