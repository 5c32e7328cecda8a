"""Which Pods say that they are daemons, and what proves it; pure.

What must stay true: what a tenant can write on its own Pod proves nothing. The API server does not check a
Pod's ownerReferences.

Source: Kubernetes API, ObjectMeta (ownerReferences); "Static Pods": a kubelet does not run a mirror Pod, and
deletes one whose file it does not have; the API server lets nobody add or remove the annotation later.
"""

from typing import Final

import msgspec

from sunk_kube.objects import OwnerReference
from sunk_kube.pods import Pod
from sunk_kube.resources import is_name

MIRROR: Final = "kubernetes.io/config.mirror"
_UID_MAX: Final = 36
"""Characters of a uid that the API server makes. It does not check an owner's, which may have a million."""


class DaemonClaim(msgspec.Struct, frozen=True):
    """The DaemonSet that a Pod names as its controller: proven where there is one of that uid."""

    namespace: str
    """The Pod's own: no owner is in another."""
    name: str
    uid: str

    @property
    def is_possible(self) -> bool:
        """Whether a DaemonSet can have this name and uid at all."""
        return is_name(self.name) and 0 < len(self.uid) <= _UID_MAX


def daemon_claim(pod: Pod) -> DaemonClaim | None:
    """Return the DaemonSet whose Pod *pod* says to be; None: it says no such thing."""
    owner = _controller(pod)
    if owner is None or owner.kind != "DaemonSet" or not owner.api_version.startswith("apps/"):
        return None
    return DaemonClaim(pod.metadata.namespace, owner.name, owner.uid)


def is_static(pod: Pod) -> bool:
    """Whether *pod* shows one that its kubelet has from a file."""
    owner = _controller(pod)
    return owner is not None and owner.kind == "Node" and MIRROR in pod.metadata.annotations


def _controller(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)
