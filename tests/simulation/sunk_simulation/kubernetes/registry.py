# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What may happen to objects: they are created, changed, deleted, each in the way of its kind.

What must stay true: what is refused changes nothing; a change that changes nothing is none, and gets no
resourceVersion; an object with a finalizer, or a Pod whose containers may run, stays until that is over.

Source: k8s.io/apiserver, pkg/registry/rest and pkg/registry/generic/registry.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from sunk_simulation.kubernetes import fields, pods
from sunk_simulation.kubernetes.errors import StatusError, conflict, forbidden, invalid, not_found, stale
from sunk_simulation.kubernetes.kinds import (
    BUILT_IN,
    DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Kind,
    Object,
    defined_by,
    key_of,
)
from sunk_simulation.kubernetes.schemas import pruned, wrong, wrong_meta
from sunk_simulation.kubernetes.store import Store, Stored

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEMS: Final = (
    "uid",
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)
"""Of an object's metadata, what nobody changes."""
_MAY_BE_EMPTY: Final = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})
"""Of it, what is not kept without content."""
ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_WITHOUT_GENERATION: Final = frozenset(
    {"configmaps", "events", "leases.coordination.k8s.io", "namespaces", "nodes"}
)
Changed = Callable[[Object], Object]
"""Is given an object to change, and returns what it shall be."""


class Registry:
    """All of an API server but its HTTP."""

    def __init__(self, store: Store, now_s: Callable[[], float], random: Random) -> None:
        self.store: Final = store
        self._now_s: Final = now_s
        self._random: Final = random

    def kind(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind that is served there, if any is."""
        resource = f"{plural}.{group}" if group else plural
        found = BUILT_IN.get(resource) or self.customs().get(resource)
        return found if found is not None and found.version == version else None

    def customs(self) -> dict[str, Kind]:
        """Return the kinds that CustomResourceDefinitions add."""
        made = (defined_by(one.object) for one in self.store.of(DEFINITIONS.resource).values())
        return {kind.resource: kind for kind in made}

    def kinds(self) -> dict[str, Kind]:
        """Return every kind, by its resource."""
        return {**BUILT_IN, **self.customs()}

    def now(self) -> datetime:
        """Return the time of the API server."""
        return datetime.fromtimestamp(self._now_s(), UTC)

    def moment(self) -> str:
        """Return it as Kubernetes spells it."""
        return spelt(self.now())

    def get(self, kind: Kind, key: str) -> Stored:
        """Return an object. Raises `StatusError` where there is none."""
        found = self.store.get(kind.resource, key)
        if found is None:
            raise not_found(kind, key.rpartition("/")[2])
        return found

    def create(
        self,
        kind: Kind,
        body: Object,
        namespace: str = "",
        *,
        manager: str = "",
        operation: str = "Update",
        is_dry_run: bool = False,
    ) -> Stored:
        """Store a new object."""
        found = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        meta = found["metadata"] = {**(body.get("metadata") or {})}
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise invalid(kind, "", {"metadata.name": "Required value: name or generateName is required"})
            meta["name"] = meta["generateName"] + "".join(self._random.choices(_LETTERS, k=5))
        if kind.is_namespaced:
            meta["namespace"] = namespace
            self._require_namespace(kind, meta["name"], namespace)
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            meta.pop(name, None)
        meta["uid"] = str(UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.moment()
        if kind.resource not in _WITHOUT_GENERATION:
            meta["generation"] = 1
        found = self._made(kind, found)
        self._check(kind, found)
        if key_of(found) in self.store.of(kind.resource):
            raise StatusError("AlreadyExists", f'{kind.resource} "{meta["name"]}" already exists')
        managers = fields.updated(
            (), {}, fields.leaves(found), who=manager, subresource="", time=self.moment()
        )
        if operation == "Apply":
            managers = tuple(one._replace(operation="Apply") for one in managers)
        if is_dry_run:
            return Stored(0, found, msgspec.json.encode(found))
        return self.store.put(kind.resource, key_of(found), found, managers)

    def update(
        self,
        kind: Kind,
        key: str,
        change: Changed,
        *,
        manager: str = "",
        subresource: str = "",
        is_patch: bool = False,
    ) -> Stored:
        """Change an object."""
        before = self.get(kind, key)
        asked = change(before.copy())
        self._require_same(kind, before.object, asked, is_patch=is_patch)
        after = self._becomes(kind, before.object, asked, subresource)
        if after == before.object:
            return before
        was, becomes = fields.leaves(before.object), fields.leaves(after)
        managers = fields.updated(
            before.managers, was, becomes, who=manager, subresource=subresource, time=self.moment()
        )
        return self._stored(kind, key, before, after, managers)

    def apply(
        self, kind: Kind, key: str, body: Object, *, manager: str, subresource: str = "", is_forced: bool
    ) -> tuple[Stored, bool]:
        """Make an object be as *manager* wants it; return it, and whether it is new."""
        before = self.store.get(kind.resource, key)
        namespace, _, name = key.rpartition("/")
        if before is None:
            if subresource:
                raise not_found(kind, name)
            if uid := body["metadata"].get("uid"):
                raise conflict(kind, name, f"uid mismatch: {uid}, and no existing object was found")
            return self.create(kind, body, namespace, manager=manager, operation="Apply"), True
        self._require_same(
            kind, before.object, {**body, "metadata": {"name": name, **body["metadata"]}}, is_patch=True
        )
        part = {"status": body.get("status") or {}} if subresource == "status" else body
        try:
            made = fields.applied(
                before.object,
                before.managers,
                {**part, "metadata": body["metadata"]},
                who=manager,
                subresource=subresource,
                time=self.moment(),
                is_forced=is_forced,
            )
        except fields.AppliedConflictError as error:
            raise StatusError("Conflict", f"Apply failed with conflicts: {error}") from error
        after = self._becomes(kind, before.object, made.object, subresource)
        same = {(*one[:3], one.fields) for one in before.managers}
        if after == before.object and same == {(*one[:3], one.fields) for one in made.managers}:
            return before, False
        return self._stored(kind, key, before, after, made.managers), False

    def delete(
        self,
        kind: Kind,
        key: str,
        *,
        uid: str = "",
        version: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> tuple[Stored, bool]:
        """Delete an object, or begin to; return it, and whether it is gone."""
        before = self.get(kind, key)
        meta = before.meta
        if uid and uid != meta["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
            raise conflict(kind, meta["name"], why)
        if version and version != meta["resourceVersion"]:
            why = f"Precondition failed: ResourceVersion in precondition: {version}, in object meta: "
            raise conflict(kind, meta["name"], why + meta["resourceVersion"])
        after = before.copy()
        seconds = self._begin_deletion(kind, after, grace_s, propagation)
        if not seconds and not after["metadata"].get("finalizers"):
            if kind is NAMESPACES and not meta.get("deletionTimestamp"):
                return self._stay(kind, key, before, after), False
            return self.store.remove(kind.resource, key), True
        return self._stay(kind, key, before, after), False

    def finish(self, namespace: str) -> None:
        """Remove a namespace of which nothing is left."""
        if not self.get(NAMESPACES, namespace).meta.get("finalizers"):
            self.store.remove(NAMESPACES.resource, namespace)

    def _begin_deletion(self, kind: Kind, found: Object, grace_s: int | None, propagation: str) -> int:
        """Mark an object as one that is being deleted; return how long it may take."""
        meta = found["metadata"]
        left = meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp"):
            if left is None or grace_s is None or grace_s >= left:
                return (left or 0) if kind is PODS else 0
            seconds = 1 if grace_s < 0 else grace_s
            moment = datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=seconds - left)
            if moment < (now := self.now()):
                moment, seconds = now, min(seconds, 1)
            meta["deletionTimestamp"] = spelt(moment)
            meta["deletionGracePeriodSeconds"] = seconds
            return seconds
        seconds = pods.grace_s(found, grace_s) if kind is PODS else 0
        meta["deletionTimestamp"] = spelt(self.now() + timedelta(seconds=seconds))
        meta["deletionGracePeriodSeconds"] = seconds
        if meta.get("generation"):
            meta["generation"] += 1
        if kind is NAMESPACES:
            found["status"]["phase"] = "Terminating"
        word = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
        if word is not None and word not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), word]
        return seconds

    def _stay(self, kind: Kind, key: str, before: Stored, after: Object) -> Stored:
        return (
            before if after == before.object else self.store.put(kind.resource, key, after, before.managers)
        )

    def _stored(
        self, kind: Kind, key: str, before: Stored, after: Object, managers: tuple[fields.Manager, ...]
    ) -> Stored:
        meta = after["metadata"]
        found = self.store.put(kind.resource, key, after, managers)
        is_held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or kind is NAMESPACES
        if before.meta.get("deletionTimestamp") and not is_held:
            return self.store.remove(kind.resource, key)
        return found

    def _require_namespace(self, kind: Kind, name: str, namespace: str) -> None:
        found = self.store.get(NAMESPACES.resource, namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if found.meta.get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, why)

    def _require_same(self, kind: Kind, before: Object, asked: Object, *, is_patch: bool) -> None:
        """Raise where another object is meant than there is."""
        meta, was = asked["metadata"], before["metadata"]
        if meta.get("uid", was["uid"]) != was["uid"]:
            if is_patch:
                raise invalid(kind, was["name"], {"metadata.uid": "Invalid value: field is immutable"})
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {was['uid']}"
            raise conflict(kind, was["name"], why)
        version = meta.get("resourceVersion")
        if not version and not is_patch and kind.needs_version:
            wrong_version = {"metadata.resourceVersion": "Invalid value: 0: must be specified for an update"}
            raise invalid(kind, was["name"], wrong_version)
        if version and version != was["resourceVersion"]:
            raise stale(kind, was["name"])
        if meta.get("name", was["name"]) != was["name"]:
            raise StatusError("BadRequest", "the name of the object does not match the name on the URL")

    def _becomes(self, kind: Kind, before: Object, asked: Object, subresource: str) -> Object:
        """Return what an object is after somebody has asked for *asked*, as far as that is his to say."""
        was = before["metadata"]
        after: Object = {
            **asked,
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": _meta(was, asked),
        }
        if subresource == "status":
            meta = was if kind.is_custom else after["metadata"]
            after = {**before, "metadata": meta, "status": asked.get("status") or {}}
        elif kind.has_status:
            after.pop("status", None)
            if "status" in before:
                after["status"] = before["status"]
        after = _nullless(after)
        if kind.is_custom:
            after = pruned(after, kind.schema)
        if kind is PODS and not subresource:
            pods.with_tolerations(after)
            if refused := pods.wrong_change(before, after):
                raise invalid(kind, was["name"], refused)
        new = set(after["metadata"].get("finalizers") or ()) - set(was.get("finalizers") or ())
        if was.get("deletionTimestamp") and new:
            why = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise invalid(kind, was["name"], {"metadata.finalizers": f"{why}, found new {sorted(new)}"})
        if "generation" in was and _wanted(before) != _wanted(after):
            after["metadata"] = {**after["metadata"], "generation": was["generation"] + 1}
        self._check(kind, after, is_status=subresource == "status")
        return after

    def _made(self, kind: Kind, found: Object) -> Object:
        """Return a new object with the defaults of its kind."""
        found = _nullless(found)
        if kind.has_status and kind is not NODES:
            found.pop("status", None)
        if kind.is_custom:
            return pruned(found, kind.schema)
        if kind is PODS:
            found = pods.with_defaults(found)
            account = found["spec"]["serviceAccountName"]
            if f"{found['metadata']['namespace']}/{account}" not in self.store.of(SERVICE_ACCOUNTS.resource):
                why = f'error looking up service account {account}: serviceaccount "{account}" not found'
                raise forbidden(kind, found["metadata"]["name"], why)
        elif kind is NODES:
            spec: Object = found.setdefault("spec", {})
            found.setdefault("status", {})
            not_ready = {"key": pods.NOT_READY, "effect": "NoSchedule"}
            if not any(one["key"] == pods.NOT_READY for one in spec.get("taints") or ()):
                spec["taints"] = [*(spec.get("taints") or ()), not_ready]
        elif kind is NAMESPACES:
            name = found["metadata"]["name"]
            labels = found["metadata"].get("labels") or {}
            found["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}
            found |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        elif kind is DEFINITIONS:
            found["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        return found

    def _check(self, kind: Kind, found: Object, *, is_status: bool = False) -> None:
        name = found["metadata"]["name"]
        refused = wrong_meta(kind, found["metadata"])
        if kind.is_custom:
            body = {one: part for one, part in found.items() if one != "metadata"}
            part = {**kind.schema, "required": []} if is_status else kind.schema
            refused |= dict(wrong(body, part))
        if kind is PODS:
            refused |= pods.wrong(found)
        if refused:
            raise invalid(kind, name, refused)


def spelt(moment: datetime) -> str:
    """Return *moment* as Kubernetes' Time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _meta(was: Object, asked: Object) -> Object:
    """Return an object's metadata after somebody has asked for *asked*."""
    kept = {name: was[name] for name in _SYSTEMS if name in was}
    said = {
        name: part for name, part in asked["metadata"].items() if name not in {*_SYSTEMS, "managedFields"}
    }
    return {**kept, **{name: part for name, part in said.items() if part or name not in _MAY_BE_EMPTY}}


def _wanted(found: Object) -> Object:
    return {name: part for name, part in found.items() if name not in {"metadata", "status"}}


def _nullless(value: Any) -> Any:
    """Return *value* without its nulls, which say nothing."""
    if isinstance(value, dict):
        return {name: _nullless(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_nullless(one) for one in value]
    return value
