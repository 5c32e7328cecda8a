"""Calls of Slurm and Kubernetes as our clients send them: each is made once, and what would go out is noted.

So a page that names a call has the method and the path of the client itself. Names are put in braces.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
import httpx
import msgspec

from sunk_kube.api import Api
from sunk_kube.client import KubeClient
from sunk_kube.resources import NODES, PODS
from sunk_kube.testing import pod
from sunk_slurm.client import SlurmClient
from sunk_slurm.submission import JobChange, JobDescription
from sunk_slurm.wire import VERSIONS

_JOB: Final = 4711
_NAMES: Final = {"NAMESPACE": "{namespace}", "NODE": "{node}", "POD": "{pod}", str(_JOB): "{job}"}
_HELD: Final = JobDescription(script="#!/bin/sh\n", environment=("PATH=/bin",), current_working_directory="/")

SlurmCall = Callable[[SlurmClient], Awaitable[object]]
KubeCall = Callable[[KubeClient], Awaitable[object]]


async def _watch_nodes(kube: KubeClient) -> None:
    async with kube.watch(NODES, None, {}, silence_s=1):
        pass


async def _watch_pods(kube: KubeClient) -> None:
    async with kube.watch(PODS, None, {}, silence_s=1):
        pass


_POD: Final = pod("POD", namespace="NAMESPACE", node="")
_SLURM: Final[Mapping[str, SlurmCall]] = {
    "look at a node": lambda slurm: slurm.node("NODE"),
    "drain": lambda slurm: slurm.drain("NODE", "k8s: cordon"),
    "undrain": lambda slurm: slurm.undrain("NODE"),
    "read the counters": lambda slurm: slurm.diag(),
    "list nodes": lambda slurm: slurm.nodes(),
    "list job states": lambda slurm: slurm.job_states(),
    "look at a job": lambda slurm: slurm.job(_JOB),
    "submit": lambda slurm: slurm.submit_job(_HELD),
    "change a job": lambda slurm: slurm.update_job(_JOB, JobChange(hold=False)),
    "cancel": lambda slurm: slurm.cancel_job(_JOB),
}
_KUBE: Final[Mapping[str, KubeCall]] = {
    "watch Nodes": _watch_nodes,
    "watch Pods": _watch_pods,
    "list Pods": lambda kube: kube.list_all(PODS),
    "patch a Node": lambda kube: kube.patch(NODES, "NODE", {}),
    "patch a Node's status": lambda kube: kube.patch_status(NODES, "NODE", {}),
    "patch a Pod": lambda kube: kube.patch(PODS, "POD", {}, "NAMESPACE"),
    "patch a Pod's status": lambda kube: kube.patch_status(PODS, "POD", {}, "NAMESPACE"),
    "bind": lambda kube: kube.bind_pod(_POD, "NODE"),
    "evict": lambda kube: kube.evict(_POD),
}


def slurm_calls() -> dict[str, str]:
    """Return method and path of each call of slurmrestd, by what it is for."""
    return anyio.run(_slurm_calls)


def kube_calls() -> dict[str, str]:
    """Return method and path of each call of the API server, by what it is for."""
    return anyio.run(_kube_calls)


class _Token:
    def current(self) -> str:
        return "token"

    def renew(self) -> None:
        return


async def _slurm_calls() -> dict[str, str]:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/openapi"):
            return httpx.Response(200, json={"paths": {f"/slurm/{VERSIONS[0]}/nodes/": {}}})
        sent.append(f"{request.method} {request.url.path}".replace(VERSIONS[0], "{version}"))
        is_one = request.url.path.endswith(f"/{_JOB}")
        return httpx.Response(200, json={"job_id": _JOB, "jobs": [{"job_id": _JOB}] if is_one else []})

    found: dict[str, str] = {}
    async with SlurmClient("http://slurmrestd", _Token(), transport=httpx.MockTransport(answer)) as slurm:
        for what, call in _SLURM.items():
            await call(slurm)
            found[what] = _braced(sent.pop())
    return found


class _Recorder:
    """Stands where the connections to the API server are."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, method: str, path: str, **_: object) -> bytes:
        self.sent.append(f"{method} {path}")
        return msgspec.json.encode({"metadata": {}, "items": []})

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncGenerator[AsyncIterable[bytes]]:
        self.sent.append(f"GET {path}?watch={query['watch']}")

        async def nothing() -> AsyncGenerator[bytes]:
            return
            yield

        yield nothing()


async def _kube_calls() -> dict[str, str]:
    api, found = _Recorder(), dict[str, str]()
    kube = KubeClient(cast("Api", api), name="pages")
    for what, call in _KUBE.items():
        await call(kube)
        found[what] = _braced(api.sent.pop())
    return found


def _braced(call: str) -> str:
    for name, braced in _NAMES.items():
        call = call.replace(name, braced)
    return call
