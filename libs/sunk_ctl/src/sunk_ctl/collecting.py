"""A support bundle, collected from the API server with the user's own rights.

What must stay true: a question that is refused or not answered costs its part of the bundle, and no more;
nothing is written to the cluster; the Secrets are read before anything is added, and stay in this process.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from sunk_ctl import bundle, secret_values
from sunk_ctl.bundle import Bundle, Json, Logs, part
from sunk_ctl.cluster import Cluster
from sunk_ctl.listing import OF_CHARTS, WORKLOADS, answer_of, items_of, namespaces_of
from sunk_ctl.redaction import Redactor
from sunk_ctl.refusals import (
    NOT_FOUND,
    NOT_NOW,
    REFUSED,
    LoggedOutError,
    NoAnswerError,
    of_kubernetes,
    refusal,
)
from sunk_events.view import ROOT
from sunk_kube.resources import CONFIG_MAPS, EVENTS, NODES, NODESETS, NODESLICES, PODS, SECRETS
from sunk_kube.wellknown import LABEL_NODESET
from sunk_runtime.errors import SunkError

OBJECTS_MAX: Final = 10_000
"""Of one kind."""
EVENTS_MAX: Final = 2000
"""The newest of a namespace."""
LOG_LINES: Final = 2000
LOG_BYTES: Final = 2 * 2**20
"""Of a container: where its lines have more, fewer of them are asked for."""
LOG_S: Final = 10.0
_AT_ONCE: Final = 4
_OWN: Final = {"labelSelector": f"{bundle.PART_OF}=sunk,!{LABEL_NODESET}"}
_COMPUTE: Final = {"labelSelector": LABEL_NODESET}
_VIEWS: Final = ("status", "nodes", "locks", "jobs", "placements", "events")
_EVENTS_LAST: Final = "200"
_SECRETS: Final = {"fieldSelector": "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"}
"""Of the others no value stands in a text: releases hold manifests, packed."""


async def collected(cluster: Cluster, wanted: Sequence[str], timeout_s: float) -> Bundle:
    """Return what the API server tells within *timeout_s* seconds.

    Args:
        cluster: Where to ask.
        wanted: Namespaces of SUNK and of its Slurm clusters; none: all in which the charts are.
        timeout_s: After that the rest is left out.

    Raises:
        NoAnswerError: nothing of the charts was found, or the namespaces are not known.
    """
    found = Bundle()
    with anyio.move_on_after(timeout_s) as scope:
        namespaces = await namespaces_of(cluster, wanted)
        await _learn_secrets(cluster, found, namespaces)
        own = [pod for namespace in namespaces for pod in await _add_namespace(cluster, found, namespace)]
        if not found.files:
            message = "; ".join([f"no release of the charts in {', '.join(namespaces)}", *found.left_out[:3]])
            raise NoAnswerError(message, REFUSED if found.is_refused else NOT_FOUND)
        await _add_whole(cluster, found)
        compute = [pod for namespace in namespaces for pod in await _add_compute(cluster, found, namespace)]
        for pods in (own, compute):
            await _add_logs(cluster, found, pods)
    if scope.cancelled_caught:
        found.leave_out("the rest", f"not collected within {timeout_s:g} s")
    if not found.files:
        raise NoAnswerError(f"no answer within {timeout_s:g} s: try again, or raise --timeout", NOT_NOW)
    return found


async def _learn_secrets(cluster: Cluster, found: Bundle, namespaces: Sequence[str]) -> None:
    """Read the Secrets of *namespaces*, so that no value of theirs gets into the bundle."""
    known: set[str] = set()
    for namespace in namespaces:
        try:
            async for one in items_of(cluster, SECRETS.path(namespace), _SECRETS):
                known |= secret_values.forms(part(one, "data"))
        except SunkError as error:
            why = of_kubernetes(error, "")
            is_forbidden = why.status == REFUSED and not isinstance(why, LoggedOutError)
            if not is_forbidden:  # Those that are not known now would stand in the bundle.
                raise NoAnswerError(f"cannot read the Secrets of {namespace}: {why}", why.status) from error
            hint = "without them sunkctl recognises secrets by name and form only"
            found.leave_out(f"Secrets of {namespace} ({hint})", why)
    most = secret_values.KNOWN_MAX
    if len(known) > most:
        found.leave_out("Secrets", f"there are {len(known)} values; only the shortest {most} are redacted")
    found.redactor = Redactor(sorted(known, key=len)[:most])


async def _add_whole(cluster: Cluster, found: Bundle) -> None:
    """Add what belongs to no namespace: versions, Nodes, and what sunk-view answers."""
    try:
        found.add_object("versions/kubernetes.json", await answer_of(cluster, "/version"))
    except SunkError as error:
        found.leave_out("versions/kubernetes.json", of_kubernetes(error, ""))
    await _add_list(cluster, found, "nodes.json", NODES.path(), _COMPUTE)
    for name in _VIEWS:
        try:
            query = {"last": _EVENTS_LAST} if name == "events" else None
            found.add_object(f"view/{name}.json", await answer_of(cluster, f"{ROOT}/{name}", query))
        except SunkError as error:
            found.leave_out(f"view/{name}.json", refusal(error, f"/{name}"))


async def _add_namespace(cluster: Cluster, found: Bundle, namespace: str) -> list[Json]:
    """Add the objects of *namespace*; return the charts' own Pods."""
    folder = f"namespaces/{namespace}"
    for kind in WORKLOADS:
        path = f"/apis/apps/v1/namespaces/{namespace}/{kind}"
        await _add_list(cluster, found, f"{folder}/{kind}.json", path, OF_CHARTS)
    for one in await _list(cluster, found, f"{folder}/configmaps", CONFIG_MAPS.path(namespace), OF_CHARTS):
        for key, text in part(one, "data").items():
            found.add_text(f"{folder}/configmaps/{part(one, 'metadata').get('name')}/{key}", str(text), key)
    for resource in (NODESETS, NODESLICES):
        await _add_list(cluster, found, f"{folder}/{resource.plural}.json", resource.path(namespace))
    own = await _add_list(cluster, found, f"{folder}/pods.json", PODS.path(namespace), _OWN)
    if events := await _list(cluster, found, f"{folder}/events.json", EVENTS.path(namespace)):
        newest = sorted(events, key=bundle.time_of_event)[-EVENTS_MAX:]
        found.add_object(f"{folder}/events.json", [bundle.manifest(one) for one in newest])
    return own


async def _add_compute(cluster: Cluster, found: Bundle, namespace: str) -> list[Json]:
    """Add the Pods of NodeSets; return those whose logs are wanted."""
    folder = f"namespaces/{namespace}"
    pods = bundle.broken_first(
        await _list(cluster, found, f"{folder}/compute-pods.json", PODS.path(namespace), _COMPUTE)
    )
    chosen = pods[: bundle.COMPUTE_PODS]
    if pods:
        found.add_object(f"{folder}/compute-pods.json", [bundle.row(pod) for pod in pods])
        found.add_object(f"{folder}/compute-pods-in-full.json", [bundle.manifest(pod) for pod in chosen])
    if len(chosen) < len(pods):
        found.leave_out(f"{folder}/logs", f"the bundle has {len(chosen)} of {len(pods)} Pods of NodeSets")
    return chosen


async def _add_logs(cluster: Cluster, found: Bundle, pods: Sequence[Json]) -> None:
    """Add the logs of *pods*, some at once; a Node that does not answer in time is not asked again."""
    silent: set[str] = set()
    wanted = [logs for pod in pods for logs in bundle.logs(pod)]
    texts: dict[str, str] = {}

    async def read(logs: Logs) -> None:
        try:
            texts[logs.file] = await log_of(cluster, logs)
        except SunkError as error:
            found.leave_out(logs.file, of_kubernetes(error, ""))
            if isinstance(error.__cause__, TimeoutError):
                silent.add(logs.node)

    for start in range(0, len(wanted), _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for logs in wanted[start : start + _AT_ONCE]:
                if logs.node in silent:
                    found.leave_out(logs.file, f"Node {logs.node} did not answer in time before")
                else:
                    tasks.start_soon(read, logs)
        while texts:  # Not while others wait for their answers: it takes the processor.
            found.add_text(*texts.popitem())


async def log_of(cluster: Cluster, logs: Logs, *, timeout_s: float = LOG_S) -> str:
    """Return the newest lines. Raises as `Api.send`.

    Kubernetes counts bytes from the oldest of the lines, so with too many of them the newest would be cut.
    """
    path = PODS.path(logs.namespace, logs.pod, "log")
    query = {"container": logs.container, "limitBytes": str(LOG_BYTES), "timestamps": "true"}
    lines, text = LOG_LINES, b""
    while lines:
        params = {**query, "tailLines": str(lines), **({"previous": "true"} if logs.is_previous else {})}
        text = await cluster.api.send("GET", path, query=params, timeout_s=timeout_s)
        if len(text) < LOG_BYTES:
            break
        lines //= 4
    return text.decode(errors="replace")


async def _add_list(
    cluster: Cluster, found: Bundle, name: str, path: str, query: dict[str, str] | None = None
) -> list[Json]:
    """Add what is listed, and return it."""
    items = await _list(cluster, found, name, path, query)
    if items:
        found.add_object(name, [bundle.manifest(one) for one in items])
    return items


async def _list(
    cluster: Cluster, found: Bundle, name: str, path: str, query: dict[str, str] | None = None
) -> list[Json]:
    """Return what is listed; note what is missing."""
    items: list[Json] = []
    try:
        async for one in items_of(cluster, path, query):
            if len(items) == OBJECTS_MAX:
                found.leave_out(name, f"more than {len(items)} objects")
                break
            items.append(one)
    except SunkError as error:
        found.leave_out(name, of_kubernetes(error, ""))
    return items
