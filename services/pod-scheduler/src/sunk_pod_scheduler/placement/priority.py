"""Which of many waiting Pods comes first: by priority, then by age; and how often each of them comes."""

import zlib
from datetime import datetime
from math import log10
from typing import Final

from sunk_kube.pods import Pod

AHEAD_MAX_S: Final = 50.0
"""Of any Pod; one whose caller waits for an answer comes before all of them."""
LOOKS_PER_S: Final = 20.0
"""At jobs that wait, about, all together: thousands may."""
_BY_PRIORITY_S: Final = 5.0
_BY_AGE_S: Final = 0.1
"""For each power of ten, of the priority and of the age in seconds."""


def priority_s(pod: Pod, now: datetime) -> float:
    """Return by how much *pod* comes before a new one without priority."""
    created = pod.metadata.creation_timestamp
    age_s = 0.0 if created is None else max(0.0, (now - created).total_seconds())
    weight = _BY_PRIORITY_S * log10(1 + max(0, pod.spec.priority or 0)) + _BY_AGE_S * log10(1 + age_s)
    return min(weight, AHEAD_MAX_S)


def requeue_after_s(after_s: float, uid: str, known: int) -> float:
    """Return when to look again at a job that waits, one of *known* at most: never at all of them at once."""
    share = zlib.crc32(uid.encode()) / (1 << 32)
    return after_s + share * known / LOOKS_PER_S
