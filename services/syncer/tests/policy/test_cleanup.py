"""Which node records may be deleted, and which jobs may be put back into the queue."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_slurm.states import NodeState
from sunk_slurm.testing import job, node
from sunk_slurm.wire import CpusHeld, Job, JobResources, NodeHeld, NodesHeld
from sunk_syncer.policy.cleanup import are_many, why_kept
from sunk_syncer.policy.extra import content, merged, parsed
from sunk_syncer.policy.requeues import Lost, is_in_the_way, lost_prologs, why_not_down

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
POD = KubePodState(
    changed=T0, pod="n1", namespace="slurm", nodeset="compute", kube_node="k1", uid="u", phase="running"
)
OURS = merged(parsed(""), content(POD, None), T0)
IDLE = NodeState.of(["IDLE", "DYNAMIC_NORM"])


def kept(
    state: NodeState = IDLE,
    extra: str = OURS,
    *,
    reason: str = "",
    is_in_slice: bool = False,
    pod: KubePodState | None = None,
) -> str | None:
    return why_kept("n1", state, extra, reason, is_in_slice=is_in_slice, pod=pod)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("IDLE",), ""),
        (("IDLE",), "bad dimm"),  # Left there by an undrain of Slurm 24.11.
        (("IDLE", "NOT_RESPONDING"), ""),
        (("IDLE", "DRAIN"), "k8s: pod terminated"),
        (("IDLE", "DRAIN"), "k8s: prolog pre-hook failed (sunk:verify-undrain)"),
        (("IDLE", "DRAIN"), "k8s: cordon; was down: bad dimm"),  # It has come back since.
        (("DOWN",), ""),
        (("DOWN",), "k8s: requeue of job 7"),
        (("DOWN",), "undrained"),
        (("DOWN",), "Not responding"),
        (("DOWN",), "bad dimm : Not responding"),
        (("DOWN",), "Node unexpectedly rebooted"),
        (("DOWN", "DRAIN"), "k8s: pod terminated : Not responding"),
        (("DOWN", "DRAIN"), "k8s: pod pending deletion; was down: Not responding"),
        (("DOWN", "DRAIN"), "k8s: pod terminated; was down: k8s: requeue of job 7"),
    ],
)
def test_a_record_of_ours_without_a_node_goes(words: tuple[str, ...], reason: str) -> None:
    assert kept(NodeState.of([*words, "DYNAMIC_NORM"]), reason=reason) is None
    assert kept(pod=replace(POD, phase="gone")) is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("IDLE", "DRAIN"), "bad dimm"),
        (("IDLE", "DRAIN"), ""),
        (("IDLE", "DRAIN"), "nhc verify-undrain"),
        (("IDLE", "DRAIN"), "Kill task failed"),
        (("DOWN", "DRAIN"), "bad dimm : Not responding"),
        (("DOWN",), "bad dimm"),
        (("DOWN", "DRAIN"), "k8s: pod pending deletion; was down: bad dimm"),
    ],
)
def test_a_record_is_kept_with_a_drain_of_others_or_what_others_set_down(
    words: tuple[str, ...], reason: str
) -> None:
    assert kept(NodeState.of([*words, "DYNAMIC_NORM"]), reason=reason) is not None


@pytest.mark.parametrize(
    ("state", "extra"),
    [
        pytest.param(NodeState.of(["IDLE"]), OURS, id="slurm.conf names it"),
        pytest.param(NodeState.of(["MIXED", "DYNAMIC_NORM"]), OURS, id="a job runs"),
        pytest.param(NodeState.of(["IDLE", "COMPLETING", "DYNAMIC_NORM"]), OURS, id="a job completes"),
        pytest.param(NodeState.of(["DOWN", "COMPLETING", "DYNAMIC_NORM"]), OURS, id="down and completing"),
        pytest.param(NodeState.of(["UNKNOWN", "DYNAMIC_NORM"]), OURS, id="slurmctld has just started"),
        pytest.param(NodeState.of(["ODD", "DYNAMIC_NORM"]), OURS, id="a word of a newer Slurm"),
        pytest.param(IDLE, "", id="somebody else made it"),
        pytest.param(IDLE, "no json", id="its Extra says nothing"),
        pytest.param(IDLE, OURS.replace('"n1"', '"n2"'), id="its Extra was copied"),
    ],
)
def test_a_record_that_is_not_ours_or_in_use_is_kept(state: NodeState, extra: str) -> None:
    assert kept(state, extra) is not None


def test_a_record_is_kept_while_a_nodeslice_has_it_or_its_pod_is_there() -> None:
    assert kept(is_in_slice=True) is not None
    assert kept(pod=POD) is not None


@pytest.mark.parametrize(
    ("missing", "known", "is_many"),
    [(1, 1, False), (2, 2, True), (3, 100, False), (10, 100, False), (11, 100, True), (500, 500, True)],
)
def test_many_at_once_look_as_if_the_nodeslices_were_lost(missing: int, known: int, *, is_many: bool) -> None:
    assert are_many(missing, known) is is_many


def running(*nodes: str, shared: tuple[str, ...] = (), cpus: int = 1) -> Job:
    held = tuple(NodeHeld(name=name, cpus=CpusHeld(count=cpus)) for name in nodes)
    return replace(
        job(1, "RUNNING", nodes=nodes),
        shared=shared,
        job_resources=JobResources(nodes=NodesHeld(allocation=held)),
    )


OTHER = SlurmJobState(changed=T0, job=2, state="RUNNING", is_running=True, nodes="n[1-3]")


def test_only_a_job_that_runs_on_the_node_is_in_the_way() -> None:
    assert is_in_the_way(job(1, "RUNNING", nodes=("n1", "n2"), folded="n[1-2]"), "n2")
    assert is_in_the_way(job(1, "SUSPENDED", nodes=("n1",)), "n1")
    assert not is_in_the_way(job(1, "RUNNING", nodes=("n1",)), "n2")
    assert not is_in_the_way(job(1, "PENDING"), "n1")
    assert not is_in_the_way(job(1, "RUNNING", "COMPLETING", nodes=("n1",)), "n1")
    assert not is_in_the_way(job(1, "RUNNING", folded="n[1-"), "n1")
    assert not is_in_the_way(None, "n1")


def test_a_job_that_has_left_its_prolog_since_is_not_requeued_for_it() -> None:
    assert is_in_the_way(job(1, "RUNNING", nodes=("n1",), reason="Prolog"), "n1", "Prolog")
    assert not is_in_the_way(job(1, "RUNNING", nodes=("n1",)), "n1", "Prolog")


def test_a_node_is_set_down_only_for_a_job_that_has_it_for_itself() -> None:
    whole, all_cpus, part = running("n1", shared=("none",)), running("n1", cpus=4), running("n1")

    assert why_not_down(whole, node("n1"), ()) is None
    assert why_not_down(all_cpus, node("n1"), ()) is None
    assert "whole" in (why_not_down(part, node("n1"), ()) or "")
    assert "job 2" in (why_not_down(whole, node("n1"), (OTHER,)) or "")
    everywhere = replace(OTHER, nodes="n[1-999999999]")  # Nobody makes a list of that to find one name in it.
    assert "job 2" in (why_not_down(whole, node("n1"), (everywhere,)) or "")
    over = replace(OTHER, is_running=False)
    assert why_not_down(whole, node("n1"), (over, replace(OTHER, job=1))) is None


@given(st.integers(-10, 10))
def test_a_prolog_is_lost_where_slurmd_is_younger_than_the_job(seconds: int) -> None:
    in_prolog = replace(OTHER, reason="Prolog", started=T0)
    state = SlurmNodeState(
        changed=T0, node="n1", state="MIXED", slurmd_started=T0 + timedelta(seconds=seconds)
    )

    assert lost_prologs(in_prolog, (state,)) == (Lost(("n1",), is_certain=True) if seconds > 0 else Lost())
    assert lost_prologs(replace(in_prolog, reason=""), (state,)) == Lost()
    assert lost_prologs(replace(in_prolog, is_completing=True), (state,)) == Lost()
    assert lost_prologs(replace(in_prolog, started=None), (state,)) == Lost()
    assert lost_prologs(in_prolog, (replace(state, slurmd_started=None),)) == Lost()


def test_a_job_may_wait_for_the_prolog_of_any_node_whose_slurmd_is_as_old_as_the_job() -> None:
    in_prolog = replace(OTHER, reason="Prolog", started=T0)
    older = SlurmNodeState(changed=T0, node="n1", state="MIXED", slurmd_started=T0 - timedelta(hours=1))
    younger = replace(older, node="n2", slurmd_started=T0 + timedelta(seconds=5))

    assert lost_prologs(in_prolog, (older, younger)) == Lost(("n2",))
    assert lost_prologs(in_prolog, (None, younger)) == Lost(("n2",))
    assert lost_prologs(in_prolog, (older, None)) == Lost()
