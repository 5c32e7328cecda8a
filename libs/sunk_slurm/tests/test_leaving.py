"""What a job that waits for locks is told, and that it names no Pod."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sunk_events.locks import LockHolder, LockState
from sunk_slurm.leaving import LATE_S, is_waiting, text

NOW = datetime(2026, 1, 1, 14, 4, 40, tzinfo=UTC)
END = NOW + timedelta(seconds=30)
JOB = 7


def lock(
    node: str = "gpu-1",
    leaving: int | None = 3,
    until: datetime | None = END,
    **more: Any,  # noqa: ANN401 - any field
) -> LockState:
    fields: dict[str, Any] = {
        "lock": "pending",
        "holders": (LockHolder(job=JOB, level="normal"),),
        "in_the_way": ("secret/web",) * bool(leaving),
        "leaving": leaving,
        "leaving_until": until,
    }
    return LockState(changed=NOW, node=node, kube_node="k1", **(fields | more))


@pytest.mark.parametrize(
    ("locks", "said"),
    [
        pytest.param([], "", id="no lock"),
        pytest.param([lock()], "3 Pods have to leave node gpu-1, the last by 14:05:10 UTC", id="one node"),
        pytest.param([lock(leaving=1, until=None)], "1 Pod has to leave node gpu-1", id="not asked yet"),
        pytest.param(
            [lock("gpu-2", 2, NOW), lock("gpu-1", 3)],
            "5 Pods have to leave 2 nodes of this job (the first is gpu-1), the last by 14:05:10 UTC",
            id="two nodes",
        ),
        pytest.param(
            [lock("gpu-1", 2, NOW), lock("gpu-2", 3, None)],
            "5 Pods have to leave 2 nodes of this job (the first is gpu-1)",
            id="of two nodes one is not asked",
        ),
        pytest.param(
            [lock(until=NOW - timedelta(seconds=LATE_S))],
            "3 Pods have to leave node gpu-1, the last was due at 14:04:35 UTC",
            id="late",
        ),
        pytest.param([lock(leaving=0, in_the_way=("a/b",))], "", id="a Pod that keeps a drain"),
        pytest.param(
            [lock(until=NOW + timedelta(days=2))],
            "3 Pods have to leave node gpu-1, the last by 2026-01-03 14:04:40 UTC",
            id="in two days",
        ),
        pytest.param(
            [lock(leaving=None, until=None, in_the_way=("a/b", "a/c"))],
            "2 Pods have to leave node gpu-1",
            id="an earlier nodeset-controller",
        ),
    ],
)
def test_a_text_says_how_many_have_to_leave_which_node_by_when(locks: list[LockState], said: str) -> None:
    assert text(locks, NOW) == said
    assert "secret" not in text(locks, NOW)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        pytest.param({}, True, id="pending"),
        pytest.param({"lock": "locked"}, False, id="locked"),
        pytest.param({"leaving": 0, "in_the_way": ()}, False, id="nothing is in the way"),
        pytest.param({"holders": (LockHolder(job=8, level="normal"),)}, False, id="another job"),
        pytest.param({"holders": (LockHolder(job=JOB, level="strict"),)}, False, id="a placeholder"),
        pytest.param({"holders": (LockHolder(job=JOB, level="normal", granted=NOW),)}, False, id="granted"),
    ],
)
def test_a_job_waits_for_pods_only(changes: dict[str, Any], *, waits: bool) -> None:
    assert is_waiting(lock(**changes), JOB) is waits
    assert not is_waiting(None, JOB)
