"""The templates that a NodeSet has had, kept as ControllerRevisions so that one can go back.

What must stay true: the present template has a revision before a Pod is made of it, and the highest number,
also when it is an old one that came back; a revision that a Pod was made of stays; of the others the newest
stay, as many as the limit says.

Source: Kubernetes, DaemonSet, ``revisionHistoryLimit``.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.errors import KubeExistsError, KubeRejectedError
from sunk_kube.nodesets import REVISIONS, ControllerRevision, NodeSet
from sunk_kube.resources import CONTROLLER_REVISIONS
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.nodesets.model import Observed
from sunk_nodeset_controller.nodesets.owners import is_orphan_of, is_owned, owner_reference
from sunk_nodeset_controller.nodesets.template import template_hash

log = logging.getLogger(__name__)


class Revisions:
    """Keeps the history. It is looked at when what it depends on changes, and when the service starts."""

    def __init__(self, kube: FencedKube) -> None:
        self._kube = kube
        self._kept: dict[str, object] = {}
        """By key of a NodeSet: what its history was last looked at for."""

    async def keep(self, seen: Observed) -> None:
        """See to it that the present template is in the history, and no more than shall be."""
        nodeset = seen.nodeset
        revision = template_hash(nodeset)
        used = {pod.metadata.annotations.get(wk.ANNOTATION_TEMPLATE_HASH, "") for pod in seen.pods}
        limit = nodeset.spec.revision_history_limit
        if self._kept.get(nodeset.key) == (revision, used, limit):
            return
        listed = await self._kube.revisions(nodeset)
        for one in listed:
            if is_orphan_of(one, nodeset):
                await self._adopt(one, nodeset)
        found = [one for one in listed if is_owned(one, nodeset) or is_orphan_of(one, nodeset)]
        name = revision_name(nodeset, revision)
        present = next((one for one in found if one.metadata.name == name), None)
        number = next_number(found, name)
        if present is not None and present.revision < number:
            # Made anew, as a patch is refused: the API server spells `<` of its data otherwise in between.
            await self._kube.delete_revision(present)
            present = None
        if present is None:
            try:
                await self._kube.create_revision(manifest(nodeset, revision, number))
            except KubeExistsError:
                return  # Of an earlier NodeSet of this name, which is on its way out: the next turn sees.
        names = {name, *(revision_name(nodeset, one) for one in used)}
        for one in surplus(found, names, REVISIONS if limit is None else limit):
            await self._kube.delete_revision(one)
        self._kept[nodeset.key] = revision, used, limit

    async def _adopt(self, found: ControllerRevision, nodeset: NodeSet) -> None:
        try:
            await self._kube.adopt(CONTROLLER_REVISIONS, found, nodeset)
        except KubeRejectedError as error:  # It serves as it is, and goes with no NodeSet.
            log.warning("orphaned revision refused", extra={"revision": found.key, "error": str(error)[:500]})

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._kept.pop(key, None)


def next_number(found: Collection[ControllerRevision], name: str) -> int:
    """Return the number that the revision *name*, the present one, shall have: the highest of all."""
    others = max((one.revision for one in found if one.metadata.name != name), default=0)
    return max(others + 1, *(one.revision for one in found if one.metadata.name == name), 0)


def surplus(
    found: Iterable[ControllerRevision], used: Collection[str], limit: int
) -> list[ControllerRevision]:
    """Return the revisions that shall go: those that nobody uses, but for the newest *limit* of them."""
    unused = [one for one in found if one.metadata.name not in used]
    unused.sort(key=lambda one: (-one.revision, one.metadata.name))
    return unused[limit:]


def revision_name(nodeset: NodeSet, revision: str) -> str:
    """Return the name of the object that keeps the template with the hash *revision*."""
    return f"{nodeset.metadata.name}-{revision}"


def manifest(nodeset: NodeSet, revision: str, number: int) -> dict[str, Any]:
    """Return the history's entry for the present template."""
    meta = nodeset.metadata
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revision_name(nodeset, revision),
            "namespace": meta.namespace,
            "labels": {wk.LABEL_NODESET: meta.name, wk.LABEL_CLUSTER: nodeset.spec.cluster},
            "ownerReferences": [owner_reference(nodeset)],
        },
        "data": {"spec": {"template": msgspec.to_builtins(nodeset.spec.template)}},
        "revision": number,
    }
