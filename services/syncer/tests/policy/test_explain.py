"""Why a Slurm node or job is as it is."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockHolder, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_syncer.actions import KubeInputs
from sunk_syncer.policy.explain import explain_job, explain_job_to_owner, explain_node
from sunk_syncer.policy.extra import content, merged, parsed
from sunk_syncer.testing.stage import ready_pod

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
IDLE = SlurmNodeState(changed=T0, node="n1", state="IDLE", slurmd_started=T0)
POD = ready_pod("n1", changed=T0)
FINE = KubeInputs(pod=POD, lock=LockState(changed=T0, node="n1", kube_node="k1", lock="false"))
CORDONED = KubeInputs(pod=replace(POD, is_cordoned=True, cordon_reason="disk"))
JOB = SlurmJobState(changed=T0, job=7, state="RUNNING", is_running=True, nodes="n1", started=T0, submitted=T0)


def drained(reason: str, user: str = "root") -> SlurmNodeState:
    return replace(IDLE, flags=("DRAIN",), is_drain=True, reason=reason, reason_user=user, reason_changed=T0)


@pytest.mark.parametrize(
    ("told", "kube", "words"),
    [
        pytest.param(
            drained("bad dimm", "ada"), FINE, ("ada set this drain", "state=undrain"), id="another's drain"
        ),
        pytest.param(
            drained("nhc verify-undrain", "ada"),
            FINE,
            ("ada set this drain", "verification"),
            id="waits for NHC",
        ),
        pytest.param(drained("k8s: cordon: disk"), CORDONED, ("cordoned", "kubectl uncordon"), id="cordoned"),
        pytest.param(drained("k8s: cordon: disk"), FINE, ("cause is gone", "in a moment"), id="to be lifted"),
        pytest.param(
            drained("k8s: prolog pre-hook failed: a/b"), FINE, ("prolog", "in the way"), id="a failed lock"
        ),
        pytest.param(
            drained("k8s: prolog pre-hook failed: a/b"),
            replace(FINE, lock=None),
            ("does not have its lock", "publishes the lock"),
            id="a failed lock that the bus does not have",
        ),
        pytest.param(
            drained("k8s: pod deletion timeout"),
            replace(FINE, is_pod_leaving=True),
            ("still run", "Pod is gone"),
            id="overdue",
        ),
        pytest.param(drained("k8s: cordon"), KubeInputs(), ("no NodeSet", "deletes"), id="no Pod known"),
        pytest.param(
            replace(IDLE, state="DOWN", is_down=True, reason="Not responding"),
            FINE,
            ("Not responding", "ReturnToService"),
            id="down",
        ),
        pytest.param(
            replace(IDLE, is_not_responding=True), FINE, ("does not reach", "SlurmdTimeout"), id="silent"
        ),
        pytest.param(IDLE, CORDONED, ("in a moment", "uncordon"), id="about to be drained"),
    ],
)
def test_a_node_is_explained(told: SlurmNodeState, kube: KubeInputs, words: tuple[str, str]) -> None:
    (finding,) = explain_node(told, kube).findings

    assert words[0] in finding.because
    assert words[1] in finding.would_change


def test_a_drain_that_keeps_why_the_node_is_down_ends_with_that_and_not_in_a_moment() -> None:
    told = replace(drained("k8s: cordon; was down: bad dimm"), state="DOWN", is_down=True)
    drain, down = explain_node(told, FINE).findings

    assert "why the node is down" in drain.because
    assert "state=resume" in drain.would_change
    assert down.because == "bad dimm"


def test_a_record_that_stays_for_a_drain_of_others_is_said_so() -> None:
    extra = merged(parsed(""), content(POD, None), T0)
    record = replace(drained("bad dimm", "ada"), flags=("DRAIN", "DYNAMIC_NORM"), extra=extra)
    others = (
        record,
        replace(record, reason="bad dimm", is_drain=False, is_down=True),
        replace(record, reason="k8s: cordon; was down: bad dimm", is_down=True),
    )
    goes = (
        replace(record, reason="k8s: pod terminated"),
        replace(record, reason="bad dimm", is_drain=False),
        replace(record, extra=""),
        replace(record, flags=("DRAIN",)),
    )

    def is_kept(told: SlurmNodeState, kube: KubeInputs) -> bool:
        return any(
            finding.what.startswith("the syncer keeps Slurm's record")
            for finding in explain_node(told, kube).findings
        )

    assert all(is_kept(told, KubeInputs()) for told in others)
    assert not any(is_kept(told, KubeInputs()) for told in goes)
    assert not any(is_kept(told, FINE) for told in others)


def test_draining_and_drained_are_told_apart() -> None:
    draining = replace(drained("x"), state="MIXED", is_busy=True)

    assert explain_node(draining, FINE).findings[0].what == "draining: x"
    assert explain_node(drained("x"), FINE).findings[0].what == "drained: x"


def test_nothing_stands_out_of_a_healthy_node() -> None:
    assert explain_node(IDLE, FINE).findings == ()


def test_a_pending_job_is_explained_by_slurms_reason() -> None:
    job = replace(JOB, state="PENDING", is_running=False, reason="Resources")

    assert explain_job(job, (), ()).findings[0].because == "Resources"


def test_a_job_in_its_prolog_names_the_pods_in_the_way() -> None:
    lock = LockState(changed=T0, node="n1", kube_node="k1", lock="pending", in_the_way=("team/web",))
    (finding,) = explain_job(replace(JOB, reason="Prolog"), (IDLE,), (lock,)).findings

    assert "n1: team/web" in finding.because


def test_its_user_learns_how_many_pods_are_in_the_way_and_no_name() -> None:
    waits = LockHolder(job=7, level="normal")
    lock = LockState(
        changed=T0,
        node="n1",
        kube_node="k1",
        lock="pending",
        holders=(waits,),
        in_the_way=("team/web",),
        leaving=1,
        leaving_until=T0 + timedelta(seconds=30),
    )
    (finding,) = explain_job_to_owner(replace(JOB, reason="Prolog"), (IDLE,), (lock,), T0).findings

    assert finding.because == "1 Pod has to leave node n1, the last by 12:00:30 UTC"
    assert finding.since == T0


def test_its_user_learns_its_place_and_nothing_of_the_jobs_ahead() -> None:
    job = replace(JOB, state="PENDING", is_running=False, reason="Priority", partition="gpu", priority=5)
    ahead = replace(job, job=3, user="eve", account="secret", priority=9)
    _, place = explain_job_to_owner(job, (), (), T0, jobs=(ahead, job)).findings

    assert place.what == "place 2 of 2 in the queue of gpu"
    assert place.because == "jobs are ahead"
    assert "eve" in explain_job(job, (), (), jobs=(ahead, job)).findings[1].because


def test_a_job_whose_prolog_was_lost_is_said_so() -> None:
    younger = replace(IDLE, slurmd_started=T0 + timedelta(seconds=5))
    (finding,) = explain_job(replace(JOB, reason="Prolog"), (younger,), ()).findings

    assert "slurmd of n1 was restarted" in finding.because


def test_a_running_job_has_nothing_to_explain_and_one_that_is_over_its_end() -> None:
    over = replace(JOB, state="FAILED", is_running=False, is_over=True, reason="NonZeroExitCode")

    assert explain_job(JOB, (IDLE,), ()).findings == ()
    assert explain_job(over, (), ()).findings[0].what == "over: FAILED"
