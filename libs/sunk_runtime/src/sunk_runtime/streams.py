# pyright: reportUnknownMemberType=false
"""Every stream and bucket that a cluster needs, and how one is made.

What must stay true: a stream that exists is never deleted and its settings are left as they are; one that
captures other subjects under our name is an error for a person.

Source: nats-py 2.16; NATS ADR-8 (buckets), ADR-43 (message TTL).
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError

from sunk_events import subjects
from sunk_events.catalog import STATES
from sunk_runtime.errors import PermanentError

log = logging.getLogger(__name__)

MARKER_TTL_S: Final = 3600
"""How long a deleted key leaves its marker. A view that was away for longer reads the bucket anew anyway."""
DEDUPE_S: Final = 600
_NAME_IN_USE: Final = 10058


def stream_configs(
    cluster: str, *, replicas: int, facts_max_bytes: int, facts_max_age_s: int
) -> list[StreamConfig]:
    """Return every stream that *cluster* needs, the buckets' included."""
    common: dict[str, Any] = {
        "storage": StorageType.FILE,
        "num_replicas": replicas,
        "allow_msg_ttl": True,
    }
    facts = StreamConfig(
        name=subjects.fact_stream(cluster),
        subjects=[subjects.facts(cluster)],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=facts_max_age_s,
        max_bytes=facts_max_bytes,
        max_msgs_per_subject=1000,  # A flapping node must not push out what the others did.
        duplicate_window=DEDUPE_S,
        **common,
    )
    dead = StreamConfig(
        name=subjects.DEAD_LETTER_STREAM,
        subjects=[subjects.DEAD_LETTERS],
        max_age=30 * 86400,
        max_bytes=facts_max_bytes // 4,
        duplicate_window=DEDUPE_S,
        **common,
    )
    names = [*(subjects.bucket(cluster, kind) for kind in STATES), subjects.lease_bucket(cluster)]
    return [facts, dead, *(_bucket_config(name, common) for name in names)]


def _bucket_config(bucket: str, common: Mapping[str, Any]) -> StreamConfig:
    """Return the stream of a bucket, with the settings that NATS' own clients give it (ADR-8)."""
    return StreamConfig(
        name=subjects.bucket_stream(bucket),
        subjects=[subjects.bucket_keys(bucket)],
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_direct=False,  # Reads come from the leader: a replica may be behind.
        subject_delete_marker_ttl=MARKER_TTL_S,
        duplicate_window=120,
        **common,
    )


async def provide(js: JetStreamContext, config: StreamConfig) -> None:
    """Make a stream; one of that name that captures the same subjects is success.

    Raises:
        PermanentError: it captures other subjects.
    """
    try:
        await js.add_stream(config)
    except BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise  # Another stream captures our subjects: the server's words say so.
        # It exists with other settings: compatible or not?
        info = await js.stream_info(config.name or "")
        if sorted(info.config.subjects or ()) != sorted(config.subjects or ()):
            raise PermanentError(
                f"stream {config.name} exists with subjects {info.config.subjects}, "
                f"needed are {config.subjects}: rename or remove it"
            ) from None
        log.warning("stream has other settings", extra={"stream": config.name})
