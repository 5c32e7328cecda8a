"""Which jobs hold a Node's lock or wait for it, and what is known of each: from what is seen.

What must stay true: a holder ends by its release, or by what Slurm said *after* the job came, never by
silence. What was seen of a job before its release no longer counts, so a bus that lags cannot bring the job
back. A placeholder holds the lock as long as its Pod is there.

Source: SUNK's documents, "Node locking".
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from sunk_events.locks import LockLevel
from sunk_nodeset_controller.locks.model import (
    Blockers,
    Holder,
    JobSeen,
    LockRequest,
    NotRunning,
    Rules,
    Seen,
    Unsure,
)

Verdicts = Mapping[int, NotRunning | Unsure | None]
"""By job: why it gets no lock; None: it is taken to run on the Node."""


def alive(seen: Seen, rules: Rules) -> frozenset[int]:
    """Return the jobs that live on this node: a Pod of one of these is not in the way of the others."""
    verdicts = verdicts_of(seen, rules)
    running = {job for job, found in seen.jobs.items() if found.place == "running"}
    unknown = {
        holder.job
        for holder in holders_of(seen, verdicts, rules)
        if (found := seen.jobs.get(holder.job)) is None or found.place == "waiting"
    }
    return frozenset((running | unknown) - {job for job in seen.released if _is_stale(job, seen)})


def to_confirm(seen: Seen, keeping_pods: frozenset[int], found: Blockers, rules: Rules) -> frozenset[int]:
    """Return the jobs that Slurm must confirm as running before another job gets the lock.

    A prolog that asks knows that its own job runs, and nobody is in the way of his own: see `is_own`.

    Args:
        seen: The Node.
        keeping_pods: The jobs for whose sake Pods may stay there.
        found: The Pods in the way whatever is true of those: a job that they keep out needs no confirmation.
        rules: The settings.
    """
    verdicts = verdicts_of(seen, rules)
    waiting = [one for one in holders_of(seen, verdicts, rules) if one.granted is None]
    may_come = [one.job for one in waiting if not found.of(one.level)]
    unproven = keeping_pods - known_to_run(seen, rules)
    return frozenset(job for job in unproven if any(not is_own(one, job, seen) for one in may_come))


def known_to_run(seen: Seen, rules: Rules) -> frozenset[int]:
    """Return the jobs whose own prolog asks, so that they are known to run."""
    mine = (ask.job for ask in seen.requests if _verdict(ask, seen, rules) is None)
    return frozenset(job for job in mine if is_own(job, job, seen))


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


def is_own(asking: int, job: int, seen: Seen) -> bool:
    """Whether the Pod of *job* belongs to the job that asks, and so lets it in.

    A Pod comes once all prologs of its job have ended, and a placeholder has one life. A job that asks after
    that has the number of one that slurmctld has lost, or its question is an old one.
    """
    return asking == job and not seen.placeholders.get(job)


def verdicts_of(seen: Seen, rules: Rules) -> dict[int, NotRunning | Unsure | None]:
    """Return why the job of each request gets no lock; None: it is taken to run here."""
    return {ask.job: _verdict(ask, seen, rules) for ask in seen.requests}


def _verdict(ask: LockRequest, seen: Seen, rules: Rules) -> NotRunning | Unsure | None:
    """Return why the job of *ask* gets no lock; None: it is taken to run here.

    A job that the bus knows as pending, or not at all, runs: its prolog knows better, and sooner.
    """
    found = seen.jobs.get(ask.job)
    held = next((holder for holder in seen.lock.holders if holder.job == ask.job), None)
    requested_at = held.requested_at if held is not None and held.granted is None else ask.requested_at
    if found is not None and found.place in {"completing", "left"} and _is_about(found, requested_at, rules):
        return NotRunning(found.state)
    released = seen.released.get(ask.job)
    if released is None or not _is_stale(ask.job, seen):
        return None
    if released >= ask.requested_at:
        return NotRunning(found.state if found else "COMPLETING")
    in_doubt = seen.now < released + timedelta(seconds=rules.doubt_s)
    return Unsure() if in_doubt else None


def _is_about(found: JobSeen, requested_at: datetime, rules: Rules) -> bool:
    """Whether what was seen of a job was seen of the run that asked, and not of one before it."""
    return found.changed >= requested_at - timedelta(seconds=rules.late_s)


def _is_stale(job: int, seen: Seen) -> bool:
    """Whether all that the bus says of *job* is older than its release."""
    released = seen.released.get(job)
    found = seen.jobs.get(job)
    return released is not None and (found is None or found.changed <= released)


def holders_of(seen: Seen, verdicts: Verdicts, rules: Rules) -> tuple[Holder, ...]:
    """Return who holds or waits now, by job id."""
    holders: dict[int, Holder] = {}
    for holder in seen.lock.holders:
        refused = isinstance(verdicts.get(holder.job), NotRunning) and holder.granted is None
        if not _is_ended(holder, seen, rules) and not (refused and not seen.placeholders.get(holder.job)):
            holders[holder.job] = holder
    for ask in seen.requests:
        if verdicts[ask.job] is None:
            before = holders.get(ask.job)
            holders[ask.job] = (
                _with_request(before, ask, seen) if before else _new(ask.job, ask.level, ask.requested_at)
            )
    for job, found in seen.jobs.items():
        if found.place == "running" and job not in holders and not _is_stale(job, seen):
            holders[job] = _new(job, "normal", seen.now)
    return tuple(_levelled(holders[job], seen) for job in sorted(holders))


def _new(job: int, level: LockLevel, requested_at: datetime) -> Holder:
    return Holder(job=job, level=level, requested_at=requested_at)


def _with_request(holder: Holder, ask: LockRequest, seen: Seen) -> Holder:
    """Return *holder* as *ask* changes it: each call of a prolog is worth a fresh look, but only one."""
    since = ask.since if ask.since is not None and seen.lock.stand == "on" else ask.requested_at
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
    if released is not None and released >= holder.requested_at:
        return True
    found = seen.jobs.get(holder.job)
    if found is not None and found.place in {"running", "completing"}:
        return False
    if found is not None and found.place == "left" and _is_about(found, holder.requested_at, rules):
        return True
    return _is_lost(holder, seen, rules)


def _is_lost(holder: Holder, seen: Seen, rules: Rules) -> bool:
    """Whether Slurm, long observed since, has nothing on the node."""
    until = (holder.granted or holder.requested_at) + timedelta(seconds=rules.settled_s)
    is_observed = seen.observed is not None and seen.observed >= until and seen.now >= until
    return is_observed and not seen.is_node_busy
