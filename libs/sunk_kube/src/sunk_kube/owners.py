"""What made an object, by the reference that the object has.

What must stay true: whoever may write an object writes its references, so of these only what is short and
printable is sent on.
"""

from collections.abc import Iterable
from typing import Any, Final

from sunk_kube.objects import KubeObject, ObjectMeta
from sunk_kube.resources import Resource

TEXT_MAX: Final = 253
"""Of each text in a reference: as long as a name may be."""


def controllers_of(one: KubeObject) -> Iterable[tuple[Resource[Any], KubeObject]]:
    """Yield the controller of *one*, as far as an Event can be about that: there is one or none.

    Of the kinds without a group one makes Pods; an Event about a Node would be shown with those of the Node.
    """
    for owner in one.metadata.owner_references:
        texts = owner.api_version, owner.kind, owner.name, owner.uid
        makes_pods = "/" in owner.api_version or owner.kind == "ReplicationController"
        if (
            owner.controller
            and makes_pods
            and all(0 < len(text) <= TEXT_MAX and text.isprintable() for text in texts)
        ):
            group, _, version = owner.api_version.rpartition("/")
            kind = Resource(group=group, version=version, kind=owner.kind, plural="", struct=KubeObject)
            meta = ObjectMeta(name=owner.name, namespace=one.metadata.namespace, uid=owner.uid)
            yield kind, KubeObject(metadata=meta)
