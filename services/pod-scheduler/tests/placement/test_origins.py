"""Each step of a Pod's way names what led to it, in one trace."""

from datetime import UTC, datetime, timedelta

import pytest

from sunk_events.base import UNKNOWN, Cause
from sunk_events.placements import PlacementPhase
from sunk_kube.objects import ObjectMeta
from sunk_kube.pods import Pod
from sunk_pod_scheduler.placement.origins import Origins, of_pod, of_pods

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ALL = Origins(
    pod=Cause("pod"),
    placement=Cause("placement", "its-trace"),
    job=Cause("job", "another"),
    announcement=Cause("announcement", "a third"),
)
LEAVING = Origins(pod=ALL.pod, placement=ALL.placement, job=ALL.job, is_pod_leaving=True)


@pytest.mark.parametrize(
    ("origins", "phase", "cause"),
    [
        pytest.param(Origins(pod=Cause("pod")), None, Cause("pod"), id="a Pod comes"),
        pytest.param(ALL, "refused", Cause("pod", "its-trace"), id="it is changed"),
        pytest.param(ALL, "submitted", ALL.placement, id="its job is released"),
        pytest.param(ALL, "released", Cause("announcement", "its-trace"), id="its script runs"),
        pytest.param(
            Origins(placement=ALL.placement, job=ALL.job),
            "released",
            Cause("job", "its-trace"),
            id="Slurm says that its job runs",
        ),
        pytest.param(ALL, "started", ALL.placement, id="it is bound"),
        pytest.param(ALL, "bound", Cause("job", "its-trace"), id="its job ends"),
        pytest.param(LEAVING, "bound", Cause("pod", "its-trace"), id="it is deleted"),
        pytest.param(Origins(), "ending", UNKNOWN, id="nothing is known"),
    ],
)
def test_a_step_follows_from_what_it_was_decided_upon(
    origins: Origins, phase: PlacementPhase | None, cause: Cause
) -> None:
    assert origins.of(phase) == cause


def pod(uid: str, version: str, *, age_s: float) -> Pod:
    created = T0 - timedelta(seconds=age_s)
    return Pod(metadata=ObjectMeta(uid=uid, resource_version=version, creation_timestamp=created))


def test_a_pod_is_named_by_the_version_of_its_object_and_a_gang_by_its_newest() -> None:
    first, last = pod("a", "17", age_s=9), pod("b", "23", age_s=1)

    assert of_pod(first) == Cause("Pod:a:17")
    assert of_pods([first, last]) == Cause("Pod:b:23")
    assert of_pods([]) == UNKNOWN
