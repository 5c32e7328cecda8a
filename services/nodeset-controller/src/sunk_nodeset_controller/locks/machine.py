"""The lock of one Node as a state machine: from what is seen to the wanted lock and the answers.

What must stay true: a lock is granted only from a list of Pods that was read after the taint was set.
In that list a Pod counts as another job's own only if Slurm confirmed the job after the list. A holder
ends by its release, or by what Slurm said *after* the job came, never by silence. What was seen of a
job before its release no longer counts, so a bus that lags cannot bring the job back. A placeholder
holds the lock as long as its Pod is there.

Source: SUNK's documents, "Node locking".
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec.structs import replace

from sunk_events.locks import LockLevel, LockValue
from sunk_nodeset_controller.locks.eviction import again_s
from sunk_nodeset_controller.locks.model import (
    OPEN,
    Answer,
    Blockers,
    Decision,
    Granted,
    Holder,
    JobSeen,
    LockRequest,
    NodeLock,
    NotRunning,
    Rules,
    Seen,
    Step,
    Unsure,
    Waiting,
)

Stand = Literal["off", "broken", "on"]
"""Neither annotation nor taint; one without the other; both."""
Need = Literal["none", "lingering", "drained", "held", "waited for"]
"""No holder; none since a moment ago; none, but a failed lock has drained the node for Pods; all are granted;
one or more are not."""

STEPS: Final[Mapping[tuple[Need, Stand], Step]] = {
    ("none", "off"): Step.REST,
    ("none", "broken"): Step.OPEN,
    ("none", "on"): Step.OPEN,
    ("lingering", "off"): Step.REST,
    ("lingering", "broken"): Step.OPEN,
    ("lingering", "on"): Step.LINGER,
    ("drained", "off"): Step.WATCH,  # And once looked, as where it is not off: see `decide`.
    ("drained", "broken"): Step.OPEN,
    ("drained", "on"): Step.OPEN,
    ("held", "off"): Step.CLOSE,  # Somebody took it off: Pods may have come in.
    ("held", "broken"): Step.CLOSE,
    ("held", "on"): Step.KEEP,
    ("waited for", "off"): Step.CLOSE,  # Whatever was seen before the taint is worth nothing.
    ("waited for", "broken"): Step.CLOSE,
    ("waited for", "on"): Step.LOOK,  # And once looked: `Step.SETTLE`.
}

LOOK_AGAIN_S: Final = 30.0
"""While Pods are in the way; what happens to them, and each question, wakes us earlier."""
CLEAR_AGAIN_S: Final = 0.1
"""While nobody is in the way, and has to stay out of it a little longer."""
HELD_AGAIN_S: Final = 30.0
"""While somebody holds: a taint that somebody took off is put back, what Slurm lost is found."""
UNSURE_AGAIN_S: Final = 0.5


def decide(seen: Seen, rules: Rules) -> Decision:
    """Return the next step of a Node's lock. The same input always gives the same step."""
    verdicts = {ask.job: _verdict(ask, seen, rules) for ask in seen.asks}
    holders = _holders(seen, verdicts, rules)
    idle_since = None if holders else seen.idle_since or seen.now
    need = _need(seen, holders, rules, idle_since)
    step = STEPS[need, _stand(seen.lock)]
    if seen.drained_for and seen.way is None and step in {Step.WATCH, Step.OPEN, Step.KEEP}:
        step = Step.LOOK  # The drain goes when its Pods do.
    elif step is Step.LOOK and seen.way is not None:
        step = Step.SETTLE
    lock = _lock(step, seen, holders, rules)
    unsure = any(isinstance(verdict, Unsure) for verdict in verdicts.values())
    return Decision(
        step=step,
        lock=lock,
        answers=_answers(step, seen, verdicts, lock),
        in_the_way=_in_the_way(need, seen, lock),
        is_drained=need == "drained",
        again_s=UNSURE_AGAIN_S if unsure else _again_s(step, seen, lock, rules, idle_since),
        idle_since=idle_since,
    )


def alive(seen: Seen, rules: Rules) -> frozenset[int]:
    """Return the jobs that live on this node: a Pod of one of these is not in the way of the others."""
    verdicts = {ask.job: _verdict(ask, seen, rules) for ask in seen.asks}
    running = {job for job, found in seen.jobs.items() if found.place == "running"}
    unknown = {
        holder.job
        for holder in _holders(seen, verdicts, rules)
        if (found := seen.jobs.get(holder.job)) is None or found.place == "waiting"
    }
    return frozenset((running | unknown) - {job for job in seen.released if _is_stale(job, seen)})


def to_confirm(seen: Seen, leant_on: frozenset[int], found: Blockers, rules: Rules) -> frozenset[int]:
    """Return the jobs that Slurm must confirm as running before another job gets the lock.

    A prolog that asks knows that its own job runs, and nobody is in the way of his own: see `_is_own`.

    Args:
        seen: The Node.
        leant_on: The jobs for whose sake Pods may stay there.
        found: Who is in the way whatever is true of those: who cannot be granted needs to know nothing.
        rules: The settings.
    """
    verdicts = {ask.job: _verdict(ask, seen, rules) for ask in seen.asks}
    waiting = [one for one in _holders(seen, verdicts, rules) if one.granted is None]
    may_come = [one.job for one in waiting if not found.of(one.level)]
    unvouched = leant_on - vouched(seen, rules)
    return frozenset(job for job in unvouched if any(not _is_own(one, job, seen) for one in may_come))


def vouched(seen: Seen, rules: Rules) -> frozenset[int]:
    """Return the jobs whose own prolog asks, so that they are known to run."""
    mine = (ask.job for ask in seen.asks if _verdict(ask, seen, rules) is None)
    return frozenset(job for job in mine if _is_own(job, job, seen))


def still_released(
    released: Mapping[int, datetime], jobs: Mapping[int, JobSeen], now: datetime
) -> dict[int, datetime]:
    """Return the releases to remember: those after which nothing has come from Slurm yet."""
    forget_before = now - timedelta(hours=1)
    return {
        job: at
        for job, at in released.items()
        if at > forget_before and not ((found := jobs.get(job)) and found.changed > at)
    }


def _is_own(asking: int, job: int, seen: Seen) -> bool:
    """Whether the Pod of *job* is that of the job that asks, whom it lets in.

    A Pod comes once all prologs of its job have ended, and a placeholder has one life. A job that asks after
    that has the number of one that slurmctld has lost, or its question is an old one.
    """
    return asking == job and not seen.placeholders.get(job)


# --- Who holds ------------------------------------------------------------------------------------


def _verdict(ask: LockRequest, seen: Seen, rules: Rules) -> NotRunning | Unsure | None:
    """Return why the job of *ask* gets no lock; None: the job counts as running here.

    A job that the bus knows as pending, or not at all, runs: its prolog knows better, and sooner.
    """
    found = seen.jobs.get(ask.job)
    held = next((holder for holder in seen.lock.holders if holder.job == ask.job), None)
    asked = held.asked if held is not None and held.granted is None else ask.asked
    if found is not None and found.place in {"completing", "left"} and _is_about(found, asked, rules):
        return NotRunning(found.state)
    released = seen.released.get(ask.job)
    if released is None or not _is_stale(ask.job, seen):
        return None
    if released >= ask.asked:
        return NotRunning(found.state if found else "COMPLETING")
    in_doubt = seen.now < released + timedelta(seconds=rules.doubt_s)
    return Unsure() if in_doubt else None


def _is_about(found: JobSeen, asked: datetime, rules: Rules) -> bool:
    """Whether what was seen of a job was seen of the run that asked, and not of one before it."""
    return found.changed >= asked - timedelta(seconds=rules.late_s)


def _is_stale(job: int, seen: Seen) -> bool:
    """Whether all that the bus says of *job* is older than its release."""
    released = seen.released.get(job)
    found = seen.jobs.get(job)
    return released is not None and (found is None or found.changed <= released)


def _holders(
    seen: Seen, verdicts: Mapping[int, NotRunning | Unsure | None], rules: Rules
) -> tuple[Holder, ...]:
    """Return who holds or waits now, by job id."""
    holders: dict[int, Holder] = {}
    for holder in seen.lock.holders:
        refused = isinstance(verdicts.get(holder.job), NotRunning) and holder.granted is None
        if not _is_ended(holder, seen, rules) and not (refused and not seen.placeholders.get(holder.job)):
            holders[holder.job] = holder
    for ask in seen.asks:
        if verdicts[ask.job] is None:
            before = holders.get(ask.job)
            holders[ask.job] = _asked(before, ask, seen) if before else _new(ask.job, ask.level, ask.asked)
    for job, found in seen.jobs.items():
        if found.place == "running" and job not in holders and not _is_stale(job, seen):
            holders[job] = _new(job, "normal", seen.now)
    return tuple(_levelled(holders[job], seen) for job in sorted(holders))


def _new(job: int, level: LockLevel, asked: datetime) -> Holder:
    return Holder(job=job, level=level, asked=asked)


def _asked(holder: Holder, ask: LockRequest, seen: Seen) -> Holder:
    """Return *holder* as *ask* changes it: each call of a prolog causes one fresh look."""
    since = ask.since if ask.since is not None and _stand(seen.lock) == "on" else ask.asked
    level: LockLevel = "strict" if "strict" in {holder.level, ask.level} else "normal"
    granted = holder.granted if holder.granted is not None and holder.granted >= since else None
    return replace(holder, level=level, granted=granted)


def _levelled(holder: Holder, seen: Seen) -> Holder:
    """Return *holder*, strict if its job is a placeholder whatever was asked."""
    if holder.level == "strict" or holder.job not in seen.placeholders:
        return holder
    return replace(holder, level="strict", granted=None)


def _is_ended(holder: Holder, seen: Seen, rules: Rules) -> bool:
    """Whether *holder*'s job is known to have left this node."""
    if seen.placeholders.get(holder.job):
        return False
    released = seen.released.get(holder.job)
    if released is not None and released >= holder.asked:
        return True
    found = seen.jobs.get(holder.job)
    if found is not None and found.place in {"running", "completing"}:
        return False
    if found is not None and found.place == "left" and _is_about(found, holder.asked, rules):
        return True
    return _is_lost(holder, seen, rules)


def _is_lost(holder: Holder, seen: Seen, rules: Rules) -> bool:
    """Whether Slurm, long observed since, has nothing on the node."""
    until = (holder.granted or holder.asked) + timedelta(seconds=rules.settled_s)
    is_observed = seen.observed is not None and seen.observed >= until and seen.now >= until
    return is_observed and not seen.is_node_busy


# --- What follows ---------------------------------------------------------------------------------


def _stand(lock: NodeLock) -> Stand:
    if lock.is_tainted and lock.value != "false":
        return "on"
    return "off" if lock == OPEN else "broken"


def _need(seen: Seen, holders: tuple[Holder, ...], rules: Rules, idle_since: datetime | None) -> Need:
    if holders:
        is_settled = seen.lock.value in {"locked", "locked_strict"}
        return "held" if is_settled and all(holder.granted for holder in holders) else "waited for"
    if seen.drained_for:
        return "drained"
    lingered = idle_since is not None and seen.now >= idle_since + timedelta(seconds=rules.linger_s)
    return "none" if lingered else "lingering"


def _lock(step: Step, seen: Seen, holders: tuple[Holder, ...], rules: Rules) -> NodeLock:
    """Return the lock that the Node must have after *step*."""
    match step:
        case Step.REST | Step.OPEN | Step.WATCH:
            return OPEN
        case Step.LOOK:
            return seen.lock
        case Step.LINGER:
            return replace(seen.lock, holders=())
        case Step.CLOSE:  # A grant from before may be one that its prolog was never told of.
            ungranted = tuple(_ungranted(holder, seen.now) for holder in holders)
            return NodeLock(value="pending", holders=ungranted, is_tainted=True)
        case Step.KEEP:
            return NodeLock(value=_value(holders), holders=holders, is_tainted=True)
        case Step.SETTLE:
            granted = tuple(_granted(holder, seen, rules) for holder in holders)
            return NodeLock(value=_value(granted), holders=granted, is_tainted=True)


def _ungranted(holder: Holder, now: datetime) -> Holder:
    return holder if holder.granted is None else replace(holder, granted=None, ungranted=now)


def _granted(holder: Holder, seen: Seen, rules: Rules) -> Holder:
    is_clear = _is_clear(holder.level, seen, rules) and not _leans(holder, seen)
    if holder.granted is not None or not is_clear:
        return holder
    return replace(holder, granted=seen.now)


def _leans(holder: Holder, seen: Seen) -> bool:
    """Whether *holder* would start beside a Pod of whose job Slurm was not asked: it has come since."""
    return seen.way is not None and any(not _is_own(holder.job, job, seen) for job in seen.way.unasked)


def _is_clear(level: LockLevel, seen: Seen, rules: Rules) -> bool:
    """Whether no Pod has been in the way for as long as the rules require."""
    if seen.way is None or seen.way.of(level):
        return False
    since = seen.clear_since.get(level)
    return not rules.clear_s or (since is not None and seen.now >= since + timedelta(seconds=rules.clear_s))


def _value(holders: tuple[Holder, ...]) -> LockValue:
    if any(holder.granted is None for holder in holders):
        return "pending"
    return "locked_strict" if any(holder.level == "strict" for holder in holders) else "locked"


def _answers(
    step: Step, seen: Seen, verdicts: Mapping[int, NotRunning | Unsure | None], lock: NodeLock
) -> dict[int, Answer]:
    """Return the answer to each prolog."""
    answers: dict[int, Answer] = {job: verdict for job, verdict in verdicts.items() if verdict is not None}
    holders = {holder.job: holder for holder in lock.holders}
    if step in {Step.SETTLE, Step.KEEP}:
        for job in verdicts.keys() - answers.keys():
            holder = holders[job]
            answers[job] = (
                Granted() if holder.granted is not None else _waiting(holder, seen.way or Blockers())
            )
    return answers


def _waiting(holder: Holder, way: Blockers) -> Waiting:
    pods = way.of(holder.level)
    return Waiting(pods, tuple(one for one in way.blocking if one.pod in pods))


def _in_the_way(need: Need, seen: Seen, lock: NodeLock) -> tuple[str, ...]:
    """Return the Pods that block a waiting job, that came in despite the taint, or that keep the drain."""
    if seen.way is None:
        return seen.drained_for  # Not looked for yet is not gone.
    waits = {holder.level for holder in lock.holders if holder.granted is None}
    own = seen.way.of("strict" if "strict" in waits else "normal") if waits or need == "held" else ()
    return (*own, *(pod for pod in seen.way.strict if pod in seen.drained_for and pod not in own))


def _again_s(
    step: Step, seen: Seen, lock: NodeLock, rules: Rules, idle_since: datetime | None
) -> float | None:
    match step:
        case Step.LINGER if idle_since is not None:
            return max(0.0, rules.linger_s - (seen.now - idle_since).total_seconds())
        case Step.SETTLE if lock.value == "pending":
            return _pending_again_s(seen, lock, rules)
        case Step.SETTLE | Step.KEEP:
            return HELD_AGAIN_S
        case Step.CLOSE | Step.LOOK:
            return 0.0
        case _:
            return LOOK_AGAIN_S if seen.drained_for else None


def _pending_again_s(seen: Seen, lock: NodeLock, rules: Rules) -> float:
    way = seen.way or Blockers()
    waiting = [holder for holder in lock.holders if holder.granted is None]
    if not all(way.of(holder.level) for holder in waiting):
        return CLEAR_AGAIN_S
    if not rules.clear_s and not way.is_unheard:
        return LOOK_AGAIN_S
    # Who is silent, and a budget that forbids that we have them leave, says nothing when that is over.
    return again_s(seen.now - min(holder.since for holder in waiting))
