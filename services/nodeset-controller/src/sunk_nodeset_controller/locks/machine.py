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
from sunk_nodeset_controller.locks.holders import Verdicts, holders_of, is_own, verdicts_of
from sunk_nodeset_controller.locks.model import (
    OPEN,
    Answer,
    Blockers,
    Decision,
    Granted,
    Holder,
    NodeLock,
    Rules,
    Seen,
    Stand,
    Step,
    Unsure,
    Waiting,
)

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
    verdicts = verdicts_of(seen, rules)
    holders = holders_of(seen, verdicts, rules)
    idle_since = None if holders else seen.idle_since or seen.now
    need = _need(seen, holders, rules, idle_since)
    step = STEPS[need, seen.lock.stand]
    if seen.drained_for and seen.way is None and step in {Step.WATCH, Step.OPEN, Step.KEEP}:
        step = Step.LOOK  # The drain goes when its Pods do.
    elif step is Step.LOOK and seen.way is not None:
        step = Step.SETTLE
    lock = _lock(step, seen, holders, rules)
    unsure = any(isinstance(verdict, Unsure) for verdict in verdicts.values())
    leaving = _leaving(seen, lock)
    return Decision(
        step=step,
        lock=lock,
        answers=_answers(step, seen, verdicts, lock),
        in_the_way=_in_the_way(need, seen, lock),
        leaving=leaving,
        leaving_until=seen.way.until if seen.way is not None and leaving else None,
        is_drained=need == "drained",
        again_s=UNSURE_AGAIN_S if unsure else _again_s(step, seen, lock, rules, idle_since),
        idle_since=idle_since,
    )


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
    return seen.way is not None and any(not is_own(holder.job, job, seen) for job in seen.way.unasked)


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


def _answers(step: Step, seen: Seen, verdicts: Verdicts, lock: NodeLock) -> dict[int, Answer]:
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


def _leaving(seen: Seen, lock: NodeLock) -> int:
    """Return how many Pods block a waiting job; a placeholder, which asks strictly, is told nothing."""
    does_wait = any(holder.granted is None and holder.level == "normal" for holder in lock.holders)
    return len(seen.way.normal) if seen.way is not None and does_wait else 0


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
    # A silent Pod, and a disruption budget that forbids an eviction, send no event when that ends.
    return again_s(seen.now - min(holder.since for holder in waiting))
