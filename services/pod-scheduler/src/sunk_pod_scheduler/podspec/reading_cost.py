"""How much of the processor reading a Pod takes: others have their turn while a large gang is read."""

import math
from collections.abc import Mapping
from typing import Final

from sunk_kube.pods import Pod
from sunk_kube.wellknown import PREFIX

SLICE: Final = 100
"""What may be read without a pause: so many Pods that are as they were."""
ANEW: Final = 8
"""The same of Pods that are read anew."""
CONTAINERS: Final = 64
"""The same of their containers: a Pod may have hundreds, which takes some milliseconds."""
_LISTS: Final = (f"{PREFIX}required-nodes", f"{PREFIX}excluded-nodes")


def reading_cost(pod: Pod) -> int:
    """Return what reading *pod* anew counts of `SLICE`: a list of nodes is as much as may be."""
    annotations = pod.metadata.annotations
    if any("[" in annotations.get(name, "") for name in _LISTS):
        return SLICE
    containers = len(pod.spec.containers) + len(pod.spec.init_containers)
    return max(math.ceil(SLICE / ANEW), math.ceil(containers * SLICE / CONTAINERS))


def in_reading_order(pods: Mapping[str, Pod]) -> list[tuple[str, Pod]]:
    """Return *pods* with those on Nodes first, and last those that can take no seat.

    The first have the room that a gang has for lists of nodes.
    """
    return sorted(pods.items(), key=lambda one: _order(one[1]))


def _order(pod: Pod) -> int:
    if pod.spec.node_name:
        return 0
    return 2 if pod.is_over or pod.is_terminating or pod.spec.scheduling_gates else 1
