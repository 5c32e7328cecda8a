"""The Kubernetes Lease on a real API server, by the same tests as the lease on the bus."""

import pytest

from sunk_kube.client import KubeClient
from sunk_kube.leases import KubeLease
from sunk_runtime.testing import LeaseConformance, MakeLease

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


class TestKubeLease(LeaseConformance):
    @pytest.fixture
    def make_lease(self, kube: KubeClient, namespace: str) -> MakeLease:
        return lambda holder, ttl_s: KubeLease(kube, namespace, "leader", holder, ttl_s=ttl_s)
