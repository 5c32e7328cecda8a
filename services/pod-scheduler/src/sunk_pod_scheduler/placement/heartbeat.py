"""A placeholder's script whose poll was cut: dead, which Slurm may take a minute to notice.

Unless many are cut at once: then the network is, and only what Slurm says of their jobs counts.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement.actions import Record, RecordReason, Wait
from sunk_pod_scheduler.placement.limits import LOOK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.model import HeartbeatState
from sunk_pod_scheduler.placement.transitions import ending
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.losses import is_mass_loss

FEW: Final = 2
FEW_PERCENT: Final = 5
"""So many scripts may die at once; more are cut off."""
CUT_OFF: Final = (
    "the script does not call the hook gateway, nor do many others: something between nodes and gateway is "
    "cut, and the Pod stays for as long as Slurm says that its job runs"
)


def check_heartbeat(
    heartbeat: HeartbeatState,
    listening: datetime | None,
    placement: PlacementState,
    now: datetime,
    limits: Limits,
    *,
    are_many: bool,
) -> Wait | Record | RecordReason:
    """Return what follows from what was last said of the script of a Pod all else of which is well.

    *listening*: since when callers are heard. What was stored before tells that the poll was cut; whether
    the script has called since, nobody heard who leads now, or while the bus was away.
    """
    if placement.silent is None:
        return Record(state=replace(placement, silent=now)) if heartbeat == "cut" else Wait()
    is_reported = placement.reason == CUT_OFF
    if heartbeat == "heard":
        return Record(state=replace(placement, silent=None, reason="" if is_reported else placement.reason))
    if is_reported and not are_many:
        return Record(state=replace(placement, silent=now, reason=""))  # The others are back: so may this be.
    unheard = placement.silent if listening is None else max(placement.silent, listening)
    due = unheard + timedelta(seconds=limits.silent_s)
    if now < due:
        return Wait((due - now).total_seconds())
    if not are_many:
        return ending(placement, f"the script of job {placement.job} is dead: its poll was cut", now)
    return (
        Wait(LOOK_AGAIN_S)
        if is_reported
        else RecordReason(state=replace(placement, reason=CUT_OFF), event=PodReason.CUT_OFF)
    )


def are_many(placements: Iterable[PlacementState]) -> bool:
    """Whether more scripts are silent than die at once."""
    scripts = [one.silent is not None for one in placements if one.phase == "bound" and not one.gang]
    return is_mass_loss(sum(scripts), len(scripts), percent=FEW_PERCENT, few=FEW)
