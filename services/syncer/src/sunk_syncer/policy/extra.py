"""The Kubernetes side of a node in its Extra, under the one key ``sunk``.

What must stay true: a user's other keys stay as they were written. An Extra that is no JSON object is
replaced. Nothing is written if only the time has changed. By this key the syncer also recognises, after
any restart, its own nodes and the features that it gave them.

Source: the Syncer's documents, "Extra field".
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.locks import LockState
from sunk_events.nodesets import Condition, KubePodState
from sunk_slurm.wire import Features

KEY: Final = "sunk"
MESSAGE_MAX: Final = 200
"""Of a condition's message: every list of all nodes carries it."""
FROM_SLURM: Final = "Slurm"
"""Conditions that begin so tell Kubernetes about Slurm; told back they would change with every job."""


class ExtraCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition, by its type."""

    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class ExtraContent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Our part of Extra."""

    pod: str = ""
    namespace: str = ""
    node: str = ""
    """The Kubernetes Node."""
    nodeset: str = ""
    ready: bool = False
    conditions: dict[str, ExtraCondition] = {}
    """The Pod's."""
    node_conditions: dict[str, ExtraCondition] = {}
    """The Node's."""
    cordon_reason: str | None = None
    """None: the Node is not cordoned."""
    lock: str = "false"
    features: tuple[str, ...] = ()
    """Features that the NodeSet gives the node. Other features are a user's."""
    updated_at: datetime | None = None


class Parsed(msgspec.Struct, frozen=True):
    """The Extra that a node has."""

    users: dict[str, msgspec.Raw] | None
    """The user's keys; None: it is no JSON object."""
    ours: ExtraContent | None
    """None: the syncer has not written it, or another client has."""


def parsed(text: str) -> Parsed:
    """Take an Extra apart; an empty one is an empty object."""
    if not text.strip():
        return Parsed({}, None)
    try:
        keys = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Parsed(None, None)
    ours = keys.pop(KEY, None)
    if ours is None:
        return Parsed(keys, None)
    try:
        return Parsed(keys, msgspec.json.decode(ours, type=ExtraContent))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Parsed(keys, ExtraContent())  # Whatever it says, it is replaced.


def content(pod: KubePodState, lock: LockState | None) -> ExtraContent:
    """Return the wanted content of our key, without the time."""
    return ExtraContent(
        pod=pod.pod,
        namespace=pod.namespace,
        node=pod.kube_node,
        nodeset=pod.nodeset,
        ready=pod.is_ready,
        conditions=_conditions(pod.conditions),
        node_conditions=_conditions(pod.node_conditions),
        cordon_reason=pod.cordon_reason if pod.is_cordoned else None,
        lock=lock.lock if lock else "false",
        features=tuple(sorted(pod.features)),
    )


def is_current(now_there: Parsed, wanted: ExtraContent) -> bool:
    """Whether the content of our key is as wanted, apart from the time."""
    if now_there.users is None or now_there.ours is None:
        return False
    return msgspec.structs.replace(now_there.ours, updated_at=None) == wanted


def merged(now_there: Parsed, wanted: ExtraContent, moment: datetime) -> str:
    """Return the whole Extra: the user's keys as they were, and ours."""
    ours = msgspec.structs.replace(wanted, updated_at=moment.replace(microsecond=0))
    keys: dict[str, object] = {**(now_there.users or {}), KEY: ours}
    return msgspec.json.encode(keys).decode()


def features(now_there: Parsed, wanted: ExtraContent, on_node: Features) -> Features | None:
    """Return the features that the node should have; None where it has them.

    Features that we gave it and no longer want are removed. Features from others stay, active or not.
    """
    before = set(now_there.ours.features) if now_there.ours else set[str]()

    def should(there: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted((set(there) - before) | set(wanted.features)))

    wants = Features(should(on_node.available), should(on_node.active))
    is_there = (set(wants.available), set(wants.active)) == (set(on_node.available), set(on_node.active))
    return None if is_there else wants


def is_elsewhere(there: str | None, wanted: str) -> bool:
    """Whether a node must get another place in the topologies.

    None means a Slurm without places (24.11). An empty place is not a wish: the node stays where it is.
    """
    return there is not None and bool(wanted) and there != wanted


def _conditions(conditions: Iterable[Condition]) -> dict[str, ExtraCondition]:
    return {
        condition.type: ExtraCondition(
            status=condition.status,
            reason=condition.reason,
            message=condition.message[:MESSAGE_MAX],
            since=condition.changed,
        )
        for condition in conditions
        if not condition.type.startswith(FROM_SLURM)
    }
