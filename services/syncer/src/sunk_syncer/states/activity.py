"""Whether slurmctld has done anything, by its own counters. Pure.

A list of 5,000 nodes costs half a second of slurmrestd and is asked for again whenever a slurmd answered a
ping; ``sdiag`` costs two milliseconds and counts the requests that change anything. What slurmctld does by
itself is not counted (a node stops responding), nor is the end of an epilog: lists are asked for without a
change too, often while something completes, else seldom. A registration is no such change: slurmctld has
each slurmd register anew from time to time, some at each ping, so of thousands some always do; one that
is new, or was down, is looked at as soon as its Pod is ready, and again until it is there.

Source: slurmctld 24.11 and 26.05, measured: pings and looks move nothing here; each change by scontrol,
sbatch, scancel or a job that starts or ends does.
"""

import re
from typing import Final

import msgspec

from sunk_slurm.diag import Diag

_LOOK = re.compile(
    r"_INFO|^REQUEST_(STATS|JOB_STATE|PING|AUTH_TOKEN|CONTROL_STATUS|JOB_READY|JOB_WILL_RUN)|GET"
    r"|^MESSAGE_NODE_REGISTRATION_STATUS$"
)
"""RPCs that only look, or say what is known. One that is not known here counts as a change, which costs a
look and no truth."""
_OF_JOBS_ONLY: Final = frozenset(
    {"REQUEST_SUBMIT_BATCH_JOB", "REQUEST_UPDATE_JOB", "REQUEST_JOB_STEP_CREATE"}
)
"""What they change of nodes shows in the number of jobs started."""


class Activity(msgspec.Struct, frozen=True):
    """What slurmctld has counted so far; unequal to an earlier one where something has happened since."""

    nodes: tuple[tuple[str, int], ...]
    """What may have changed nodes."""
    jobs: tuple[tuple[str, int], ...]
    """What may have changed jobs."""


def activity(seen: Diag) -> Activity:
    """Return what of *seen* tells that something changed."""
    counters = {
        "started": seen.jobs_started,
        "completed": seen.jobs_completed,
        "canceled": seen.jobs_canceled,
        "failed": seen.jobs_failed,
    }
    changes = {rpc.message_type: rpc.count for rpc in seen.rpcs_by_message_type}
    changes = {kind: count for kind, count in changes.items() if not _LOOK.search(kind)}
    of_nodes = {kind: count for kind, count in changes.items() if kind not in _OF_JOBS_ONLY}
    return Activity(
        nodes=tuple(sorted((of_nodes | counters).items())),
        jobs=tuple(sorted((changes | counters | {"submitted": seen.jobs_submitted}).items())),
    )
