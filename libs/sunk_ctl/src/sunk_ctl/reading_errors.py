"""The last errors of the services, from the logs of their Pods, with the user's own rights.

sunk-view reads no logs. What must stay true: a log that may not be read, or is not read in time, is named,
and costs nothing but its own line.
"""

from typing import Final

import anyio

from sunk_ctl import bundle
from sunk_ctl.bundle import Json, part
from sunk_ctl.cluster import Cluster
from sunk_ctl.collecting import log_of
from sunk_ctl.examining import CLUSTER_LABEL, NAME_LABEL, OWN, SERVICES
from sunk_ctl.last_errors import LastError, LastErrors, StatusReport, last_error, newest
from sunk_ctl.listing import items_of
from sunk_ctl.refusals import of_kubernetes
from sunk_events.view import Status
from sunk_kube.resources import PODS
from sunk_runtime.errors import SunkError

_LOG_S: Final = 5.0
_AT_ONCE: Final = 8


async def status_with_errors(cluster: Cluster) -> StatusReport:
    """Return what sunk-view shows of all clusters, and the last errors. Raises `NoAnswerError`."""
    found = await cluster.get(Status, "/status")
    last_errors = await read_errors(cluster)
    return StatusReport(clusters=found.clusters, problems=found.problems, last_errors=last_errors)


async def read_errors(cluster: Cluster) -> LastErrors:
    """Return the last error of each service, as far as its Pods' logs have one and may be read."""
    try:
        listed = [pod async for pod in items_of(cluster, PODS.path(), OWN)]
    except SunkError as error:
        return LastErrors(unknown=(f"Pods of all namespaces: {of_kubernetes(error, '')}",))
    pods = [pod for pod in listed if _label(pod, NAME_LABEL) in SERVICES]
    found: list[LastError] = []
    unknown: dict[str, str] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def read(pod: Json) -> None:
        metadata = part(pod, "metadata")
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        # That of a container which ended is read only where the present one has logged no error yet.
        for logs in sorted(bundle.logs(pod), key=lambda logs: logs.is_previous):
            async with limit:
                try:
                    text = await log_of(cluster, logs, timeout_s=_LOG_S)
                except SunkError as error:
                    unknown[name] = str(of_kubernetes(error, ""))
                    continue
            if (last := last_error(text)) is not None:
                at, words = last
                service, slurm = _label(pod, NAME_LABEL), _label(pod, CLUSTER_LABEL)
                found.append(LastError(service=service, cluster=slurm, pod=name, at=at, error=words))
                return

    async with anyio.create_task_group() as tasks:
        for pod in pods:
            tasks.start_soon(read, pod)
    why = tuple(f"the log of {pod}: {reason}" for pod, reason in sorted(unknown.items()))
    return LastErrors(found=newest(found), unknown=why)


def _label(pod: Json, name: str) -> str:
    return str(part(part(pod, "metadata"), "labels").get(name, ""))
