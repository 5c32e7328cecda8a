"""Whose AdminComment is changed while a job waits, and when that is taken back."""

from typing import Any

import pytest
from msgspec.structs import replace

from sunk_slurm.testing import job
from sunk_slurm.waiting_jobs import MARK
from sunk_slurm.wire import Number
from sunk_syncer.policy.waiting import REFUSED_S, wanted_comment

WHY = "3 Pods have to leave node gpu-1"
WAITS = replace(job(7, reason="Prolog"), job_state=("RUNNING",))
RUNS = replace(WAITS, state_reason="None")
OURS = MARK + WHY


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, OURS, id="none yet"),
        pytest.param({"admin_comment": MARK + "4 Pods"}, OURS, id="ours of before"),
        pytest.param({"admin_comment": OURS}, None, id="said"),
        pytest.param({"admin_comment": "ticket 4711"}, None, id="an administrator's"),
        pytest.param({"admin_comment": "see sunk: waits: x"}, None, id="the mark is a beginning"),
        pytest.param({"admin_comment": "sunk: held: x"}, None, id="a prolog's"),
        pytest.param({"state_reason": "None"}, None, id="it runs already"),
        pytest.param({"job_state": ("PENDING",)}, None, id="requeued"),
        pytest.param({"job_state": ("CANCELLED", "COMPLETING")}, None, id="over"),
        pytest.param({"array_job_id": Number.of(7)}, None, id="several tasks of an array"),
        pytest.param({"array_job_id": Number.of(7), "array_task_id": Number.of(0)}, OURS, id="a task"),
    ],
)
def test_a_job_in_its_prolog_is_told_what_it_waits_for_where_nobody_else_wrote(
    changes: dict[str, Any], wanted: str | None
) -> None:
    assert wanted_comment(replace(WAITS, **changes), WHY, 0.0) == wanted


@pytest.mark.parametrize(
    ("changes", "rested_s", "wanted"),
    [
        pytest.param({}, 0.0, "", id="it runs"),
        pytest.param({"job_state": ("PENDING",)}, 0.0, "", id="requeued"),
        pytest.param({"job_state": ("PENDING",), "hold": True}, 999.0, None, id="held: its prolog says so"),
        pytest.param({"state_reason": "Prolog"}, 0.0, None, id="its prolog may still be refused"),
        pytest.param({"state_reason": "Prolog"}, REFUSED_S, "", id="its prolog does something else"),
        pytest.param({"job_state": ("CANCELLED",)}, 999.0, None, id="over"),
        pytest.param({"admin_comment": ""}, 999.0, None, id="taken back"),
        pytest.param({"admin_comment": "ticket 4711"}, 999.0, None, id="an administrator's"),
        pytest.param({"admin_comment": "sunk: cancelled: x"}, 999.0, None, id="a prolog's"),
    ],
)
def test_it_is_taken_back_when_no_prolog_can_be_refused_any_more(
    changes: dict[str, Any], rested_s: float, wanted: str | None
) -> None:
    seen = replace(RUNS, admin_comment=OURS)
    assert wanted_comment(replace(seen, **changes), "", rested_s) == wanted
