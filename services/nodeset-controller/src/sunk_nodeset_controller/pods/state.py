"""A NodeSet Pod and its Node, as their state on the bus. Pure.

What must stay true: a Pod whose object is gone keeps a state, ``gone``, while its NodeSet wants its
Node, or while Slurm may still have jobs there. These jobs are lost, and must be requeued at once. A Pod
whose Node was deleted must go, whatever its kubelet still runs. What cannot be known, because the Node
is not there, stays as it was.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from sunk_events.nodesets import KubePodState
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.nodesets.plan import ORPHAN, is_wanted
from sunk_nodeset_controller.nodesets.template import features, pinned_node, template_hash
from sunk_nodeset_controller.nodesets.topology import NO_TOPOLOGY, Topology, node_topology
from sunk_nodeset_controller.pods.projection import cordon_reason, given_features, shown, verified

Phase = Literal["waiting", "running", "terminating", "gone"]
LOST_NODE: Final = "its Node was deleted"


class PodObserved(msgspec.Struct, frozen=True, kw_only=True):
    """What is observed of the Pod of one Slurm node. It must be built from complete views only."""

    pod: Pod | None
    node: Node | None
    """The Node that the Pod is or was pinned to; None: the API server has none of that name."""
    nodeset: NodeSet | None
    before: KubePodState | None
    is_member: bool = True
    """The NodeSet still has the Node; only complete views can say no."""
    may_run: bool = False
    """Slurm has jobs on the node, or has not answered yet."""
    lock_key: str
    topology: Topology = NO_TOPOLOGY
    now: datetime


def state(seen: PodObserved) -> KubePodState | None:
    """Return the state that belongs on the bus; None: no state."""
    if seen.pod is not None:
        return _present(seen, seen.pod)
    if seen.before is None:
        return None
    is_awaited = seen.is_member and is_wanted(seen.nodeset, seen.node, seen.lock_key)
    if not is_awaited and not seen.may_run:
        return None
    gone = msgspec.structs.replace(
        seen.before,
        phase="gone",
        gone_uid="",
        is_ready=False,
        is_condemned=False,
        pod_address="",
        conditions=(),
    )
    return _dated(
        _with_node(msgspec.structs.replace(gone, ready_changed=_ready_changed(gone, seen)), seen), seen
    )


def _present(seen: PodObserved, pod: Pod) -> KubePodState:
    meta = pod.metadata
    phase = _phase(pod)
    found = KubePodState(
        changed=seen.now,
        pod=meta.name,
        namespace=meta.namespace,
        nodeset=meta.labels.get(wk.LABEL_NODESET, ""),
        kube_node=pinned_node(pod),
        uid=meta.uid,
        phase=phase,
        gone_uid=_gone_before(seen.before, pod) if phase == "waiting" else "",
        is_ready=pod.is_ready and phase == "running",
        is_condemned=wk.ANNOTATION_CONDEMNED in meta.annotations or _has_lost_node(pod, seen.node),
        pod_address=pod.status.pod_ip,
        features=given_features(pod) or (),
        is_nodeset_deleted=_is_leaving(seen),
        conditions=shown(pod.status.conditions),
    )
    return _dated(
        _with_node(msgspec.structs.replace(found, ready_changed=_ready_changed(found, seen)), seen), seen
    )


def _gone_before(before: KubePodState | None, pod: Pod) -> str:
    """Return the Pod that had the name before *pod*; nothing where there was none.

    One of that name in another namespace may be there still, and its slurmd with it.
    """
    if before is None or before.namespace != pod.metadata.namespace:
        return ""
    return before.uid if before.uid != pod.metadata.uid else before.gone_uid


def _ready_changed(found: KubePodState, seen: PodObserved) -> datetime:
    """Return since when the Pod is ready or not: the kubelet's time, if the kubelet agrees."""
    ready = condition(seen.pod.status.conditions, wk.CONDITION_READY) if seen.pod is not None else None
    if ready is not None and (ready.status == "True") == found.is_ready and ready.last_transition_time:
        return ready.last_transition_time
    before = seen.before
    if before is not None and before.uid == found.uid and before.is_ready == found.is_ready:
        return before.ready_changed or before.changed
    return seen.now


def _is_leaving(seen: PodObserved) -> bool:
    """Whether the Pod's NodeSet is being deleted, and takes the Pod with it."""
    if seen.nodeset is None:  # Gone, and what it said last was its will.
        return seen.before is not None and seen.before.is_nodeset_deleted
    meta = seen.nodeset.metadata
    return meta.deletion_timestamp is not None and ORPHAN not in meta.finalizers


def condemned_for(pod: Pod | None, nodeset: NodeSet | None, node: Node | None) -> str:
    """Return why *pod* must be deleted; empty if it need not."""
    if pod is None:
        return ""
    why = pod.metadata.annotations.get(wk.ANNOTATION_CONDEMNED, "")
    if why == "update" and nodeset is not None:
        return f"update to revision {template_hash(nodeset)}"
    return why or (LOST_NODE if _has_lost_node(pod, node) else "")


def _has_lost_node(pod: Pod, node: Node | None) -> bool:
    """Whether the Node of *pod* was deleted, or is being: Kubernetes removes the Pod, if only later."""
    if not pinned_node(pod):
        return False
    return node is None or node.metadata.deletion_timestamp is not None


def _phase(pod: Pod) -> Phase:
    """Return the Pod's phase. One that has ended is on its way out: its slurmd never comes back."""
    if pod.is_terminating or pod.is_over:
        return "terminating"
    return "running" if pod.status.phase == "Running" else "waiting"


def _with_node(found: KubePodState, seen: PodObserved) -> KubePodState:
    node, before = seen.node, seen.before
    if node is None:
        if before is None or before.uid != found.uid:
            return found
        return msgspec.structs.replace(
            found,
            is_cordoned=before.is_cordoned,
            cordon_reason=before.cordon_reason,
            hpc_verified=before.hpc_verified,
            node_conditions=before.node_conditions,
            topology=before.topology,
        )
    reason = cordon_reason(node)
    labels = node.metadata.labels
    return msgspec.structs.replace(
        found,
        is_cordoned=bool(reason),
        cordon_reason=reason,
        hpc_verified=verified(node, seen.pod),
        node_conditions=shown(node.status.conditions),
        features=features(seen.nodeset.spec.features, labels) if seen.nodeset else found.features,
        topology=node_topology(seen.topology, labels),
    )


def _dated(found: KubePodState, seen: PodObserved) -> KubePodState:
    """Return *found* with the moments at which it began, which are before now if nothing has changed."""
    found = msgspec.structs.replace(found, ready_changed=_ready_changed(found, seen))
    if seen.before is None:
        return msgspec.structs.replace(found, changed=seen.now)
    as_before = msgspec.structs.replace(found, changed=seen.before.changed)
    return as_before if as_before == seen.before else msgspec.structs.replace(found, changed=seen.now)
