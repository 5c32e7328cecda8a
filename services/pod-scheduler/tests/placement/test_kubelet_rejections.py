from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_kube.objects import OwnerReference
from sunk_kube.pods import ContainerState, ContainerStatus, ContainerTerminated, Pod, PodStatus
from sunk_pod_scheduler.placement.kubelet_rejections import (
    LASTS,
    OWNERS_MAX,
    TRIES,
    KubeletRejections,
    refusal,
)
from sunk_pod_scheduler.testing.builders import T0, manifest


def owned(owner: str) -> Pod:
    pod = manifest()
    by = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid=owner, controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(by,) if owner else ()))


ONE, OTHER = owned("rs-1"), owned("rs-2")
RAN = ContainerStatus(name="main", state=ContainerState(terminated=ContainerTerminated(exit_code=1)))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(
            PodStatus(phase="Failed", reason="OutOfcpu", message="few"),
            "OutOfcpu: few",
            id="cpu",
        ),
        pytest.param(
            PodStatus(phase="Failed", reason="UnexpectedAdmissionError"),
            "UnexpectedAdmissionError",
            id="a device that is broken",
        ),
        pytest.param(PodStatus(phase="Failed", reason="Evicted"), "", id="evicted: it was admitted"),
        pytest.param(PodStatus(phase="Failed"), "", id="its program failed"),
        pytest.param(
            PodStatus(phase="Failed", reason="NodeAffinity", container_statuses=(RAN,)),
            "",
            id="it ran before its kubelet was started anew",
        ),
        pytest.param(PodStatus(phase="Pending", reason="OutOfcpu"), "", id="not yet"),
    ],
)
def test_what_a_kubelet_does_not_admit_is_told_from_what_failed(status: PodStatus, expected: str) -> None:
    assert refusal(replace(manifest(), status=status)) == expected


def test_a_node_that_refused_a_pod_is_avoided_for_a_while_by_those_of_its_owner_only() -> None:
    known = KubeletRejections()
    known.note(ONE, "n-1", "OutOfcpu", T0)
    known.note(owned(""), "n-2", "OutOfcpu", T0)

    assert known.nodes(ONE, T0) == ("n-1",)
    assert known.nodes(OTHER, T0) == known.nodes(owned(""), T0) == ()
    assert known.nodes(ONE, T0 + LASTS) == ()


def test_after_a_few_refusals_the_next_pod_waits_until_the_first_is_forgotten() -> None:
    known = KubeletRejections()
    for index in range(TRIES):
        assert known.enough(ONE, T0) == ""
        known.note(ONE, f"n-{index}", "OutOfcpu", T0 + timedelta(seconds=index))

    said = known.enough(ONE, T0 + timedelta(seconds=TRIES))
    assert f"n-{TRIES - 1}: OutOfcpu" in said
    assert "tried again after 2026-01-05 12:10:00" in said
    assert known.enough(OTHER, T0) == ""
    assert known.enough(ONE, T0 + LASTS) == ""


def test_pods_of_a_gang_that_are_refused_together_are_one_try() -> None:
    known = KubeletRejections()
    for index in range(2 * TRIES):
        known.note(ONE, f"n-{index}", "OutOfcpu", T0)

    assert known.enough(ONE, T0) == ""
    assert len(known.nodes(ONE, T0)) == 2 * TRIES


def test_of_many_owners_the_latest_are_remembered() -> None:
    known = KubeletRejections()
    for index in range(OWNERS_MAX + 1):
        known.note(owned(f"rs-{index}"), "n-1", "OutOfcpu", T0)

    assert known.nodes(owned("rs-0"), T0) == ()
    assert known.nodes(owned(f"rs-{OWNERS_MAX}"), T0) == ("n-1",)


def test_a_reference_to_the_owner_of_anothers_pods_keeps_those_from_no_node() -> None:
    known = KubeletRejections()
    theirs = replace(ONE, metadata=replace(ONE.metadata, namespace="somebody-elses"))
    for index in range(TRIES):
        known.note(theirs, "n-1", "OutOfcpu", T0 + timedelta(seconds=index))

    assert known.nodes(ONE, T0) == ()
    assert known.enough(ONE, T0) == ""
