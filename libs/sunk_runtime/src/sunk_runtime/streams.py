"""Every stream and bucket that a cluster needs, and how one that exists differs from what is needed.

What must stay true: what acknowledges a write and loses it, or drops a state that was not deleted, is never
taken for compatible; everything else is a matter of taste, which is its owner's.

Source: JetStream's API, StreamConfig; NATS ADR-8 (buckets), ADR-43 (message TTL).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from sunk_events import subjects
from sunk_events.catalog import STATES
from sunk_events.codec import MAX_BYTES

MARKER_TTL_S: Final = 3600
"""How long a deleted key leaves its marker. A view that was away for longer reads the bucket anew anyway."""
DEDUPE_S: Final = 600
HEADERS_MAX: Final = 4096
"""What the headers of one of our messages may take."""
REPLICAS: Final = (1, 3)
_NS: Final = 1_000_000_000


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a stream's settings, as JetStream spells them; times are in nanoseconds."""

    name: str
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    storage: str = "file"
    num_replicas: int = 1
    discard: str = "old"
    discard_new_per_subject: bool = False
    max_age: int = 0
    max_bytes: int = -1
    max_msgs: int = -1
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    duplicate_window: int = 0
    allow_msg_ttl: bool = False
    allow_rollup_hdrs: bool = False
    allow_direct: bool = False
    allow_msg_counter: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    no_ack: bool = False
    sealed: bool = False
    subject_delete_marker_ttl: int = 0
    persist_mode: str = ""
    mirror: dict[str, Any] | None = None
    sources: tuple[dict[str, Any], ...] | None = None
    subject_transform: dict[str, Any] | None = None

    @property
    def is_bucket(self) -> bool:
        """Whether it holds states, of which each is the only one."""
        return self.name.startswith("KV_")


class Difference(NamedTuple):
    """A setting that is not what we would have set."""

    setting: str
    found: object
    needed: object

    def __str__(self) -> str:
        return f"{self.setting} is {_shown(self.found)}, needed is {_shown(self.needed)}"


_Rule = Callable[[StreamConfig, StreamConfig], bool]
"""Whether the first, which exists, can do what the second is needed for."""


def _as_needed(setting: str) -> _Rule:
    return lambda found, needed: getattr(found, setting) == getattr(needed, setting)


def _unless_bucket(setting: str) -> _Rule:
    return lambda found, needed: not needed.is_bucket or getattr(found, setting) == getattr(needed, setting)


def _is_unlimited(setting: str) -> _Rule:
    """A bucket that drops what is old, or too much, has absent keys that nobody deleted."""
    return lambda found, needed: (
        not needed.is_bucket or found.discard == "new" or getattr(found, setting) in {-1, 0}
    )


_MUST: Final[dict[str, _Rule]] = {
    "subjects": lambda found, needed: sorted(found.subjects) == sorted(needed.subjects),
    "retention": _as_needed("retention"),
    "storage": _as_needed("storage"),
    "discard": lambda found, needed: needed.is_bucket or found.discard == "old",
    "discard_new_per_subject": _as_needed("discard_new_per_subject"),
    "max_age": _unless_bucket("max_age"),
    "max_bytes": _is_unlimited("max_bytes"),
    "max_msgs": _is_unlimited("max_msgs"),
    "max_msgs_per_subject": _unless_bucket("max_msgs_per_subject"),
    "max_msg_size": lambda found, _: not 0 < found.max_msg_size < MAX_BYTES + HEADERS_MAX,
    "allow_msg_ttl": lambda found, needed: found.allow_msg_ttl or not needed.allow_msg_ttl,
    "allow_rollup_hdrs": lambda found, needed: found.allow_rollup_hdrs or not needed.allow_rollup_hdrs,
    "allow_msg_counter": _as_needed("allow_msg_counter"),
    "deny_purge": _unless_bucket("deny_purge"),
    "no_ack": _as_needed("no_ack"),
    "sealed": _as_needed("sealed"),
    "persist_mode": lambda found, _: found.persist_mode != "async",
    "mirror": _as_needed("mirror"),
    "sources": _as_needed("sources"),
    "subject_transform": _as_needed("subject_transform"),
}
"""What a stream must have. A difference in anything else is only reported."""


def differences(found: StreamConfig, needed: StreamConfig) -> tuple[list[Difference], list[Difference]]:
    """Return where *found* cannot do what *needed* is for, and where it is merely other."""
    refused: list[Difference] = []
    reported: list[Difference] = []
    for setting in StreamConfig.__struct_fields__:
        has, wants = getattr(found, setting), getattr(needed, setting)
        rule = _MUST.get(setting)
        if rule is not None and not rule(found, needed):
            refused.append(Difference(setting, has, wants))
        elif has != wants:
            reported.append(Difference(setting, has, wants))
    return refused, reported


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"  # pyright: ignore[reportUnknownArgumentType] - isinstance loses the argument
    return str(value)


def stream_configs(
    cluster: str, *, replicas: int, facts_max_bytes: int, facts_max_age_s: int
) -> list[StreamConfig]:
    """Return every stream that *cluster* needs, the buckets' included."""
    facts = StreamConfig(
        name=subjects.fact_stream(cluster),
        subjects=(subjects.facts(cluster),),
        max_age=facts_max_age_s * _NS,
        max_bytes=facts_max_bytes,
        max_msgs_per_subject=1000,  # A flapping node must not push out what the others did.
        duplicate_window=DEDUPE_S * _NS,
        num_replicas=replicas,
        allow_msg_ttl=True,
    )
    dead = StreamConfig(
        name=subjects.DEAD_LETTER_STREAM,
        subjects=(subjects.DEAD_LETTERS,),
        max_age=30 * 86400 * _NS,
        max_bytes=facts_max_bytes // 4,
        duplicate_window=DEDUPE_S * _NS,
        num_replicas=replicas,
        allow_msg_ttl=True,
    )
    names = [*(subjects.bucket(cluster, kind) for kind in STATES), subjects.lease_bucket(cluster)]
    return [facts, dead, *(_bucket_config(name, replicas) for name in names)]


def _bucket_config(bucket: str, replicas: int) -> StreamConfig:
    """Return the stream of a bucket, with the settings that NATS' own clients give it (ADR-8)."""
    return StreamConfig(
        name=subjects.bucket_stream(bucket),
        subjects=(subjects.bucket_keys(bucket),),
        max_msgs_per_subject=1,
        discard="new",
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_direct=False,  # Reads come from the leader: a replica may be behind.
        subject_delete_marker_ttl=MARKER_TTL_S * _NS,
        duplicate_window=120 * _NS,
        num_replicas=replicas,
        allow_msg_ttl=True,
    )
