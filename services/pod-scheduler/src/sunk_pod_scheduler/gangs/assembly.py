"""Pods that wait for the rest of their gang: until all are there nothing is submitted, so nothing is held.

Nobody is refused for good because others are missing: how long they wait only changes the words.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember, PlacementPhase, PlacementState
from sunk_pod_scheduler.gangs.job_shape import common, shape
from sunk_pod_scheduler.gangs.model import GangAction, GangSeen, MemberSeen, Message, Notify, SubmitGang
from sunk_pod_scheduler.gangs.ownership import newest
from sunk_pod_scheduler.placement.actions import Record, Wait
from sunk_pod_scheduler.placement.gang_membership import GangOptions
from sunk_pod_scheduler.placement.limits import (
    ASK_AGAIN_S,
    LOOK_AGAIN_S,
    WAITING_FIRST_S,
    Limits,
    first_of_gang,
)
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, JobUnknown
from sunk_pod_scheduler.placement.transitions import joined
from sunk_pod_scheduler.reasons import PodReason

WISHES_MAX: Final = 16
"""Kinds of Nodes that a gang may ask for: each kind is looked for among all Nodes."""
_SHOWN: Final = 8


def form(  # noqa: PLR0911 - a table of cases
    seen: GangSeen, now: datetime, limits: Limits
) -> GangAction:
    """Return the next step of a gang that has no placement."""
    if (adopted := _adopted(seen, now)) is not None:
        return adopted
    free = [member for member in seen.members.values() if member.is_free]
    if not free:
        return Wait()
    bad = {member.uid: _refusal(member.pod.problems) for member in free if member.pod.problems}
    if bad:
        waits = Message(
            reason=PodReason.WAITING_FOR_GANG,
            text=f"{_name(seen)}: {len(bad)} of its Pods cannot be passed to Slurm",
        )
        return Notify(notes={member.uid: bad.get(member.uid, waits) for member in free})
    if problems := _problems(seen, free):
        notes = dict.fromkeys((member.uid for member in free), _refusal(problems))
        return Notify(notes=notes, after_s=LOOK_AGAIN_S if seen.size_problem else None)
    if seen.size is None:
        return Wait(ASK_AGAIN_S)
    if len(free) < seen.size:
        coming = free[: _enough(seen, free, now, limits)]
        if not coming:
            return _incomplete(seen, free, seen.size, now, limits)
        return SubmitGang(attempt=_next_attempt(seen, now), gang=_gang(seen, coming))
    return SubmitGang(attempt=_next_attempt(seen, now), gang=_gang(seen, free[: seen.size]))


def _enough(seen: GangSeen, free: list[MemberSeen], now: datetime, limits: Limits) -> int:
    """Return with how many a gang may start that has waited for the others long enough; 0: it may not."""
    terms = free[0].terms
    if terms.min_available is None or now - _since(free, now) < timedelta(seconds=limits.gang_wait_s):
        return 0
    whole_nodes = len(free) - len(free) % terms.members_per_node
    return whole_nodes if whole_nodes >= _least(seen, free) else 0


def _least(seen: GangSeen, members: list[MemberSeen]) -> int:
    """Return with how many the gang may run: those that are left of it may be fewer than it says."""
    size = seen.size or len(members)
    return min(members[0].terms.min_available or size, size)


def _since(free: list[MemberSeen], now: datetime) -> datetime:
    return min((member.pod.created or now) for member in free)


def _refusal(problems: tuple[str, ...]) -> Message:
    return Message(reason=PodReason.VALIDATION_FAILED, text=joined(problems), is_warning=True)


def _name(seen: GangSeen) -> str:
    return f"{seen.kind} {seen.namespace}/{seen.name}"


def _problems(seen: GangSeen, free: list[MemberSeen]) -> tuple[str, ...]:
    """Return why these Pods cannot be one job, however many there are."""
    first = free[0]
    problems: list[str] = [seen.size_problem] if seen.size_problem else []
    if len({_terms(member) for member in free} - {None}) > 1 or len({_but_size(one) for one in free}) > 1:
        problems.append(f"the Pods of {_name(seen)} differ in their gang annotations")
    valid = [member.wanted for member in free if member.wanted is not None]
    if any(common(wanted) != common(valid[0]) for wanted in valid):
        problems.append(
            f"the Pods of {_name(seen)} differ in what they request from Slurm: one job has one account, "
            "partition, QoS, user, GPU type and so on"
        )
    if (wishes := len({member.wish for member in free})) > WISHES_MAX:
        problems.append(
            f"the Pods of {_name(seen)} require {wishes} kinds of Nodes by nodeSelector, node affinity and "
            f"tolerations: one job has {WISHES_MAX} at most"
        )
    per_node = first.terms.members_per_node
    declared = first.terms.size or seen.declared or seen.size
    if declared is not None and declared % per_node:  # Some may have succeeded: then one node has fewer.
        problems.append(
            f"sunk.coreweave.com/gang-members-per-node: {declared} Pods cannot be divided into groups of "
            f"{per_node}, one group on each node"
        )
    if per_node > 1 and (twice := _shared_port(free)):
        problems.append(
            f"spec.containers[].ports[].hostPort: two Pods of {_name(seen)} request {twice}, and "
            f"gang-members-per-node puts {per_node} on one node"
        )
    least = first.terms.min_available
    if least is not None and first.terms.size is not None and least > first.terms.size:
        problems.append(f"sunk.coreweave.com/gang-min-available: {least} is more than its gang-size")
    return tuple(problems)


def _terms(member: MemberSeen) -> GangOptions | None:
    """Return on which terms it is in the gang; None where what it asked for was written over."""
    is_lost = member.published_size is not None and member.terms.size is None
    return None if is_lost else member.terms


def _but_size(member: MemberSeen) -> GangOptions:
    return replace(member.terms, size=None)


def _shared_port(free: list[MemberSeen]) -> str:
    """Return a host port that more than one member needs; empty where there is none."""
    counted = Counter(port for member in free for port in member.host_ports)
    return next((f"{port}/{protocol}" for (protocol, port), count in counted.items() if count > 1), "")


def _incomplete(
    seen: GangSeen, free: list[MemberSeen], size: int, now: datetime, limits: Limits
) -> GangAction:
    """Say who is missing, but neither of a moment's wait nor at each Pod that comes: all would be told."""
    waited = now - _since(free, now)
    quiet = now - max(member.pod.created or now for member in free)
    first, last = timedelta(seconds=WAITING_FIRST_S), timedelta(seconds=limits.gang_wait_s)
    if quiet < first:
        return Wait((first - quiet).total_seconds())
    is_late = waited >= last
    text = f"{_name(seen)} has {len(free)} of {size} Pods{_missing(free, size)}"
    note = Message(
        reason=PodReason.GANG_INCOMPLETE if is_late else PodReason.WAITING_FOR_GANG,
        text=text,
        is_warning=is_late,
    )
    notes = dict.fromkeys((member.uid for member in free), note)
    return Notify(notes=notes, after_s=None if is_late else (last - waited).total_seconds())


def _missing(free: Iterable[MemberSeen], size: int) -> str:
    """Return which Pods are missing, where the workload counts them from 0."""
    there = {member.index for member in free}
    if "" in there or any("." in index for index in there):
        return ""
    missing = [*islice((str(index) for index in range(size) if str(index) not in there), _SHOWN)]
    more = size - len(there) - len(missing)
    return f"; missing: {', '.join(missing)}" + (f" and {more} more" if more > 0 else "")


def _next_attempt(seen: GangSeen, now: datetime) -> int:
    """Return a number that no earlier job of the gang had: its token would let that one speak."""
    claims = [member.pod.claim for member in seen.members.values()]
    after = [claim.attempt + 1 for claim in claims if claim is not None]
    return max([first_of_gang(now), *after])


def _gang(seen: GangSeen, members: list[MemberSeen]) -> Gang:
    wanted = [member.wanted for member in members if member.wanted is not None]
    return Gang(
        kind=seen.kind,
        members=tuple(
            GangMember(
                uid=member.uid,
                pod=member.pod.name,
                index=member.index,
                node=member.node,
                has_succeeded=member.has_succeeded,
            )
            for member in members
        ),
        members_per_node=members[0].terms.members_per_node,
        policy=members[0].terms.policy,
        min_available=0 if members[0].terms.min_available is None else _least(seen, members),
        cpus=max((one.cpus for one in wanted), default=0),
        memory_mib=max((one.memory_mib for one in wanted), default=0),
        gpus=max((one.gpus for one in wanted), default=0),
        shape=shape(wanted[0]) if wanted else "",
    )


def _adopted(seen: GangSeen, now: datetime) -> GangAction | None:
    """The bucket was lost; the Pods remember their job, and each later step follows from what is."""
    claim = newest(seen)
    if claim is None:
        return None
    if isinstance(seen.job, JobUnknown):
        return Wait(ASK_AGAIN_S)
    ours = [
        member
        for member in seen.members.values()
        if (member.is_able or member.is_on_node)
        and member.pod.claim is not None
        and member.pod.claim.job == claim.job
    ]
    ranked = sorted(ours, key=lambda member: (member.rank is None, member.rank or 0))
    job, is_whole = seen.job, _is_whole(seen, ranked)
    if not (_is_there(job) and is_whole) and not any(member.is_on_node for member in ours):
        return None
    is_taken = isinstance(job, JobGone) and job.is_taken
    was_theirs = claim.is_signed and not is_taken
    runs = is_whole and all(one.has_succeeded or (one.is_on_node and one.node) for one in ranked)
    is_gone = isinstance(job, JobGone) and not job.has_ended and claim.is_signed
    is_reported_lost = any(member.pod.is_reported_lost for member in ranked)
    phase: PlacementPhase = "ending"
    if is_whole and _is_there(job):
        phase = "submitted"
    elif runs and is_gone:
        phase = "submitted" if is_taken else "bound"
    state = PlacementState(
        changed=now,
        uid=seen.uid,
        namespace=seen.namespace,
        pod=seen.name,
        phase=phase,
        attempt=claim.attempt + 1 if is_taken else claim.attempt,
        job=claim.job if _is_there(job) or was_theirs else None,
        reason="the stored state of the gang was lost, and some of its Pods or its job are gone"
        if phase == "ending"
        else "",
        lost=now if runs and (is_gone or (_is_there(job) and is_reported_lost)) else None,
        lost_job=claim.job if is_taken and claim.is_signed else None,
        created=ranked[0].pod.created,
        roster=_seats(seen, ranked, now),
    )
    return Record(state=state)


def _seats(seen: GangSeen, ranked: list[MemberSeen], now: datetime) -> Gang:
    """Return the gang with a seat for each of *ranked*, and where it may run with fewer, vacant ones."""
    gang, size = _gang(seen, ranked), _published_size(ranked)
    if not gang.min_available:
        return gang
    seats = tuple(
        seat if one.is_able else replace(seat, vacant=now)
        for one, seat in zip(ranked, gang.members, strict=True)
    )
    by_rank = {one.rank: seat for one, seat in zip(ranked, seats, strict=True)}
    ranks = range(size or 0)
    if len(by_rank) == len(ranked) and all(rank in ranks for rank in by_rank):
        # Of a Pod that is gone nothing but its rank is known.
        seats = tuple(by_rank.get(rank) or GangMember(uid="", pod="", vacant=now) for rank in ranks)
    return replace(gang, members=seats)


def _is_there(job: AnyJob) -> bool:
    """Whether a job that is the gang's is not over."""
    return isinstance(job, JobSeen) and job.is_the_pods and not job.is_over


def _is_whole(seen: GangSeen, ranked: list[MemberSeen]) -> bool:
    """Whether the gang may go on with these: nobody is missing of them, or it may run with so few."""
    able, size = [one for one in ranked if one.is_able], _published_size(ranked)
    if not able:
        return False
    if len(able) == size or (size is None and sum(one.is_well for one in able) == seen.size):
        return True
    return able[0].terms.min_available is not None and len(able) >= _least(seen, able)


def _published_size(ranked: list[MemberSeen]) -> int | None:
    """Return how many there are in the gang's job, as its Pods were told."""
    return next((one.published_size for one in ranked if one.published_size is not None), None)


def full(seen: GangSeen, gang: Gang) -> dict[str, Message]:
    """Return the Event for Pods without a seat in the gang."""
    seated = {member.uid for member in gang.members}
    note = Message(
        reason=PodReason.GANG_FULL,
        text=f"{_name(seen)} is placed already, with {len(gang.members)} other Pods",
    )
    found = seen.members.values()
    return {member.uid: note for member in found if member.is_free and member.uid not in seated}
