"""HTTP around every call: who is let in, the body's limits, a caller that hangs up, our own end.

What must stay true: a caller is let in before its body is read, and takes nobody's place before; one that
hangs up ends its call; when we are told to stop, every held call is answered 503 at once; no log line and no
answer holds a token.
"""

import logging
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sunk_events.base import UNKNOWN, Cause, source
from sunk_hook_gateway import answers
from sunk_hook_gateway.answers import Answer
from sunk_hook_gateway.calls import Gateway
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.facts import Told
from sunk_hook_gateway.metrics import CALL_SECONDS, CALLS, CALLS_HELD, HANG_UPS
from sunk_hook_gateway.ports import Callers
from sunk_hook_gateway.routes import ENDPOINTS, Call, Endpoint, Refusal
from sunk_hook_gateway.tokens import AccessError, Caller, admit, bearer, require_member
from sunk_runtime.errors import PermanentError, SunkError, TransientError
from sunk_runtime.http_guard import line_of
from sunk_runtime.jetstream import Bus
from sunk_runtime.tracing import acting, continuing, here
from sunk_runtime.views import now
from sunk_runtime.writer import publish

log = logging.getLogger(__name__)

MAX_BODY: Final = 64 * 1024
BODY_TIMEOUT_S: Final = 10.0
PUBLISH_TIMEOUT_S: Final = 2.0
HUNG_UP: Final = Answer(499)
"""nginx' word for it; nobody reads this answer."""


class Serving:
    """Serves every row of the route table."""

    def __init__(self, bus: Bus, config: Config, gateway: Gateway, callers: Callers) -> None:
        self._bus = bus
        self._config = config
        self._gateway = gateway
        self._callers = callers
        self._held = 0
        self._held_by: Counter[str] = Counter()
        """Calls held, by the Pod or the placeholder that makes them, and of all of either kind."""
        self._open: set[anyio.CancelScope] = set()
        """Of each call that waits for its answer; a task beside it would cost more than the call."""
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
            CALLS_HELD.labels(endpoint.name).inc()
            call, at = None, UNKNOWN
            try:
                token, caller = await self._let_in(endpoint, request)
                with self._place(endpoint, request, caller):
                    call = Call(request.path_params, token, caller, await _body(request))
                    with acting(f"call {endpoint.name}", request.url.path, UNKNOWN, is_asked=True):
                        at = here("")
                        answer = await self._held_open(endpoint, request, call)
            except Refusal as refusal:
                answer = refusal.answer
            finally:
                CALLS_HELD.labels(endpoint.name).dec()
                self._held -= 1
                if not self._held:
                    self._idle.set()
            waited_s = time.perf_counter() - started
            _account(endpoint, request, answer, waited_s)
            return self._response(endpoint, call, answer, waited_s, at)

        return Route(endpoint.path, respond, methods=[endpoint.method], name=endpoint.name)

    @contextmanager
    def _place(self, endpoint: Endpoint, request: Request, caller: Caller) -> Generator[None]:
        """Take one of the places that there are for nodes or for placeholders, or refuse.

        Which node calls is known for certain here. Who calls for a job may be anybody, and takes no prolog's
        place.
        """
        is_job = endpoint.caller == "job"
        one = f"job {request.path_params['job']}" if is_job else caller.pod
        everybody = "jobs" if is_job else "nodes"
        is_too_many = one and self._held_by[one] >= self._config.max_calls_per_node
        if is_too_many or self._held_by[everybody] >= self._config.max_calls:
            raise Refusal(answers.RETRY)
        taken = [one, everybody] if one else [everybody]
        self._held_by.update(taken)
        try:
            yield
        finally:
            for place in taken:
                self._held_by[place] -= 1
                if not self._held_by[place]:
                    del self._held_by[place]

    async def _let_in(self, endpoint: Endpoint, request: Request) -> tuple[str, Caller]:
        """Return the caller with its token, or raise its `Refusal`."""
        if self.is_stopping:
            raise Refusal(answers.RETRY)
        try:
            token = bearer(request.headers.get("authorization"))
            return token, await self._caller(endpoint, request, token)
        except AccessError as error:
            raise Refusal(answers.failed(error.status, str(error))) from error
        except TransientError as error:
            raise Refusal(answers.retry(str(error))) from error

    async def _caller(self, endpoint: Endpoint, request: Request, token: str) -> Caller:
        """Return who calls. A job's token is checked where its placement is looked up."""
        if endpoint.caller == "job":
            return Caller()
        caller = await self._callers.identify(token)
        if endpoint.caller == "node":
            admit(caller, str(request.path_params["node"]), self._config.namespace)
        else:
            require_member(caller, self._config.namespace)
        return caller

    async def _held_open(self, endpoint: Endpoint, request: Request, call: Call) -> Answer:
        """Answer, unless the caller hangs up or we are told to stop first."""
        answer: Answer | None = None
        with anyio.CancelScope() as scope, line_of(request).ending(scope):
            self._open.add(scope)
            try:
                if self.is_stopping:
                    raise Refusal(answers.RETRY)
                answer = await self._answer(endpoint, call)
            finally:
                self._open.discard(scope)
        if answer is not None:
            return answer
        if self.is_stopping:
            return answers.RETRY
        HANG_UPS.labels(endpoint.name).inc()
        if endpoint.hung_up is not None:
            await endpoint.hung_up(self._gateway, call)
        return HUNG_UP

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
            return answers.failed(500, "the gateway failed; its log says why")

    def _response(
        self, endpoint: Endpoint, call: Call | None, answer: Answer, waited_s: float, at: Cause
    ) -> Response:
        background = None
        if endpoint.fact is not None and call is not None and answer.status in endpoint.told:
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
        told = Told(
            source=source(self._config.cluster, self._bus.name),
            status=answer.status,
            waited_s=round(waited_s, 6),
            time=now(),
        )
        event = endpoint.fact(call, told)
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
        raise Refusal(answers.failed(408, f"body did not come in {BODY_TIMEOUT_S:.0f} s")) from error
    return bytes(data)


def _account(endpoint: Endpoint, request: Request, answer: Answer, waited_s: float) -> None:
    """Count and log how a call went."""
    CALL_SECONDS.labels(endpoint.name).observe(waited_s)
    CALLS.labels(endpoint.name, str(answer.status)).inc()
    fields = {
        "call": endpoint.name,
        **{name: str(value)[:253] for name, value in request.path_params.items()},
        "status": answer.status,
        "waited_s": round(waited_s, 3),
    }
    if error := (answer.content or {}).get("error"):
        fields["error"] = str(error)
    if answer.status in {202, 204, 499}:
        log.debug("call answered", extra=fields)
    elif answer.status < 400:  # noqa: PLR2004 - HTTP's line between well and not
        log.info("call answered", extra=fields)
    else:
        log.warning("call refused", extra=fields)
