"""Nobody of a gang is bound before every node of its job is locked for it; what is bound is left alone."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.placements import Gang, GangMember, PlacementState
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.member_states import member_states_behind
from sunk_pod_scheduler.gangs.model import BindMembers, GangAction, GangSeen, MemberSeen, Message, Notify
from sunk_pod_scheduler.gangs.ranks import unseated
from sunk_pod_scheduler.placement.actions import MarkStarted, Record, RecordReason, ReportLoss, Wait
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, LOOK_AGAIN_S, WAITING_FIRST_S, Limits
from sunk_pod_scheduler.placement.model import JobSeen
from sunk_pod_scheduler.podspec.namespace_policy import Identity
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.reasons import PodReason
from sunk_pod_scheduler.testing.builders import JOB, T0, job, lock, placement, pod

LATER = T0 + timedelta(seconds=WAITING_FIRST_S)
WANTED = ValidatedPod(cpus=1, memory_mib=100, identity=Identity(1, 1))
NODES = ("n0", "n1")
SHARED = {"u0": "n0", "u1": "n0", "u2": "n1", "u3": "n1"}
"""Two members a node."""
HELD = job(nodes=NODES, reason="JobHeldUser")
STARTED = job(nodes=NODES, is_marked_started=True)
WHY = f"job {JOB} waits in its prolog until n[0-1] is locked for it"
EVERYTHING_BUT_GRANTED = pytest.mark.parametrize(
    "ungranted", [(lock("n1"),), None], ids=["pending", "not read"]
)


def member(uid: str, *, kube_node: str = "") -> MemberSeen:
    seen = replace(pod(kube_node=kube_node), name=f"pod-{uid}")
    return MemberSeen(uid=uid, pod=seen, index=uid.removeprefix("u"), wanted=WANTED)


def record(seats: Mapping[str, str] = SHARED, **more: object) -> PlacementState:
    members = tuple(
        GangMember(uid=uid, pod=f"pod-{uid}", index=uid.removeprefix("u"), node=node)
        for uid, node in seats.items()
    )
    per_node = len(seats) // len(NODES)
    gang = Gang(
        kind="Job", members=members, cpus=1, memory_mib=100, members_per_node=per_node, policy="replace"
    )
    return replace(placement("started"), uid="gang-1", pod="train", roster=gang, **more)


def act(
    found: PlacementState,
    members: Mapping[str, MemberSeen],
    job: JobSeen,
    ungranted: tuple[LockState, ...] | None,
    announced_on: str = "",
) -> GangAction:
    seen = GangSeen(
        uid="gang-1",
        kind="Job",
        namespace="default",
        name="train",
        members=members,
        placement=found,
        job=job,
        announced_on=announced_on,
        ungranted=ungranted,
        kube_nodes={node: f"kube-{node}" for node in NODES},
    )
    aligned = member_states_behind(seen, LATER)
    seats = {state.uid: state for state in aligned.states} if aligned else {}
    return decide_gang(replace(seen, seats=seats), LATER, Limits())


def test_a_gang_whose_script_has_begun_is_not_stored_as_started_while_one_node_waits_for_its_lock() -> None:
    """Its user has held its job in its prolog: DeferBatch lets its script start then."""
    gang = record().roster
    assert gang is not None
    placed = replace(record(), phase="released", roster=unseated(gang))
    members = {uid: member(uid) for uid in SHARED}

    waits = act(placed, members, HELD, (lock("n1"),), "n0")
    assert waits == RecordReason(
        state=replace(placed, changed=LATER, reason=WHY), event=PodReason.WAITING_FOR_LOCK
    )
    assert isinstance(waits, RecordReason)
    assert act(waits.state, members, HELD, (lock("n1"),), "n0") == Wait(LOOK_AGAIN_S)
    assert act(placed, members, HELD, None, "n0") == Wait(ASK_AGAIN_S)
    started = act(placed, members, HELD, (), "n0")
    assert isinstance(started, Record)
    assert (started.state.phase, started.state.roster) == ("started", gang)


def test_a_gang_that_was_started_is_bound_nowhere_while_one_of_its_nodes_waits_for_its_lock() -> None:
    members = {uid: member(uid) for uid in SHARED}
    half = members | {uid: member(uid, kube_node="kube-n0") for uid in ("u0", "u1")}

    for there in (members, half):
        for found in (HELD, STARTED):
            waits = act(record(), there, found, (lock("n1"),))
            assert isinstance(waits, RecordReason)
            assert (waits.event, waits.state.phase) == (PodReason.WAITING_FOR_LOCK, "started")
            assert act(record(), there, found, None) == Wait(ASK_AGAIN_S)
    assert isinstance(act(record(), members, HELD, ()), MarkStarted)
    assert isinstance(act(record(), members, STARTED, ()), BindMembers)


@EVERYTHING_BUT_GRANTED
def test_members_that_run_get_their_next_job_and_a_replacement_waits_beside_them(
    ungranted: tuple[LockState, ...] | None,
) -> None:
    seats = {"u0": "n0", "u1": "n1"}
    members = {"u0": member("u0", kube_node="kube-n0"), "u1": member("u1")}
    lost = record(seats, lost=T0)

    assert isinstance(act(lost, members, HELD, ungranted), MarkStarted)
    told = act(lost, members, STARTED, ungranted)
    assert isinstance(told, ReportLoss)
    assert (told.state.phase, told.state.lost) == ("bound", None)
    assert not isinstance(act(told.state, members, STARTED, ungranted), BindMembers)
    assert isinstance(act(told.state, members, STARTED, ()), BindMembers)


def test_a_replacement_is_bound_once_the_node_of_its_seat_is_locked() -> None:
    seats = {"u0": "n0", "u9": "n1"}
    bound = replace(record(seats), phase="bound")
    members = {"u0": member("u0", kube_node="kube-n0"), "u9": member("u9")}

    note = Message(reason=PodReason.WAITING_FOR_LOCK, text=f"job {JOB} waits until n1 is locked for it")
    assert act(bound, members, STARTED, (lock("n1"),)) == Notify(notes={"u9": note}, after_s=LOOK_AGAIN_S)
    assert act(bound, members, STARTED, None) == Wait(ASK_AGAIN_S)
    for others in ((), (lock("n0"),)):
        binding = act(bound, members, STARTED, others)
        assert isinstance(binding, BindMembers)
        assert binding.kube_nodes == {"u9": "kube-n1"}


def test_a_replacement_whose_node_is_locked_does_not_wait_for_that_of_another() -> None:
    seats = {"u8": "n0", "u9": "n1"}
    bound = replace(record(seats), phase="bound")
    members = {"u8": member("u8"), "u9": member("u9")}

    binding = act(bound, members, STARTED, (lock("n1"),))

    assert isinstance(binding, BindMembers)
    assert binding.kube_nodes == {"u8": "kube-n0"}
