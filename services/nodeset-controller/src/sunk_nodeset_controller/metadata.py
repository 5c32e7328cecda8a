"""Labels, annotations and conditions that an object shall bear, to the one patch that makes it so; pure.

What must stay true: nothing is written that stands there already; a condition's time moves only with its
status; what others write is not touched. The patch is a strategic one for the status sub-resource, which
takes labels and annotations too: one write, all or nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from sunk_kube.bodies import second_time
from sunk_kube.objects import Condition, ObjectMeta, condition

Patch = dict[str, Any]
"""JSON to be."""


class MetadataPatch(msgspec.Struct, frozen=True, kw_only=True):
    """What an object shall bear. None: it shall not."""

    labels: Mapping[str, str | None] = msgspec.field(default_factory=dict[str, str | None])
    annotations: Mapping[str, str | None] = msgspec.field(default_factory=dict[str, str | None])
    conditions: tuple[Condition, ...] = ()
    removed: tuple[str, ...] = ()
    """Types of conditions that shall not be there."""


def joined(one: MetadataPatch, other: MetadataPatch) -> MetadataPatch:
    """Return both, for one write."""
    return MetadataPatch(
        labels={**one.labels, **other.labels},
        annotations={**one.annotations, **other.annotations},
        conditions=(*one.conditions, *other.conditions),
        removed=(*one.removed, *other.removed),
    )


def patch(
    meta: ObjectMeta, conditions: tuple[Condition, ...], wanted: MetadataPatch, now: datetime
) -> Patch | None:
    """Return the patch that puts *wanted* on an object with *meta* and *conditions*; None: it is so.

    One with a condition of others holds for this version of the object only: they may have written a newer
    one since.
    """
    made: Patch = {}
    labels = _difference(meta.labels, wanted.labels)
    annotations = _difference(meta.annotations, wanted.annotations)
    new = [one for one in wanted.conditions if not _stands(one, conditions)]
    changed = [_written(one, conditions, now) for one in new]
    changed += [
        {"type": kind, "$patch": "delete"}
        for kind in wanted.removed
        if condition(conditions, kind) is not None
    ]
    if labels or annotations:
        found = {"labels": labels, "annotations": annotations}
        made["metadata"] = {name: values for name, values in found.items() if values}
    if any(one.last_transition_time for one in new):
        made["metadata"] = {**made.get("metadata", {}), "resourceVersion": meta.resource_version}
    if changed:
        made["status"] = {"conditions": changed}
    return made or None


def _difference(now: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in wanted.items() if now.get(name) != value}


def _stands(wanted: Condition, conditions: tuple[Condition, ...]) -> bool:
    before = condition(conditions, wanted.type)
    return (
        before is not None
        and before.status == wanted.status
        and before.reason == wanted.reason
        and before.message == wanted.message
        and wanted.last_transition_time in (None, before.last_transition_time)
    )


def _written(wanted: Condition, conditions: tuple[Condition, ...], now: datetime) -> Patch:
    before = condition(conditions, wanted.type)
    since = wanted.last_transition_time  # Somebody else's condition keeps somebody else's time.
    if since is None and before is not None and before.status == wanted.status:
        since = before.last_transition_time
    return {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,  # Said even if empty: a merge would keep the old one.
        "lastTransitionTime": second_time(since or now),
    }


def cut(text: str, size: int = 1024) -> str:
    """Return *text* cut to *size* bytes of UTF-8."""
    return text.encode()[:size].decode(errors="ignore")
