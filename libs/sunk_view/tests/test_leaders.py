"""Which replica leads, by a Lease of Kubernetes."""

from datetime import UTC, datetime, timedelta

import pytest

from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Lease, LeaseSpec
from sunk_kube.resources import Resource
from sunk_runtime.errors import SunkError
from sunk_view.leaders import NONE, KubeLeases, leader_of

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def lease(
    holder: str | None = "scheduler-0", *, renewed: datetime | None = T0, lasts_s: int | None = 3
) -> Lease:
    return Lease(spec=LeaseSpec(holder_identity=holder, renew_time=renewed, lease_duration_seconds=lasts_s))


@pytest.mark.parametrize(
    ("found", "leader", "problem"),
    [
        pytest.param(lease(), "scheduler-0", "", id="one leads"),
        pytest.param(lease(renewed=T0 + timedelta(seconds=5)), "scheduler-0", "", id="a clock ahead of ours"),
        pytest.param(lease(renewed=T0 - timedelta(seconds=12)), "scheduler-0", "", id="a clock behind ours"),
        pytest.param(
            lease(renewed=T0 - timedelta(seconds=60)),
            "",
            f"{NONE}: scheduler-0 did so until 60 s ago",
            id="its leader is gone",
        ),
        pytest.param(lease(""), "", NONE, id="given up"),
        pytest.param(lease(None), "", NONE, id="never held"),
        pytest.param(lease(renewed=None), "", NONE, id="no time"),
        pytest.param(lease(lasts_s=None), "", NONE, id="no duration"),
        pytest.param(None, "", NONE, id="no Lease"),
    ],
)
def test_a_lease_that_is_renewed_names_its_leader(found: Lease | None, leader: str, problem: str) -> None:
    assert leader_of(found, T0) == (leader, problem)


class Failing:
    """An API server that does not say."""

    def __init__(self, error: SunkError) -> None:
        self._error = error

    async def find(self, resource: Resource[Lease], name: str, namespace: str | None = None) -> Lease | None:
        del resource, name, namespace
        raise self._error


PLACES = {"pod-scheduler": ("slurm", "sunk-pod-scheduler-c1")}


@pytest.mark.anyio
async def test_a_lease_that_may_not_be_read_says_nothing_of_its_service() -> None:
    leases = KubeLeases(Failing(KubeRejectedError("forbidden", status=403)), PLACES)

    assert await leases.leader("pod-scheduler") is None


@pytest.mark.anyio
async def test_a_lease_that_cannot_be_read_now_is_named() -> None:
    leases = KubeLeases(Failing(KubeUnavailableError("no answer")), PLACES)

    assert await leases.leader("pod-scheduler") == (
        "",
        "its Lease slurm/sunk-pod-scheduler-c1 cannot be read: no answer",
    )
