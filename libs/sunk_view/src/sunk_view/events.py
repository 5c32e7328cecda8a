"""Answers questions about events: who may see which, and of what.

What must stay true: a user who may read one Pod sees the events of that Pod and of no other, whatever the
question names, and has nothing else looked at; all events, and those of jobs, need the chart's ClusterRole.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import anyio
import msgspec
from starlette.requests import Request

from sunk_events.view import ROOT, EventRow, Events
from sunk_kube.resources import is_name
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError
from sunk_runtime.near import near
from sunk_view.access import Access, Right, wide
from sunk_view.answers import Answer, refusal
from sunk_view.callers import Caller
from sunk_view.event_rows import (
    LAST,
    OF_JOBS,
    OF_NODES,
    OF_PODS,
    PAGE,
    SINCE_MAX_S,
    Position,
    Wanted,
    read,
    written,
)
from sunk_view.facts import Facts, Page, TooManyError
from sunk_view.states import ClusterStates

KEYS_MAX: Final = 8
"""Names by which one thing is known, in all Slurm clusters."""
_DIGITS: Final = 7
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""As the API server makes those of Pods, by which the bus knows them."""
Respond = Callable[[Request, Caller], Awaitable[Answer]]


class BadQueryError(SunkError):
    """A parameter of the question is not allowed; the text names it."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the events is asked for."""

    last: int = LAST
    since_s: int = 0
    after: Mapping[str, Position] | None = None
    keys: tuple[str, ...] = ()
    """What the answer before said of what is asked about."""


def query_of(parameters: Mapping[str, str], clusters: Iterable[str]) -> Query:
    """Return what a question asks. Raises `BadQueryError`."""
    keys = tuple(filter(None, parameters.get("key", "").split(",")[: KEYS_MAX + 1]))
    if len(keys) > KEYS_MAX or not all(map(is_name, keys)):
        raise BadQueryError("key: is not from an earlier answer")
    after = None
    if text := parameters.get("after", ""):
        try:
            after = read(text, clusters)
        except ValueError as error:
            raise BadQueryError("after: is not from an earlier answer") from error
    return Query(
        last=_number(parameters, "last", LAST, PAGE),
        since_s=_number(parameters, "since", 0, SINCE_MAX_S),
        after=after,
        keys=keys,
    )


def _number(parameters: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and 1 <= int(text) <= most):
        raise BadQueryError(f"{name}: must be a whole number from 1 to {most}")
    return int(text)


class EventAnswers:
    """Answers about the events of every Slurm cluster."""

    def __init__(self, access: Access, facts: Facts, clusters: Sequence[ClusterStates]) -> None:
        self._access = access
        self._facts = facts
        self._clusters = clusters

    def routes(self) -> dict[str, Respond]:
        """Return who answers at which path."""
        return {
            f"{ROOT}/events": self._all,
            f"{ROOT}/nodes/{{name}}/events": self._node,
            f"{ROOT}/jobs/{{name}}/events": self._job,
            f"{ROOT}/namespaces/{{namespace}}/pods/{{name}}/events": self._pod,
        }

    async def _all(self, request: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("events"))
        return await self._answer(request, caller, lambda _: Wanted())

    async def _node(self, request: Request, caller: Caller) -> Answer:
        await self._access.require(caller, Right(resource="nodes"))
        name = request.path_params["name"]
        for states in self._clusters:
            states.require(states.nodes, states.kube_pods)
        names = {
            one
            for states in self._clusters
            for pod in states.kube_pods.values()
            if name in {pod.pod, pod.kube_node}
            for one in (pod.pod, pod.kube_node)
            if one
        } | {name for states in self._clusters if states.nodes.get(name) is not None}
        known = {key for states in self._clusters for key in (*states.nodes.keys(), *states.kube_pods.keys())}

        def wanted(keys: tuple[str, ...]) -> Wanted:
            return Wanted(entities=keys, takes=lambda row: row.about in OF_NODES)

        return await self._answer(request, caller, wanted, names, near(name, known))

    async def _job(self, request: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("jobs"))
        number = request.path_params["name"]
        if not (number.isascii() and number.isdecimal()):
            return refusal(400, f"{number!r} is not the number of a Slurm job")
        wanted = Wanted(entities=(number,), takes=lambda row: row.about in OF_JOBS)
        return await self._answer(request, caller, lambda _: wanted)

    async def _pod(self, request: Request, caller: Caller) -> Answer:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        await self._access.require(caller, Right(resource="pods", namespace=namespace, name=name))
        for states in self._clusters:
            states.require(states.placements)
        there = [one for states in self._clusters for one in states.placements.values()]
        there = [one for one in there if one.namespace == namespace and one.roster is None]
        uids = {one.uid for one in there if one.pod == name}
        keys = request.query_params.get("key", "")
        if not all(_UID.fullmatch(key) for key in filter(None, keys.split(","))):
            return refusal(400, "key: is not from an earlier answer about a Pod")
        others: tuple[str, ...] = ()
        if not uids and await self._access.may(caller, Right(resource="pods", namespace=namespace)):
            others = near(name, {one.pod for one in there})

        def takes(row: EventRow) -> bool:
            return (row.about, row.namespace, row.name) == (OF_PODS, namespace, name)

        def wanted(keys: tuple[str, ...]) -> Wanted:
            return Wanted(entities=keys, about=OF_PODS, takes=takes)

        answer = await self._answer(request, caller, wanted, uids, others)
        if not isinstance(answer.body, Events):
            return answer
        # The caller may read this Pod, if perhaps no other of the namespace: nothing of it is hidden.
        rows = tuple(msgspec.structs.replace(row, namespace="") for row in answer.body.items)
        return Answer(body=msgspec.structs.replace(answer.body, items=rows))

    async def _answer(
        self,
        request: Request,
        caller: Caller,
        wanted: Callable[[tuple[str, ...]], Wanted],
        known: set[str] | None = None,
        others: tuple[str, ...] = (),
    ) -> Answer:
        """Return a part of what is *wanted*.

        Args:
            request: Its query says which part.
            caller: Who asks, one question of each share at a time.
            wanted: By the names of what is asked about.
            known: Those names, as far as the bus knows; None: none is needed.
            others: Names that are near, where it knows none.
        """
        try:
            query = query_of(request.query_params, [states.cluster for states in self._clusters])
        except BadQueryError as error:
            return refusal(400, str(error))
        # What has the name now comes first, so that of many that had it the oldest are dropped.
        keys = tuple(dict.fromkeys((*sorted(known or ()), *query.keys)))[:KEYS_MAX]
        if known is not None and not keys:
            return Answer(body=Events(items=(), after="", near=others))
        try:
            with self._facts.question(caller.share):
                pages = await self._pages(query, wanted(keys))
        except TooManyError as error:
            return refusal(429, str(error), retry_after_s=error.retry_after_s)
        rows = sorted((row for page in pages.values() for row in page.rows), key=lambda row: row.time)
        if query.after is None:
            rows = rows[-query.last :]
        return Answer(
            body=Events(
                items=tuple(rows),
                after=written({cluster: page.at for cluster, page in pages.items()}),
                is_more=any(page.is_more for page in pages.values()),
                key=",".join(keys),
                problems=tuple(problem for page in pages.values() for problem in page.problems),
            )
        )

    async def _pages(self, query: Query, wanted: Wanted) -> dict[str, Page]:
        since = now() - timedelta(seconds=query.since_s) if query.since_s else None
        pages: dict[str, Page] = {}

        async def look(cluster: str) -> None:
            if query.after is None:
                pages[cluster] = await self._facts.newest(cluster, wanted, query.last, since)
            else:
                pages[cluster] = await self._facts.after(cluster, wanted, query.after.get(cluster))

        async with anyio.create_task_group() as tasks:
            for states in self._clusters:
                tasks.start_soon(look, states.cluster)
        return pages
