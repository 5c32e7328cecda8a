"""Questions about causes do not take the leader's time."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.requests import ExplainJob, ExplainJobToOwner, Explanation, Later, Refused
from sunk_syncer.adapters.views import Views
from sunk_syncer.rpc.explain_handlers import ExplainHandlers

pytestmark = pytest.mark.anyio
JOB = SlurmJobState(changed=datetime(2026, 1, 1, tzinfo=UTC), job=1, state="PENDING", reason="Priority")


def handlers(
    moments: list[float], worked: list[float], job: SlurmJobState = JOB, *others: SlurmJobState
) -> ExplainHandlers:
    def require_known(_node: str) -> None:
        pass

    jobs = {str(one.job): one for one in (job, *others)}
    views = SimpleNamespace(require_known=require_known, jobs=jobs, nodes={}, locks={}, placements={})
    return ExplainHandlers(cast("Views", views), iter(moments).__next__, iter(worked).__next__)


async def test_after_an_answer_that_cost_much_the_next_one_waits_four_times_as_long() -> None:
    answering = handlers([10.0, 10.1, 10.15, 10.31, 10.32], [1.0, 1.05, 2.0, 2.0])

    first, second, third = [await answering.job(ExplainJob(job=1)) for _ in range(3)]

    assert isinstance(first, Explanation)
    assert isinstance(second, Later)
    assert second.retry_after_s == pytest.approx(0.15)
    assert isinstance(third, Explanation)


async def test_answers_that_cost_little_wait_once_there_were_many() -> None:
    moments = [moment / 100 for moment in range(100)]
    answering = handlers(moments, [one * 0.015 for one in range(100)])

    found = [type(await answering.job(ExplainJob(job=1))) for _ in range(3)]

    assert found == [Explanation, Explanation, Later]


async def test_users_wait_for_what_users_asked_and_operators_do_not() -> None:
    answering = handlers([10.0, 10.1, 10.2, 10.3, 10.4], [1.0, 1.05, 2.0, 2.05], replace(JOB, user="ada"))
    ask = ExplainJobToOwner(job=1, user="ada")

    first, second = await answering.job_to_owner(ask), await answering.job_to_owner(ask)
    operators = await answering.job(ExplainJob(job=1))

    assert [type(one) for one in (first, second, operators)] == [Explanation, Later, Explanation]


async def test_the_jobs_ahead_are_named_to_those_who_may_know_them() -> None:
    mine, adas = replace(JOB, priority=1), replace(JOB, job=2, user="ada", priority=9)
    answering = handlers([1.0, 2.0, 3.0, 4.0], [0.0] * 4, mine, adas)

    named = await answering.job(ExplainJob(job=1))
    not_named = await answering.job(ExplainJob(job=1, is_ahead_named=False))

    assert isinstance(named, Explanation)
    assert isinstance(not_named, Explanation)
    assert named.findings[1].because == "ahead: job 2 of ada (Priority)"
    assert not_named.findings[1].because == "jobs are ahead"


async def test_a_user_is_told_of_no_job_but_the_own_ones() -> None:
    adas = handlers([10.0, 10.0], [1.0, 1.0], replace(JOB, user="ada"))
    of_unknown = handlers([], [], replace(JOB, user=""))

    told = await adas.job_to_owner(ExplainJobToOwner(job=1, user="ada"))
    refused = [
        await answering.job_to_owner(ExplainJobToOwner(job=job, user=user))
        for answering, job, user in ((adas, 1, "eve"), (adas, 2, "ada"), (of_unknown, 1, "0"))
    ]

    assert isinstance(told, Explanation)
    assert refused == [
        Refused(code="unknown_job", reason="no job 1 of eve is known, or its user is not known yet"),
        Refused(code="unknown_job", reason="no job 2 of ada is known, or its user is not known yet"),
        Refused(code="unknown_job", reason="no job 1 of 0 is known, or its user is not known yet"),
    ]
