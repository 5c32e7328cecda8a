"""HTTP around every call: who is let in, the body's limits, a caller that hangs up, our own end.

What must stay true: a caller is let in before its body is read, and takes no place of those who are in; one
that hangs up ends its call; when we are told to stop, every held call is answered 503 at once; no log line
and no answer holds a token.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

import anyio
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sunk_events.base import UNKNOWN, Cause, source
from sunk_hook_gateway import metrics
from sunk_hook_gateway.access.tokens import AccessError, bearer
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.controller.admission import Admission, Admitted
from sunk_hook_gateway.controller.calls import Gateway
from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.facts import CallOutcome
from sunk_hook_gateway.http.places import (
    MAX_CALLS_PER_JOB,
    MAX_UNKNOWN,
    MAX_UNKNOWN_PER_ADDRESS,
    Places,
    UserPlaces,
)
from sunk_hook_gateway.http.routes import ENDPOINTS, Call, Endpoint, Refusal, job_of
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError, SunkError, TransientError
from sunk_runtime.http_guard import line_of
from sunk_runtime.jetstream import Bus
from sunk_runtime.tracing import acting, continuing, here
from sunk_runtime.writer import publish

log = logging.getLogger(__name__)

MAX_BODY: Final = 64 * 1024
BODY_TIMEOUT_S: Final = 10.0
PUBLISH_TIMEOUT_S: Final = 2.0
LINE_S: Final = 1.0
HUNG_UP: Final = Answer(499)
"""nginx' word for it; nobody reads this answer."""


class Serving:
    """Serves every row of the route table."""

    def __init__(self, bus: Bus, config: Config, gateway: Gateway, admission: Admission) -> None:
        self._bus = bus
        self._config = config
        self._gateway = gateway
        self._admission = admission
        self._held = 0
        self._nodes = Places(config.max_calls, config.max_calls_per_node)
        self._jobs = Places(config.max_calls, MAX_CALLS_PER_JOB)
        self._users = UserPlaces()
        self._unknown = Places(MAX_UNKNOWN, MAX_UNKNOWN_PER_ADDRESS)
        """Of those who are not let in yet, by their addresses."""
        self._open: set[anyio.CancelScope] = set()
        """Of each call that waits for its answer; a task beside it would cost more than the call."""
        self._logged: dict[tuple[str, int], float] = {}
        """When an answer to an unknown caller was logged last, by call and status."""
        self._is_stopping = False
        self._idle = anyio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether new calls are turned away."""
        return self._is_stopping

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the table."""
        return [self._route(endpoint) for endpoint in ENDPOINTS]

    async def stop(self) -> None:
        """Answer every held call 503, so that its script asks another replica; return when all are."""
        self._is_stopping = True
        for scope in self._open:
            scope.cancel()
        while self._held:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _route(self, endpoint: Endpoint) -> Route:
        async def respond(request: Request) -> Response:
            started = time.perf_counter()
            self._held += 1
            metrics.CALLS_HELD.labels(endpoint.name).inc()
            call, at = None, UNKNOWN
            try:
                token, admitted = await self._let_in(endpoint, request)
                with self._place(endpoint, request, admitted):
                    call = Call(request.path_params, token, admitted, await _body(request))
                    with acting(f"call {endpoint.name}", request.url.path, UNKNOWN, has_caller=True):
                        at = here("")
                        answer = await self._held_open(endpoint, request, call)
            except Refusal as refusal:
                answer = refusal.answer
            except AccessError as error:
                answer = answers.failed(error.status, str(error))
            except TransientError as error:
                answer = answers.retry(str(error))
            finally:
                metrics.CALLS_HELD.labels(endpoint.name).dec()
                self._held -= 1
                if not self._held:
                    self._idle.set()
            waited_s = time.perf_counter() - started
            is_known = call is not None and not _is_unknown(endpoint, call.admitted)
            if is_known and self._config.tls_cert_file and request.url.scheme == "http":
                metrics.CALLS_WITHOUT_TLS.labels(endpoint.name).inc()
            is_line = is_known or self._is_line(endpoint, answer.status)
            _account(endpoint, request, answer, waited_s, is_line=is_line)
            return self._response(endpoint, call if is_known else None, answer, waited_s, at)

        return Route(endpoint.path, respond, methods=[endpoint.method], name=endpoint.name)

    def _is_line(self, endpoint: Endpoint, status: int) -> bool:
        """Whether the answer to an unknown caller is logged: one a second is."""
        key, at = (endpoint.name, status), time.monotonic()
        if at - self._logged.get(key, -LINE_S) < LINE_S:
            return False
        self._logged[key] = at
        return True

    def _place(
        self, endpoint: Endpoint, request: Request, admitted: Admitted
    ) -> AbstractContextManager[None]:
        """Return a place of those that there are for the caller's kind. Raises `TransientError`."""
        if endpoint.caller == "user":
            return self._users.one(admitted.user)
        if endpoint.caller != "job":
            return self._nodes.one(admitted.caller.pod)
        if _is_unknown(endpoint, admitted):
            return self._unknown.one(_address(request))
        return self._jobs.one(str(job_of(request.path_params)))

    async def _let_in(self, endpoint: Endpoint, request: Request) -> tuple[str, Admitted]:
        """Return the caller with its token; one that has to be waited for takes a stranger's place meanwhile.

        Raises:
            AccessError: nobody that may.
            TransientError: it cannot be told now.
        """
        if self.is_stopping:
            raise Refusal(answers.RETRY)
        token = bearer(request.headers.get("authorization"))
        found: Admitted | None = None
        wait: Callable[[], Awaitable[Admitted]]
        if endpoint.caller == "user":
            wait = partial(self._admission.user, token)
        elif endpoint.caller == "job":
            job = job_of(request.path_params)
            found = self._admission.job_at_once(token, job)
            wait = partial(self._admission.job, token, job, accepts_unplaced=endpoint.accepts_unplaced)
        else:
            node = None if endpoint.caller == "any node" else str(request.path_params["node"])
            or_slurmctld = endpoint.caller == "node or slurmctld"
            found = self._admission.node_at_once(token, node, or_slurmctld=or_slurmctld)
            wait = partial(self._admission.node, token, node, or_slurmctld=or_slurmctld)
        if found is None:
            waiting = self._users.checks if endpoint.caller == "user" else self._unknown
            with (
                waiting.one(_address(request)),
                metrics.CALLS_NOT_LET_IN.track_inprogress(),
                anyio.CancelScope() as scope,
                self._until_gone(request, scope),
            ):
                found = await wait()
        if found is None:
            raise Refusal(answers.RETRY if self.is_stopping else HUNG_UP)
        return token, found

    async def _held_open(self, endpoint: Endpoint, request: Request, call: Call) -> Answer:
        """Answer, unless the caller hangs up or we are told to stop first."""
        answer: Answer | None = None
        with anyio.CancelScope() as scope, self._until_gone(request, scope):
            answer = await self._answer(endpoint, call)
        if answer is not None:
            return answer
        if self.is_stopping:
            return answers.RETRY
        metrics.HANG_UPS.labels(endpoint.name).inc()
        if endpoint.hung_up is not None:
            await endpoint.hung_up(self._gateway, call)
        return HUNG_UP

    @contextmanager
    def _until_gone(self, request: Request, scope: anyio.CancelScope) -> Generator[None]:
        """Cancel *scope* when the caller hangs up or we are told to stop while the context lasts."""
        with line_of(request).ending(scope):
            self._open.add(scope)
            try:
                if self.is_stopping:
                    raise Refusal(answers.RETRY)
                yield
            finally:
                self._open.discard(scope)

    async def _answer(self, endpoint: Endpoint, call: Call) -> Answer:
        try:
            return await endpoint.handle(self._gateway, call)
        except Refusal as refusal:
            return refusal.answer
        except AccessError as error:
            return answers.failed(error.status, str(error))
        except TransientError as error:
            return answers.retry(str(error))
        except PermanentError as error:
            log.error("call failed", extra={"call": endpoint.name, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return answers.failed(500, "the gateway failed; see its log")

    def _response(
        self, endpoint: Endpoint, call: Call | None, answer: Answer, waited_s: float, at: Cause
    ) -> Response:
        background = None
        if endpoint.fact is not None and call is not None and answer.status in endpoint.fact_statuses:
            background = BackgroundTask(self._publish, endpoint, call, answer, waited_s, at)
        if answer.content is None:
            return Response(status_code=answer.status, background=background)
        headers = {"Retry-After": "1"} if answer.status == answers.RETRY.status else None
        return JSONResponse(answer.content, status_code=answer.status, headers=headers, background=background)

    async def _publish(
        self, endpoint: Endpoint, call: Call, answer: Answer, waited_s: float, at: Cause
    ) -> None:
        """Tell the bus how the call was answered; failing to is only logged."""
        if endpoint.fact is None:
            return
        outcome = CallOutcome(
            source=source(self._config.cluster, self._bus.name),
            status=answer.status,
            waited_s=round(waited_s, 6),
            time=now(),
        )
        event = endpoint.fact(call, outcome)
        try:
            with continuing(at), anyio.fail_after(PUBLISH_TIMEOUT_S):
                await publish(self._bus, self._config.cluster, event)
        except (SunkError, TimeoutError) as error:
            log.warning("hook fact not published", extra={"call": endpoint.name, "error": str(error)})


async def _body(request: Request) -> bytes:
    """Return the body, or refuse one that is too large, too slow, or does not come to its end."""
    data = bytearray()
    try:
        with anyio.fail_after(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    raise Refusal(answers.failed(413, f"body is larger than {MAX_BODY} bytes"))
    except ClientDisconnect as error:
        raise Refusal(HUNG_UP) from error
    except TimeoutError as error:
        raise Refusal(answers.failed(408, f"body did not arrive in {BODY_TIMEOUT_S:.0f} s")) from error
    return bytes(data)


def _is_unknown(endpoint: Endpoint, admitted: Admitted) -> bool:
    """Whether the caller's token is unknown here: then its call is neither published nor logged each time."""
    return endpoint.caller == "job" and admitted.placement is None


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _account(endpoint: Endpoint, request: Request, answer: Answer, waited_s: float, *, is_line: bool) -> None:
    """Count and log how a call went."""
    metrics.CALL_SECONDS.labels(endpoint.name).observe(waited_s)
    metrics.CALLS.labels(endpoint.name, str(answer.status)).inc()
    fields = {
        "call": endpoint.name,
        **{name: str(value)[:253] for name, value in request.path_params.items()},
        "status": answer.status,
        "waited_s": round(waited_s, 3),
    }
    if error := (answer.content or {}).get("error"):
        fields["error"] = str(error)
    if answer.status in {202, 204, 499} or not is_line:
        log.debug("call answered", extra=fields)
    elif answer.status < 400:  # noqa: PLR2004 - HTTP's line between well and not
        log.info("call answered", extra=fields)
    else:
        log.warning("call refused", extra=fields)
