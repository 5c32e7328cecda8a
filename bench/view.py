"""The view of a whole cluster: people who follow it, and its live page in a Chromium.

Results: ``view.whole`` (each table read whole by one after the other), ``view.explain`` (Pods, nodes and jobs
are explained, by the code of the services), ``view.rest`` (viewers follow, nothing changes), ``view.busy``
(nodes and jobs change meanwhile), and ``view.page`` (the page in Debian's Chromium, where that is installed).
Every question goes through a real API server, each as another user, who may read the Pods of one namespace:
names are looked for and hidden in each answer. An answer was checked before it counts.
"""

import argparse
import itertools
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal
from exporter_states import job, node, now, others
from figures import Usage, emit, percentiles, require
from playwright.sync_api import CDPSession, Page, sync_playwright
from view_answers import answered

from sunk_ctl.testing import (
    CLUSTER,
    ViewStage,
    bus_settings,
    have_syncer_lead,
    nats_with_users,
    view_stage,
)
from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import encode
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_events.view import ROOT, TABLES
from sunk_lab.nats import NatsServer
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_runtime.jetstream import Bus, BusSettings, connect

CHROMIUM: Final = Path("/usr/bin/chromium")
POLL_S: Final = 0.9
"""As the page asks."""
IN_FLIGHT: Final = 128
OK: Final = 200
LATER: Final = (429, 503)
OWN: Final = "team-a"
"""The namespace of which the viewers may read the Pods."""
RIGHTS: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: reads-pods}}
rules: [{{apiGroups: [""], resources: [pods], verbs: [get, list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: viewers}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sunk-view}}
subjects: [{0}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: viewers, namespace: team-a}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-pods}}
subjects: [{0}]
"""


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    jobs: int
    placements: int
    namespaces: int
    viewers: int
    seconds: float
    changes_per_s: float
    rounds: int
    without_page: bool

    @property
    def own(self) -> int:
        """How many Pods the viewers may read: as many as are explained, so that no answer is shared."""
        return min(self.rounds, self.placements // 2)


def placement(number: int, sizes: Sizes) -> PlacementState:
    """Return the state of a Pod that waits; the first ones are those that the viewers may read."""
    is_own = number < sizes.own
    return PlacementState(
        changed=now(),
        uid=f"00000000-0000-4000-8000-{number:012}",
        namespace=OWN if is_own else f"team-{number % (sizes.namespaces - 1):03}",
        pod=f"train-{number}",
        phase="released",
        job=3 * number + 1,
        created=now(),
        reason="waits for Resources",
    )


def slurm_job(number: int, sizes: Sizes, *, is_running: bool) -> SlurmJobState:
    """Return the state of a job; the placeholders have the names of their Pods."""
    found = job(number, sizes.nodes, is_running=is_running)
    pod, rest = divmod(number - 1, 3)
    name = found.name
    if rest == 0 and pod < sizes.placements:
        of = placement(pod, sizes)
        name = f"{of.namespace}/{of.pod}"
    return msgspec.structs.replace(found, name=name, priority=number % 1000 + 1)


def states(sizes: Sizes) -> Iterable[tuple[str, State]]:
    """Yield a whole cluster; a third of the jobs run."""
    for number in range(sizes.nodes):
        found = node(number)
        yield found.node, found
        yield (
            found.node,
            KubePodState(
                changed=now(),
                pod=found.node,
                namespace="slurm",
                nodeset=f"rack-{number % 20}",
                kube_node=f"kube-{number}",
                phase="running",
                is_ready=True,
            ),
        )
    for number in range(1, sizes.jobs + 1):
        yield str(number), slurm_job(number, sizes, is_running=number % 3 == 0)
    for number in range(sizes.placements):
        found = placement(number, sizes)
        yield found.uid, found
    yield from (one for one in others() if not isinstance(one[1], SlurmStatisticsState))


async def store(bus: Bus, found: Iterable[tuple[str, State]]) -> None:
    """Put states into their buckets."""
    left = iter(found)

    async def work() -> None:
        for key, state in left:
            bucket = subjects.bucket(CLUSTER, type(state))
            await bus.publish(subjects.key_subject(bucket, key), encode(state))

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(work)


async def beat(bus: Bus) -> None:
    """Have signs of life of the services, as they write them."""
    while True:
        statistics = SlurmStatisticsState(changed=now(), nodes_answered=now(), jobs_answered=now())
        await store(
            bus,
            [
                (subjects.STATISTICS_KEY, statistics),
                (subjects.LEADER_KEY, KubeWatchState(changed=now(), seen=now())),
            ],
        )
        await anyio.sleep(10)


@asynccontextmanager
async def filled(server: NatsServer, folder: Path, sizes: Sizes) -> AsyncGenerator[Bus]:
    """Yield a bus that holds a cluster."""
    async with connect(bus_settings(server, folder, "admin"), "admin") as bus:
        await bus.provision(CLUSTER, BusSettings())
        await store(bus, states(sizes))
        await have_syncer_lead(bus)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat, bus)
            yield bus
            tasks.cancel_scope.cancel()


class Viewer:
    """Follows all tables, as the page does."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.http = httpx.AsyncClient(base_url=url, verify=context, trust_env=False, timeout=60)
        self.after: dict[str, str] = {}
        self.took_ms: list[float] = []
        self.rows = 0
        self.refused = 0

    async def answer(self, path: str, query: dict[str, str]) -> tuple[float, httpx.Response]:
        """Return an answer and the time in ms; ask again where there is none now, and count that."""
        while True:
            began = time.perf_counter()
            answer = await self.http.get(f"{ROOT}/{path}", params=query)
            took_ms = (time.perf_counter() - began) * 1000
            if answer.status_code not in LATER:
                break
            self.refused += 1
            await anyio.sleep(POLL_S)
        require(holds=answer.status_code == OK, claim=f"{path} are answered: {answer.text[:300]}")
        return took_ms, answer

    async def load(self, table: str) -> tuple[float, int, int]:
        """Read a table whole; return the time in ms, its bytes and its rows."""
        took_ms, answer = await self.answer(table, {})
        found = answer.json()
        self.after[table] = found["after"]
        return took_ms, len(answer.content), len(found["items"])

    async def follow(self, seconds: float) -> None:
        """Ask for changes for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            took_ms, answer = await self.answer("changes", self.after)
            self.took_ms.append(took_ms)
            found = answer.json()
            require(holds=not found["whole"], claim="changes are known")
            self.rows += len(found["nodes"]) + len(found["jobs"])
            self.after |= found["after"]
            await anyio.sleep(POLL_S)


async def change(bus: Bus, sizes: Sizes, written: list[int]) -> None:
    """Have a node and a job change in turn, until cancelled."""
    for number in itertools.count():
        pick = number // 2
        found: State = (
            node(pick % sizes.nodes)
            if number % 2
            else slurm_job(pick % sizes.jobs + 1, sizes, is_running=pick % 2 == 0)
        )
        key = found.node if isinstance(found, SlurmNodeState) else str(getattr(found, "job", ""))
        await store(bus, [(key, found)])
        written.append(number)
        await anyio.sleep(1 / sizes.changes_per_s)


async def followed(stage: ViewStage, bus: Bus, sizes: Sizes) -> None:
    """Measure people who follow."""
    viewers = [
        Viewer(stage.lab.network.api, stage.context(f"viewer-{number}")) for number in range(sizes.viewers)
    ]
    for table in TABLES:
        turns = itertools.islice(itertools.cycle(viewers), max(sizes.rounds, len(viewers)))
        loads = [await viewer.load(table) for viewer in turns]
        count = {"nodes": sizes.nodes, "jobs": sizes.jobs, "placements": sizes.placements}[table]
        require(holds=all(rows == count for _, _, rows in loads), claim=f"all {table} are answered")
        figures = percentiles([took for took, _, _ in loads])
        emit("view.whole", count, figures, {"bytes": loads[0][1]})
    await explained(viewers, sizes)
    for name in ("rest", "busy"):
        usage, written = Usage(stage.pid), list[int]()
        for viewer in viewers:
            viewer.took_ms, viewer.rows, viewer.refused = [], 0, 0
        async with anyio.create_task_group() as tasks:
            if name == "busy":
                tasks.start_soon(change, bus, sizes, written)
            async with anyio.create_task_group() as following:
                for viewer in viewers:
                    following.start_soon(viewer.follow, sizes.seconds)
            tasks.cancel_scope.cancel()
        took = [one for viewer in viewers for one in viewer.took_ms]
        refused = float(sum(viewer.refused for viewer in viewers))
        figures = {
            "changes": float(len(written)),
            "refused": refused,
            "rows": float(sum(viewer.rows for viewer in viewers)),
        }
        emit(f"view.{name}", len(took), percentiles(took), usage.figures("view"), figures)
        require(holds=bool(figures["rows"]) == bool(written), claim="changes are shown, and nothing else")
    for viewer in viewers:
        await viewer.http.aclose()


async def explained(viewers: list[Viewer], sizes: Sizes) -> None:
    """Measure explanations, each of another thing."""
    turns, figures = itertools.cycle(viewers), dict[str, float]()
    paths = {
        "pod": [f"namespaces/{OWN}/pods/train-{number}" for number in range(sizes.own)],
        "node": [f"nodes/{node(number).node}" for number in range(min(sizes.rounds, sizes.nodes))],
        "job": [f"jobs/{3 * number + 2}" for number in range(min(sizes.rounds, sizes.jobs // 3))],
    }
    for kind, asked in paths.items():
        took: list[float] = []
        for path, viewer in zip(asked, turns, strict=False):
            took_ms, answer = await viewer.answer(f"{path}/explain", {})
            parts = answer.json()["parts"]
            problems = [part["problem"] for part in parts if part["problem"]]
            require(holds=not problems, claim=f"{path} is explained: {problems}")
            require(holds=[part["service"] for part in parts] == ANSWERERS[kind], claim=f"{path}: {parts}")
            took.append(took_ms)
        figures |= percentiles(took, f"{kind}_")
    emit("view.explain", sum(map(len, paths.values())), figures)


ANSWERERS: Final = {
    "pod": ["placements on the bus", "syncer"],
    "node": ["syncer", "nodeset-controller"],
    "job": ["syncer"],
}
"""Whose parts an explanation has."""


def shown(stage: ViewStage, portal: BlockingPortal, bus: Bus, sizes: Sizes) -> None:
    """Measure the page in a Chromium."""
    with sync_playwright() as playwright, stage.ui("viewer-0") as address:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_function(
            "n => document.querySelectorAll('[role=option]').length === n", arg=sizes.nodes
        )
        page.wait_for_function("performance.getEntriesByName('drawn').length > 0")
        first = {name: float(page.evaluate(script)) for name, script in PAINTS.items()}
        took = [_until_shown(page, portal, bus, number) for number in range(sizes.rounds)]
        memory = _memory_mb(browser.new_browser_cdp_session())
        emit("view.page", sizes.rounds, percentiles(took, "change_"), first, {"page_mb": memory})
        browser.close()


PAINTS: Final = {
    "first_paint_ms": "performance.getEntriesByName('first-contentful-paint')[0].startTime",
    "all_drawn_ms": "performance.getEntriesByName('drawn')[0].startTime",
}


def _until_shown(page: Page, portal: BlockingPortal, bus: Bus, number: int) -> float:
    state = ("ALLOCATED", "IDLE")[number % 2]
    found = SlurmNodeState(changed=now(), node="gpu-00001", state=state, partitions=("gpu",))
    began = time.perf_counter()
    portal.call(store, bus, [(found.node, found)])
    page.wait_for_selector(f'[data-node="gpu-00001"].s-{state.lower()}', state="attached")
    return (time.perf_counter() - began) * 1000


def _memory_mb(session: CDPSession) -> int:
    """Return what the page's process has of its own."""
    answer = cast("Any", session).send("SystemInfo.getProcessInfo")
    processes: list[dict[str, Any]] = answer["processInfo"]
    sizes = [0]
    for process in processes:
        if process["type"] == "renderer":
            lines = Path(f"/proc/{process['id']}/smaps_rollup").read_text().splitlines()
            sizes.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))
    return round(max(sizes) / 1000)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--placements", type=int, default=2000)
    parser.add_argument("--namespaces", type=int, default=70)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--changes-per-s", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--without-page", action="store_true")
    sizes = parser.parse_args(namespace=Sizes())
    if sizes.jobs < 3 * sizes.placements or sizes.placements < 2 or sizes.namespaces < 2:  # noqa: PLR2004 - of each some
        parser.error("--jobs: three for each of --placements, of which there are two in two --namespaces")
    names = [f"viewer-{number}" for number in range(sizes.viewers)]
    objects = RIGHTS.format(
        ", ".join(f"{{kind: User, name: {name}, apiGroup: rbac.authorization.k8s.io}}" for name in names)
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with (
            reserved_lab() as lab,
            nats_with_users(folder) as server,
            start_blocking_portal("asyncio") as portal,
            portal.wrap_async_context_manager(filled(server, folder, sizes)) as bus,
            view_stage(lab, server, folder, people=names, objects=objects, settings={}) as stage,
            portal.wrap_async_context_manager(
                answered(server, folder, lab.kubeconfig, min(sizes.rounds, sizes.nodes))
            ),
        ):
            wait_for("the APIService", lambda: stage.get(names[0], "/status")[0] == OK)
            portal.call(followed, stage, bus, sizes)
            if CHROMIUM.exists() and not sizes.without_page:
                shown(stage, portal, bus, sizes)


if __name__ == "__main__":
    main()
