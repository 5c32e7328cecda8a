"""A node's place in the topologies of a real Slurm follows its Node's labels."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import httpx
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_runtime.http import Health, serve_http
from sunk_runtime.testing import until
from sunk_syncer.testing.stage import Stage, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"
CALLS = 8
"""To slurmrestd, in a row: its node is read and written, and lists come between."""
FILE = """---
- topology: tree
  cluster_default: true
  tree:
    switches:
      - {switch: "all", children: "none"}
      - {switch: "none"}
- topology: block
  cluster_default: false
  block:
    block_sizes: [1]
    blocks:
      - {block: "b1"}
      - {block: "b2"}
"""


async def test_a_node_that_is_relabelled_is_moved_by_one_write_and_without_a_reconfigure(
    stage: Stage, slurm: HostSlurm
) -> None:
    def record() -> dict[str, Any]:  # Any: JSON.
        return node_record(slurm)

    def extra() -> str:
        return str(record()["extra"])

    def slurmd_start() -> int:
        """Return when slurmd started: a reconfigure has it start again."""
        return record()["slurmd_start_time"]["number"]

    def reads() -> int:
        """Return how often slurmctld has read its configuration."""
        return (slurm.logs / "slurmctld.log").read_text().count("slurmctld version")

    if slurm.release is not SLURM_26_05:  # 24.11 has no places: nothing is written, no error logged.
        await stage.pod(replace(ready_pod(), topology="tree:all:f1,block:b1"))
        await until(lambda: '"sunk"' in extra())
        assert placed(stage) == 0
        return
    async with topology(slurm):
        before = slurmd_start(), reads()
        for place in ("tree:all:f1:f1.s1,block:b1", "tree:all:f2:f2.s1,block:b2"):
            await stage.pod(replace(ready_pod(), topology=place))
            await until(lambda place=place: record()["topology"] == place)
        await until(lambda: '"sunk"' in extra() and placed(stage) == 2)
        after, written = (slurmd_start(), reads()), placed(stage)  # Without the file it has no place.

    assert written == 2
    assert after == before


def placed(stage: Stage) -> int:
    return sum(line.get("action") == "PlaceNode" for line in stage.syncer.log)


def node_record(slurm: HostSlurm) -> dict[str, Any]:  # Any: JSON.
    return json.loads(slurm.exec("scontrol", "show", "node", N1, "--json"))["nodes"][0]


@asynccontextmanager
async def topology(slurm: HostSlurm) -> AsyncGenerator[None]:
    """Have topologies while the context lasts."""

    def is_registered() -> bool:
        return node_record(slurm)["slurmd_start_time"]["number"] > 0

    slurm.write_file("topology.yaml", FILE)
    slurm.exec("scontrol", "reconfigure")
    try:
        await until(lambda: "SwitchName=all" in slurm.exec("scontrol", "show", "topology"))
        await until(is_registered)
        yield
    finally:
        slurm.exec("rm", "/lab/etc/topology.yaml")
        slurm.exec("scontrol", "reconfigure")
        await until(is_registered)


When = Literal["before", "after", "late"]


class Proxy:
    """Passes calls on to slurmrestd, and kills the syncer once.

    At a write of a node's place: ``before``: it is never done. ``after``: it is done, and its answer is lost.
    ``late``: it is done when the test says so.
    """

    def __init__(self, slurmrestd: httpx.AsyncClient, kill: Callable[[], object]) -> None:
        self._slurmrestd = slurmrestd
        self._kill = kill
        self._when: When | None = None
        self._left: int | None = None
        self.has_killed = False
        self.is_due, self.is_done = anyio.Event(), anyio.Event()

    def arm(self, when: When) -> None:
        """Kill at the next write of a place."""
        self._when = when

    def arm_at(self, call: int) -> None:
        """Kill at so many calls from now, which is not passed on."""
        self._left, self.has_killed = call, False

    async def answer(self, request: Request) -> Response:
        """Answer a call."""
        body = await request.body()
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                return self._killed()
        when = self._when if request.method == "POST" and b"topology_str" in body else None
        if when is None:
            return await self._pass_on(request, body)
        self._when = None
        if when == "after":
            await self._pass_on(request, body)
        answer = self._killed()
        if when == "late":
            await self.is_due.wait()
            assert (await self._pass_on(request, body)).status_code == httpx.codes.OK
        self.is_done.set()
        return answer

    def _killed(self) -> Response:
        self._kill()
        self.has_killed = True
        return Response(status_code=503)

    async def _pass_on(self, request: Request, body: bytes) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {
            name: value
            for name, value in request.headers.items()
            if name in {"x-slurm-user-token", "x-slurm-user-name", "authorization", "content-type", "accept"}
        }
        answer = await self._slurmrestd.request(request.method, path, content=body, headers=headers)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


FIRST, SECOND = "tree:all:f1:f1.s1,block:b1", "tree:all:f2:f2.s1,block:b2"


@asynccontextmanager
async def behind_proxy(stage: Stage, slurm: HostSlurm, port: int) -> AsyncGenerator[Proxy]:
    """Have the syncer behind a proxy, and topologies, while the context lasts."""
    if slurm.release is not SLURM_26_05:
        pytest.skip("24.11 has no places")
    async with (
        topology(slurm),
        httpx.AsyncClient(base_url=slurm.url, trust_env=False, timeout=60) as slurmrestd,
        anyio.create_task_group() as tasks,
    ):
        proxy = Proxy(slurmrestd, stage.syncer.kill)
        route = Route("/{path:path}", proxy.answer, methods=["GET", "POST", "DELETE"])
        tasks.start_soon(serve_http, "127.0.0.1", port, Health(), [route])
        await stage.stop_syncer()
        stage.syncer.start(slurm_url=f"http://127.0.0.1:{port}")
        yield proxy
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("when", "is_relabelled", "writes"),
    [
        ("before", False, 1),
        ("before", True, 1),
        ("after", False, 0),
        ("after", True, 1),
        ("late", False, 1),
        ("late", True, 2),
    ],
)
async def test_killed_in_the_write_of_a_place_the_next_syncer_sees_to_it_that_slurm_has_that_of_the_pod(
    stage: Stage, slurm: HostSlurm, free_tcp_port: int, when: When, *, is_relabelled: bool, writes: int
) -> None:
    wanted = SECOND if is_relabelled else FIRST

    def is_placed() -> bool:
        return node_record(slurm)["topology"] == wanted

    async with behind_proxy(stage, slurm, free_tcp_port) as proxy:
        proxy.arm(when)
        await stage.pod(replace(ready_pod(), topology=FIRST))
        await until(lambda: proxy.has_killed)
        if is_relabelled:
            await stage.pod(replace(ready_pod(), topology=SECOND))
        await stage.end_lease()
        stage.syncer.start(slurm_url=f"http://127.0.0.1:{free_tcp_port}")
        await until(is_placed)
        proxy.is_due.set()
        await proxy.is_done.wait()

        await until(lambda: placed(stage) == writes)
        await until(is_placed)


async def test_killed_at_any_call_after_its_node_was_relabelled_the_next_syncer_places_it(
    stage: Stage, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with behind_proxy(stage, slurm, free_tcp_port) as proxy:
        for call in range(CALLS):
            place = (FIRST, SECOND)[call % 2]
            proxy.arm_at(call)
            await stage.pod(replace(ready_pod(), topology=place))
            await until(lambda: proxy.has_killed)
            await stage.end_lease()
            stage.syncer.start(slurm_url=f"http://127.0.0.1:{free_tcp_port}")
            await until(lambda place=place: node_record(slurm)["topology"] == place)
