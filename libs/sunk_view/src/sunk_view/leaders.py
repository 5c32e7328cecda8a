"""Which replica of a service leads: by its lease on the bus, or by its Lease in Kubernetes.

What must stay true: a lease that is over, or that cannot be read, names no leader; one that cannot be read
does not say that there is none. One task reads the leases, so no question of a user costs a call.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import anyio
import msgspec

from sunk_events import subjects
from sunk_kube.errors import KubeRejectedError
from sunk_kube.objects import Lease, LeaseSpec
from sunk_kube.resources import LEASES, Resource
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError, SunkError
from sunk_runtime.jetstream import Bus

NONE: Final = "no replica leads"
SKEW: Final = timedelta(seconds=10)
"""A replica's clock and ours may differ by so much."""
BY_BUS: Final = ("syncer", "metrics-exporter")
"""Services whose leases are on the bus."""
LOOK_S: Final = 10.0
"""Between two looks at all leases, and the most that one lease takes."""
_CALL: Final = re.compile(r"^[a-z]+ \S+: ")
"""Begins the error of a call, with its path, which names a namespace."""
BELIEVED: Final = timedelta(seconds=60)
"""An older look says nothing of now: this process may have stood still."""
NAMED_AFTER: Final = timedelta(seconds=15)
"""A service that has had no leader for less changes it: leases last 3 s, and two looks must find none."""


class LeaseReader(Protocol):
    """Reads Leases of Kubernetes, as `sunk_kube.client.KubeClient`."""

    async def find(self, resource: Resource[Lease], name: str, namespace: str | None = None) -> Lease | None:
        """Return the Lease; None: there is none."""
        ...


class _Holder(msgspec.Struct, frozen=True):
    holder: str = ""


async def by_bus(bus: Bus, cluster: str, service: str) -> tuple[str, str]:
    """Return which replica of *service* leads by its lease on the bus, and what is wrong.

    Raises:
        SunkError: that cannot be read.
    """
    bucket = subjects.lease_bucket(cluster)
    found = await bus.last(subjects.bucket_stream(bucket), subjects.key_subject(bucket, service))
    if found is None or {"Nats-Marker-Reason", "KV-Operation"} & found[1].headers.keys():
        return "", NONE
    try:
        return msgspec.json.decode(found[1].data, type=_Holder).holder, ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PermanentError("it is no lease") from error


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

        Raises:
            SunkError: it cannot be read now.
        """
        namespace, name = self.places[service]
        try:
            return leader_of(await self._kube.find(LEASES, name, namespace), now())
        except KubeRejectedError:
            return None


def leader_of(lease: Lease | None, now: datetime) -> tuple[str, str]:
    """Return which replica holds *lease*, and what is wrong."""
    spec = lease.spec if lease is not None else LeaseSpec()
    holder = spec.holder_identity
    if not holder or spec.renew_time is None or spec.lease_duration_seconds is None:
        return "", NONE
    since = now - spec.renew_time  # No sum: the year 9999 that a Lease may name has none after it.
    if since > timedelta(seconds=spec.lease_duration_seconds) + SKEW:
        return "", f"{NONE}: {holder} led until {since.total_seconds():.0f} s ago"
    return holder, ""


class _Known(msgspec.Struct):
    """What is known of one lease; at first nothing."""

    leader: str = ""
    problem: str = ""
    read: datetime | None = None
    """When it was read last."""
    leaderless: datetime | None = None
    """When a look first found no leader; None: the last one found one."""
    error: str = ""
    """Why it could not be read since then; empty: it could."""


class Leaders:
    """Who leads each service of one Slurm cluster, as the last look found it."""

    def __init__(self, bus: Bus, cluster: str, leases: KubeLeases | None = None) -> None:
        self._bus = bus
        self._cluster = cluster
        self._leases = leases
        places = leases.places if leases is not None else ()
        self._known: dict[str, _Known] = {service: _Known() for service in (*BY_BUS, *places)}

    async def run(self) -> None:
        """Look every `LOOK_S`, until cancelled."""
        while True:
            await self.look()
            await anyio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read each lease once; one that may not be read is that of no known service."""
        async with anyio.create_task_group() as tasks:
            for service in BY_BUS:
                tasks.start_soon(self._note, service, partial(by_bus, self._bus, self._cluster, service))
            if self._leases is not None:
                for service in self._leases.places:
                    tasks.start_soon(self._note, service, partial(self._leases.leader, service))

    async def _note(self, service: str, look: Callable[[], Awaitable[tuple[str, str] | None]]) -> None:
        known = self._known.setdefault(service, _Known())
        try:
            with anyio.fail_after(LOOK_S):
                found = await look()
        except (SunkError, TimeoutError) as error:
            known.error = _CALL.sub("", str(error)) or f"no answer in {LOOK_S:.0f} s"
            known.leaderless = None  # Whether one leads meanwhile is not known.
            return
        if found is None:
            del self._known[service]
            return
        moment = now()
        leaderless = None if found[0] else known.leaderless or moment
        self._known[service] = _Known(*found, moment, leaderless)

    def known(self) -> dict[str, tuple[str, str]]:
        """Return which replica leads each service, and what is wrong with its lease."""
        return {service: _row(known) for service, known in self._known.items()}

    def missing(self, moment: datetime) -> dict[str, str]:
        """Return what is wrong with each service that two looks or more found without a leader, for long."""
        return {
            service: f"has had no leader for {(moment - known.leaderless).total_seconds():.0f} s"
            for service, known in self._known.items()
            if known.leaderless is not None
            and known.read is not None
            and known.read > known.leaderless
            and moment - known.read <= BELIEVED
            and moment - known.leaderless >= NAMED_AFTER
        }


def _row(known: _Known) -> tuple[str, str]:
    if not known.error:
        return (known.leader, known.problem) if known.read else ("", "its lease is not read yet")
    since = f" since {known.read:%H:%M:%S} UTC" if known.read else ""
    led = f" ({known.leader} led then)" if known.leader else ""
    return "", f"its lease cannot be read{since}{led}: {known.error}"
