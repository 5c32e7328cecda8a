"""What we send that is no plain object: bindings, evictions, delete options, Events, preconditions; pure."""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from sunk_kube.objects import KubeObject
from sunk_kube.pods import Pod
from sunk_kube.reasons import Reason
from sunk_kube.resources import Resource

Manifest = dict[str, Any]
"""JSON to be. ``Any``, because a manifest has every shape."""

NOTE_MAX: Final = 1024
"""What the API server takes as an Event's note."""
_NO_YAML: Final = re.compile("[\x7f-\uffff]")
"""What of JSON's bare characters YAML reads otherwise, or not at all, is among these."""
EventType = Literal["Normal", "Warning"]


def binding(pod: Pod, node: str) -> Manifest:
    """Bind *pod*, as it is in this version and no later one of its name, to *node*."""
    meta = pod.metadata
    of = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta.name, "namespace": meta.namespace, **of},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def eviction(pod: Pod, *, is_dry_run: bool = False) -> Manifest:
    """Evict *pod*, and no later one of its name."""
    meta = pod.metadata
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {
            "preconditions": {"uid": meta.uid},
            **({"dryRun": ["All"]} if is_dry_run else {}),
        },
    }


def deletion(uid: str, grace_period_s: int | None) -> Manifest:
    """Delete only the object with *uid*, if one is given."""
    body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        body["preconditions"] = {"uid": uid}
    if grace_period_s is not None:
        body["gracePeriodSeconds"] = grace_period_s
    return body


def yaml(body: object) -> bytes:
    r"""Return *body* as YAML, of which the API server makes JSON in its own spelling.

    JSON is YAML but for a few characters: YAML takes none beyond U+FFFF as two escapes (``\ud83d\ude00``).

    Bytes of JSON that it keeps as they come it compares, at each later patch, with its own spelling of them
    (no spaces, sorted keys, ``<`` as ``\u003c``), and refuses the patch of an immutable field where they
    differ: the garbage collector could orphan no ControllerRevision, and its NodeSet never went.
    """
    text = msgspec.json.encode(body).decode()
    return _NO_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def with_uid(body: object, uid: str) -> object:
    """Return the patch *body* with the precondition that the object has *uid*.

    Raises:
        TypeError: a JSON patch is a list, and says such things with ``test``.
    """
    patch: Manifest = msgspec.convert(msgspec.to_builtins(body), Manifest)
    return {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}


def selectors(fields: str, labels: str) -> dict[str, str]:
    """Return the query of a list or watch."""
    given = {"fieldSelector": fields, "labelSelector": labels}
    return {name: value for name, value in given.items() if value}


class EventText(msgspec.Struct, frozen=True, kw_only=True):
    """What an Event says. *action* is a CamelCase word, *note* a sentence."""

    reason: Reason
    action: str
    note: str
    type: EventType = "Normal"


def event(
    resource: Resource[Any],
    about: KubeObject,
    text: EventText,
    *,
    reporter: str,
    now: datetime,
) -> Manifest:
    """Return an Event about *about*. Said twice in the same hour, it has the same name: twice is once."""
    meta = about.metadata
    namespace = meta.namespace or "default"
    content = "\n".join((meta.uid, text.reason, text.note, now.strftime("%Y%m%d%H")))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    moment = second_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name[:200]}.{digest}", "namespace": namespace},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": reporter},
        "reportingComponent": f"sunk.coreweave.com/{reporter}",
        "reportingInstance": reporter[:128],
        "type": text.type,
        "reason": text.reason,
        "action": text.action,
        "message": text.note[:NOTE_MAX],
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
    }


def micro_time(moment: datetime) -> str:
    """Return *moment* as Kubernetes' MicroTime, which takes exactly six digits."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(moment: datetime) -> str:
    """Return *moment* as Kubernetes' Time, which knows whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def labels_selector(labels: Mapping[str, str]) -> str:
    """Return the label selector that asks for all of *labels*; an empty value asks for the label only."""
    return ",".join(f"{name}={value}" if value else name for name, value in sorted(labels.items()))
