"""The route table: which call there is, who may make it, what it does and what it is answered."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from sunk_events.base import Event
from sunk_events.hooks import (
    JobNudgeCalled,
    NodeNudgeCalled,
    PlacementReleaseCalled,
    PrehookCalled,
    RebootCalled,
    ReleaseCalled,
    StartedCalled,
)
from sunk_events.placements import PlacementState
from sunk_hook_gateway.access.tokens import Caller
from sunk_hook_gateway.controller.admission import Admitted
from sunk_hook_gateway.controller.calls import Gateway
from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.bodies import Nudge, Prehook, Release, Started
from sunk_hook_gateway.hooks.facts import CallOutcome, about_hook, about_job, about_node

B = TypeVar("B", bound=msgspec.Struct)
MAX_DIGITS: Final = 10
"""Of a job id; Python reads no number of thousands."""


class Refusal(Exception):  # noqa: N818 - an answer on its way out, not an error
    """Ends a call with *answer*."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Call(msgspec.Struct, frozen=True):
    """A call whose caller was let in."""

    params: Mapping[str, Any]
    """Of the path. ``Any``, because that is what Starlette gives; they are strings."""
    token: str
    admitted: Admitted
    data: bytes

    @property
    def node(self) -> str:
        """The node of the path."""
        return str(self.params["node"])

    @property
    def caller(self) -> Caller:
        """The Pod that calls."""
        return self.admitted.caller

    @property
    def who(self) -> str:
        """The caller, for the record."""
        return f"{self.caller.namespace}/{self.caller.pod}" if self.caller.pod else "static token"

    @property
    def job(self) -> int:
        """The job of the path."""
        return job_of(self.params)

    @property
    def placement(self) -> PlacementState:
        """The placement whose placeholder calls."""
        if self.admitted.placement is None:
            raise Refusal(answers.failed(404, f"job {self.job} is no placeholder"))
        return self.admitted.placement

    def body(self, kind: type[B]) -> B:
        """Return the body, or refuse a malformed one, naming the field."""
        try:
            return msgspec.json.decode(self.data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(answers.failed(400, f"body: {error}")) from error


def job_of(params: Mapping[str, Any]) -> int:
    """Return the job of a path with *params*, or refuse what is none."""
    given = str(params["job"])
    if len(given) > MAX_DIGITS or not given.isascii() or not given.isdigit() or not 0 < int(given) < 1 << 32:
        raise Refusal(answers.failed(400, "`job` in the path is not a job id"))
    return int(given)


async def _prehook(gateway: Gateway, call: Call) -> Answer:
    return await gateway.prehook(call.node, call.body(Prehook))


async def _release_node(gateway: Gateway, call: Call) -> Answer:
    return await gateway.release_node(call.node, call.body(Release))


async def _reboot(gateway: Gateway, call: Call) -> Answer:
    return await gateway.reboot(call.node, call.who)


async def _started(gateway: Gateway, call: Call) -> Answer:
    return await gateway.started(call.job, call.token, call.body(Started))


async def _release_job(gateway: Gateway, call: Call) -> Answer:
    return await gateway.release_job(call.job, call.token)


async def _outcome(gateway: Gateway, call: Call) -> Answer:
    return await gateway.outcome(call.job, call.placement, call.token)


async def _explain(gateway: Gateway, call: Call) -> Answer:
    return await gateway.explain(call.job, call.admitted.user)


async def _outcome_dropped(gateway: Gateway, call: Call) -> None:
    await gateway.outcome_dropped(call.job)


async def _nudge(gateway: Gateway, call: Call) -> Answer:
    body = call.body(Nudge)
    if call.caller.pod and body.node not in {None, call.caller.pod}:
        return answers.failed(403, f"Pod {call.caller.pod} may not call for node {body.node}")
    return await gateway.nudge(body)


def prehook_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that a prolog was answered."""
    return about_hook(PrehookCalled, call.node, call.body(Prehook).job, outcome)


def release_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that an epilog was answered."""
    return about_hook(ReleaseCalled, call.node, call.body(Release).job, outcome)


def reboot_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that somebody asked for a reboot: the record of who did."""
    return about_node(RebootCalled, call.node, call.who, outcome)


def started_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that a placeholder's script announced itself."""
    return about_job(StartedCalled, call.job, call.body(Started).node, outcome)


def job_release_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that a placeholder's script asked for its end."""
    return about_job(PlacementReleaseCalled, call.job, "", outcome)


def nudge_called(call: Call, outcome: CallOutcome) -> Event:
    """Return the fact that somebody asked for a look."""
    body = call.body(Nudge)
    if body.job is not None:
        return about_job(JobNudgeCalled, body.job, call.caller.pod, outcome)
    return about_node(NodeNudgeCalled, body.node or "", call.who, outcome)


FactOf = Callable[[Call, CallOutcome], Event]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the route table; the OpenAPI document is made from it too."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    caller: Literal["node", "node or slurmctld", "any node", "job", "user"]
    """The token that it needs: the path's node's, that or slurmctld's, any node's, the path's job's, Slurm's
    own of a user."""
    summary: str
    answers: Mapping[int, str]
    handle: Callable[[Gateway, Call], Awaitable[Answer]]
    body: type[msgspec.Struct] | None = None
    accepts_unplaced: bool = False
    """Whether a job that has no placement may call: whose token it is the pod-scheduler knows then."""
    hung_up: Callable[[Gateway, Call], Awaitable[None]] | None = None
    """What to do when the caller went before it was answered."""
    fact: FactOf | None = None
    """Published after the answer, best effort."""
    fact_statuses: frozenset[int] = frozenset({200, 202, 409})
    """The statuses that are worth a fact."""


_AGAIN: Final = "nothing was decided: make the same call again"
_GONE: Final = "the Pod is gone: `gone` is true"
_STILL: Final = "the Pod is still there: `gone` is false; ask again"

ENDPOINTS: Final = (
    Endpoint(
        name="prehook",
        method="POST",
        path="/v1/nodes/{node}/prehook",
        caller="node",
        body=Prehook,
        summary="A prolog requests its node's lock, and the call blocks until the node is locked",
        answers={
            200: "locked, or the job no longer runs: end the prolog with 0",
            202: "not yet: make the same call again; show `say` to the user who waits for the job, "
            "and send it back as `said`",
            409: "the deadline has passed: `in_the_way` has the Pods; "
            "`reason`, `drain` and `hold` say what to do",
            503: _AGAIN,
        },
        handle=_prehook,
        fact=prehook_called,
        fact_statuses=frozenset({200, 409}),
    ),
    Endpoint(
        name="release",
        method="POST",
        path="/v1/nodes/{node}/release",
        caller="node",
        body=Release,
        summary="An epilog releases its node's lock; a placeholder's Pod ends first",
        answers={200: _GONE, 202: _STILL, 503: _AGAIN},
        handle=_release_node,
        fact=release_called,
    ),
    Endpoint(
        name="reboot",
        method="POST",
        path="/v1/nodes/{node}/reboot",
        caller="node or slurmctld",
        summary="Request a reboot of the node's Kubernetes Node",
        answers={
            200: "noted: the Node's condition requests the reboot",
            403: "not permitted for this Slurm cluster: `error` names the value to set",
            503: _AGAIN,
        },
        handle=_reboot,
        fact=reboot_called,
        fact_statuses=frozenset({200, 403}),
    ),
    Endpoint(
        name="job_started",
        method="POST",
        path="/v1/jobs/{job}/started",
        caller="job",
        body=Started,
        summary="A placeholder's script announces itself",
        answers={200: "noted: the Pod is being bound", 503: _AGAIN},
        handle=_started,
        fact=started_called,
    ),
    Endpoint(
        name="job_release",
        method="POST",
        path="/v1/jobs/{job}/release",
        caller="job",
        summary="A placeholder must end: the call blocks until its Pod is gone, or a time limit passes",
        answers={200: _GONE, 202: _STILL, 503: _AGAIN},
        accepts_unplaced=True,
        handle=_release_job,
        fact=job_release_called,
    ),
    Endpoint(
        name="job_outcome",
        method="GET",
        path="/v1/jobs/{job}/outcome",
        caller="job",
        summary="Long poll of a placeholder's script while its Pod runs",
        answers={
            200: "the Pod has ended: exit with `exit_code`",
            204: "the Pod still runs: ask again",
            503: _AGAIN,
        },
        handle=_outcome,
        hung_up=_outcome_dropped,
    ),
    Endpoint(
        name="explain_job",
        method="GET",
        path="/v1/jobs/{job}/explanation",
        caller="user",
        summary="Why a job waits, for the user of the job",
        answers={200: "`findings`: each has `what`, `since`, `because`, `would_change`", 503: _AGAIN},
        handle=_explain,
    ),
    Endpoint(
        name="nudge",
        method="POST",
        path="/v1/nudges",
        caller="any node",
        body=Nudge,
        summary="Request a look at this node or job now",
        answers={200: "noted", 503: _AGAIN},
        handle=_nudge,
        fact=nudge_called,
    ),
)
