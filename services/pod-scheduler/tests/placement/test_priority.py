from datetime import timedelta

from msgspec.structs import replace

from sunk_kube.pods import Pod
from sunk_pod_scheduler.placement.priority import AHEAD_MAX_S, LOOKS_PER_S, priority_s, requeue_after_s
from sunk_pod_scheduler.testing.builders import T0, manifest

NOW = T0 + timedelta(days=30)


def waiting(priority: int | None, age: timedelta) -> Pod:
    pod = manifest()
    meta = replace(pod.metadata, creation_timestamp=NOW - age)
    return replace(pod, metadata=meta, spec=replace(pod.spec, priority=priority))


def test_pods_that_wait_come_by_priority_and_then_by_age_and_none_before_who_waits_for_an_answer() -> None:
    by_turn = [
        waiting(2_000_000_000, timedelta(days=30)),
        waiting(1_000_000, timedelta(0)),
        waiting(100, timedelta(0)),
        waiting(None, timedelta(days=7)),
        waiting(0, timedelta(hours=1)),
        waiting(-10, timedelta(minutes=1)),
    ]
    turns = [priority_s(pod, NOW) for pod in by_turn]

    assert turns == sorted(turns, reverse=True)
    assert 0 <= min(turns) < max(turns) <= AHEAD_MAX_S


def test_thousands_of_jobs_that_wait_are_looked_at_some_a_second_and_few_as_often_as_one() -> None:
    waits = sorted(requeue_after_s(15.0, f"uid-{number}", 2000) for number in range(2000))
    for second in range(15, 115):
        looks = sum(second <= wait < second + 1 for wait in waits)
        assert looks <= 2 * LOOKS_PER_S

    assert 15.0 <= waits[0] < 16.0
    assert 15.0 <= requeue_after_s(15.0, "uid", 1) < 16.0
