"""The last errors of the services that lead, from the logs of their Pods, with the user's own rights.

sunk-view reads no logs, and says which replica leads. What must stay true: a log that may not be read, or is
not read in time, is named, and costs nothing but its own line; a Pod that only looks like one of a service
hides no error, and costs a few calls at most.
"""

from typing import Final

import anyio

from sunk_ctl import bundle
from sunk_ctl.bundle import Json, part
from sunk_ctl.cluster import Cluster
from sunk_ctl.collecting import log_of
from sunk_ctl.last_errors import LastError, LastErrors, Leader, StatusReport, last_error, leaders
from sunk_ctl.listing import OF_CHARTS, answer_of
from sunk_ctl.refusals import of_kubernetes
from sunk_events.view import Status
from sunk_kube.resources import PODS
from sunk_runtime.errors import SunkError

_LOG_S: Final = 5.0
_AT_ONCE: Final = 8
NAMESAKES: Final = 4
"""So many Pods of one name, in several namespaces, are looked at: only one of them is of the service."""


async def status_with_errors(cluster: Cluster) -> StatusReport:
    """Return what sunk-view shows of all clusters, and the last errors. Raises `NoAnswerError`."""
    found = await cluster.get(Status, "/status")
    last_errors = await read_errors(cluster, leaders(found))
    return StatusReport(clusters=found.clusters, problems=found.problems, last_errors=last_errors)


async def read_errors(cluster: Cluster, wanted: tuple[Leader, ...]) -> LastErrors:
    """Return the last error of each of *wanted*, as far as its log has one and may be read."""
    found: list[LastError] = []
    unknown: list[str] = []
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def look(leader: Leader) -> None:
        query = {**OF_CHARTS, "fieldSelector": f"metadata.name={leader.pod}", "limit": str(NAMESAKES)}
        async with limit:
            try:
                pods = bundle.parts(await answer_of(cluster, PODS.path(), query), "items")
            except SunkError as error:
                unknown.append(f"Pod {leader.pod}: {of_kubernetes(error, '')}")
                return
            for pod in pods:
                await read(leader, pod)

    async def read(leader: Leader, pod: Json) -> None:
        name = f"{part(pod, 'metadata').get('namespace')}/{leader.pod}"
        # That of a container which ended is read only where the present one has logged no error yet.
        for logs in sorted(bundle.logs(pod), key=lambda logs: logs.is_previous):
            try:
                text = await log_of(cluster, logs, timeout_s=_LOG_S)
            except SunkError as error:
                unknown.append(f"the log of {name}: {of_kubernetes(error, '')}")
                return
            if (last := last_error(text)) is not None:
                at, words = last
                one = LastError(service=leader.service, cluster=leader.cluster, pod=name, at=at, error=words)
                found.append(one)
                return

    async with anyio.create_task_group() as tasks:
        for leader in wanted:
            tasks.start_soon(look, leader)
    in_order = sorted(found, key=lambda one: (one.cluster, one.service, one.pod))
    return LastErrors(found=tuple(in_order), unknown=tuple(sorted(unknown)))
