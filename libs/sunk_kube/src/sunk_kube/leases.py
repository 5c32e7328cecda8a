"""KubeLease: the chassis' `Lease` on a Kubernetes Lease, for services that need the API server anyway.

What must stay true: a contender judges a holder's silence by its own clock (from when it first saw that
renewal), never by the holder's; every write names the resourceVersion that it was decided on; a holder
that leaves says so, and the next need not wait. The resourceVersion of the write that took it is the token:
``leaseTransitions`` begins anew where somebody removed the Lease.

Source: client-go, tools/leaderelection (the rules for observing); its lack of time-outs is not copied.
Kubernetes, "API Concepts" (resource versions are decimal numbers that grow over all objects of a resource).
"""

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from sunk_kube.bodies import micro_time
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeExistsError, KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Lease
from sunk_kube.resources import LEASES
from sunk_runtime.errors import ConflictError


@contextmanager
def _refusals_pass() -> Generator[None]:
    """Take a refusal for an outage: rights come and go with an upgrade, and one 403 is no reason to end."""
    try:
        yield
    except KubeRejectedError as error:
        raise KubeUnavailableError(str(error)) from error


class KubeLease:
    """A lease that *holder* may hold. Its calls end in time because the client's do."""

    def __init__(
        self, client: KubeClient, namespace: str, name: str, holder: str, *, ttl_s: int = 15
    ) -> None:
        self._client = client
        self._namespace = namespace
        self.name: Final = name
        self._holder = holder
        self.ttl_s: Final = float(ttl_s)
        self._ttl_s = ttl_s
        self._held: Lease | None = None
        self._token = 0
        self.was_given_up = False
        """Whether what was acquired last was known to be free. What is ours at first was of a process before
        us in this container: whether it was known to be free then is forgotten."""
        self._seen: tuple[str, float] = ("", -math.inf)
        """The version of somebody else's renewal, and when we first saw it."""

    async def acquire(self) -> int | None:
        """Take the lease if it is free, ours, or silent for longer than its holder said it would be."""
        with _refusals_pass():
            return await self._acquire()

    async def renew(self) -> int | None:
        """Write the lease again, if it is still ours."""
        with _refusals_pass():
            return await self._renew()

    async def release(self) -> None:
        """Leave the lease free, if it is still ours."""
        with _refusals_pass():
            await self._release()

    async def _acquire(self) -> int | None:
        found = await self._client.find(LEASES, self.name, self._namespace)
        if found is None:
            return await self._create()
        if not self._is_free(found):
            return None
        times = (found.spec.lease_transitions or 0) + 1
        if not self._is_ours(found):  # Before the write: if its answer is lost, the lease is ours next time.
            self.was_given_up = True
        if not await self._is_written(found, self._spec(times, acquired=datetime.now(UTC))):
            return None
        return self._taken()

    async def _renew(self) -> int | None:
        if self._held is None:
            return None
        spec = self._held.spec
        again = self._spec(spec.lease_transitions or 0, acquired=spec.acquire_time)
        if await self._is_written(self._held, again):
            return self._token
        # Our last write may have happened although its answer was lost.
        found = await self._client.find(LEASES, self.name, self._namespace)
        is_same = (
            found is not None
            and self._is_ours(found)
            and found.metadata.uid == self._held.metadata.uid
            and found.spec.lease_transitions == spec.lease_transitions
        )
        return self._token if found and is_same and await self._is_written(found, again) else None

    async def _release(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        found = await self._client.find(LEASES, self.name, self._namespace)
        if found is None or not self._is_ours(found):
            return
        spec = self._spec(found.spec.lease_transitions or 0, acquired=found.spec.acquire_time)
        try:
            await self._replace(found, spec | {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (ConflictError, KubeNotFoundError):
            return  # Somebody took it, or removed it: it is not ours either way.

    def _is_ours(self, found: Lease) -> bool:
        return found.spec.holder_identity == self._holder

    def _is_free(self, found: Lease) -> bool:
        """Whether nobody holds *found*, judged by how long we have seen it unchanged."""
        spec = found.spec
        if not spec.holder_identity or self._is_ours(found):
            return True
        version = found.metadata.resource_version
        if self._seen[0] != version:
            self._seen = (version, time.monotonic())
        return time.monotonic() - self._seen[1] > (spec.lease_duration_seconds or self._ttl_s)

    def _spec(self, token: int, *, acquired: datetime | None) -> dict[str, Any]:
        now = datetime.now(UTC)
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._ttl_s,
            "acquireTime": micro_time(acquired or now),
            "renewTime": micro_time(now),
            "leaseTransitions": token,
        }

    async def _create(self) -> int | None:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": self._spec(1, acquired=None),
        }
        self.was_given_up = False
        try:
            self._held = await self._client.create(LEASES, body, self._namespace)
        except KubeExistsError:
            return None
        return self._taken()

    def _taken(self) -> int:
        """Return the token of what was acquired just now."""
        version = self._held.metadata.resource_version if self._held else ""
        self._token = max(self._token + 1, int(version) if version.isdecimal() else 0)
        return self._token

    async def _is_written(self, found: Lease, spec: dict[str, Any]) -> bool:
        try:
            self._held = await self._replace(found, spec)
        except (ConflictError, KubeNotFoundError):
            return False
        return True

    async def _replace(self, found: Lease, spec: dict[str, Any]) -> Lease:
        meta = found.metadata
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "labels": meta.labels,
                "annotations": meta.annotations,
            },
            "spec": spec,
        }
        return await self._client.replace(LEASES, meta.name, body, meta.namespace)
