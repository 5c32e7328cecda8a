"""Whether Slurm can use the node of a Pod: so a template is known to work before it reaches the next; pure.

What must stay true: a node that somebody took out of service before its Pod was made says nothing of the
Pod's template, and holds up no update; nor does a drain of ours, which Kubernetes' side asked for. What was
so when the Pod was made is noted on it in slurmctld's own words, whatever its clock is off the API server's.
"""

from datetime import datetime, timedelta
from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.bodies import second_time
from sunk_kube.pods import Pod
from sunk_slurm.down_reasons import PREFIX, down_reason

NOT_KNOWN: Final = "Slurm does not know it"
NOT_REGISTERED: Final = "its slurmd has not registered"
SKEW: Final = timedelta(seconds=60)
"""A Node's clock, and slurmctld's, may be so far behind the API server's."""
_IN_USE: Final = frozenset({"IDLE", "ALLOCATED", "MIXED"})
_BAD_FLAGS: Final = ("INVALID_REG", "NOT_RESPONDING")
_NO_ANSWER: Final = "Not responding"
"""slurmctld's own reason of a node whose slurmd does not answer."""


def unusable(pod: Pod, slurm: SlurmNodeState | None) -> str:
    """Return why Slurm, which is heard, cannot use the node of *pod*, in words; nothing if it can."""
    if slurm is None:
        return NOT_KNOWN
    if _is_formers(pod, slurm):
        return NOT_REGISTERED
    word = next((flag for flag in _BAD_FLAGS if flag in slurm.flags), "")
    if not word and slurm.state not in _IN_USE:
        word = "" if _is_set_down(pod, slurm) else slurm.state
    if not word and slurm.is_drain and not slurm.reason.startswith(PREFIX):
        word = "" if _is_older(slurm.reason_changed, pod) else "drained"
    return f"{word}: {slurm.reason}" if word and slurm.reason else word


def noted(slurm: SlurmNodeState | None) -> dict[str, str]:
    """Return the annotations that a new Pod bears of its node as it is: since when it is out of service."""
    is_out = slurm is not None and (slurm.is_drain or slurm.state not in _IN_USE)
    if slurm is None or not is_out or slurm.reason_changed is None:
        return {}
    return {wk.ANNOTATION_REASON_CHANGED: second_time(slurm.reason_changed)}


def _is_formers(pod: Pod, slurm: SlurmNodeState) -> bool:
    """Whether Slurm still says what the slurmd of an earlier Pod told it, which is silent by now."""
    created, started = pod.metadata.creation_timestamp, slurm.slurmd_started
    return created is not None and started is not None and started < created - SKEW


def _is_set_down(pod: Pod, slurm: SlurmNodeState) -> bool:
    """Whether somebody set the node down before *pod* was made; the syncer and a silent slurmd are nobody."""
    why = down_reason(slurm.reason)
    is_by_hand = bool(why) and not why.startswith((PREFIX, _NO_ANSWER))
    return slurm.state == "DOWN" and is_by_hand and _is_older(slurm.reason_changed, pod)


def _is_older(changed: datetime | None, pod: Pod) -> bool:
    """Whether what is of *changed* was so when *pod* was made; what has no date may always have been so."""
    created = pod.metadata.creation_timestamp
    if changed is None or created is None or changed < created - SKEW:
        return True
    return pod.metadata.annotations.get(wk.ANNOTATION_REASON_CHANGED) == second_time(changed)
