"""The last errors of the services that lead, from the logs of their Pods, with the user's own rights.

sunk-view reads no logs, and says which replica leads. What must stay true: a log that may not be read, or is
not read in time, is named, and costs nothing but its own line. Other Pods of a leader's name are shown with
their namespaces, and named where there are too many of them; all of it ends in time.
"""

from datetime import datetime
from typing import Final

import anyio

from sunk_ctl import bundle
from sunk_ctl.bundle import Json, part
from sunk_ctl.cluster import Cluster
from sunk_ctl.collecting import log_of
from sunk_ctl.last_errors import (
    LastError,
    LastErrors,
    Leader,
    StatusReport,
    last_error,
    leaders,
    without_leader,
)
from sunk_ctl.listing import OF_CHARTS, answer_of
from sunk_ctl.refusals import of_kubernetes
from sunk_events.view import Status
from sunk_kube.resources import PODS
from sunk_runtime.errors import SunkError

_LOG_S: Final = 5.0
_AT_ONCE: Final = 8
ALL_S: Final = 10.0
"""So long the rest of the screen waits at most."""
LOGS_MAX: Final = 4
"""Of one Pod: of its containers, and of those that ended before them."""
NAMESAKES: Final = 4
"""So many Pods of one name, in several namespaces, are looked at: only one of them is of the service."""


async def status_with_errors(cluster: Cluster) -> StatusReport:
    """Return what sunk-view shows of all clusters, and the last errors. Raises `NoAnswerError`."""
    found = await cluster.get(Status, "/status")
    read = await read_errors(cluster, leaders(found))
    missing = (f"{service}: no replica leads, see the logs of its Pods" for service in without_leader(found))
    last_errors = LastErrors(found=read.found, unknown=(*missing, *read.unknown))
    return StatusReport(clusters=found.clusters, problems=found.problems, last_errors=last_errors)


async def read_errors(cluster: Cluster, wanted: tuple[Leader, ...]) -> LastErrors:
    """Return the last error of each of *wanted*, as far as its log has one and may be read."""
    found: list[LastError] = []
    unknown: list[str] = []
    pending = {leader.pod for leader in wanted}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def look(leader: Leader) -> None:
        query = {**OF_CHARTS, "fieldSelector": f"metadata.name={leader.pod}", "limit": str(NAMESAKES)}
        async with limit:
            try:
                answer = await answer_of(cluster, PODS.path(), query)
            except SunkError as error:
                unknown.append(f"Pod {leader.pod}: {of_kubernetes(error, '')}")
                pending.discard(leader.pod)
                return
            pods = list(bundle.parts(answer, "items"))
            if not pods:
                unknown.append(f"Pod {leader.pod}: it is not there")
            if part(answer, "metadata").get("continue"):
                unknown.append(f"Pod {leader.pod}: more than {NAMESAKES} namespaces have a Pod of that name")
            for pod in pods:
                await _read(cluster, leader, pod, found, unknown)
            pending.discard(leader.pod)

    with anyio.move_on_after(ALL_S):
        async with anyio.create_task_group() as tasks:
            for leader in wanted:
                tasks.start_soon(look, leader)
    unknown += [f"Pod {pod}: no answer within {ALL_S:g} s" for pod in sorted(pending)]
    in_order = sorted(found, key=lambda one: (one.cluster, one.service, one.pod))
    return LastErrors(found=tuple(in_order), unknown=tuple(sorted(unknown)))


async def _read(
    cluster: Cluster, leader: Leader, pod: Json, found: list[LastError], unknown: list[str]
) -> None:
    """Add the newest error of one Pod to *found*, or why it is not known to *unknown*."""
    name = f"{part(pod, 'metadata').get('namespace')}/{leader.pod}"
    errors: list[tuple[datetime, str]] = []
    for logs in sorted(bundle.logs(pod), key=lambda logs: logs.is_previous)[:LOGS_MAX]:
        try:
            text = await log_of(cluster, logs, timeout_s=_LOG_S)
        except SunkError as error:
            unknown.append(f"the log of {name}: {of_kubernetes(error, '')}")
            return
        if (last := last_error(text)) is not None:
            errors.append(last)
    if errors:
        at, words = max(errors)
        found.append(LastError(service=leader.service, cluster=leader.cluster, pod=name, at=at, error=words))
