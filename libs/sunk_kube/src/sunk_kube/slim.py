"""What a view keeps of an object: what is read of it, and nothing whose size others choose.

Structs name what is read, so managed fields, images and environment are not even decoded. What is left
without a bound are annotations of other people, of which an object may have 256 KiB: long ones are dropped;
and tolerations, of which a Pod may have a hundred thousand: the first ones are kept.
Measured (`test_slim`): 9 KiB for a NodeSet Pod, 14 KiB for a Node with 40 labels and 16 conditions.
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from sunk_kube.objects import KubeObject, Pod
from sunk_kube.wellknown import PREFIX

T = TypeVar("T", bound=KubeObject)

TOLERATIONS_MAX: Final = 1000
"""Of a Pod; it is asked at many looks whether one of them bears a taint."""
LONGEST: Final = 4096
"""Characters of an annotation that is not ours; nobody reads one that is longer."""


def slim(found: T) -> T:
    """Return *found* without the long annotations of others, and with no more tolerations than are read."""
    if isinstance(found, Pod) and len(found.spec.tolerations) > TOLERATIONS_MAX:
        tolerations = found.spec.tolerations[:TOLERATIONS_MAX]
        found = replace(found, spec=replace(found.spec, tolerations=tolerations))
    annotations = found.metadata.annotations
    long = [name for name, value in annotations.items() if len(value) > LONGEST and PREFIX not in name]
    if not long:
        return found
    kept = {name: value for name, value in annotations.items() if name not in long}
    return replace(found, metadata=replace(found.metadata, annotations=kept))
