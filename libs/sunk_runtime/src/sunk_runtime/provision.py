# pyright: reportUnknownMemberType=false
"""Makes the streams of a cluster, and refuses to work on what would lose our data.

What must stay true: a stream that exists is never changed and never deleted; one that cannot do what it is
needed for is an error for a person, with its name, each setting, and what to do.

Source: JetStream's API; a service that only reads what is there needs no right to make it.
"""

import logging
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec
from nats.js import api
from nats.js.errors import NotFoundError

from sunk_events import subjects
from sunk_runtime.bus_settings import BusSettings
from sunk_runtime.context import JetStream
from sunk_runtime.errors import JetStreamRejectedError, PermanentError, SunkError, TransientError
from sunk_runtime.streams import REPLICAS, Difference, StreamConfig, differences, stream_configs

log = logging.getLogger(__name__)

_NOT_FOUND: Final = 10059
_NAME_IN_USE: Final = 10058
_OVERLAP: Final = 10065
_TOO_FEW_SERVERS: Final = frozenset({10005, 10074})
"""No suitable peers; replicas are more than the servers, or there is no cluster at all."""


_AGAIN_S: Final = 0.5


class Provisions:
    """The clusters whose streams and buckets this process needs."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._settings: dict[str, BusSettings] = {}

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters, in the order in which they were made."""
        return tuple(self._settings)

    async def make(self, cluster: str, settings: BusSettings) -> None:
        """Make the streams and buckets of *cluster*, waiting for JetStream; what exists is left as it is.

        Raises:
            PermanentError: one exists and cannot do what it is needed for, or captures what is ours.
        """
        while True:
            try:
                return await self._make(cluster, settings)
            except TransientError as error:
                log.warning("waiting for JetStream", extra={"cluster": cluster, "error": str(error)})
            await anyio.sleep(_AGAIN_S)

    async def make_again(self) -> None:
        """Make what somebody removed, or a NATS without a disk lost; only log failure."""
        for cluster, settings in self._settings.items():
            try:
                await self._make(cluster, settings)
            except SunkError as error:
                log.warning("streams not created", extra={"cluster": cluster, "error": str(error)})

    async def _make(self, cluster: str, settings: BusSettings) -> None:
        self._settings[cluster] = settings
        configs = stream_configs(
            cluster,
            replicas=settings.replicas,
            facts_max_bytes=settings.facts_max_bytes,
            facts_max_age_s=settings.facts_max_age_s,
        )
        await provide(self._js, cluster, configs)


def check_replicas(replicas: int) -> None:
    """Raise `PermanentError` unless a stream may have so many replicas."""
    if replicas not in REPLICAS:
        raise PermanentError(
            f"{replicas} replicas of each stream: set 1 (one NATS server) or 3 (three); "
            "an even number survives no more failures than the odd one below it"
        )


async def provide(js: JetStream, cluster: str, configs: Sequence[StreamConfig]) -> None:
    """Make what is not there of *configs*; a stream of that name that can do the same is success.

    Raises:
        PermanentError: one of its name cannot, or another captures what is *cluster*'s.
    """
    for needed in configs:
        check_replicas(needed.num_replicas)
    await _refuse_captures(js, cluster)
    for needed in configs:
        await _provide(js, needed)


async def _provide(js: JetStream, needed: StreamConfig) -> None:
    found = await _find(js, needed.name) or await _made(js, needed)
    if found is None:
        return
    refused, reported = differences(found, needed)
    if refused:
        raise PermanentError(
            f"stream {needed.name} exists and cannot be used: {_listed(refused)}. "
            f"Nothing was changed. Correct the settings (nats stream edit {needed.name}); or back the stream "
            "up, remove it and start this service again, which creates the stream"
        )
    if reported:
        log.warning("stream has other settings", extra={"stream": needed.name, "settings": _listed(reported)})


async def _refuse_captures(js: JetStream, cluster: str) -> None:
    """Raise `PermanentError` if a stream stores our questions: its acknowledgement would be their answer."""
    if name := await _capturing(js, subjects.every_question(cluster)):
        raise PermanentError(
            f"stream {name} captures the services' questions ({subjects.every_question(cluster)}), so NATS "
            f"would answer them. Nothing was changed. Narrow its subjects (nats stream edit {name}): "
            f"{subjects.EVERYTHING} are the facts"
        )


async def _find(js: JetStream, name: str) -> StreamConfig | None:
    try:
        info = await js.stream_info(name)
    except JetStreamRejectedError as error:
        if error.err_code != _NOT_FOUND:
            raise
        return None
    return msgspec.convert(info.config.as_dict(), StreamConfig)


async def _made(js: JetStream, needed: StreamConfig) -> StreamConfig | None:
    """Make the stream; return what somebody else made of its name meanwhile."""
    wanted = {name: value for name, value in msgspec.to_builtins(needed).items() if value not in (None, "")}
    try:
        await js.add_stream(api.StreamConfig.from_response(wanted))
    except JetStreamRejectedError as error:
        if error.err_code == _NAME_IN_USE:
            return await _find(js, needed.name)
        if error.err_code == _OVERLAP:
            raise await _overlap(js, needed, error) from error
        if error.err_code in _TOO_FEW_SERVERS:
            raise PermanentError(
                f"stream {needed.name} cannot have {needed.num_replicas} replicas: {error}. "
                "Set 1 replica, or run three NATS servers as one cluster"
            ) from error
        raise
    return None


async def _overlap(js: JetStream, needed: StreamConfig, error: JetStreamRejectedError) -> PermanentError:
    name = next(filter(None, [await _capturing(js, subject) for subject in needed.subjects]), "")
    return PermanentError(
        f"stream {needed.name} cannot be created: {name or 'another stream'} captures "
        f"{', '.join(needed.subjects)} ({error}). Nothing was changed. Narrow its subjects or remove it"
    )


async def _capturing(js: JetStream, subject: str) -> str:
    """Return a stream that stores something that *subject* covers; empty: none does."""
    try:
        return await js.find_stream_name_by_subject(subject)
    except NotFoundError:
        return ""


def _listed(found: Sequence[Difference]) -> str:
    return "; ".join(map(str, found))
