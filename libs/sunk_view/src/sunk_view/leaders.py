"""Which replica of a service leads: by its lease on the bus, or by its Lease in Kubernetes.

What must stay true: a lease that is over, or that cannot be read, names no leader.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from sunk_events import subjects
from sunk_kube.errors import KubeRejectedError
from sunk_kube.objects import Lease, LeaseSpec
from sunk_kube.resources import LEASES, Resource
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError
from sunk_runtime.jetstream import Bus

NONE: Final = "no replica leads"
SKEW: Final = timedelta(seconds=10)
"""A replica's clock and ours may differ by so much."""


class LeaseReader(Protocol):
    """Reads Leases of Kubernetes, as `sunk_kube.client.KubeClient`."""

    async def find(self, resource: Resource[Lease], name: str, namespace: str | None = None) -> Lease | None:
        """Return the Lease; None: there is none."""
        ...


class _Holder(msgspec.Struct, frozen=True):
    holder: str = ""


async def by_bus(bus: Bus, cluster: str, service: str) -> tuple[str, str]:
    """Return which replica of *service* leads by its lease on the bus, and what is wrong."""
    bucket = subjects.lease_bucket(cluster)
    try:
        found = await bus.last(subjects.bucket_stream(bucket), subjects.key_subject(bucket, service))
    except SunkError as error:
        return "", f"its lease cannot be read: {error}"
    if found is None or {"Nats-Marker-Reason", "KV-Operation"} & found[1].headers.keys():
        return "", NONE
    try:
        return msgspec.json.decode(found[1].data, type=_Holder).holder, ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", "its lease cannot be read"


class KubeLeases:
    """The Leases of services that lead by Kubernetes."""

    def __init__(self, kube: LeaseReader, places: Mapping[str, tuple[str, str]]) -> None:
        """Describe where they are.

        Args:
            kube: Reads them.
            places: Namespace and name of the Lease, by service.
        """
        self._kube = kube
        self.places = places

    async def leader(self, service: str) -> tuple[str, str] | None:
        """Return which replica of *service* leads, and what is wrong; None: its Lease may not be read.

        The right comes with the release that has the service.
        """
        namespace, name = self.places[service]
        try:
            return leader_of(await self._kube.find(LEASES, name, namespace), now())
        except KubeRejectedError:
            return None
        except SunkError as error:
            return "", f"its Lease {namespace}/{name} cannot be read: {error}"


def leader_of(lease: Lease | None, now: datetime) -> tuple[str, str]:
    """Return which replica holds *lease*, and what is wrong."""
    spec = lease.spec if lease is not None else LeaseSpec()
    holder = spec.holder_identity
    if not holder or spec.renew_time is None or spec.lease_duration_seconds is None:
        return "", NONE
    over = spec.renew_time + timedelta(seconds=spec.lease_duration_seconds) + SKEW
    if over < now:
        ago_s = (now - spec.renew_time).total_seconds()
        return "", f"{NONE}: {holder} did so until {ago_s:.0f} s ago"
    return holder, ""
