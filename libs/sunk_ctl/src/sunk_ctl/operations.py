"""What `drain`, `undrain` and `reboot` change of a Node, or why they do not. Pure.

What must stay true: a cordon that somebody else gave a reason is neither replaced nor ended unasked; no
reboot is asked for while Slurm may run a job there, Pods run there, or what is known of that may be old.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from sunk_ctl.refusals import NOT_FOUND, NOT_NOW, REFUSED, NoAnswerError
from sunk_events.view import NodeRow, Nodes
from sunk_kube import wellknown as wk
from sunk_kube.objects import Node, condition
from sunk_kube.pods import Pod
from sunk_runtime.near import near

REASON_CHARS: Final = 200
VERIFY: Final = "verify-undrain"
"""The syncer ends a drain whose reason has this word, once the Node is verified."""
FRESH: Final = timedelta(seconds=75)
"""How old Slurm's answer may be: the syncer asks a quiet Slurm for its nodes once a minute."""
OLD: Final = timedelta(minutes=5)
"""A condition of a Node that was not looked at for longer may be wrong."""
SOME: Final = 5
"""Of Pods, so many are named."""
LEFT_ALONE: Final = frozenset({"DaemonSet", "Node", "NodeSet"})
"""Whose Pods come and go with their Node: also static Pods, and slurmd's own."""
NAME_CHARS: Final = 80
"""Of a name that is wrong, so much is repeated."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A patch of one Node, of the version that was read."""

    body: dict[str, Any]
    subresource: str = ""


class Acted(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a node."""

    action: str
    """``drain``, ``undrain`` or ``reboot``."""
    cluster: str
    node: str
    """Slurm's name of it."""
    kube_node: str
    is_changed: bool
    """False: it was so already."""
    is_dry_run: bool = False
    reason: str = ""
    """Why the Node is cordoned or was; of a reboot, why it is asked for."""
    notes: tuple[str, ...] = ()
    """What does not become as asked, and what to do about it."""


def reason_of(text: str) -> str:
    """Return the reason that *text* gives. Raises `NoAnswerError` for what can be none."""
    reason = text.strip(" ")
    if not reason:
        raise _usage("--reason: give a reason, in a few words")
    if len(reason) > REASON_CHARS:
        raise _usage(f"--reason: has {len(reason)} characters; at most {REASON_CHARS} are allowed")
    if odd := [letter for letter in reason if not letter.isprintable()]:
        raise _usage(f"--reason: has the control character {odd[0]!a}; give one line of printable text")
    if VERIFY in reason:
        raise _usage(f"--reason: {VERIFY} would make the syncer end the drain by itself; choose other words")
    return reason


def chosen(name: str, by_name: Node | None, by_label: Iterable[Node]) -> Node | None:
    """Return the Node that *name* means: its own name, or that of the Slurm node on it.

    Raises:
        NoAnswerError: it means several, or a Node without a Slurm node.
    """
    found = {node.metadata.name: node for node in (*((by_name,) if by_name else ()), *by_label)}
    if len(found) > 1:
        others = ", ".join(sorted(found))
        raise _usage(f"NODE: {name} matches several Nodes: {others}. Give the name of the Node")
    node = next(iter(found.values()), None)
    if node is not None and not slurm_name(node):
        message = f"NODE: the Node {name} has no Slurm node; use kubectl to cordon and uncordon it"
        raise NoAnswerError(message, NOT_FOUND)
    return node


def unknown(name: str, nodes: Iterable[Node]) -> NoAnswerError:
    """Return that no node is called *name*, with the names that are near."""
    known = [one for node in nodes if slurm_name(node) for one in (node.metadata.name, slurm_name(node))]
    found = near(name, known)
    hint = f": did you mean {', '.join(found)}?" if found else ""
    return NoAnswerError(f"NODE: no node {name[:NAME_CHARS]} is known{hint}", NOT_FOUND)


def slurm_name(node: Node) -> str:
    """Return the name of the Slurm node on *node*; nothing if there is none."""
    return node.metadata.labels.get(wk.LABEL_POD, "")


def drain(node: Node, reason: str, *, is_overwrite: bool) -> Change | None:
    """Return the cordon of *node* with *reason*; None: it is there.

    Raises:
        NoAnswerError: it is cordoned for another reason, which stays unless *is_overwrite*.
    """
    before = cordon_reason(node)
    if node.spec.unschedulable and before == reason:
        return None
    if node.spec.unschedulable and not is_overwrite:
        message = f"{node.metadata.name} is cordoned already: {before or 'no reason given'}. --overwrite"
        raise NoAnswerError(f"{message} replaces that reason", 1)
    return _change(node, reason, is_unschedulable=True)


def replaced(node: Node, reason: str) -> tuple[str, ...]:
    """Return that `drain` replaces a reason without a cordon, as `kubectl uncordon` leaves it."""
    before = cordon_reason(node)
    if node.spec.unschedulable or before in {"", reason}:
        return ()
    return (f"{node.metadata.name} had a reason without a cordon, which this one replaces: {before}",)


def undrain(node: Node, reason: str, *, is_any: bool) -> Change | None:
    """Return the end of the cordon of *node*; None: there is none.

    Args:
        node: As it was read.
        reason: Only a cordon for this reason ends; empty: only one without a reason.
        is_any: Any cordon ends.

    Raises:
        NoAnswerError: it is cordoned for another reason.
    """
    before = cordon_reason(node)
    if not node.spec.unschedulable:  # A reason without a cordon is somebody's, if it is not this one.
        return _change(node, None, is_unschedulable=None) if reason and before == reason else None
    if before != reason and not is_any:
        what = "another reason" if reason else "a reason"
        ways = "--reason with this text ends it, --any ends any cordon"
        why = f"because the cordon has {what}: {before or 'none given'}"
        raise NoAnswerError(f"{node.metadata.name} stays cordoned, {why}. {ways}", 1)
    return _change(node, None, is_unschedulable=None)


def reboot(node: Node, reason: str, kind: str, word: str, now: datetime) -> Change | None:
    """Return the condition of type *kind* and reason *word* that asks for a reboot; None: it is there."""
    found = condition(node.status.conditions, kind)
    if found is not None and (found.status, found.reason) == ("True", word):
        return None
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = {
        "type": kind,
        "status": "True",
        "reason": word,
        "message": f"sunkctl requested a reboot of {slurm_name(node)}: {reason}",
        "lastTransitionTime": moment,
        "lastHeartbeatTime": moment,
    }
    return Change(body=_of(node) | {"status": {"conditions": [wanted]}}, subresource="status")


def require_idle(node: Node, found: Nodes) -> None:
    """Raise `NoAnswerError` unless it is known that *node* is cordoned, drained and runs no job."""
    kube, name = node.metadata.name, slurm_name(node)
    cluster = node.metadata.labels.get(wk.LABEL_CLUSTER, "")
    other = "or let Slurm wait for its jobs: scontrol reboot ASAP nextstate=RESUME reason=TEXT " + name
    if not node.spec.unschedulable:
        raise NoAnswerError(f"{kube} is not cordoned: sunkctl drain {name} --reason TEXT first, {other}", 1)
    if old := [problem for problem in found.problems if problem.startswith(f"{cluster}: ")]:
        raise NoAnswerError(f"it is not known whether {name} runs a job: {old[0]}", NOT_NOW)
    row = next(
        (row for row in found.items if (row.cluster, row.node, row.kube_node) == (cluster, name, kube)), None
    )
    if row is None or not row.state:
        raise NoAnswerError(f"it is not known whether {name} runs a job: Slurm does not report it", NOT_NOW)
    if why := _not_fresh(row, found):
        raise NoAnswerError(f"it is not known yet whether {name} runs a job: {why}. Try again", NOT_NOW)
    if not row.is_drain:
        raise NoAnswerError(f"{name} is not drained in Slurm yet. Try again in some seconds", NOT_NOW)
    if row.is_busy or row.lock not in {"", "false"}:
        raise NoAnswerError(f"jobs still run on {name}, or its lock is held. Wait, {other}", 1)


def _not_fresh(row: NodeRow, found: Nodes) -> str:
    """Return why Slurm's answer may be older than the cordon, or is old; empty: it is neither."""
    seen = found.slurm_seen.get(row.cluster)
    if seen is None or found.time is None:
        return "sunk-view does not know when Slurm answered"
    if not row.is_cordoned or row.kube_since is None:
        return "the services have not seen the cordon"
    if seen <= row.kube_since:
        return "Slurm has not answered since the cordon"
    if (age := found.time - seen) > FRESH:
        return f"Slurm answered {age.total_seconds():.0f} s ago; the syncer asks an idle Slurm once a minute"
    return ""


def require_no_pods(node: Node, pods: Iterable[Pod]) -> None:
    """Raise `NoAnswerError` if of *pods*, all those on *node*, some would be lost with it."""
    found = sorted(pod.key for pod in pods if _is_lost(pod))
    if not found:
        return
    more = f" and {len(found) - SOME} more" if len(found) > SOME else ""
    names = ", ".join(found[:SOME])
    message = (
        f"Pods run on {node.metadata.name}: {names}{more}. kubectl drain moves them, "
        "--force reboots without this check"
    )
    raise NoAnswerError(message, 1)


def _is_lost(pod: Pod) -> bool:
    if pod.status.phase in {"Succeeded", "Failed"}:
        return False
    owners = pod.metadata.owner_references
    return not any(owner.controller and owner.kind in LEFT_ALONE for owner in owners)


def pods_unknown(node: Node, why: str) -> NoAnswerError:
    """Return that it is not known which Pods run on *node*."""
    name = node.metadata.name
    role = "kubectl create clusterrole NAME --verb=list --resource=pods"
    message = (
        f"it is not known which Pods run on {name}: {why}. Needs {role}; --force reboots without this check"
    )
    return NoAnswerError(message, REFUSED)


def slurms_own(node: Node, now: datetime) -> tuple[str, ...]:
    """Return that Slurm has a drain of its own there, which no change of the Node lifts."""
    found = condition(node.status.conditions, wk.CONDITION_SLURM_CORDON)
    name = slurm_name(node)
    looked = found.last_heartbeat_time if found is not None else None
    is_old = looked is not None and now - looked > OLD
    if found is None or found.status == "Unknown" or is_old:
        return (f"it is not known now whether Slurm's administrators have drained {name}",)
    if found.status != "True":
        return ()
    lift = f"scontrol update nodename={name} state=undrain"
    why = found.message[:REASON_CHARS]
    return (f"a drain of Slurm's administrators stays: {why}. To end it in Slurm: {lift}",)


def cordon_reason(node: Node) -> str:
    """Return the reason that *node*'s cordon was given."""
    return node.metadata.annotations.get(wk.ANNOTATION_CORDON_REASON, "")


def _change(node: Node, reason: str | None, *, is_unschedulable: bool | None) -> Change:
    body = _of(node)
    body["metadata"]["annotations"] = {wk.ANNOTATION_CORDON_REASON: reason}
    return Change(body=body | {"spec": {"unschedulable": is_unschedulable}})


def _of(node: Node) -> dict[str, Any]:
    """Return a patch that holds for *node* as it was read only."""
    meta = node.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}


def _usage(message: str) -> NoAnswerError:
    return NoAnswerError(message, 2)
