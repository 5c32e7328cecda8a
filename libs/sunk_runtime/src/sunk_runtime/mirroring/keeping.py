"""Keeps a mirror of each stream that other teams see.

Source: JetStream's API; what a mirror is, ADR-23 and the documentation of "JetStream on Leaf Nodes".
"""

import logging
from typing import Any, Final

import anyio

from sunk_events.permissions import API, DOMAIN_API, mirrored
from sunk_runtime.errors import JetStreamRejectedError, PermanentError, TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.mirroring.decision import MADE, Seen, Step, Stored, mirror_config, next_step
from sunk_runtime.streams import StreamConfig, stream_configs

log = logging.getLogger(__name__)

AGAIN_S: Final = 2.0
"""How long after a look that says that a mirror must go another one has to say so."""
_NOTHING_THERE: Final = frozenset({10037, 10059})
"""No such message, no such stream."""


def wanted(cluster: str, *, facts_max_bytes: int, facts_max_age_s: int) -> list[StreamConfig]:
    """Return the streams of *cluster* that are mirrored."""
    names = frozenset(mirrored(cluster))
    made = stream_configs(
        cluster, replicas=1, facts_max_bytes=facts_max_bytes, facts_max_age_s=facts_max_age_s
    )
    return [config for config in made if config.name in names]


async def keep(bus: Bus, stream: StreamConfig) -> Step:
    """Do what the mirror of *stream* needs now; *bus* is the server of other teams.

    Raises:
        TransientError: one of the two servers does not answer now.
        PermanentError: one refuses.
    """
    step, ours = await _look(bus, stream.name)
    if step is Step.MAKE_AGAIN:  # A server that leads the stream since now may not have read all of it.
        await anyio.sleep(AGAIN_S)
        step, ours = await _look(bus, stream.name)
    if ours is None or step is Step.NOTHING:
        return step
    if step is Step.MAKE_AGAIN:
        await bus.js.call(f"{API}.STREAM.DELETE.{stream.name}")
    verb = "UPDATE" if step is Step.ADOPT else "CREATE"
    await bus.js.call(f"{API}.STREAM.{verb}.{stream.name}", mirror_config(stream, DOMAIN_API, ours.made))
    log.info("mirror kept", extra={"stream": stream.name, "step": step.value})
    return step


async def _look(bus: Bus, name: str) -> tuple[Step, Seen | None]:
    # The mirror first: what comes meanwhile is in ours before it is in the mirror.
    mirror = await _mirror(bus, name)
    ours = await _ours(bus, name, mirror)
    return next_step(ours, mirror), ours


async def keep_all(bus: Bus, streams: list[StreamConfig]) -> None:
    """Do so for all *streams*; only log failure."""
    for stream in streams:
        try:
            await keep(bus, stream)
        except (TransientError, PermanentError) as error:
            log.warning("mirror not kept", extra={"stream": stream.name, "error": str(error)})


async def _mirror(bus: Bus, name: str) -> Seen | None:
    info = await _found(bus, f"{API}.STREAM.INFO.{name}")
    if info is None:
        return None
    metadata: dict[str, str] = info["config"].get("metadata") or {}
    made = metadata.get(MADE, "")
    last = int(info["state"]["last_seq"])
    return Seen(made, last, await _stored(bus, API, name, last))


async def _ours(bus: Bus, name: str, mirror: Seen | None) -> Seen | None:
    info = await _found(bus, f"{DOMAIN_API}.STREAM.INFO.{name}")
    if info is None:
        return None
    at_last = await _stored(bus, DOMAIN_API, name, mirror.last_seq) if mirror else None
    return Seen(str(info["created"]), int(info["state"]["last_seq"]), at_last)


async def _stored(bus: Bus, api: str, name: str, sequence: int) -> Stored | None:
    if not sequence:
        return None
    found = await _found(bus, f"{api}.STREAM.MSG.GET.{name}", {"seq": sequence})
    return Stored(str(found["message"]["subject"]), str(found["message"]["time"])) if found else None


async def _found(bus: Bus, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        return await bus.js.call(subject, request)
    except JetStreamRejectedError as error:
        if error.err_code not in _NOTHING_THERE:
            raise
        return None
