"""Which Pods are a gang, who gets which rank, what their job asks for, what is said while some lack."""

import re
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember, PlacementPhase
from sunk_kube.objects import KubeStruct, OwnerReference
from sunk_kube.pods import Pod
from sunk_pod_scheduler.adapters.workload_client import (
    JobSet,
    JobSetSpec,
    JobSetStatus,
    JobSpec,
    JobStatus,
    JobTemplate,
    KubeJob,
    ReplicatedJob,
    ReplicatedJobStatus,
    StartupPolicy,
)
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.explain import explain_member
from sunk_pod_scheduler.gangs.job_description import describe_gang
from sunk_pod_scheduler.gangs.member_states import member_states_behind
from sunk_pod_scheduler.gangs.model import (
    BindMembers,
    GangAction,
    GangSeen,
    MemberSeen,
    Notify,
    SubmitGang,
    SyncMemberStates,
)
from sunk_pod_scheduler.gangs.ranks import fitted, ordered, seated
from sunk_pod_scheduler.placement.actions import CancelJob, Forget, GiveUp, Record, Wait
from sunk_pod_scheduler.placement.gang_membership import (
    GangOptions,
    gang_options,
    membership,
    natural_order,
    order,
)
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.model import JobGone
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.namespace_policy import Identity
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.testing.builders import JOB, KEY, T0, job, manifest, placement, pod

WANTED = ValidatedPod(cpus=2, memory_mib=100, gpus=1, identity=Identity(1, 1))
ALONE = GangOptions()
PREFIX = "sunk.coreweave.com/"


LWS = "leaderworkerset.sigs.k8s.io/"
JOBSET = "jobset.sigs.k8s.io/"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


def labelled(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Pod:
    found = manifest(annotations=annotations)
    return replace(found, metadata=replace(found.metadata, labels=labels))


def owned_by_job(name: str, uid: str, index: int) -> Pod:
    found = manifest(annotations={"batch.kubernetes.io/job-completion-index": str(index)})
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=uid, controller=True)
    return replace(found, metadata=replace(found.metadata, owner_references=(owner,)))


def test_the_pods_of_one_job_are_of_one_kin_and_those_of_its_namesake_are_not() -> None:
    first, second = membership(owned_by_job("train", "u1", 0)), membership(owned_by_job("train", "u1", 1))
    other = membership(owned_by_job("train", "u2", 0))

    assert first is not None
    assert second is not None
    assert other is not None
    assert (first.kind, first.title, first.index) == ("Job", "Job default/train", "0")
    assert first.id == second.id
    assert first.id != other.id


def test_each_replica_of_a_leader_worker_set_is_a_gang_whose_size_its_pods_say() -> None:
    """Labels and annotations as LeaderWorkerSet 0.8 writes them on a worker; a leader has no leader-name."""
    labels = {
        LWS + "name": "llm",
        LWS + "worker-index": "3",
        LWS + "group-key": "5f1b0e6d6a3ab0ee9b0c9e9d1f7b2c8a4d3e2f10",
        LWS + "template-revision-hash": "6b8c9d7f5c",
    }
    noted = {LWS + "size": "4", LWS + "leader-name": "llm-0"}
    first = membership(labelled({**labels, LWS + "group-index": "0"}, noted))
    second = membership(labelled({**labels, LWS + "group-index": "1"}, {LWS + "size": "4"}))

    assert first is not None
    assert second is not None
    assert (first.kind, first.size, first.index) == ("LeaderWorkerSet", 4, "3")
    assert first.id != second.id


def of_job_set(uid: str, restart: int, job: int, index: int) -> Pod:
    """Return a Pod with the labels and annotations that JobSet 0.12 and Kubernetes' Job controller write."""
    marks = {
        JOBSET + "jobset-name": "train",
        JOBSET + "jobset-uid": uid,
        JOBSET + "replicatedjob-name": "workers",
        JOBSET + "replicatedjob-replicas": "3",
        JOBSET + "global-replicas": "3",
        JOBSET + "job-index": str(job),
        JOBSET + "job-global-index": str(job),
        JOBSET + "job-key": "0b3f0a4b1a7de5e9a3c9c5b9f6f1f0f3a0d5b7c2",
        JOBSET + "restart-attempt": str(restart),
        JOBSET + "group-name": "default",
        JOBSET + "group-replicas": "3",
        JOBSET + "job-group-index": str(job),
    }
    of_kube = {
        "batch.kubernetes.io/controller-uid": f"of-{job}",
        "batch.kubernetes.io/job-name": f"train-workers-{job}",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    found = labelled({**marks, **of_kube}, {**marks, "batch.kubernetes.io/job-completion-index": str(index)})
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=f"train-workers-{job}", uid=f"of-{job}", controller=True
    )
    return replace(found, metadata=replace(found.metadata, owner_references=(owner,)))


def test_a_job_set_is_a_gang_anew_at_each_restart_and_its_pods_are_counted_by_job_and_index() -> None:
    first, second = membership(of_job_set("u1", 0, 2, 5)), membership(of_job_set("u1", 0, 1, 5))
    restarted, namesake = membership(of_job_set("u1", 1, 2, 5)), membership(of_job_set("u2", 0, 2, 5))

    assert first is not None
    assert second is not None
    assert restarted is not None
    assert namesake is not None
    assert (first.kind, first.title, first.index) == ("JobSet", "JobSet default/train", "2.5")
    assert first.id == second.id
    assert len({first.id, restarted.id, namesake.id}) == 3
    assert order("2.5", "a") < order("2.10", "a") < order("10.0", "a")


def jobs(name: str, replicas: int, parallelism: int, completions: int | None = None) -> ReplicatedJob:
    spec = JobSpec(parallelism=parallelism, completions=completions)
    return ReplicatedJob(name=name, replicas=replicas, template=JobTemplate(spec=spec))


def test_a_job_set_has_the_pods_of_all_its_jobs_but_of_those_that_have_succeeded() -> None:
    spec = JobSetSpec(replicated_jobs=(jobs("leader", 1, 1, 1), jobs("workers", 3, 4, 4)))
    status = JobSetStatus(replicated_jobs_status=(ReplicatedJobStatus(name="workers", succeeded=1),))

    assert (JobSet(spec=spec).size, JobSet(spec=spec).problem) == (13, "")
    assert JobSet(spec=spec, status=status).size == 9


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (JobSetSpec(replicated_jobs=(jobs("workers", 1, 2, 4),)), "completions"),
        (JobSetSpec(replicated_jobs=(replace(jobs("late", 1, 1), depends_on=(KubeStruct(),)),)), "dependsOn"),
        (
            JobSetSpec(
                replicated_jobs=(jobs("a", 1, 1),),
                startup_policy=StartupPolicy(startup_policy_order="InOrder"),
            ),
            "InOrder",
        ),
    ],
)
def test_a_job_set_whose_pods_are_never_all_there_says_why(spec: JobSetSpec, said: str) -> None:
    assert said in JobSet(spec=spec).problem


def test_a_pod_groups_label_counts_and_the_word_none_keeps_a_pod_alone() -> None:
    found = membership(labelled({POD_GROUP: "ring"}))
    assert found is not None
    assert (found.kind, found.name) == ("PodGroup", "ring")

    assert membership(labelled({POD_GROUP: "ring"}, {PREFIX + "gang": "none"})) is None
    assert membership(manifest()) is None


@pytest.mark.parametrize(
    ("completions", "parallelism", "succeeded", "is_gang", "size"),
    [
        (4, 4, 0, True, 4),
        (4, 4, 1, True, 3),
        (4, 2, 0, False, 4),
        (1, 1, 0, False, 1),
        (None, 4, 0, False, 1),
    ],
)
def test_a_job_is_a_gang_if_it_runs_all_its_pods_at_once(
    completions: int | None, parallelism: int, succeeded: int, *, is_gang: bool, size: int
) -> None:
    spec = JobSpec(completions=completions, parallelism=parallelism)
    found = KubeJob(spec=spec, status=JobStatus(succeeded=succeeded))

    assert (found.is_gang, found.size) == (is_gang, size)


def test_all_that_is_wrong_with_the_annotations_is_said_at_once() -> None:
    _, problems = gang_options(
        {
            PREFIX + "gang-size": "-1",
            PREFIX + "gang-members-per-node": "many\n",
            PREFIX + "gang-policy": "pray",
        }
    )

    assert len(problems) == 3
    assert gang_options({PREFIX + "gang-size": "8"})[0] == GangOptions(size=8)


@given(st.lists(st.sampled_from([f"gpu-{number}" for number in range(20)]), unique=True), st.data())
def test_neighbours_in_the_network_are_neighbours_in_rank(nodes: list[str], data: st.DataObject) -> None:
    leaf = st.tuples(st.sampled_from("ab"), st.sampled_from("123"))
    switches = {name: data.draw(leaf) for name in nodes}
    found = ordered(nodes, switches)

    assert sorted(found) == sorted(nodes)
    for depth in (1, 2):
        below = [switches[name][:depth] for name in found]
        changes = sum(one != other for one, other in pairwise(below))
        assert changes == max(0, len(set(below)) - 1)


def by_parts(name: str) -> tuple[object, ...]:
    """What `natural_order` means, in plain words: texts as they are, numbers by their value."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


@given(st.lists(st.text("a-.019", max_size=12), min_size=2, max_size=8))
def test_names_are_in_the_order_of_their_texts_and_numbers(names: list[str]) -> None:
    assert [by_parts(name) for name in sorted(names, key=natural_order)] == sorted(map(by_parts, names))


def test_names_of_many_numbers_are_compared_as_one_text() -> None:
    """Thousands of members are sorted in one step: a tuple of hundreds of parts took 300 ms."""
    long = "1-" * 120

    assert isinstance(natural_order(long), str)
    assert len(natural_order(long)) <= 2 * len(long) + 1
    assert natural_order(long + "2") < natural_order(long + "10") < natural_order(long + "010a")


def test_without_topology_ranks_follow_the_numbers_in_the_names() -> None:
    assert ordered(["n-10", "n-9", "n-1"], {}) == ("n-1", "n-9", "n-10")
    assert natural_order("n-2") < natural_order("n-10")


@given(st.integers(1, 5), st.integers(1, 4))
def test_each_node_gets_as_many_members_as_were_asked_for_in_the_order_of_ranks(
    nodes: int, per_node: int
) -> None:
    names = tuple(f"gpu-{number}" for number in range(nodes))
    members = tuple(GangMember(uid=str(rank), pod=str(rank)) for rank in range(nodes * per_node))
    found = seated(Gang(kind="Job", members=members, members_per_node=per_node), names)

    assert found is not None
    assert [one.node for one in found.members] == [name for name in names for _ in range(per_node)]
    assert seated(found, names[1:]) is None


def seen(*members: MemberSeen, size: int | None = 3, size_problem: str = "") -> GangSeen:
    return GangSeen(
        uid="gang-1",
        kind="Job",
        namespace="default",
        name="train",
        size=size,
        size_problem=size_problem,
        members={one.uid: one for one in members},
    )


def member(
    index: int, *, terms: GangOptions = ALONE, wanted: ValidatedPod = WANTED, problem: str = ""
) -> MemberSeen:
    problems = (problem,) if problem else ()
    return MemberSeen(
        uid=f"uid-{index}",
        pod=replace(pod(problems=problems), name=f"train-{index}"),
        index=str(index),
        terms=terms,
        wanted=None if problem else wanted,
    )


def after(found: GangSeen, seconds: float) -> GangAction:
    return decide_gang(found, T0 + timedelta(seconds=seconds), Limits(gang_wait_s=60))


def notes(action: GangAction) -> dict[str, tuple[str, str]]:
    assert isinstance(action, Notify)
    return {uid: (note.reason, note.text) for uid, note in action.notes.items()}


def test_nothing_is_submitted_before_all_are_there_and_who_is_missing_is_said() -> None:
    found = seen(member(0), member(2))

    assert isinstance(after(found, 1), Wait)
    said = ("WaitingForGang", "Job default/train has 2 of 3 Pods; missing: 1")
    assert notes(after(found, 6)) == {"uid-0": said, "uid-2": said}
    assert notes(after(found, 61))["uid-0"][0] == "GangIncomplete"
    assert isinstance(after(seen(member(0), member(1), member(2)), 61), SubmitGang)


def test_while_pods_still_come_nobody_is_told_how_many_are_missing() -> None:
    last = replace(member(2), pod=replace(member(2).pod, created=T0 + timedelta(seconds=57)))
    found = seen(member(0), last)

    assert after(found, 58) == Wait(4.0)
    assert after(found, 61) == Wait(1.0)
    assert notes(after(found, 62))["uid-2"][0] == "GangIncomplete"


TWO_OF_FOUR = GangOptions(size=4, min_available=2)


def test_a_gang_that_may_start_with_fewer_waits_for_all_first_and_then_takes_whole_nodes() -> None:
    found = seen(*(member(index, terms=TWO_OF_FOUR) for index in (0, 1, 3)), size=4)
    early, late = after(found, 59), after(found, 60)
    by_two = replace(TWO_OF_FOUR, members_per_node=2)
    paired = after(seen(*(member(index, terms=by_two) for index in (0, 1, 3)), size=4), 60)
    too_few = after(seen(member(0, terms=TWO_OF_FOUR), size=4), 61)

    assert notes(early)["uid-0"][0] == "WaitingForGang"
    assert isinstance(late, SubmitGang)
    assert [one.uid for one in late.gang.members] == ["uid-0", "uid-1", "uid-3"]
    assert isinstance(paired, SubmitGang)
    assert [one.uid for one in paired.gang.members] == ["uid-0", "uid-1"]
    assert notes(too_few)["uid-0"][0] == "GangIncomplete"


def test_slurm_may_give_a_gang_any_number_of_nodes_between_its_least_and_all() -> None:
    found = seen(*(member(index, terms=TWO_OF_FOUR) for index in range(4)), size=4)
    action = after(found, 0)
    assert isinstance(action, SubmitGang)
    made = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)
    job = describe_gang(found, action.gang, NodeChoice(), 0, made, wanted=WANTED)
    again = describe_gang(
        found, action.gang, NodeChoice(required=("a", "b", "c", "d")), 1, made, wanted=WANTED
    )

    assert (job.minimum_nodes, job.maximum_nodes, job.tasks, job.tasks_per_node) == (2, 4, None, 1)
    assert (again.minimum_nodes, again.maximum_nodes, again.tasks) == (4, 4, 4)
    assert [one.uid for one in fitted(action.gang, ("n-1", "n-2", "n-3")).members] == [
        "uid-0",
        "uid-1",
        "uid-2",
    ]
    assert fitted(action.gang, ("n-1",)) == action.gang


def test_more_at_least_than_there_are_is_refused() -> None:
    _, text = notes(after(seen(member(0, terms=GangOptions(size=3, min_available=4))), 0))["uid-0"]

    assert "gang-min-available: 4 is more than its gang-size" in text


def test_who_asks_why_a_member_is_not_placed_is_told_what_its_gang_lacks() -> None:
    found = seen(member(0), member(2))
    limits, later = Limits(gang_wait_s=60), T0 + timedelta(seconds=6)
    (lacking,) = explain_member(found, "uid-0", later, limits)
    (early,) = explain_member(found, "uid-0", T0, limits)

    assert lacking.because == "Job default/train has 2 of 3 Pods; missing: 1"
    assert early.because == "2 of 3 Pods exist"


def test_one_pod_that_is_not_valid_keeps_the_others_waiting_and_each_is_told() -> None:
    said = notes(after(seen(member(0), member(1), member(2, problem="no CPU")), 0))

    assert said["uid-2"] == ("ValidationFailed", "no CPU")
    assert said["uid-0"][0] == "WaitingForGang"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (seen(member(0), member(1, terms=GangOptions(policy="replace"))), "gang annotations"),
        (
            seen(member(0), member(1, wanted=replace(WANTED, requested=JobOptions(account="a")))),
            "what they request",
        ),
        (seen(member(0, terms=GangOptions(members_per_node=2)), size=3), "gang-members-per-node"),
        (seen(member(0), size=None, size_problem="gang-size: must say"), "gang-size"),
        (
            seen(*(replace(member(kind), wish=bytes([kind])) for kind in range(17))),
            "require 17 kinds of Nodes by nodeSelector, node affinity and tolerations: one job has 16",
        ),
    ],
)
def test_what_cannot_be_one_job_is_refused_in_words(found: GangSeen, words: str) -> None:
    reason, text = notes(after(found, 0))["uid-0"]

    assert reason == "ValidationFailed"
    assert words in text


def test_the_job_has_room_for_the_largest_member_on_every_seat() -> None:
    large = replace(WANTED, cpus=3, memory_mib=400)
    both = GangOptions(members_per_node=2)
    found = seen(member(0, terms=both), member(1, terms=both, wanted=large), size=2)
    action = after(found, 0)
    assert isinstance(action, SubmitGang)
    made = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)
    job = describe_gang(found, action.gang, NodeChoice(), 0, made, wanted=WANTED)

    assert (job.minimum_nodes, job.maximum_nodes, job.tasks, job.tasks_per_node) == (1, 1, 2, 2)
    assert job.cpus_per_task == 3
    assert job.memory_per_node is not None
    assert job.memory_per_node.value == 800
    assert (job.tres_per_node, job.shared) == ("gres/gpu:2", ("user",))
    assert (job.name, job.hold, job.requeue) == ("default/train", True, False)


def running(*ends: dict[str, object]) -> GangSeen:
    """Return a gang of which all were bound and run, but for what *ends* says of each."""
    free = [member(rank) for rank in range(len(ends))]
    forming = after(seen(*free, size=len(ends)), 0)
    assert isinstance(forming, SubmitGang)
    nodes = {f"n-{rank}": f"k-{rank}" for rank in range(len(ends))}
    gang = seated(forming.gang, tuple(nodes))
    assert gang is not None
    members = {
        one.uid: replace(one, pod=replace(one.pod, kube_node=kube_node, **end))
        for one, kube_node, end in zip(free, nodes.values(), ends, strict=True)
    }
    return replace(
        seen(size=len(ends)),
        members=members,
        placement=replace(placement("bound"), roster=gang),
        job=job(nodes=tuple(nodes), is_marked_started=True),
        kube_nodes=nodes,
    )


def with_its_notes(found: GangSeen, limits: Limits) -> tuple[GangSeen, GangAction]:
    """Return *found* once its members' placements are stored and who succeeded is noted; and what is next."""
    while True:
        match action := decide_gang(found, T0, limits):
            case SyncMemberStates(states=states):
                found = replace(found, seats={state.uid: state for state in states})
            case Record(state=state) if state.phase == "bound" and state.silent is None:
                found = replace(found, placement=state)
            case _:
                return found, action


SUCCEEDED: dict[str, object] = {"is_over": True, "exit_code": 0}
FAILED: dict[str, object] = {"is_over": True, "exit_code": 3}
TERMINATED: dict[str, object] = {"is_over": True, "is_terminating": True, "exit_code": 143}
"""Deleted, and ended by SIGTERM."""


@pytest.mark.parametrize(
    ("ends", "exit_code"),
    [
        pytest.param([SUCCEEDED, TERMINATED], 0, id="its workload was done with one, and deleted the other"),
        pytest.param([TERMINATED, TERMINATED], 0, id="its workload was suspended"),
        pytest.param([TERMINATED, FAILED], 3, id="one failed, and its workload deleted the other"),
    ],
)
def test_only_a_member_that_ended_by_itself_gives_its_gang_an_exit_code(
    ends: list[dict[str, object]], exit_code: int
) -> None:
    _, over = with_its_notes(running(*ends), Limits())

    assert isinstance(over, Record)
    assert (over.state.phase, over.state.exit_code) == ("ending", exit_code)


def test_a_gang_whose_script_is_dead_ends_though_slurm_says_running() -> None:
    limits = Limits(silent_s=15)

    found, first = with_its_notes(replace(running({}, {}), heartbeat="cut"), limits)
    assert found.placement is not None
    quiet = replace(found.placement, silent=T0)

    assert first == Record(state=quiet)
    later = decide_gang(replace(found, placement=quiet), T0 + timedelta(seconds=15), limits)

    assert isinstance(later, Record)
    assert (later.state.phase, "is dead" in later.state.reason) == ("ending", True)


def test_a_running_gang_gets_another_job_if_no_slurmd_acknowledged_the_launch_of_its_next_one() -> None:
    found = running({}, {})
    assert found.placement is not None
    released = replace(found.placement, phase="released", lost=T0)
    requeued = replace(job("PENDING", reason="BeginTime"), is_requeued=True)

    _, again = with_its_notes(replace(found, placement=released, job=requeued), Limits())

    assert isinstance(again, GiveUp)
    assert (again.job, again.state.phase, again.state.job, again.state.lost) == (JOB, "submitted", None, T0)
    assert again.state.roster == released.roster


def test_members_that_run_without_a_job_are_told_so_and_one_that_is_to_come_waits() -> None:
    found = running({}, {})
    assert found.placement is not None
    first, second = found.members.values()
    waits = replace(second, pod=replace(second.pod, kube_node=""))
    again = replace(found.placement, phase="submitted", job=None, lost=T0, lost_job=JOB)
    found = replace(found, placement=again, members={first.uid: first, waits.uid: waits})

    behind = member_states_behind(found, T0)

    assert behind is not None
    assert [(one.uid, one.phase, one.lost, one.lost_job) for one in behind.states] == [
        (first.uid, "submitted", T0, JOB),
        (waits.uid, "submitted", None, None),
    ]
    held = replace(again, phase="bound", job=JOB + 1, lost=None, lost_job=None)
    seats = {one.uid: one for one in behind.states}
    after_it = member_states_behind(replace(found, placement=held, seats=seats), T0)
    assert after_it is not None
    assert {one.lost for one in after_it.states} == {None}


def unserved(found: GangSeen, *kube_nodes: str) -> GangSeen:
    """Return *found*, whose Pods another scheduler serves by now, on *kube_nodes*."""
    members = {
        one.uid: replace(one, pod=replace(one.pod, is_served=False, kube_node=kube_node))
        for one, kube_node in zip(found.members.values(), kube_nodes, strict=True)
    }
    return replace(found, members=members)


@pytest.mark.parametrize("phase", ["submitted", "released", "started"])
@pytest.mark.parametrize("kube_nodes", [("", ""), ("of-another-1", "of-another-2")])
def test_a_gang_that_another_scheduler_serves_by_now_is_left_to_it(
    phase: PlacementPhase, kube_nodes: tuple[str, str]
) -> None:
    found = running({}, {})
    assert found.placement is not None
    found = unserved(replace(found, placement=replace(found.placement, phase=phase)), *kube_nodes)

    found, left = with_its_notes(found, Limits())

    assert isinstance(left, Record)
    assert (left.state.phase, left.state.is_pod_present) == ("ended", False)
    waits = replace(found, placement=left.state, job=job("PENDING"))
    assert with_its_notes(waits, Limits())[1] == CancelJob(JOB)
    assert with_its_notes(replace(waits, job=JobGone()), Limits())[1] == Forget()


def test_a_gang_of_which_we_have_bound_a_member_is_bound_to_its_end() -> None:
    found = running({}, {})
    assert found.placement is not None
    started = replace(found, placement=replace(found.placement, phase="started"))

    _, action = with_its_notes(unserved(started, "k-0", ""), Limits())

    assert isinstance(action, BindMembers)


def test_a_member_that_has_no_seat_keeps_none_from_theirs() -> None:
    """So it is where an older store came back in which the gang had no nodes yet."""
    found = running({}, {})
    assert found.placement is not None
    assert found.placement.roster is not None
    first, other = found.placement.roster.members
    waits = found.members[other.uid]
    record = replace(
        found.placement,
        phase="started",
        roster=replace(found.placement.roster, members=(first, replace(other, node=""))),
    )
    members = {**found.members, other.uid: replace(waits, pod=replace(waits.pod, kube_node=""))}

    found, action = with_its_notes(replace(found, placement=record, members=members), Limits())

    assert found.placement is not None
    assert found.placement.phase == "bound"
    assert notes(action) == {other.uid: ("SeatDoesNotFit", f"job {JOB} has no node for it")}


def test_in_a_running_gang_too_a_member_without_a_seat_keeps_none_from_theirs() -> None:
    found = running({}, {}, {})
    assert found.placement is not None
    assert found.placement.roster is not None
    first, second, third = found.placement.roster.members
    roster = replace(found.placement.roster, members=(first, second, replace(third, node="")))
    unbound = {
        uid: replace(found.members[uid], pod=replace(found.members[uid].pod, kube_node=""))
        for uid in (second.uid, third.uid)
    }
    found = replace(
        found,
        placement=replace(found.placement, roster=roster),
        members={**found.members, **unbound},
        ungranted=(),
    )

    _, action = with_its_notes(found, Limits())

    assert isinstance(action, BindMembers)
    assert list(action.kube_nodes) == [second.uid]
