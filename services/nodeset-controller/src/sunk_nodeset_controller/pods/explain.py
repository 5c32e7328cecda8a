"""Why a Slurm node's Pod and its Node are as they are, since when, and what would change it; pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from sunk_events.base import REASON_MAX
from sunk_events.nodesets import KubePodState
from sunk_events.requests import Finding
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.pods.projection import FEATURES_CHARS_MAX, given_features, verification
from sunk_nodeset_controller.slurm_health import StaleReason

FINDINGS_MAX: Final = 32
_CONDEMNED: Final = {
    "update": "the template has changed; the Pod stays if the NodeSet gets the old template again",
    "scale-down": "the NodeSet wants fewer Pods; the Pod stays if spec.replicas grows again",
    "deletion": "its NodeSet is being deleted",
}


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one Slurm node in Kubernetes."""

    state: KubePodState
    """The state on the bus."""
    pod: Pod | None
    node: Node | None
    nodeset: NodeSet | None
    doubt: StaleReason | None = None
    locks: tuple[Finding, ...] = ()
    """The findings about its lock."""


def explain(seen: Explained) -> tuple[Finding, ...]:
    """Return the findings, the most important first."""
    found = (*_pod(seen), *_node(seen), *seen.locks, *_nodeset(seen), *_doubts(seen))
    return tuple(_bounded(one) for one in found[:FINDINGS_MAX])


def _bounded(found: Finding) -> Finding:
    return msgspec.structs.replace(
        found,
        what=found.what[:REASON_MAX],
        because=found.because[:REASON_MAX],
        would_change=found.would_change[:REASON_MAX],
    )


def _pod(seen: Explained) -> Iterator[Finding]:
    state, pod = seen.state, seen.pod
    if pod is None:
        yield Finding(
            what="its Pod is gone",
            since=state.ready_changed,
            because=f"no Pod {state.namespace}/{state.pod} exists",
            would_change="the NodeSet creates it again when the Node fits again",
        )
        return
    why = pod.metadata.annotations.get(wk.ANNOTATION_CONDEMNED)
    if why is not None:
        yield Finding(
            what=f"its Pod is to be deleted: {why}",
            because=_CONDEMNED.get(why, ""),
            would_change="the nodeset-controller deletes it when its Slurm node is drained and idle",
        )
    if given_features(pod) is None:
        yield Finding(
            what=f"the services ignore its features: the annotation {wk.ANNOTATION_FEATURES} is too long",
            because=f"it has more than {FEATURES_CHARS_MAX} characters",
            would_change=f"kubectl annotate pod -n {state.namespace} {state.pod} {wk.ANNOTATION_FEATURES}-",
        )
    if pod.is_terminating:
        since = pod.metadata.deletion_timestamp
        yield Finding(what="its Pod is terminating", since=since, would_change="its containers end")
    elif not state.is_ready:
        yield _unready(state, pod)


def _unready(state: KubePodState, pod: Pod) -> Finding:
    ready = condition(pod.status.conditions, wk.CONDITION_READY)
    because = (ready.message or ready.reason) if ready is not None else f"phase {pod.status.phase}"
    return Finding(
        what="its Pod is not ready",
        since=state.ready_changed,
        because=because,
        would_change=f"slurmd answers on its port: kubectl describe pod -n {state.namespace} {state.pod}",
    )


def _node(seen: Explained) -> Iterator[Finding]:
    state, node = seen.state, seen.node
    if node is None:
        yield Finding(what="its Node is gone", because=f"there is no Node {state.kube_node}")
        return
    ready = condition(node.status.conditions, wk.CONDITION_READY)
    if ready is not None and ready.status != "True":
        since = ready.last_transition_time
        yield Finding(what="its Node is not ready", since=since, because=ready.message or ready.reason)
    if state.is_cordoned:
        yield Finding(
            what="its Node is cordoned",
            because=state.cordon_reason,
            would_change=f"kubectl uncordon {state.kube_node}",
        )
    check = verification(node, seen.pod)
    if check is not None and check.status == "False":
        since = check.last_transition_time
        yield Finding(what="its Node failed its verification", since=since, because=check.message)


def _nodeset(seen: Explained) -> Iterator[Finding]:
    nodeset = seen.nodeset
    if nodeset is None:
        yield Finding(
            what="its NodeSet is gone", because=f"no NodeSet {seen.state.namespace}/{seen.state.nodeset}"
        )
        return
    since = nodeset.metadata.deletion_timestamp
    if since is not None:
        yield Finding(
            what="its NodeSet is being deleted",
            since=since,
            would_change="its last Pod is gone",
        )
    accepted = condition(nodeset.status.conditions, "Accepted")
    if accepted is not None and accepted.status == "False":
        since = accepted.last_transition_time
        yield Finding(
            what="the nodeset-controller refuses its NodeSet", since=since, because=accepted.message
        )


def _doubts(seen: Explained) -> Iterator[Finding]:
    if seen.doubt is not None:
        yield Finding(
            what="the state of Slurm is too old to rely on, or incomplete", because=seen.doubt.message
        )
