"""What schedulers tell each other by their Leases, so that no Pod has two."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sunk_kube.client import KubeClient
from sunk_kube.objects import Lease
from sunk_kube.resources import LEASES
from sunk_kube.wellknown import ANNOTATION_SCHEDULES, LABEL_COMPONENT, SCHEDULER_COMPONENT
from sunk_pod_scheduler.podspec.scopes import Peer, PodScope, Share, look_again_s, share
from sunk_runtime.errors import ConfigError, SunkError, TransientError

log = logging.getLogger(__name__)

AGAIN_S: Final = 2.0
ALIAS_AGAIN_S: Final = 30.0
"""How often a scheduler that ceded the alias looks whether it is free; see `look_again_s`."""
_realms: Final = msgspec.json.Decoder(PodScope)


async def claim(kube: KubeClient, namespace: str, name: str, pod_scope: PodScope) -> tuple[str, ...]:
    """Say on the Lease *name*, which we hold, what we serve; return which of our names are ours.

    First a look, so that we never say that we have the alias while another has it. Then another, after we
    said it: of two that begin at once, one sees the other. Our Lease says what is left then: the next leader
    of another scheduler would leave the alias to us else.

    Raises:
        ConfigError: another scheduler serves them.
    """
    while True:
        try:
            before = await _share(kube, namespace, name, pod_scope)
            await _annotate(kube, namespace, name, replace(pod_scope, names=before.names))
            after = await _share(kube, namespace, name, replace(pod_scope, names=before.names))
            if after.names != before.names:
                await _annotate(kube, namespace, name, replace(pod_scope, names=after.names))
        except TransientError as error:
            log.warning("other schedulers are not known", extra={"error": str(error)})
            await anyio.sleep(AGAIN_S)
            continue
        if ceded := before.ceded or after.ceded:
            log.warning("another scheduler has the common name", extra={"cluster": ceded})
        return after.names


async def _share(kube: KubeClient, namespace: str, name: str, pod_scope: PodScope) -> Share:
    left = share(pod_scope, await peers(kube, f"{namespace}/{name}"), datetime.now(UTC))
    if left.quarrels:
        raise ConfigError(
            f"scheduler names and scopes overlap: {'; '.join(left.quarrels)}; change scheduler.name or "
            "scheduler.scope of one of them"
        )
    return left


async def when_alias_is_free(  # noqa: PLR0917 - whose alias, then what to do
    kube: KubeClient,
    namespace: str,
    name: str,
    pod_scope: PodScope,
    call: Callable[[], None],
    every_s: float = ALIAS_AGAIN_S,
) -> None:
    """Wait until no other scheduler has the alias, which we ceded when we began; then *call*."""
    while True:
        try:
            others = await peers(kube, f"{namespace}/{name}")
            await anyio.sleep(look_again_s(pod_scope, others, datetime.now(UTC), every_s))
            others = await peers(kube, f"{namespace}/{name}")
        except SunkError as error:
            log.warning("other schedulers are not known", extra={"error": str(error)})
            await anyio.sleep(every_s)
            continue
        if not share(pod_scope, others, datetime.now(UTC)).ceded:
            log.info("common name is free")
            return call()


async def peers(kube: KubeClient, own: str) -> list[Peer]:
    """Return all schedulers, by their Leases, but for that of the Lease *own*, ``namespace/name``.

    Raises:
        KubeUnavailableError: the API server does not say.
    """
    leases = await kube.list_all(LEASES, labels=f"{LABEL_COMPONENT}={SCHEDULER_COMPONENT}")
    return [found for lease in leases if lease.key != own and (found := peer(lease)) is not None]


async def _annotate(kube: KubeClient, namespace: str, name: str, pod_scope: PodScope) -> None:
    metadata = {
        "labels": {LABEL_COMPONENT: SCHEDULER_COMPONENT},
        "annotations": {ANNOTATION_SCHEDULES: msgspec.json.encode(pod_scope).decode()},
    }
    await kube.patch(LEASES, name, {"metadata": metadata}, namespace)


def peer(lease: Lease) -> Peer | None:
    """Return the scheduler that *lease* is of; None if it says nothing that we understand."""
    try:
        pod_scope = _realms.decode(lease.metadata.annotations.get(ANNOTATION_SCHEDULES, ""))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    spec = lease.spec
    return Peer(
        lease=lease.key, pod_scope=pod_scope, holder=spec.holder_identity or "", renewed=spec.renew_time
    )
