"""Which replica leads, by a Lease of Kubernetes."""

import re
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Lease, LeaseSpec
from sunk_kube.resources import LEASES, Resource
from sunk_runtime.clock import now
from sunk_runtime.errors import BusUnavailableError, SunkError
from sunk_runtime.jetstream import Bus, Message
from sunk_view.leaders import NONE, KubeLeases, Leaders, leader_of

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
            f"{NONE}: scheduler-0 led until 60 s ago",
            id="its leader is gone",
        ),
        pytest.param(lease(""), "", NONE, id="given up"),
        pytest.param(lease(None), "", NONE, id="never held"),
        pytest.param(lease(renewed=None), "", NONE, id="no time"),
        pytest.param(lease(lasts_s=None), "", NONE, id="no duration"),
        pytest.param(None, "", NONE, id="no Lease"),
        pytest.param(lease(renewed=datetime.max.replace(tzinfo=UTC)), "scheduler-0", "", id="year 9999"),
    ],
)
def test_a_lease_that_is_renewed_names_its_leader(found: Lease | None, leader: str, problem: str) -> None:
    assert leader_of(found, T0) == (leader, problem)


class Server:
    """An API server with a Lease, or one that fails, and a bus whose leases nobody holds."""

    def __init__(self, found: Lease | SunkError | None) -> None:
        self.found = found
        self.of_bus: SunkError | None = None
        self.calls = 0

    async def find(self, resource: Resource[Lease], name: str, namespace: str | None = None) -> Lease | None:
        assert (resource, name, namespace) == (LEASES, "sunk-pod-scheduler-c1", "slurm")
        self.calls += 1
        if isinstance(self.found, SunkError):
            raise self.found
        return self.found

    async def last(self, _stream: str, _subject: str) -> tuple[int, Message] | None:
        if self.of_bus is not None:
            raise self.of_bus

    def leaders(self) -> Leaders:
        return Leaders(
            cast("Bus", self), "c1", KubeLeases(self, {"pod-scheduler": ("slurm", "sunk-pod-scheduler-c1")})
        )


@pytest.mark.anyio
async def test_a_lease_that_may_not_be_read_says_nothing_of_its_service() -> None:
    leaders = Server(KubeRejectedError("forbidden", status=403)).leaders()
    await leaders.look()

    assert leaders.known() == {"syncer": ("", NONE), "metrics-exporter": ("", NONE)}
    assert "pod-scheduler" not in leaders.missing(now() + timedelta(seconds=45))


@pytest.mark.anyio
async def test_a_lease_that_cannot_be_read_now_is_named_with_the_time_since_when() -> None:
    server = Server(KubeUnavailableError("no answer"))
    leaders = server.leaders()
    await leaders.look()
    never = leaders.known()["pod-scheduler"]
    server.found = lease(renewed=now())
    await leaders.look()
    server.found = KubeUnavailableError("no answer")
    server.of_bus = BusUnavailableError("the connection is down")
    await leaders.look()

    leader, problem = leaders.known()["pod-scheduler"]
    assert never == ("", "its lease cannot be read: no answer")
    since = r"its lease cannot be read since \d\d:\d\d:\d\d UTC \(scheduler-0 led then\): no answer"
    assert (leader, bool(re.fullmatch(since, problem))) == ("", True)
    assert leaders.known()["syncer"][1].endswith(" UTC: the connection is down")
    assert leaders.missing(now() + timedelta(seconds=45)) == {}  # None of them is known to have no leader.


@pytest.mark.anyio
async def test_a_lease_is_not_known_before_it_was_read_and_one_look_does_not_make_it_missing() -> None:
    server = Server(None)
    leaders = server.leaders()
    assert leaders.known()["pod-scheduler"] == ("", "its lease is not read yet")
    await leaders.look()

    assert leaders.missing(now() + timedelta(seconds=45)) == {}  # The next look may be late.
    path = "get /apis/coordination.k8s.io/v1/namespaces/slurm/leases/x: HTTP 503: etcd is away"
    server.found = KubeUnavailableError(path)
    await leaders.look()
    server.found = None
    await leaders.look()

    assert "pod-scheduler" not in leaders.missing(now() + timedelta(seconds=45))  # One may have led.


@pytest.mark.anyio
async def test_why_a_lease_cannot_be_read_has_no_path_which_would_be_hidden() -> None:
    failed = KubeUnavailableError("get /apis/x/namespaces/slurm/leases/y: HTTP 503: etcd is away")
    leaders = Server(failed).leaders()
    await leaders.look()

    assert leaders.known()["pod-scheduler"] == ("", "its lease cannot be read: HTTP 503: etcd is away")


@pytest.mark.anyio
async def test_a_service_is_missing_once_it_has_had_no_leader_for_longer_than_a_change_takes() -> None:
    server = Server(None)
    leaders = server.leaders()
    await leaders.look()
    began = now()
    await leaders.look()

    def missing(after_s: float) -> str:
        return leaders.missing(began + timedelta(seconds=after_s)).get("pod-scheduler", "")

    assert missing(10) == ""
    assert missing(45).startswith("has had no leader for 4")
    server.found = lease(renewed=now())
    await leaders.look()
    assert missing(40) == ""
