"""A Kubernetes Lease whose record is lost, and with it the answer to who takes it."""

from typing import Any

import msgspec
import pytest

from sunk_kube.errors import KubeUnavailableError
from sunk_kube.leases import KubeLease
from sunk_kube.objects import Lease

pytestmark = pytest.mark.anyio


class Kube:
    """An API server that keeps one Lease; its first answer to a write is lost."""

    def __init__(self) -> None:
        self.writes = 0
        self.stored: Lease | None = None

    async def find(self, *_: object) -> Lease | None:
        return self.stored

    async def create(self, _: object, body: dict[str, Any], _namespace: str) -> Lease:
        return self._store(body)

    async def replace(self, _: object, _name: str, body: dict[str, Any], _namespace: str) -> Lease:
        return self._store(body)

    def _store(self, body: dict[str, Any]) -> Lease:
        self.writes += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.writes), "uid": "u"}
        self.stored = msgspec.convert({**body, "metadata": metadata}, Lease, strict=False)
        if self.writes == 1:
            raise KubeUnavailableError("no answer")
        return self.stored


async def test_who_takes_a_lease_whose_record_was_lost_knows_so_though_the_answer_was_lost_too() -> None:
    kube: Any = Kube()
    lease = KubeLease(kube, "sunk", "leader", "a", ttl_s=15)
    with pytest.raises(KubeUnavailableError):
        await lease.acquire()

    assert await lease.acquire() is not None
    assert not lease.was_given_up


async def test_who_takes_a_lease_whose_record_was_lost_and_restarts_knows_so_too() -> None:
    kube: Any = Kube()
    with pytest.raises(KubeUnavailableError):
        await KubeLease(kube, "sunk", "leader", "a", ttl_s=15).acquire()
    restarted = KubeLease(kube, "sunk", "leader", "a", ttl_s=15)  # In the same container, with the same pid.

    assert await restarted.acquire() is not None
    assert not restarted.was_given_up
    await restarted.release()
    assert await restarted.acquire() is not None
    assert restarted.was_given_up
