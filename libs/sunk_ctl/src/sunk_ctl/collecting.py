"""A support bundle, collected from the API server with the user's own rights.

What must stay true: a question that is refused or not answered costs its part of the bundle, and no more;
nothing is written to the cluster; no Secret is read.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import anyio
import msgspec

from sunk_ctl import bundle
from sunk_ctl.bundle import Bundle, Json, Logs
from sunk_ctl.cluster import Cluster
from sunk_ctl.refusals import NoAnswerError, of_kubernetes, refusal
from sunk_events.view import ROOT
from sunk_kube.resources import CONFIG_MAPS, EVENTS, NODES, NODESETS, NODESLICES, PODS, is_name
from sunk_kube.wellknown import LABEL_NODESET
from sunk_runtime.errors import SunkError

PAGE: Final = 250
PAGES_MAX: Final = 8
LOG_LINES: Final = 2000
LOG_BYTES: Final = 2 * 2**20
"""Of each container, the newest lines."""
_CHARTS: Final = {"labelSelector": f"{bundle.PART_OF}=sunk"}
_WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets")
_VIEWS: Final = ("status", "nodes", "locks", "jobs", "placements", "events")
_EVENTS_LAST: Final = "200"


async def collected(cluster: Cluster, wanted: Sequence[str], timeout_s: float) -> Bundle:
    """Return what the API server tells within *timeout_s* seconds.

    Args:
        cluster: Where to ask.
        wanted: Namespaces of SUNK and of its Slurm clusters; none: all in which the charts are.
        timeout_s: After that the rest is left out.

    Raises:
        NoAnswerError: nothing was answered, or the namespaces are not known.
    """
    found = Bundle()
    with anyio.move_on_after(timeout_s) as scope:
        namespaces = list(wanted) or await _namespaces(cluster)
        await _add_whole(cluster, found)
        pods = [pod for namespace in namespaces for pod in await _add_namespace(cluster, found, namespace)]
        for pod in pods:
            for logs in bundle.logs(pod):
                await _add_log(cluster, found, logs)
    if scope.cancelled_caught:
        found.leave_out("the rest", f"not collected within {timeout_s:g} s")
    if not found.files:
        raise NoAnswerError(f"nothing was collected: {'; '.join(found.left_out[:3])}", 3)
    return found


async def _namespaces(cluster: Cluster) -> list[str]:
    """Return where the charts are. Raises `NoAnswerError`."""
    try:
        found = [
            one for kind in _WORKLOADS async for one in _items(cluster, f"/apis/apps/v1/{kind}", _CHARTS)
        ]
    except SunkError as error:
        message = f"{of_kubernetes(error, '')}. Name the namespaces that you may read (--namespace)"
        raise NoAnswerError(message, 3) from error
    if not found:
        raise NoAnswerError("the charts helm/sunk and helm/slurm are in no namespace of this cluster", 4)
    return bundle.namespaces(found)


async def _add_whole(cluster: Cluster, found: Bundle) -> None:
    """Add what belongs to no namespace: versions, Nodes, and what sunk-view answers."""
    await _add(cluster, found, "versions/kubernetes.json", "/version")
    selector = {"labelSelector": LABEL_NODESET}
    await _add_list(cluster, found, "nodes.json", NODES.path(), selector)
    for name in _VIEWS:
        try:
            query = {"last": _EVENTS_LAST} if name == "events" else None
            found.add_object(f"view/{name}.json", await _answer(cluster, f"{ROOT}/{name}", query))
        except SunkError as error:
            found.leave_out(f"view/{name}.json", refusal(error, f"/{name}"))


async def _add_namespace(cluster: Cluster, found: Bundle, namespace: str) -> list[Json]:
    """Add the objects of *namespace*; return the Pods whose logs are wanted."""
    if not is_name(namespace):
        raise NoAnswerError(f"--namespace: {namespace[:80]!r} is no name of a namespace", 2)
    folder = f"namespaces/{namespace}"
    for kind in _WORKLOADS:
        path = f"/apis/apps/v1/namespaces/{namespace}/{kind}"
        await _add_list(cluster, found, f"{folder}/{kind}.json", path, _CHARTS)
    for one in await _list(cluster, found, f"{folder}/configmaps", CONFIG_MAPS.path(namespace), _CHARTS):
        for key, text in bundle.part(one, "data").items():
            found.add_text(f"{folder}/configmaps/{one['metadata']['name']}/{key}", text, key)
    for resource in (NODESETS, NODESLICES, EVENTS):
        await _add_list(cluster, found, f"{folder}/{resource.plural}.json", resource.path(namespace))
    pods = await _list(cluster, found, f"{folder}/pods.json", PODS.path(namespace))
    own, compute = bundle.ours(pods)
    found.add_object(f"{folder}/pods.json", [bundle.manifest(pod) for pod in own])
    found.add_object(f"{folder}/compute-pods.json", [bundle.row(pod) for pod in compute])
    if len(compute) > bundle.COMPUTE_PODS:
        found.leave_out(
            f"{folder}/logs", f"of {len(compute)} Pods of NodeSets {bundle.COMPUTE_PODS} are here"
        )
    chosen = compute[: bundle.COMPUTE_PODS]
    found.add_object(f"{folder}/compute-pods-chosen.json", [bundle.manifest(pod) for pod in chosen])
    return [*own, *chosen]


async def _add_log(cluster: Cluster, found: Bundle, logs: Logs) -> None:
    query = {
        "container": logs.container,
        "tailLines": str(LOG_LINES),
        "limitBytes": str(LOG_BYTES),
        "timestamps": "true",
        **({"previous": "true"} if logs.is_previous else {}),
    }
    try:
        data = await cluster.api.send("GET", PODS.path(logs.namespace, logs.pod, "log"), query=query)
        found.add_text(logs.file, data.decode(errors="replace"))
    except SunkError as error:
        found.leave_out(logs.file, of_kubernetes(error, ""))


async def _add(cluster: Cluster, found: Bundle, name: str, path: str) -> None:
    try:
        found.add_object(name, await _answer(cluster, path))
    except SunkError as error:
        found.leave_out(name, of_kubernetes(error, ""))


async def _add_list(
    cluster: Cluster, found: Bundle, name: str, path: str, query: dict[str, str] | None = None
) -> None:
    items = await _list(cluster, found, name, path, query)
    if items:
        found.add_object(name, [bundle.manifest(one) for one in items])


async def _list(
    cluster: Cluster, found: Bundle, name: str, path: str, query: dict[str, str] | None = None
) -> list[Json]:
    """Return what is listed; note what is missing."""
    items: list[Json] = []
    try:
        async for one in _items(cluster, path, query):
            if len(items) == PAGE * PAGES_MAX:
                found.leave_out(name, f"more than {len(items)} objects")
                break
            items.append(one)
    except SunkError as error:
        found.leave_out(name, of_kubernetes(error, ""))
    return items


async def _items(cluster: Cluster, path: str, query: dict[str, str] | None = None) -> AsyncIterator[Json]:
    """Yield the objects of a list, page by page. Raises as `Api.send`."""
    asked = {**(query or {}), "limit": str(PAGE)}
    while True:
        page = await _answer(cluster, path, asked)
        for one in page.get("items") or ():
            yield one
        asked["continue"] = page.get("metadata", {}).get("continue", "")
        if not asked["continue"]:
            break


async def _answer(cluster: Cluster, path: str, query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return what the API server answers. Raises as `Api.send`, and `NoAnswerError`."""
    data = await cluster.api.send("GET", path, query=query)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoAnswerError(f"the answer cannot be read: {error}", 1) from error
