"""Pods that their kubelet refused: the next of their owner go to other nodes, for a while and not for ever.

The kubelet knows of what Slurm does not: static Pods, devices that are broken, what other Pods hold. It is
remembered in memory only: a new leader learns it again.

Source: Kubernetes, pkg/kubelet/lifecycle (predicates), the reasons of Pods that were not admitted.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

from sunk_kube.pods import Pod

LASTS: Final = timedelta(minutes=10)
TRIES: Final = 5
"""Refusals of one owner's Pods within `LASTS`, after which the next waits: its owner makes Pods at once."""
OWNERS_MAX: Final = 1000
_REASONS: Final = frozenset(
    {"UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration"}
)
_OUT_OF: Final = "OutOf"
"""And the resource: ``OutOfcpu``."""


def refusal(pod: Pod) -> str:
    """Return why the kubelet has not admitted *pod*; empty if it has, or has not looked at it."""
    status = pod.status
    is_refused = status.reason.startswith(_OUT_OF) or status.reason in _REASONS
    if status.phase != "Failed" or not is_refused:
        return ""
    if any(one.state.terminated for one in (*status.init_container_statuses, *status.container_statuses)):
        return ""  # It ran: its kubelet was started anew, and does not admit it any more.
    return f"{status.reason}: {status.message}" if status.message else status.reason


class KubeletRejections:
    """What kubelets refused, by the Pods' owner."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, list[tuple[datetime, str, str]]] = OrderedDict()
        """When, by which Slurm node, and why; the owner that was heard of last is the last."""

    def note(self, pod: Pod, node: str, why: str, now: datetime) -> None:
        """Remember that *node* refused *pod*."""
        if owner := _owner(pod):
            self._by_owner[owner] = [*self._fresh(owner, now), (now, node, why)]
            self._by_owner.move_to_end(owner)
            if len(self._by_owner) > OWNERS_MAX:
                self._by_owner.popitem(last=False)

    def nodes(self, pod: Pod, now: datetime) -> tuple[str, ...]:
        """Return the Slurm nodes that refused Pods of the same owner lately."""
        return tuple({node: None for _, node, _ in self._fresh(_owner(pod), now) if node})

    def enough(self, pod: Pod, now: datetime) -> str:
        """Return why *pod* is to wait; empty if it may be tried."""
        found = self._fresh(_owner(pod), now)
        moments = sorted({when for when, _, _ in found})  # The Pods of a gang are refused together.
        if len(moments) < TRIES:
            return ""
        return (
            f"kubelets refused {len(found)} Pods of the same owner, the last one on {found[-1][1]}: "
            f"{found[-1][2]}; tried again after {moments[-TRIES] + LASTS:%Y-%m-%d %H:%M:%S %Z}"
        )

    def _fresh(self, owner: str, now: datetime) -> list[tuple[datetime, str, str]]:
        return [one for one in self._by_owner.get(owner, ()) if now - one[0] < LASTS]


def _owner(pod: Pod) -> str:
    """Return whose the Pod is, in its namespace: a reference may name the uid of anybody's object."""
    uid = next((one.uid for one in pod.metadata.owner_references if one.controller), "")
    return f"{pod.metadata.namespace}/{uid}" if uid else ""
