"""The routes: which question there is, what it needs, and how it is answered.

What must stay true: each request is of a user that the API server vouches for, within that user's rate and
places, and answered only after the API server has granted the right; what an answer says of Pods that the
user may not read is hidden. Nothing is written anywhere.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sunk_events.view import GROUP, ROOT, Changes, Events, Explained, Jobs, Locks, Nodes, Pods, Status
from sunk_kube.resources import is_name
from sunk_runtime.call_rates import CallRates
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError, TransientError
from sunk_runtime.http_guard import line_of
from sunk_view import discovery, following, hiding, openapi, tables
from sunk_view.access import NAMESPACES_MAX, Access, NotAllowedError, Right, wide
from sunk_view.answers import JSON, Answer, forbidden, refusal
from sunk_view.callers import Caller, FrontProxy, UnknownCallerError, decoded
from sunk_view.explaining import Explainer
from sunk_view.following import Following
from sunk_view.metrics import QUESTIONS, SECONDS
from sunk_view.states import ClusterStates

log = logging.getLogger(__name__)

JOB_MAX: Final = (1 << 32) - 1
UNDER_WAY_MAX: Final = 64
"""Questions that are answered at once, of all callers; one more is asked to come again."""
OF_ONE_MAX: Final = 8
"""Of those, how many may be of one caller's share."""
ANSWERS: Final = (Nodes, Jobs, Locks, Pods, Explained, Events, Changes)
"""Those that say what is wrong with them."""
Respond = Callable[[Request, Caller], Awaitable[Answer]]


class Serving:
    """Serves every route."""

    def __init__(
        self,
        proxy: FrontProxy,
        access: Access,
        rates: CallRates,
        clusters: Sequence[ClusterStates],
        why: Explainer,
        *,
        more: Mapping[str, Respond] | None = None,
    ) -> None:
        self._proxy = proxy
        self._access = access
        self._rates = rates
        self._clusters = clusters
        self._why = why
        self._following = Following(access, clusters)
        self._more = more or {}
        self._under_way: Counter[str] = Counter()
        """Questions that are answered now, by the share of the caller."""

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the API."""
        fixed = {
            "/apis": discovery.GROUPS_OBJECT,
            f"/apis/{GROUP}": discovery.GROUP_OBJECT,
            ROOT: discovery.RESOURCES_OBJECT,
            openapi.DISCOVERY_PATH: openapi.listed(),
            openapi.DOCUMENT_PATH: openapi.document(),
        }
        found = {
            f"{ROOT}/status": self._status,
            f"{ROOT}/nodes": self._nodes,
            f"{ROOT}/nodes/{{name}}/explain": self._node,
            f"{ROOT}/jobs": self._jobs,
            f"{ROOT}/jobs/{{name}}/explain": self._job,
            f"{ROOT}/locks": self._locks,
            f"{ROOT}/placements": self._pods,
            f"{ROOT}/changes": self._changes,
            f"{ROOT}/namespaces/{{namespace}}/pods": self._pods_of_namespace,
            f"{ROOT}/namespaces/{{namespace}}/pods/{{name}}/explain": self._pod,
            f"{ROOT}/namespaces/{{namespace}}/gangs/{{name}}/explain": self._gang,
        }
        answered = {path: self._fixed(body) for path, body in fixed.items()} | {
            path: self._limited(respond) for path, respond in (found | dict(self._more)).items()
        }
        return [self._route(path, respond) for path, respond in answered.items()]

    def _route(self, path: str, respond: Respond) -> Route:
        what = path.removeprefix(ROOT).strip("/") or "discovery"

        async def serve(request: Request) -> Response:
            started = time.perf_counter()
            answer = await self._answer(request, respond)
            SECONDS.labels(what).observe(time.perf_counter() - started)
            QUESTIONS.labels(what, str(answer.status)).inc()
            body = msgspec.json.encode(answer.body)
            return Response(body, status_code=answer.status, headers=answer.headers, media_type=JSON)

        return Route(path, serve, methods=["GET"])

    async def _answer(self, request: Request, respond: Respond) -> Answer:
        try:
            caller = self._proxy.caller(line_of(request).common_name, decoded(request.headers.raw))
        except UnknownCallerError as error:
            return refusal(401, str(error))
        if not all(is_name(value) for value in request.path_params.values()):
            return refusal(400, "that is not a name of Kubernetes or Slurm")
        return await respond(request, caller)

    def _limited(self, respond: Respond) -> Respond:
        """Have *respond* answer within the caller's rate, and within what the process does at once."""

        async def limited(request: Request, caller: Caller) -> Answer:
            share = caller.share
            if wait_s := self._rates.wait_s(share, time.monotonic()):
                return refusal(429, f"{share} asks too often", retry_after_s=wait_s)
            if self._under_way[share] >= OF_ONE_MAX:
                return refusal(429, f"too many questions of {share} are under way", retry_after_s=1)
            if self._under_way.total() >= UNDER_WAY_MAX:
                return refusal(503, "too many questions of all users are under way", retry_after_s=1)
            self._under_way[share] += 1
            try:
                return await self._answered(request, respond, caller)
            finally:
                self._under_way[share] -= 1
                if not self._under_way[share]:
                    del self._under_way[share]

        return limited

    async def _answered(self, request: Request, respond: Respond, caller: Caller) -> Answer:
        try:
            try:
                answer = self._with_problems(await respond(request, caller))
                return await self._readable(answer, caller, request.path_params.get("namespace", ""))
            except ExceptionGroup as group:  # Of a task group: one error is enough to answer.
                raise _first(group) from group
        except NotAllowedError as error:
            right = error.right
            return forbidden(caller.user, str(right), is_own=right.group == GROUP)
        except TransientError as error:
            return refusal(503, f"not now: {error}", retry_after_s=error.retry_after_s)
        except SunkError as error:
            log.error("question failed", extra={"path": request.url.path, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return refusal(500, "sunk-view failed; see its log")

    def _with_problems(self, answer: Answer) -> Answer:
        """Return *answer* with the services that are silent; a status has them by itself."""
        if not isinstance(answer.body, ANSWERS):
            return answer
        missing = answer.body.problems if isinstance(answer.body, Events) else ()
        is_of_nodes = isinstance(answer.body, Nodes)
        silent = (one for states in self._clusters for one in states.problems(is_of_nodes=is_of_nodes))
        problems = missing + tuple(silent)
        body = msgspec.structs.replace(answer.body, problems=problems)
        return msgspec.structs.replace(answer, body=body)

    async def _readable(self, answer: Answer, caller: Caller, first: str) -> Answer:
        """Return *answer* without Pods that *caller* may not read; the question names namespace *first*."""
        namespaces = hiding.namespaces_in(answer.body)
        readable = await self._access.readable(caller, namespaces, first)
        if namespaces <= readable.namespaces:
            return answer
        body = hiding.without(answer.body, readable.namespaces.__contains__)
        if readable.not_looked_up and isinstance(body, (*ANSWERS, Status)):
            problem = (
                f"Pods of {readable.not_looked_up} namespaces are hidden, whatever your rights: "
                f"one answer looks up {NAMESPACES_MAX}. Ask about one namespace"
            )
            body = msgspec.structs.replace(body, problems=(*body.problems, problem))
        return msgspec.structs.replace(answer, body=body)

    @staticmethod
    def _fixed(found: object) -> Respond:
        async def respond(_request: Request, _caller: Caller) -> Answer:
            return Answer(body=found)

        return respond

    async def _status(self, _: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("status"))
        problems = tuple(one for states in self._clusters for one in states.unreadable())
        return Answer(
            body=Status(clusters=tuple(states.status() for states in self._clusters), problems=problems)
        )

    async def _nodes(self, _: Request, caller: Caller) -> Answer:
        await self._access.require(caller, Right(resource="nodes"))
        for states in self._clusters:
            states.require(states.nodes, states.kube_pods, states.locks, states.statistics)
        rows = [
            row
            for one in self._clusters
            for row in tables.node_rows(
                one.cluster, one.nodes.values(), one.kube_pods.values(), one.locks.values()
            )
        ]
        return Answer(
            body=Nodes(
                items=tuple(rows),
                time=now(),
                slurm_seen=following.slurm_seen(self._clusters),
                after=following.after(self._clusters, "nodes"),
            )
        )

    async def _node(self, request: Request, caller: Caller) -> Answer:
        await self._access.require(caller, Right(resource="nodes"))
        return Answer(body=await self._why.node(request.path_params["name"]))

    async def _jobs(self, _: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("jobs"))
        for states in self._clusters:
            states.require(states.jobs, states.placements)
        rows = [
            row
            for one in self._clusters
            for row in tables.job_rows(
                one.cluster, one.jobs.values(), tables.placeholders(one.placements.values())
            )
        ]
        return Answer(body=Jobs(items=tuple(rows), after=following.after(self._clusters, "jobs")))

    async def _job(self, request: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("jobs"))
        number = request.path_params["name"]
        if not (number.isascii() and number.isdecimal() and len(number) < 11 and 0 < int(number) <= JOB_MAX):  # noqa: PLR2004 - digits of JOB_MAX
            return refusal(400, f"{number!r} is not the number of a Slurm job")
        return Answer(body=await self._why.job(int(number)))

    async def _locks(self, _: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("locks"))
        for states in self._clusters:
            states.require(states.locks)
        rows = [row for one in self._clusters for row in tables.lock_rows(one.cluster, one.locks.values())]
        return Answer(body=Locks(items=tuple(rows)))

    async def _pods(self, _: Request, caller: Caller) -> Answer:
        await self._access.require(caller, wide("placements"))
        found = self._pod_rows("")
        return Answer(
            body=msgspec.structs.replace(found, after=following.after(self._clusters, "placements"))
        )

    async def _changes(self, request: Request, caller: Caller) -> Answer:
        return await self._following.answer(dict(request.query_params), caller)

    async def _pods_of_namespace(self, request: Request, caller: Caller) -> Answer:
        namespace = request.path_params["namespace"]
        await self._access.require(caller, Right(resource="pods", verb="list", namespace=namespace))
        return Answer(body=self._pod_rows(namespace))

    def _pod_rows(self, namespace: str) -> Pods:
        for states in self._clusters:
            states.require(states.placements)
        rows = [
            row
            for one in self._clusters
            for row in tables.pod_rows(one.cluster, one.placements.values(), one.row_secret, namespace)
        ]
        return Pods(items=tuple(rows))

    async def _pod(self, request: Request, caller: Caller) -> Answer:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        await self._access.require(caller, Right(resource="pods", namespace=namespace, name=name))
        is_ahead_named = await self._access.may(caller, wide("jobs"))
        found = await self._why.pod(namespace, name, is_ahead_named=is_ahead_named)
        return Answer(body=await self._without_near(found, caller, namespace))

    async def _gang(self, request: Request, caller: Caller) -> Answer:
        """Explain a gang: its members are Pods of the namespace, so the right to read those is needed."""
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        await self._access.require(caller, Right(resource="pods", namespace=namespace))
        is_ahead_named = await self._access.may(caller, wide("jobs"))
        found = await self._why.pod(namespace, name, is_gang=True, is_ahead_named=is_ahead_named)
        return Answer(body=found)

    async def _without_near(self, found: Explained, caller: Caller, namespace: str) -> Explained:
        """Return *found* without names of other Pods, unless *caller* may read all of the namespace."""
        if found.near and not await self._access.may(caller, Right(resource="pods", namespace=namespace)):
            return msgspec.structs.replace(found, near=())
        return found


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType] - isinstance loses the argument
