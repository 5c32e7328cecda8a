"""Lists of the API server, page by page, and where the charts are."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from sunk_ctl import bundle
from sunk_ctl.bundle import Json, part
from sunk_ctl.cluster import Cluster
from sunk_ctl.refusals import NOT_FOUND, REFUSED, LoggedOutError, NoAnswerError, of_kubernetes
from sunk_kube.resources import is_name
from sunk_runtime.errors import SunkError

PAGE: Final = 250
WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets")
OF_CHARTS: Final = {"labelSelector": f"{bundle.PART_OF}=sunk"}
"""Selects what the charts made."""


async def namespaces_of(cluster: Cluster, wanted: Sequence[str]) -> list[str]:
    """Return the namespaces *wanted*, or else those in which the charts are.

    Raises:
        NoAnswerError: one is no name, or they are not known, or the charts are in none.
    """
    for namespace in wanted:
        if not is_name(namespace):
            raise NoAnswerError(f"--namespace: {namespace[:80]!r} is not a name of a namespace", 2)
    if wanted:
        return list(wanted)
    try:
        found = [
            one for kind in WORKLOADS async for one in items_of(cluster, f"/apis/apps/v1/{kind}", OF_CHARTS)
        ]
    except SunkError as error:
        why = of_kubernetes(error, "")
        if isinstance(why, LoggedOutError):
            raise why from error
        hint = ". Name the namespaces that you may read (--namespace)" if why.status == REFUSED else ""
        raise NoAnswerError(f"{why}{hint}", why.status) from error
    if not found:
        raise NoAnswerError("helm/sunk and helm/slurm are in no namespace of this cluster", NOT_FOUND)
    return bundle.namespaces(found)


async def items_of(cluster: Cluster, path: str, query: dict[str, str] | None = None) -> AsyncIterator[Json]:
    """Yield the objects of a list, page by page. Raises as `Api.send`, and `NoAnswerError`."""
    params = {**(query or {}), "limit": str(PAGE)}
    while True:
        page = await answer_of(cluster, path, params)
        for one in bundle.parts(page, "items"):
            yield one
        params["continue"] = str(part(page, "metadata").get("continue") or "")
        if not params["continue"]:
            break


async def answer_of(
    cluster: Cluster, path: str, query: dict[str, str] | None = None, *, body: Json | None = None
) -> Json:
    """Return what the API server answers, to a *body* too. Raises as `Api.send`, and `NoAnswerError`."""
    method = "GET" if body is None else "POST"
    data = await cluster.api.send(method, path, query=query, body=body)
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswerError(f"the answer cannot be read: {error}", 1) from error
