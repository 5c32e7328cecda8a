"""What schedulers tell each other by their Leases, so that no Pod has two."""

import logging
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec

from sunk_kube.client import KubeClient
from sunk_kube.objects import Lease
from sunk_kube.resources import LEASES
from sunk_kube.wellknown import ANNOTATION_SCHEDULES, LABEL_COMPONENT, SCHEDULER_COMPONENT
from sunk_pod_scheduler.podspec.scopes import Peer, PodScope, share
from sunk_runtime.errors import ConfigError, TransientError

log = logging.getLogger(__name__)

AGAIN_S: Final = 2.0
_realms: Final = msgspec.json.Decoder(PodScope)


async def claim(kube: KubeClient, namespace: str, name: str, pod_scope: PodScope) -> tuple[str, ...]:
    """Say on the Lease *name*, which we hold, what we serve; return which of our names are ours.

    Said first and looked around afterwards: of two that begin at once, one sees the other.

    Raises:
        ConfigError: another scheduler serves them.
    """
    while True:
        try:
            await _annotate(kube, namespace, name, pod_scope)
            others = await peers(kube, f"{namespace}/{name}")
        except TransientError as error:
            log.warning("other schedulers are not known", extra={"error": str(error)})
            await anyio.sleep(AGAIN_S)
            continue
        left = share(pod_scope, others, datetime.now(UTC))
        if left.quarrels:
            raise ConfigError(
                f"scheduler names and scopes overlap: {'; '.join(left.quarrels)}; change scheduler.name or "
                "scheduler.scope of one of them"
            )
        if left.ceded:
            log.warning("another scheduler has the common name", extra={"cluster": left.ceded})
        return left.names


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
