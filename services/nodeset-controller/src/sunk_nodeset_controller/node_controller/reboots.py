"""Reboots that were asked for: a condition on the Node, which the platform's own tools act upon.

What must stay true: only a Slurm cluster that may do things to Nodes gets one; asked again it is the same
condition. A state may outlive its Pod, and its Node may be another's by then: only the Node of a Pod that is
there, and by its own labels that Pod's, is rebooted. Taking the condition away is the platform's part: while
it stands, a reboot is still to come.

Source: SUNK's documents, "Syncer", reboot hook.
"""

import logging
from typing import Final

import msgspec

from sunk_events.base import Reply
from sunk_events.nodesets import KubePodState
from sunk_events.requests import Later, Noted, RebootNode, Refused
from sunk_kube.objects import Condition, Node
from sunk_kube.reflector import Reflector
from sunk_kube.wellknown import CONDITION_PHASE_STATE, LABEL_CLUSTER, LABEL_POD
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.metadata import MetadataPatch, cut, patch
from sunk_nodeset_controller.reasons import NodeReason
from sunk_runtime.clock import now
from sunk_runtime.views import StateView

log = logging.getLogger(__name__)

VALUE: Final = "syncer.nodePermissions.enabled"
"""What a Slurm cluster's values must say, by the documents' name."""


class RebootSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a reboot is asked for in one Slurm cluster."""

    is_permitted: bool = False
    """Whether the cluster may have Nodes rebooted."""
    condition: str = CONDITION_PHASE_STATE
    reason: str = NodeReason.POWER_RESET


class Reboots:
    """Answers questions for reboots of the Nodes of one Slurm cluster."""

    def __init__(
        self,
        nodes: Reflector[Node],
        pods: StateView[KubePodState],
        kube: FencedKube,
        settings: RebootSettings,
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._kube = kube
        self._settings = settings

    async def answer(self, request: RebootNode) -> Reply:
        """Put the condition on the Node and say that it stands there.

        Raises:
            ConflictError: the Node has changed, or another one has its name by now: ask again.
            KubeUnavailableError: the API server does not answer.
        """
        cluster = self._pods.cluster
        if not self._settings.is_permitted:
            return Refused(
                code="forbidden", reason=f"Slurm cluster {cluster} may not reboot Nodes: set {VALUE}"
            )
        self._pods.require_settled()  # It names the Node.
        self._nodes.require_complete()
        pod = self._pods.get(request.node)
        if pod is None and request.node not in self._pods.undecodable:
            return Refused(code="unknown_node", reason=f"no NodeSet has a node {request.node}")
        node = self._nodes.get(pod.kube_node) if pod is not None else None
        if pod is None or node is None:
            return Later(reason=f"the Node of {request.node} is not known")
        if (refusal := _refusal(cluster, request.node, pod, node)) is not None:
            return refusal
        wanted = Condition(
            type=self._settings.condition,
            status="True",
            reason=self._settings.reason,
            message=cut(f"{request.who} requested a reboot of {request.node}"),
        )
        body = patch(node.metadata, node.status.conditions, MetadataPatch(conditions=(wanted,)), now())
        if body is not None:
            # The labels may have changed since: the write holds for the Node that was looked at.
            body["metadata"] = {"resourceVersion": node.metadata.resource_version}
            await self._kube.mark_node(node, body)
            fields = {"node": request.node, "kube_node": node.metadata.name, "who": request.who}
            log.info("reboot requested", extra=fields)
        return Noted()


def _refusal(cluster: str, name: str, pod: KubePodState, node: Node) -> Reply | None:
    """Return why *node*, which the state of the Slurm node *name* names, is not rebooted for it; None: it is.

    Labels are written a moment after a Pod is made, so with a Pod that is there they may be late.
    """
    kube_node, labels = node.metadata.name, node.metadata.labels
    owner = labels.get(LABEL_CLUSTER, ""), labels.get(LABEL_POD, "")
    is_gone, is_owner = pod.phase == "gone", owner == (cluster, name)
    if is_owner and is_gone:
        return Later(
            reason=f"the Pod of {name} is gone: Node {kube_node} is rebooted when it has the next Pod"
        )
    if is_owner:
        return None
    other = f"is {'/'.join(owner)}'s" if all(owner) else "has no Slurm node"
    if is_gone:
        return Refused(
            code="unknown_node", reason=f"{name} has no Pod, and its former Node {kube_node} {other}"
        )
    return Later(reason=f"by its labels, Node {kube_node} of {name} {other}; the labels may be late")
