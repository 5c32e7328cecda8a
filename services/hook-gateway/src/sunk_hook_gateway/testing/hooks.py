"""What tests of hook calls share: states on the bus, stand-ins for services there, calls over HTTP."""

import hashlib
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Protocol

import anyio

from sunk_events import subjects
from sunk_events.base import Reply, Request, State
from sunk_events.codec import encode
from sunk_events.locks import LockHolder, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.permissions import DRAIN_LEAVES
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_hook_gateway.testing.issuer import UID
from sunk_hook_gateway.testing.process import Process
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import answering
from sunk_runtime.testing import WITHIN_S

CLUSTER: Final = "c1"
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
Gateway = tuple[Process, str]


class HttpAnswer(Protocol):
    """An answer, as httpx has them: product code may not import it, test helpers are no exception."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def text(self) -> str:
        """The body."""
        ...

    def json(self) -> Any:  # noqa: ANN401 - JSON has every shape
        """Return the body, read as JSON."""
        ...


class HttpClient(Protocol):
    """What calls are made with."""

    async def get(self, url: str, *, headers: Mapping[str, str]) -> HttpAnswer:
        """Call with GET."""
        ...

    async def post(self, url: str, *, json: object, headers: Mapping[str, str]) -> HttpAnswer:
        """Call with POST."""
        ...


def token_of(job: int) -> str:
    """Return the token of the placeholder *job*."""
    return f"t{job}-very-secret"


async def store(bus: Bus, key: str, state: State) -> None:
    """Store *state* as its owner would."""
    bucket = subjects.bucket(CLUSTER, type(state))
    await bus.publish(subjects.key_subject(bucket, key), encode(state))


async def register(bus: Bus, node: str, *, reason: str = "") -> None:
    """Have a Slurm node, drained where a *reason* is given, and its NodeSet Pod."""
    state = SlurmNodeState(changed=NOW, node=node, state="IDLE", is_drain=bool(reason), reason=reason)
    await store(bus, node, state)
    await start_pod(bus, node)


async def start_pod(bus: Bus, node: str, *, uid: str = UID) -> None:
    """Have the NodeSet Pod *uid* of a node, in place of any other."""
    state = KubePodState(
        changed=NOW,
        pod=node,
        namespace="slurm",
        nodeset="ns",
        kube_node=node,
        uid=uid,
        phase="running",
    )
    await store(bus, node, state)


async def place(
    bus: Bus,
    job: int,
    phase: PlacementPhase = "bound",
    *,
    node: str = "",
    token: str = "",
    is_pod_present: bool = True,
    exit_code: int | None = None,
    silent: datetime | None = None,
) -> None:
    """Have a placement whose placeholder is *job*."""
    state = PlacementState(
        changed=NOW,
        uid=f"uid-{job}",
        namespace="ns",
        pod=f"p{job}",
        phase=phase,
        job=job,
        node=node,
        token_sha256=hashlib.sha256(token.encode()).hexdigest() if token else "",
        is_pod_present=is_pod_present,
        exit_code=exit_code,
        silent=silent,
    )
    await store(bus, state.uid, state)


def lock_of(node: str, job: int, granted: datetime | None) -> LockState:
    """Return a lock that *job* has since *granted*, or waits for."""
    holders = (LockHolder(job=job, level="normal", granted=granted),)
    value = "locked" if granted else "pending"
    return LockState(changed=NOW, node=node, kube_node=node, lock=value, holders=holders)


async def forget(bus: Bus, job: int) -> None:
    """Delete the placement of *job*."""
    bucket = subjects.bucket(CLUSTER, PlacementState)
    headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
    await bus.publish(subjects.key_subject(bucket, f"uid-{job}"), b"", headers=headers)


async def forget_leaves(bus: Bus) -> None:
    """Have no leave to drain a node be counted any more."""
    subject = subjects.key_subject(subjects.lease_bucket(CLUSTER), DRAIN_LEAVES)
    await bus.publish(subject, b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"})


class Answers:
    """Gives its replies one after the other, the last one for ever; keeps the requests."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Reply:
        """Answer *request*."""
        self.requests.append(request)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


def standing_in(
    bus: Bus, kind: type[Request], *replies: Reply
) -> tuple[Answers, AbstractAsyncContextManager[None]]:
    """Return the answers to questions of *kind*, and the context in which they are given."""
    answers = Answers(*replies)
    return answers, answering(bus, CLUSTER, kind, answers)


def bearer(token: str) -> dict[str, str]:
    """Return the headers of a caller that holds *token*."""
    return {"Authorization": f"Bearer {token}"}


async def call(http: HttpClient, path: str, token: str, body: object = None, *, expect: int = 200) -> object:
    """Return the body of the answer, whose status must be *expect*.

    Who stored the state of a Pod just now is asked again until the gateway has read it.
    """
    with anyio.fail_after(WITHIN_S):
        while True:
            answer = await http.post(path, json=body, headers=bearer(token))
            if expect == HTTPStatus.SERVICE_UNAVAILABLE or "bound to is not known" not in answer.text:
                break
    if answer.status_code != expect:
        raise AssertionError(f"{path}: {answer.status_code}, expected {expect}: {answer.text}")
    return answer.json()


async def is_held(http: HttpClient, name: str) -> bool:
    """Whether the gateway holds a call of *name* now."""
    text = (await http.get("/metrics", headers={})).text
    found = re.search(rf'^sunk_hook_calls_held{{call="{name}"}} (\S+)$', text, re.MULTILINE)
    return found is not None and float(found[1]) > 0


async def poll(http: HttpClient, job: int, token: str) -> HttpAnswer:
    """Poll as the script of the placeholder *job* does."""
    return await http.get(f"/v1/jobs/{job}/outcome", headers=bearer(token))
