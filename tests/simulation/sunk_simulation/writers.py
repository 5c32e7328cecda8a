# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""One writer per lease: who writes to Slurm and to Kubernetes, over what the servers hold and are sent."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from sunk_events import subjects
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.http import Request
from sunk_simulation.kubernetes.kinds import EVENTS, NODES, Object
from sunk_simulation.kubernetes.model import ModelKubernetes
from sunk_simulation.kubernetes.store import Change
from sunk_simulation.network import Network
from sunk_simulation.slurm.model import ModelSlurm

LEASES: Final = "leases.coordination.k8s.io"
_NEWS: Final = (LEASES, EVENTS.resource)
_OF_ANYBODY: Final = ("/leases", "/events")
"""Contenders write leases, and what has happened is told by whoever knows."""


class Writers:
    """Looks at each write that comes to Slurm and to Kubernetes."""

    def __init__(
        self,
        network: Network,
        nats: ModelNats,
        slurm: ModelSlurm,
        kubernetes: ModelKubernetes,
        *,
        cluster: str,
        leases: Mapping[str, str],
        hosts: Mapping[str, str],
        slack_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin to look.

        Args:
            network: Where they come from.
            nats: What keeps the syncer's lease.
            slurm: What is written to.
            kubernetes: What is written to, and keeps the other leases.
            cluster: The Slurm cluster's name.
            leases: The key of the Lease of each service that has one.
            hosts: The machines of the replicas, and which service runs there.
            slack_s: How long after the end of his lease a holder's last write may come.
        """
        self._nats: Final = nats
        self._kubernetes: Final = kubernetes
        self._cluster: Final = cluster
        self._leases: Final = leases
        self._services: Final = {network.address(host): service for host, service in hosts.items()}
        self._hosts: Final = {network.address(host): host for host in hosts}
        self._slack_s: Final = slack_s
        self._held: dict[str, float] = {}
        """When each host was seen to hold its service's lease last."""
        self._now_s: Final[Callable[[], float]] = lambda: network.loop.now_ns / 1e9
        self.changes: Final[Counter[str]] = Counter()
        """How often what has changed in Slurm and in Kubernetes, but for signs of life and for news."""
        self._wrong: str | None = None
        kubernetes.on_written = self._written
        kubernetes.store.follow(self._changed)
        slurm.restd.on_written = self._written_to_slurm

    def two_write(self) -> str | None:
        """Nobody writes who does not hold his service's lease."""
        for service in (*self._leases, "syncer"):
            if holder := self._holder(service):
                self._held[holder] = self._now_s()
        return self._wrong

    def _written(self, request: Request) -> None:
        service = self._services.get(request.client)
        if service is None or any(word in request.path for word in _OF_ANYBODY):
            return
        host = self._hosts[request.client]
        # Of a service whose lease nobody holds now, who held it last may not have heard yet.
        if self._service_of_lease(service) and self._holder(service) != host:
            since_s = self._now_s() - self._held.get(host, float("-inf"))
            if since_s > self._slack_s() and self._wrong is None:
                who = f"{request.method} {request.path} by {host}"
                self._wrong = f"{who}, {since_s:.0f} s after it has lost its lease to {self._holder(service)}"

    def _written_to_slurm(self, request: Request) -> None:
        self.changes[f"{request.method} {request.path}"] += 1
        self._written(request)

    def _changed(self, change: Change) -> None:
        is_news = change.resource in _NEWS or (
            change.before is not None and _kept(change.before.object) == _kept(change.after.object)
        )
        if not is_news:
            self.changes[f"{change.type} {change.resource} {change.key}"] += 1

    def _service_of_lease(self, service: str) -> bool:
        return service in self._leases or service == "syncer"

    def _holder(self, service: str) -> str:
        """Return the host that holds the lease of *service*."""
        identity = self._on_the_bus() if service == "syncer" else self._in_kubernetes(self._leases[service])
        return identity.rpartition("-")[0].removeprefix(f"{service}-")

    def _in_kubernetes(self, key: str) -> str:
        found = self._kubernetes.store.get(LEASES, key)
        spec: Mapping[str, Any] = found.object["spec"] if found is not None else {}
        return spec.get("holderIdentity") or ""

    def _on_the_bus(self) -> str:
        bucket = subjects.lease_bucket(self._cluster)
        stream = self._nats.store.streams.get(subjects.bucket_stream(bucket))
        found = stream.last_on(subjects.key_subject(bucket, "syncer")) if stream is not None else None
        if found is None or not found.data:
            return ""
        return msgspec.json.decode(found.data)["holder"]


def _kept(found: Object) -> Object:
    """Return an object without what says only that somebody lives."""
    if found["kind"] != NODES.kind:
        return found
    meta = {name: value for name, value in found["metadata"].items() if name != "resourceVersion"}
    conditions = [
        {name: value for name, value in one.items() if name != "lastHeartbeatTime"}
        for one in found["status"].get("conditions") or ()
    ]
    return {**found, "metadata": meta, "status": {**found["status"], "conditions": conditions}}
