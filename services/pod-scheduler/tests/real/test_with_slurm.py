"""The scheduler against a real Slurm and a real NATS; Pods are in memory, and we play syncer and gateway."""

import json
import re
import runpy
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from msgspec import structs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sunk_events import subjects
from sunk_events.base import Reply
from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.locks import LockHolder, LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    ExplainPlacement,
    Explanation,
    Finding,
    Noted,
    PlacementAnnounced,
    PlacementReleased,
    ReleasePlacement,
)
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import OwnerReference, Taint
from sunk_kube.pods import ContainerPort, ContainerState, ContainerStatus, ContainerTerminated, Pod, PodStatus
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NODES, PODS
from sunk_kube.testing import node
from sunk_kube.wellknown import ANNOTATION_GANG_MIN_AVAILABLE as GANG_MIN_AVAILABLE
from sunk_kube.wellknown import ANNOTATION_GANG_SIZE as GANG_SIZE
from sunk_kube.wellknown import ANNOTATION_JOB, JOB_ANNOTATIONS, PREFIX
from sunk_lab.errors import LabError
from sunk_lab.nats import NatsServer
from sunk_lab.pages import fenced, table_rows
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, SLURM_26_05
from sunk_lab.slurm.testing import running_slurm
from sunk_pod_scheduler.adapters import job_history
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.adapters.job_history import SKEW
from sunk_pod_scheduler.adapters.placeholder_jobs import PlaceholderJobs
from sunk_pod_scheduler.adapters.pod_store import PodStore
from sunk_pod_scheduler.adapters.ports import JobPort, PodPort
from sunk_pod_scheduler.controller import submitter
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Context, Views
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.controller.sweeper import Sweeper
from sunk_pod_scheduler.gang_controller.dispatcher import GangDispatcher
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.gangs.model import Size
from sunk_pod_scheduler.placement import marks, pending_jobs, tokens
from sunk_pod_scheduler.placement.events import EventSource
from sunk_pod_scheduler.placement.explain import explain
from sunk_pod_scheduler.placement.gang_membership import LABEL_POD_GROUP, GangMembership
from sunk_pod_scheduler.placement.job_claims import keys_of
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.kubelet_rejections import KubeletRejections
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.model import AnyJob, JobGone
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.podspec.job_size import held
from sunk_pod_scheduler.podspec.namespace_policy import DefaultPolicy, Grant, Policy, PriorityClassTerms
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_pod_scheduler.rpc.explain_handlers import ExplainHandlers
from sunk_pod_scheduler.rpc.handlers import Handlers
from sunk_pod_scheduler.testing.builders import KEY, UID, manifest
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.clock import now
from sunk_runtime.http import Health, serve_http
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.keys import KeyLoop
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.together import each
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.accounting import AccountedJob, SlurmAccounting
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.tokens import FileUserTokens, KeyTokens, KeyUserTokens, UserTokens
from sunk_slurm.wire import Job

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER = "lab"
KILL_WAIT_S = 10
URGENT = "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10"
"""Its jobs preempt those of the other partitions."""
GRACED = "PartitionName=graced Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=120"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    nodes = NodeRange(count=2, first_port=0, gpus=8)
    more = (f"KillWait={KILL_WAIT_S}", "PrologFlags=Alloc,DeferBatch", URGENT, GRACED)
    with running_slurm(request.param, nodes=nodes, more=more) as found:
        yield found


@pytest.fixture(scope="module")
def newest() -> Generator[HostSlurm]:
    with running_slurm(SLURM_26_05) as found:
        yield found


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def plain(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm without hooks. It is new."""
    with running_slurm(request.param) as found:
        yield found


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def hooked(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm whose epilog tells the gateway of the jobs that have left, as the chart's does. It is new."""
    with running_slurm(request.param, more=("Epilog=/lab/etc/epilog",)) as found:
        yield found


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def accounted(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm with accounting, as the chart has it, that forgets a job soon after its end."""
    with running_slurm(request.param, has_accounting=True, more=("MinJobAge=2",)) as found:
        yield found


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def forgetful(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm without accounting that forgets a job soon after its end."""
    with running_slurm(request.param, more=("MinJobAge=2",)) as found:
        yield found


APART_S = SKEW.total_seconds() + 1
"""So far apart jobs are known to be older and later than another, whatever clocks say."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def enforced(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm that knows its users' accounts, and refuses jobs of any other."""
    roots = "PartitionName=roots Nodes=ALL State=UP RootOnly=YES"
    more = ("AccountingStorageEnforce=associations,limits,qos", URGENT, roots)
    with running_slurm(request.param, has_accounting=True, more=more) as found:
        found.exec("sacctmgr", "-i", "add", "account", "sunk")
        found.exec("sacctmgr", "-i", "add", "user", "sunk", "account=sunk")
        yield found


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def by_qos(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm in which jobs of the QoS ``urgent`` preempt those of ``spare``."""
    more = ("AccountingStorageEnforce=associations,limits,qos", "PreemptType=preempt/qos")
    with running_slurm(request.param, has_accounting=True, more=more) as found:
        for words in (
            "add qos spare",
            "add qos urgent preempt=spare",
            "add account sunk",
            "add user sunk account=sunk qos=normal,spare,urgent",
        ):
            found.exec("sacctmgr", "-i", *words.split())
        yield found


def write_epilog(slurm: HostSlurm, port: int) -> None:
    """Have epilogs ask the gateway on *port*, as long as a Pod is there and not for ever."""
    url = f"http://127.0.0.1:{port}/v1/nodes/$SLURMD_NODENAME/release"
    ask = f'curl -s -m 10 -o /dev/null -w "%{{http_code}}" -d "{{\\"job\\":$SLURM_JOB_ID}}" {url}'
    loop = f'for _ in {{1..100}}; do [ "$({ask})" = 200 ] && break; sleep 0.2; done'
    slurm.write_file("epilog", f"#!/bin/bash\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\n{loop}\nexit 0\n")


@pytest.fixture
def nats(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


class World:
    """One Slurm, one bus and some Pods; schedulers come and go."""

    def __init__(self, bus: Bus, client: SlurmClient, slurm: HostSlurm, port: int) -> None:
        names = slurm.node_names
        self.bus = bus
        self.user_tokens: UserTokens | None = KeyUserTokens(slurm.jwt_key)
        self.client = client
        self.names = names
        self.pods = MemoryPods(nodes=tuple(node(f"kube-{name}") for name in names))
        self.placements = StateView(bus, CLUSTER, PlacementState)
        self.slurm_jobs = StateView(bus, CLUSTER, SlurmJobState)
        self.statistics = StateView(bus, CLUSTER, SlurmStatisticsState)
        self.views = Views(
            kube_pods=StateView(bus, CLUSTER, KubePodState),
            slurm_nodes=StateView(bus, CLUSTER, SlurmNodeState),
            locks=NodeLocks(StateView(bus, CLUSTER, LockState)),
        )
        self.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=Policy(default="allow"))
        self.refusals = KubeletRejections()
        self.port = port
        self.script = resources.files("sunk_pod_scheduler").joinpath("placeholder.sh").read_text()
        self.answerer: Handlers | None = None
        self.accounting: SlurmAccounting | None = None
        self.enqueue: Callable[[str], None] = lambda _uid: None
        self.announced: set[int] = set()
        """The jobs whose scripts have called."""
        self.rest_s = 0.1
        """Between two rounds of what we play."""

    async def prepare(self) -> None:
        """Say on the bus which nodes there are."""
        for name in self.names:
            await self.join(name)

    async def join(self, name: str) -> None:
        """Say on the bus that there is the node *name*."""
        slurm_nodes, kube_pods = self.views.slurm_nodes, self.views.kube_pods
        found = await self.client.node(name)
        cpus, memory_mib = (0, 0) if found is None else (found.cpus, found.real_memory)
        node_state = SlurmNodeState(changed=now(), node=name, state="IDLE", cpus=cpus, memory_mib=memory_mib)
        writer = StateWriter(self.bus, slurm_nodes, fence=None)
        await writer.record(name, node_state, revision=slurm_nodes.revision(name))
        state = KubePodState(
            changed=now(),
            pod=name,
            namespace="slurm",
            nodeset="gpu",
            kube_node=f"kube-{name}",
            phase="running",
        )
        others = StateWriter(self.bus, kube_pods, fence=None)
        await others.record(name, state, revision=kube_pods.revision(name))

    async def leave(self, name: str) -> None:
        """Say on the bus that there is no node *name*."""
        slurm_nodes, kube_pods = self.views.slurm_nodes, self.views.kube_pods
        writer = StateWriter(self.bus, slurm_nodes, fence=None)
        await writer.forget(name, revision=slurm_nodes.revision(name))
        others = StateWriter(self.bus, kube_pods, fence=None)
        await others.forget(name, revision=kube_pods.revision(name))

    def context(
        self, jobs: JobPort, pods: PodPort, writer: StateWriter[PlacementState] | None = None
    ) -> Context:
        """Return what a leader works with."""
        return Context(
            event_source=EventSource(CLUSTER, "pod-scheduler"),
            pods=pods,
            jobs=jobs,
            placements=writer or StateWriter(self.bus, self.placements, fence=None),
            views=self.views,
            rules=self.rules,
            placeholder=Placeholder(
                script=self.script,
                hooks_url=f"http://127.0.0.1:{self.port}",
                key=KEY,
            ),
            refusals=self.refusals,
            check=lambda: None,
        )

    def jobs(self, client: SlurmClient) -> PlaceholderJobs:
        """Return the jobs that *client* reads and writes, submitted by their own users."""
        return PlaceholderJobs(
            client,
            self.slurm_jobs,
            KEY,
            timeout_s=WITHIN_S,
            accounting=self.accounting,
            user_tokens=self.user_tokens,
            group_id=64100,
        )

    def scheduler(
        self,
        jobs: JobPort | None = None,
        pods: PodPort | None = None,
        writer: StateWriter[PlacementState] | None = None,
    ) -> Reconciler:
        """Return a scheduler that remembers nothing, and have questions answered by it."""
        mailbox = Mailbox()
        ports = jobs or self.jobs(self.client)
        self.answerer = Handlers(self.placements, pods or self.pods, mailbox, KEY, self.enqueued)
        return Reconciler(
            pods=pods or self.pods,
            jobs=ports,
            placements=self.placements,
            bus_jobs=self.bus_jobs(),
            takers=self.takers(ports),
            views=self.views,
            mailbox=mailbox,
            executor=Executor(self.context(ports, pods or self.pods, writer)),
            rules=self.rules,
            limits=Limits(kill_wait_s=KILL_WAIT_S),
            key=KEY,
        )

    def bus_jobs(self) -> BusJobs:
        """Return Slurm's jobs as the bus has them."""
        return BusJobs(self.slurm_jobs, self.statistics)

    def takers(self, jobs: JobPort) -> NodeTakers:
        """Return who finds to whom nodes are given."""
        return NodeTakers(self.bus_jobs(), jobs, self.views.slurm_nodes)

    def sweeper(self, pods: PodPort | None = None) -> Sweeper:
        """Return who ends strays."""
        return Sweeper(
            pods=pods or self.pods,
            jobs=self.jobs(self.client),
            placements=self.placements,
            slurm_jobs=self.slurm_jobs,
            key=KEY,
            check=lambda: None,
        )

    def enqueued(self, uid: str, /, *, after_s: float = 0.0) -> None:
        """Have the Pod *uid* looked at by whoever looks now."""
        assert after_s < 1
        self.enqueue(uid)

    async def play_syncer(self) -> None:
        """Tell the bus of every job, again and again; Slurm may be late with an answer, as for the syncer."""
        writer = StateWriter(self.bus, self.slurm_jobs, fence=None)
        while True:
            with suppress(SlurmUnavailableError):
                await self.tell_all(writer)
            await anyio.sleep(self.rest_s)

    async def tell_all(self, writer: StateWriter[SlurmJobState]) -> None:
        """Tell the bus of every job, and look at every Pod whose job may have changed."""
        moment, known = now(), set(self.slurm_jobs.keys())
        for number in await self.client.job_states():
            if (found := await self.client.job(number)) is not None:
                key, state = str(number), found.state_now
                told = SlurmJobState(
                    changed=now(),
                    job=number,
                    state=state.base,
                    flags=tuple(sorted(state.flags)),
                    is_running=state.is_running,
                    is_over=state.is_over,
                    allocations=tuple(
                        Allocation(nodes=name, cpus=size.cpus, memory_mib=size.memory_mib, gpus=size.gpus)
                        for name, size in (held(found) or {}).items()
                    ),
                    is_held=state.is_pending and found.priority.value == 0,
                    priority=found.priority.value if state.is_pending else None,
                    reason=found.state_reason,
                    partition=found.partition,
                    user=found.user_name,
                    nodes=found.nodes,
                    extra=found.extra,
                    name=found.name,
                    user_id=found.user_id,
                    submitted=found.submit_time.moment,
                    started=found.start_time.moment,
                )
                await writer.record(key, told, revision=self.slurm_jobs.revision(key))
                known.discard(key)
        for key in known:
            await writer.forget(key, revision=self.slurm_jobs.revision(key))
        await self.say_answered(moment)
        for uid in {*self.pods.pods, *self.placements.keys()}:
            self.enqueue(uid)

    async def say_answered(self, moment: datetime) -> None:
        """Say on the bus that its jobs are those of *moment*."""
        key, writer = subjects.STATISTICS_KEY, StateWriter(self.bus, self.statistics, fence=None)
        told = SlurmStatisticsState(changed=now(), jobs_answered=moment)
        await writer.record(key, told, revision=self.statistics.revision(key))

    def routes(self) -> list[Route]:  # noqa: C901 - one function a hook
        """Return the gateway's three job hooks."""

        def token(request: Request) -> str:
            return request.headers["authorization"].removeprefix("Bearer ")

        def told(reply: Reply) -> Response:
            match reply:
                case Noted():
                    return JSONResponse({})
                case PlacementReleased(is_pod_gone=is_gone):
                    return JSONResponse({"gone": is_gone}, status_code=200 if is_gone else 202)
                case _:
                    return JSONResponse({"retry": True}, status_code=503)

        async def started(request: Request) -> Response:
            assert self.answerer is not None
            where = (await request.json())["node"]
            question = PlacementAnnounced(job=request.path_params["job"], node=where, token=token(request))
            self.announced.add(question.job)
            return told(await self.answerer.announced(question))

        async def release(request: Request) -> Response:
            assert self.answerer is not None
            question = ReleasePlacement(job=request.path_params["job"], token=token(request))
            return told(await self.answerer.released(question))

        async def left(request: Request) -> Response:
            assert self.answerer is not None
            job, node = (await request.json())["job"], request.path_params["node"]
            return told(await self.answerer.released(ReleasePlacement(job=job, node=node)))

        async def outcome(request: Request) -> Response:
            for _ in range(100):
                state = next(
                    (s for s in self.placements.values() if s.job == request.path_params["job"]), None
                )
                if state is not None and state.phase == "ended":
                    return JSONResponse({"exit_code": state.exit_code})
                await anyio.sleep(self.rest_s / 5)
            return Response(status_code=204)

        prefix = "/v1/jobs/{job:int}"
        return [
            Route(f"{prefix}/started", started, methods=["POST"]),
            Route(f"{prefix}/release", release, methods=["POST"]),
            Route(f"{prefix}/outcome", outcome),
            Route("/v1/nodes/{node}/release", left, methods=["POST"]),
        ]

    async def ours(self) -> list[Job]:
        """Return all jobs that carry a mark of ours, from Slurm."""
        found = [await self.client.job(number) for number in await self.client.job_states()]
        return [
            job
            for job in found
            if job is not None and marks.read_extra(KEY, job.extra, job.user_id) is not None
        ]

    async def alive(self) -> list[Job]:
        """Return those that are not over."""
        return [job for job in await self.ours() if not job.state_now.is_over]

    def phase(self, uid: str) -> str:
        """Return the placement's phase; empty where there is none."""
        state = self.placements.get(uid)
        return "" if state is None else state.phase

    def is_running(self, uid: str) -> bool:
        """Whether the Pod is bound, and that is stored."""
        return self.phase(uid) == "bound" and self.pods.pods[uid].spec.node_name != ""


@asynccontextmanager
async def world(nats: NatsServer, slurm: HostSlurm, port: int) -> AsyncGenerator[World]:
    async with (
        connect(BusSettings(url=nats.url), "pod-scheduler") as bus,
        SlurmClient(slurm.url, KeyTokens(slurm.jwt_key)) as client,
    ):
        await bus.provision(CLUSTER, BusSettings(url=nats.url))
        found = World(bus, client, slurm, port)
        views = (found.placements, found.slurm_jobs, found.statistics, *found.views.followed)
        async with following(*views):
            for view in views:
                await view.complete()
            await found.prepare()
            try:
                yield found
            finally:  # Strangers' jobs of a test that failed would hold the nodes of the next one.
                for job, known in (await client.job_states()).items():
                    if not known.state.is_over:
                        await client.cancel_job(job)


@asynccontextmanager
async def running(found: World) -> AsyncGenerator[Reconciler]:
    """Run a scheduler, the syncer's part and the gateway's."""
    scheduler = found.scheduler()
    pods, sweep = KeyLoop("pods", scheduler.reconcile), KeyLoop("strays", found.sweeper().sweep)
    found.enqueue = pods.enqueue
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.play_syncer)
        tasks.start_soon(partial(pods.run, found.placements.changes(), found.views.locks.woken()))
        tasks.start_soon(partial(sweep.run, found.slurm_jobs.changes()))
        tasks.start_soon(serve_http, "127.0.0.1", found.port, Health(), found.routes())
        yield scheduler
        tasks.cancel_scope.cancel()


async def test_a_pod_is_bound_where_slurm_placed_its_job_and_the_job_ends_after_the_pod_with_its_code(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest(requests={"cpu": "2", "memory": "1Gi"}))
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()

        assert found.pods.pods[UID].spec.node_name == f"kube-{job.nodes}"
        assert (job.state_now.base, job.cpus.value, job.name) == ("RUNNING", 2, "default/infer")
        assert marks.is_started(job.extra)
        assert found.pods.last_reasons[UID] == "Bound"

        found.pods.put(finished(found.pods.pods[UID]))
        await until(lambda: found.phase(UID) == "")

        over = await found.client.job(job.job_id)
        assert over is not None
        assert over.state_now.base == "COMPLETED"


async def test_a_placement_that_the_bus_has_lost_is_stored_anew_and_its_script_is_known_again(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, newest, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        before, revision = found.placements.get(UID), found.placements.revision(UID)
        assert before is not None
        await StateWriter(found.bus, found.placements, fence=None).forget(UID, revision=revision)

        await until(lambda: found.placements.revision(UID) > revision and found.is_running(UID))

        after = found.placements.get(UID)
        assert after is not None
        assert before.token_sha256
        assert (after.job, after.token_sha256) == (before.job, before.token_sha256)


@pytest.mark.parametrize(
    ("attempt", "job", "digest"),
    [(0, 999_999, "of before"), (1, None, ""), (1, None, "of before")],
    ids=["its job before", "before its intent", "before its number"],
)
async def test_a_pod_runs_on_with_its_job_where_its_placement_is_of_before(  # noqa: PLR0917 - fixtures
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int, attempt: int, job: int | None, digest: str
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        # A claim of a job that it had: the next is of the next attempt.
        claim = {ANNOTATION_JOB: marks.claim(KEY, UID, 0, 999_999)}
        found.pods.put(manifest(annotations=claim))
        await until(lambda: found.is_running(UID))
        (runs,) = await found.alive()
        before, revision = found.placements.get(UID), found.placements.revision(UID)
        assert before is not None
        assert before.attempt == 1
        old = structs.replace(
            before, phase="submitted", attempt=attempt, job=job, token_sha256=digest, node=""
        )
        await StateWriter(found.bus, found.placements, fence=None).record(UID, old, revision=revision)

        await until(lambda: found.placements.revision(UID) > revision + 1 and found.is_running(UID))
        assert await found.sweeper().sweep(str(runs.job_id)) is None

        after = found.placements.get(UID)
        assert after is not None
        assert (after.job, after.attempt) == (runs.job_id, 1)
        assert [job.job_id for job in await found.alive()] == [runs.job_id]
        assert not found.pods.pods[UID].is_terminating


def finished(pod: Pod) -> Pod:
    return Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase="Succeeded"))


def earlier_claim(job: int) -> str:
    """Return a claim as an earlier version signed it: Pod and attempt, and no job."""
    return f'{{"job":{job},"attempt":0,"mark":"{tokens.mark(KEY, UID, 0)}"}}'


async def test_a_number_that_a_tenant_writes_on_his_pod_cancels_and_changes_nobodys_job(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        strangers = int(submit(slurm))
        await until(lambda: is_base(found, strangers, "RUNNING"))
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (ours,) = await found.alive()
        found.pods.put(finished(found.pods.pods[UID]))
        await until(lambda: found.phase(UID) == "")
        claim = marks.claim(KEY, UID, 0, ours.job_id)
        unsigned = earlier_claim(strangers)
        scheduler = found.scheduler()

        for text in (claim.replace(str(ours.job_id), str(strangers)), unsigned):
            await found.pods.note(found.pods.pods[UID], {ANNOTATION_JOB: text})
            for _ in range(3):
                await scheduler.reconcile(UID)
            seen = await found.client.job(strangers)
            assert seen is not None
            assert (seen.state_now.base, seen.extra) == ("RUNNING", "")
            assert found.placements.get(UID) is None
        await found.client.cancel_job(strangers)


async def test_a_pod_that_comes_with_the_number_of_anothers_job_gets_a_job_of_its_own(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        strangers = int(submit(slurm))
        await until(lambda: is_base(found, strangers, "RUNNING"))
        found.pods.put(manifest(annotations={ANNOTATION_JOB: earlier_claim(strangers)}))
        await until(lambda: found.is_running(UID))
        (ours,) = await found.alive()
        found.pods.put(finished(found.pods.pods[UID]))
        await until(lambda: found.phase(UID) == "")
        await until(lambda: is_over(found, ours.job_id))

        seen = await found.client.job(strangers)
        assert seen is not None
        assert (seen.state_now.base, seen.extra, seen.admin_comment) == ("RUNNING", "", "")
        assert ours.job_id != strangers
        await found.client.cancel_job(strangers)


async def test_a_mark_that_another_user_copies_to_his_job_is_told_of_nobody_and_changes_nothing(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (ours,) = await found.alive()
        copied = ours.extra.removesuffix(marks.STARTED)
        strangers = int(submit(slurm, f"--extra={copied}"))
        await until(lambda: is_base(found, strangers, "RUNNING"))
        whose = Owner(uid=UID, attempt=0, user_id=ours.user_id, name="default/infer")
        jobs = found.jobs(found.client)
        await found.sweeper().sweep(str(strangers))

        assert await jobs.find_marked(whose) == ours.job_id
        assert await jobs.look(strangers, whose) == JobGone(is_taken=True)
        await jobs.cancel(strangers, whose)
        assert await is_base(found, strangers, "RUNNING")
        assert found.is_running(UID)
        await found.client.cancel_job(strangers)


async def test_two_live_jobs_with_one_mark_are_told_and_neither_is_taken_or_ended(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    """The mark proves no more than the user, so a job of the same user may have it too."""
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (ours,) = await found.alive()
        user = ("--uid", str(ours.user_id), "--gid", str(ours.user_id), "-D/")
        second = int(submit(slurm, "--hold", f"--extra={ours.extra}", *user))
        whose = Owner(uid=UID, attempt=0, user_id=ours.user_id, name="default/infer")

        await until(lambda: "MarkCopied" in found.pods.warned.get(UID, ()))
        with pytest.raises(SlurmUnavailableError, match=f"{ours.job_id} and {second} have the mark of"):
            await found.jobs(found.client).find_marked(whose)

        assert await is_base(found, ours.job_id, "RUNNING")
        assert await is_base(found, second, "PENDING")
        assert found.is_running(UID)
        await found.client.cancel_job(second)


async def test_scancel_deletes_the_pod_and_the_job_leaves_its_node_only_when_the_pod_is_gone(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        slurm.exec("scancel", str(job.job_id))
        await until(lambda: found.pods.pods[UID].is_terminating)
        assert found.pods.ends[UID].endswith(f"job {job.job_id} was cancelled (scancel): it is CANCELLED")
        await anyio.sleep(1)  # Longer than Slurm needs to free the node of a job that has ended.
        leaving = await found.client.job(job.job_id)

        assert leaving is not None
        assert leaving.state_now.is_completing

        found.pods.vanish(UID)
        await until(lambda: found.phase(UID) == "")


async def test_a_slurm_job_preempts_a_pod_and_starts_when_the_pod_is_gone(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        urgent = int(submit(slurm, "--partition=urgent", "--nodes=2", "--exclusive"))
        await until(lambda: found.pods.pods[UID].is_terminating)
        assert found.pods.ends[UID].endswith(
            f"job {job.job_id} was preempted by another job: it is PREEMPTED"
        )
        await anyio.sleep(1)  # Longer than Slurm needs to start a job on nodes that are free.
        waiting = await found.client.job(urgent)

        assert waiting is not None
        assert waiting.state_now.base == "PENDING"

        found.pods.vanish(UID)
        await until(lambda: is_base(found, urgent, "RUNNING"))
        over = await found.client.job(job.job_id)
        await found.client.cancel_job(urgent)

        assert over is not None
        assert over.state_now.base == "PREEMPTED"


async def test_a_pod_preempts_a_slurm_job(nats: NatsServer, slurm: HostSlurm, free_tcp_port: int) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        training = int(submit(slurm, "--nodes=2", "--exclusive", "--no-requeue"))
        await until(lambda: is_base(found, training, "RUNNING"))
        found.pods.put(manifest(annotations={"sunk.coreweave.com/partition": "urgent"}))
        await until(lambda: found.is_running(UID))

        assert await is_base(found, training, "PREEMPTED")


def of_class(name: str, priority_class: str) -> Pod:
    """Return a Pod of a PriorityClass that needs a node for itself."""
    made = manifest(uid=name, name=name, annotations={f"{PREFIX}exclusive": "none"})
    return structs.replace(made, spec=structs.replace(made.spec, priority_class_name=priority_class))


async def test_a_priority_class_is_the_jobs_qos_by_which_slurm_preempts_and_an_unknown_qos_names_the_table(
    nats: NatsServer, by_qos: HostSlurm, free_tcp_port: int
) -> None:
    terms = {"high": "urgent", "low": "spare", "lost": "nosuch"}
    table = {name: PriorityClassTerms(qos=qos) for name, qos in terms.items()}
    async with world(nats, by_qos, free_tcp_port) as found:
        found.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=Policy(priority_classes=table, default="allow"))
        async with running(found):
            lows = [f"low-{name}" for name in found.names]
            for uid in lows:
                found.pods.put(of_class(uid, "low"))
            await until(lambda: all(found.is_running(uid) for uid in lows))
            found.pods.put(of_class("high", "high"))
            await until(lambda: any(found.pods.pods[uid].is_terminating for uid in lows))
            (preempted,) = [uid for uid in lows if found.pods.pods[uid].is_terminating]
            why = found.pods.ends[preempted]
            found.pods.vanish(preempted)
            await until(lambda: found.is_running("high"))
            high = found.placements.get("high")
            assert high is not None
            shown = by_qos.exec("scontrol", "show", "job", str(high.job))

            found.pods.put(of_class("lost", "lost"))
            await until(partial(are_all_said, found, ["lost"], "SubmissionFailed"))
            lost = found.placements.get("lost")

    assert "preempted by another job" in why
    assert "QOS=urgent" in shown
    assert lost is not None
    assert lost.reason.endswith(
        "Invalid qos specification (2066); scheduler.priorityClasses gives PriorityClass lost the QoS nosuch"
    )


async def test_a_pod_that_waits_says_when_backfill_expects_to_start_its_job_and_writes_that_seldom(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_jobs, "WAITING_AGAIN_S", 2.0)
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        before = int(submit(slurm, "--nodes=2", "--exclusive", "--time=60", "--partition=urgent"))
        await until(lambda: is_base(found, before, "RUNNING"))
        running_job = await found.client.job(before)
        found.pods.put(manifest(annotations={f"{PREFIX}timeout": "30"}))
        await until(lambda: (state := found.placements.get(UID)) is not None and state.start_told is not None)
        state = found.placements.get(UID)
        told = [text for text, _ in found.pods.conditions[UID]]
        await anyio.sleep(3)  # Backfill computes it anew each second.
        later = [text for text, _ in found.pods.conditions[UID]]
        await found.client.cancel_job(before)

    assert running_job is not None
    assert running_job.end_time.moment is not None
    assert state is not None
    assert state.start_told is not None
    assert abs(state.start_told - running_job.end_time.moment) < timedelta(minutes=5)
    assert later == told
    assert told[-1].endswith(f"; Slurm expects to start it at about {state.start_told:%Y-%m-%d %H:%M} UTC")


async def test_slurm_jobs_keep_off_the_node_of_a_pod_with_some_of_its_gpus_and_other_pods_do_not(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        for uid in ("one", "two"):
            asked = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
            where = {"sunk.coreweave.com/required-nodes": found.names[0]}
            found.pods.put(manifest(uid=uid, name=uid, requests=asked, annotations=where))
        await until(lambda: found.is_running("one") and found.is_running("two"))
        other = int(submit(slurm, f"--nodelist={found.names[0]}", "--gres=gpu:1"))
        elsewhere = int(submit(slurm, f"--nodelist={found.names[1]}", "--gres=gpu:1"))
        await until(lambda: is_base(found, elsewhere, "RUNNING"))
        waiting = await is_base(found, other, "PENDING")
        for job in (other, elsewhere):
            await found.client.cancel_job(job)

        assert waiting


def submit(slurm: HostSlurm, *options: str) -> str:
    """Submit a job that is nobody's placeholder; return its id."""
    return slurm.exec("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "exec sleep 600")


async def is_base(found: World, job: int, base: str) -> bool:
    seen = await found.client.job(job)
    return seen is not None and seen.state_now.base == base


async def test_a_pods_time_limit_counts_from_before_it_is_bound_and_ends_it_and_not_before(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest(annotations={"sunk.coreweave.com/timeout": "1"}))
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        bound = now()

        # slurmctld looks at limits every 30 s.
        await until(lambda: found.pods.pods[UID].is_terminating, within_s=150.0)
        assert found.pods.ends[UID].endswith(f"job {job.job_id} reached its time limit: it is TIMEOUT")
        found.pods.vanish(UID)
        await until(lambda: is_over(found, job.job_id))
        over = await found.client.job(job.job_id)

        assert over is not None
        started, ended = over.start_time.moment, over.end_time.moment
        assert started is not None
        assert ended is not None
        assert started <= bound  # Initialisation is included.
        assert (ended - started).total_seconds() >= 60
        assert over.state_now.base == "TIMEOUT"


async def is_over(found: World, job: int) -> bool:
    seen = await found.client.job(job)
    return seen is not None and seen.state_now.is_over and not seen.state_now.is_completing


async def test_a_preemptions_grace_ends_the_pod_from_its_beginning(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest(annotations={"sunk.coreweave.com/partition": "graced"}))
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        urgent = int(submit(slurm, "--partition=urgent", "--nodes=2", "--exclusive"))
        await until(lambda: found.pods.pods[UID].is_terminating)
        graced = await found.client.job(job.job_id)

        assert graced is not None
        assert graced.state_now.base == "RUNNING"  # Its grace has not run out.
        assert found.pods.ends[UID].endswith(f"job {job.job_id} is being preempted by another job")

        found.pods.vanish(UID)
        await until(lambda: is_base(found, urgent, "RUNNING"))
        over = await found.client.job(job.job_id)
        await found.client.cancel_job(urgent)

        assert over is not None
        assert over.state_now.base == "PREEMPTED"


async def test_a_pod_that_outlives_kill_wait_makes_its_node_overdue_until_it_is_gone(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        slurm.exec("scancel", str(job.job_id))
        await until(lambda: (state := found.placements.get(UID)) is not None and state.is_overdue)
        before_the_end = await found.client.job(job.job_id)

        assert before_the_end is not None
        assert before_the_end.state_now.is_completing

        found.pods.vanish(UID)
        await until(lambda: found.phase(UID) == "")


async def test_a_job_that_is_cancelled_before_its_pod_is_bound_is_followed_by_another(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        full = manifest(requests={"cpu": "4", "memory": "1Gi"}, uid="full-0", name="full-0")
        other = manifest(requests={"cpu": "4", "memory": "1Gi"}, uid="full-1", name="full-1")
        found.pods.put(full)
        found.pods.put(other)
        await until(lambda: found.is_running("full-0") and found.is_running("full-1"))
        found.pods.put(manifest(requests={"cpu": "4", "memory": "1Gi"}))
        await until(lambda: found.phase(UID) == "released")
        state = found.placements.get(UID)
        assert state is not None
        slurm.exec("scancel", str(state.job))
        await until(lambda: (s := found.placements.get(UID)) is not None and s.job not in {None, state.job})
        again = found.placements.get(UID)

        assert again is not None
        assert again.attempt == 1
        assert again.token_sha256 != state.token_sha256
        assert UID in found.pods.pods


async def test_a_job_whose_user_wiped_and_renamed_it_ends_with_its_pod_and_is_never_left_beside_another(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    slurm.exec("scontrol", "update", "PartitionName=main", "State=DOWN")  # Its jobs wait.
    user = ("setpriv", "--reuid", str(Policy().user_id), "--clear-groups")
    try:
        async with world(nats, slurm, free_tcp_port) as found, running(found):
            found.pods.put(manifest())
            await until(lambda: found.phase(UID) == "released")
            (waits,) = await found.alive()
            slurm.exec(*user, "scontrol", "update", f"JobId={waits.job_id}", "Extra=", "JobName=mine")
            with pytest.raises(LabError, match="ermission denied"):
                slurm.exec(*user, "scontrol", "update", f"JobId={waits.job_id}", "AdminComment=mine")
            await until(lambda: is_base(found, waits.job_id, "CANCELLED"))

            slurm.exec("scontrol", "update", "PartitionName=main", "State=UP")
            await until(lambda: found.is_running(UID))
            (runs,) = await found.alive()
            change = ("Extra=", "JobName=mine", "Requeue=1")
            slurm.exec(*user, "scontrol", "update", f"JobId={runs.job_id}", *change)
            slurm.exec(*user, "scontrol", "requeue", str(runs.job_id))
            await until(lambda: found.pods.pods[UID].is_terminating)
            found.pods.vanish(UID)
            await until(lambda: found.phase(UID) == "")

            assert await is_base(found, runs.job_id, "CANCELLED")
            assert waits.job_id != runs.job_id
    finally:
        slurm.exec("scontrol", "update", "PartitionName=main", "State=UP")


@pytest.mark.parametrize(("is_as_user", "said"), [(True, "SubmissionFailed"), (False, "JobHeld")])
async def test_an_unknown_slurm_user_is_said_on_the_pod(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int, said: str, *, is_as_user: bool
) -> None:
    async with world(nats, slurm, free_tcp_port) as found:
        found.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=Policy(user_id=64999))
        found.user_tokens = found.user_tokens if is_as_user else None
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.pods.last_reasons.get(UID) == said)


async def test_a_job_is_submitted_by_its_user_so_slurm_refuses_what_is_for_administrators(
    nats: NatsServer, enforced: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, enforced, free_tcp_port) as found:
        async with running(found):
            found.pods.put(manifest(annotations={PREFIX + "partition": "roots"}))
            await until(partial(are_all_said, found, [UID], "SubmissionFailed"))
            state = found.placements.get(UID)
            assert state is not None
            assert "Access/permission denied" in state.reason
        found.pods.vanish(UID)
        found.user_tokens = None  # As it was: an administrator submits.
        async with running(found):
            found.pods.put(manifest(uid="past", name="past", annotations={PREFIX + "partition": "roots"}))
            await until(partial(is_stored_with_a_job, found, "past"))
            (job,) = await found.alive()
            assert (job.name, job.user_id, job.partition) == ("default/past", 64100, "roots")


def is_stored_with_a_job(found: World, uid: str) -> bool:
    state = found.placements.get(uid)
    return state is not None and state.job is not None


async def test_a_job_of_its_user_has_an_admin_comment_once_released_and_a_group_that_was_granted(
    nats: NatsServer, enforced: HostSlurm, free_tcp_port: int, tmp_path: Path
) -> None:
    script = runpy.run_path(str(Path(__file__).parents[4] / "helm/slurm/files/scripts/token.py"))
    token = script["token_of"](enforced.jwt_key.read_bytes(), "64100", int(time.time()), 600)
    (tmp_path / "users.json").write_text(json.dumps({"64100": token.decode()}))
    async with world(nats, enforced, free_tcp_port) as found:
        found.user_tokens = FileUserTokens(tmp_path / "users.json")  # As the chart has it.
        granted = {"default": Grant(group_ids=(1,))}
        found.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=Policy(namespaces=granted))
        async with running(found):
            found.pods.put(manifest())
            found.pods.put(manifest(uid="grouped", name="grouped", annotations={PREFIX + "group-id": "1"}))
            await until(lambda: found.is_running(UID) and found.is_running("grouped"))
            jobs = {job.name: job for job in await found.alive()}

    own, grouped = jobs["default/infer"], jobs["default/grouped"]
    said = {job.job_id: enforced.exec("scontrol", "show", "job", str(job.job_id)) for job in jobs.values()}
    assert "UserId=sunk(64100) GroupId=sunk(64100)" in said[own.job_id]
    assert "UserId=sunk(64100) GroupId=daemon(1)" in said[grouped.job_id]
    assert own.admin_comment == f"placeholder of Pod default/infer, attempt 0 of {UID}"
    assert grouped.admin_comment == "placeholder of Pod default/grouped, attempt 0 of grouped"


async def test_a_job_that_its_user_released_and_calls_started_has_an_admin_comment_before_its_pod_is_bound(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise SlurmUnavailableError("the scheduler is slower than the user")

    async with world(nats, slurm, free_tcp_port) as found:
        with monkeypatch.context() as slow:
            slow.setattr(PlaceholderJobs, "release", refuse)
            async with running(found):
                found.pods.put(manifest())
                await until(partial(is_stored_with_a_job, found, UID))
        (held,) = await found.alive()
        user = ("setpriv", "--reuid", str(Policy().user_id), "--clear-groups")
        slurm.exec(*user, "scontrol", "release", str(held.job_id))
        text = f"Extra={held.extra}{marks.STARTED}"
        slurm.exec(*user, "scontrol", "update", f"JobId={held.job_id}", text)
        await until(lambda: is_base(found, held.job_id, "RUNNING"))
        async with running(found):
            await until(lambda: found.is_running(UID))
            (bound,) = await found.alive()

    assert (held.admin_comment, bound.job_id) == ("", held.job_id)
    assert bound.admin_comment == f"placeholder of Pod default/infer, attempt 0 of {UID}"


async def test_what_slurm_does_not_take_is_said_on_the_pod_and_tried_again(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest(annotations={"sunk.coreweave.com/partition": "nosuch"}))
        await until(lambda: (state := found.placements.get(UID)) is not None and state.attempt >= 2)

        assert found.pods.last_reasons[UID] == "SubmissionFailed"


NAMED = {
    "account": "physics",
    "partition": "urgent",
    "priority": "4294967293",
    "qos": "high",
    "reservation": "gala",
}


async def test_by_default_no_pod_chooses_account_partition_priority_qos_or_reservation(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found:
        found.rules = Rules(kill_wait_s=KILL_WAIT_S)
        async with running(found):
            for name, value in NAMED.items():
                found.pods.put(manifest(uid=name, name=name, annotations={PREFIX + name: value}))
            found.pods.put(manifest())
            await until(lambda: found.is_running(UID))
            await until(lambda: NAMED.keys() <= found.pods.last_reasons.keys())
            (job,) = await found.alive()
            refused = [found.placements.get(name) for name in NAMED]

            assert {found.pods.last_reasons[name] for name in NAMED} == {"ValidationFailed"}
            assert [state.job for state in refused if state is not None] == [None] * len(NAMED)
            assert (job.user_id, job.account, job.partition) == (64100, "", "main")


SLURMS_WORDS = {
    "account": "Invalid account or account/partition combination specified",
    "partition": "Invalid partition name specified",
    "qos": "Invalid qos specification",
    "reservation": "Requested reservation is invalid",
}


async def test_what_slurm_refuses_is_told_apart_from_what_the_policy_does(
    nats: NatsServer, enforced: HostSlurm, free_tcp_port: int
) -> None:
    by_default: dict[DefaultPolicy, str] = {"allow": "SubmissionFailed", "deny": "ValidationFailed"}
    async with world(nats, enforced, free_tcp_port) as found:
        for default, said in by_default.items():
            found.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=Policy(default=default))
            uid_by_name = {name: f"{default}-{name}" for name in SLURMS_WORDS}
            async with running(found):
                for name, uid in uid_by_name.items():
                    found.pods.put(manifest(uid=uid, name=uid, annotations={PREFIX + name: "nosuch"}))
                await until(partial(are_all_said, found, uid_by_name.values(), said))
            for name, uid in uid_by_name.items():
                state = found.placements.get(uid)
                assert state is not None
                assert (SLURMS_WORDS[name] in state.reason) == (default == "allow"), state.reason
                assert ("policyByNamespace" in state.reason) == (default == "deny"), state.reason
                found.pods.vanish(uid)
        assert await found.alive() == []


def are_all_said(found: World, uids: Collection[str], reason: str) -> bool:
    """Whether *reason* was said of each of *uids* last, and is stored."""
    states = [found.placements.get(uid) for uid in uids]
    is_stored = all(state is not None and state.reason for state in states)
    return is_stored and {found.pods.last_reasons.get(uid) for uid in uids} == {reason}


ASKED = {
    "account": "physics",
    "comment": 'of team web, 100 % "urgent"',
    "constraints": "fast&blue",
    "current-working-dir": "/usr/share",
    "excluded-nodes": "node02",
    "exclusive": "none",
    "group-id": "2",
    "partition": "urgent",
    "prefer": "blue",
    "priority": "4242",
    "qos": "high",
    "required-nodes": "node01",
    "reservation": "gala",
    "timeout": "7",
    "user-id": "1",
}
SHOWN = {
    "Account": "physics",
    "Comment": 'of team web, 100 % "urgent"',
    "ExcNodeList": "node02",
    "Features": "fast&blue",
    "GroupId": "bin(2)",
    "OverSubscribe": "NO",
    "Partition": "urgent",
    "Prefer": "blue",
    "Priority": "4242",
    "QOS": "high",
    "ReqNodeList": "node01",
    "Reservation": "gala",
    "TimeLimit": "00:07:00",
    "UserId": "daemon(1)",
    "WorkDir": "/usr/share",
}
"""The same as scontrol says it of the job."""


async def test_all_fifteen_annotations_reach_slurms_job(
    nats: NatsServer, enforced: HostSlurm, free_tcp_port: int
) -> None:
    assert {PREFIX + name for name in ASKED} == set(JOB_ANNOTATIONS)
    for words in (
        ("sacctmgr", "-i", "add", "account", "physics"),
        ("sacctmgr", "-i", "add", "qos", "high"),
        ("sacctmgr", "-i", "add", "user", "daemon", "account=physics", "qos=normal,high"),
        ("scontrol", "update", "NodeName=node[01-02]", "AvailableFeatures=fast,blue"),
        ("scontrol", "update", "NodeName=node[01-02]", "ActiveFeatures=fast,blue"),
        ("scontrol", "create", "res=gala", "users=daemon", "nodes=node01", "start=now", "duration=60"),
        ("scontrol", "update", "PartitionName=urgent", "State=DOWN"),
    ):
        enforced.exec(*words)
    granted = Grant(user_ids=(1,), group_ids=(2,))
    async with world(nats, enforced, free_tcp_port) as found:
        policy = Policy(default="allow", namespaces={"default": granted})
        found.rules = Rules(kill_wait_s=KILL_WAIT_S, policy=policy)
        async with running(found):
            found.pods.put(manifest(annotations={PREFIX + name: value for name, value in ASKED.items()}))
            await until(lambda: found.phase(UID) == "released")
            (job,) = await found.alive()
            # While it waits: of a preference that is met Slurm shows it in the constraints' place.
            said = enforced.exec("scontrol", "show", "job", str(job.job_id))
            enforced.exec("scontrol", "update", "PartitionName=urgent", "State=UP")
            await until(lambda: found.is_running(UID))
            node = found.pods.pods[UID].spec.node_name

    shown = {
        name
        for name, value in SHOWN.items()
        if re.search(rf"(^|\s){name}={re.escape(value)}(\s|$)", said, re.MULTILINE)
    }
    assert shown == SHOWN.keys(), said
    assert node == "kube-node01"


GUIDE = (Path(__file__).parents[4] / "docs/pods.md").read_text()
EXAMPLES: list[dict[str, str]] = [
    block["metadata"]["annotations"]
    for block in map(yaml.safe_load, fenced(GUIDE, "yaml"))
    if "annotations" in block.get("metadata", {})
]
"""Of the guide for Pods."""
HERE = {"1001": "1", "1002": "2"}
"""The guide's user and group, and those that Slurm's machines have."""


def prepare_guide(slurm: HostSlurm) -> None:
    """Make what the guide's examples name, as an administrator would."""
    for words in (
        ("sacctmgr", "-i", "add", "account", "physics"),
        ("sacctmgr", "-i", "add", "qos", "high"),
        ("sacctmgr", "-i", "add", "user", "sunk", "account=physics"),
        ("sacctmgr", "-i", "modify", "user", "sunk", "set", "qos=normal,high"),
        ("sacctmgr", "-i", "add", "user", "daemon", "account=physics"),
        ("scontrol", "update", "NodeName=node[01-02]", "AvailableFeatures=h100,ib,fast,blue"),
        ("scontrol", "update", "NodeName=node[01-02]", "ActiveFeatures=h100,ib,fast,blue"),
        ("scontrol", "create", "PartitionName=inference", "Nodes=ALL", "State=UP"),
        ("scontrol", "create", "PartitionName=batch", "Nodes=ALL", "State=UP"),
        ("scontrol", "delete", "ReservationName=gala"),
        ("scontrol", "create", "res=gala", "users=sunk,daemon", "nodes=node01", "start=now", "duration=60"),
    ):
        with suppress(LabError):  # Another test made it.
            slurm.exec(*words)


async def test_slurm_takes_each_example_of_the_guide_and_refuses_what_the_guide_says_with_its_words(
    nats: NatsServer, enforced: HostSlurm, free_tcp_port: int
) -> None:
    prepare_guide(enforced)
    refused = {
        f"refused-{name}": (PREFIX + name, written, reason, message)
        for name in (one.removeprefix(PREFIX) for one in JOB_ANNOTATIONS)
        for text in re.findall(rf"(?ms)^### {name}\n(.*?)(?=^##)", GUIDE)
        for written, reason, message in table_rows(text, "You write")
        if reason != "ValidationFailed"
    }
    async with world(nats, enforced, free_tcp_port) as found:
        granted = Grant(user_ids=(1,), group_ids=(2,))
        found.rules = Rules(
            kill_wait_s=KILL_WAIT_S, policy=Policy(default="allow", namespaces={"default": granted})
        )
        async with running(found):
            for number, written in enumerate(EXAMPLES):
                asked = {name: HERE.get(value, value) for name, value in written.items()}
                found.pods.put(manifest(uid=f"example-{number}", name=f"example-{number}", annotations=asked))
            for uid, (name, value, _, _) in refused.items():
                found.pods.put(manifest(uid=uid, name=uid, annotations={name: value}))
            for number in range(len(EXAMPLES)):
                await until(partial(is_stored_with_a_job, found, f"example-{number}"))
            for uid, (_, _, reason, message) in refused.items():
                await until(partial(are_all_said, found, [uid], reason))
                state = found.placements.get(uid)
                assert state is not None
                assert message in state.reason
            for uid in list(found.pods.pods):
                found.pods.vanish(uid)

    assert len(EXAMPLES) > len(JOB_ANNOTATIONS)
    assert {reason for _, _, reason, _ in refused.values()} == {"SubmissionFailed", "NoNodeFits"}


async def test_of_several_required_nodes_a_pod_gets_one_as_a_job_of_one_node_does(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        first, second, *_ = found.names
        taken = submit(slurm, "--exclusive", f"--nodelist={first}").strip()
        await until(lambda: is_base(found, int(taken), "RUNNING"))
        theirs = submit(slurm, "--nodes=1", f"--nodelist={first},{second}").strip()
        await until(lambda: is_base(found, int(theirs), "RUNNING"))
        found.pods.put(manifest(annotations={PREFIX + "required-nodes": f"{first},{second}"}))
        await until(lambda: found.is_running(UID))
        seen = await found.client.job(int(theirs))
        for job in (taken, theirs):
            await found.client.cancel_job(int(job))

        assert seen is not None
        assert (seen.nodes, found.pods.pods[UID].spec.node_name) == (second, f"kube-{second}")


async def test_a_pod_says_that_slurm_does_not_answer_and_is_submitted_once_it_does(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    tokens_of = KeyTokens(newest.jwt_key)
    async with (
        world(nats, newest, free_tcp_port) as found,
        SlurmClient(f"http://127.0.0.1:{free_tcp_port}", tokens_of) as nobody,
    ):
        found.pods.put(manifest())
        for _ in ("submitted", "looked for, as it may have been"):
            away = found.jobs(nobody)
            with pytest.raises(SlurmUnavailableError):
                await found.scheduler(jobs=away).reconcile(UID)
            assert found.pods.last_reasons.pop(UID) == "SlurmUnavailable"

        async def is_submitted() -> bool:  # A withdrawn attempt is over: the next one comes a second later.
            await found.scheduler().reconcile(UID)
            return found.pods.last_reasons.get(UID) == "PlaceholderSubmitted"

        await until(is_submitted)


async def test_a_pod_that_fits_no_node_is_tried_ever_later_and_explained(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, newest, free_tcp_port) as found, running(found) as scheduler:
        found.pods.put(manifest(annotations={"sunk.coreweave.com/required-nodes": "nosuch"}))
        await until(lambda: (state := found.placements.get(UID)) is not None and state.attempt >= 2)

        assert found.pods.last_reasons[UID] == "NoNodeFits"
        (finding,) = explain(await scheduler.look(UID))
        assert "no Slurm node fits" in finding.because
        assert "the next attempt is at" in finding.would_change


async def test_a_pod_that_fits_no_node_for_long_rests_between_two_tries(
    nats: NatsServer,
    newest: HostSlurm,
    free_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(submitter, "NO_NODE_ATTEMPTS", 2)
    async with world(nats, newest, free_tcp_port) as found, running(found):
        found.pods.put(manifest(annotations={PREFIX + "required-nodes": "nosuch"}))
        await until(lambda: (state := found.placements.get(UID)) is not None and state.attempt >= 2)
        first = found.placements.get(UID)
        assert first is not None
        await until(
            lambda: (state := found.placements.get(UID)) is not None and state.changed > first.changed
        )

    assert "a pod took too many steps" not in caplog.text


async def test_a_pod_that_waits_is_told_its_place_in_slurms_queue_from_what_the_bus_knows(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found) as scheduler:
        whole = ("--exclusive", "--nodes=2")
        taken = submit(slurm, *whole).strip()
        await until(lambda: is_base(found, int(taken), "RUNNING"))
        ahead = [submit(slurm, *whole, f"--priority={number}").strip() for number in (3000, 2000)]
        found.pods.put(manifest())
        await until(lambda: found.phase(UID) == "released")
        state = found.placements.get(UID)
        assert state is not None
        assert state.job is not None
        slurm.exec("scontrol", "update", f"job={state.job}", "priority=1000")
        behind = submit(slurm, *whole, "--priority=500").strip()
        handlers = ExplainHandlers(
            found.pods, found.placements, scheduler.look, of_no_gang, found.bus_jobs().all
        )

        async def place() -> Finding:
            reply = await handlers.placement(ExplainPlacement(pod="default/infer"))
            assert isinstance(reply, Explanation)
            return reply.findings[-1]

        async def is_third() -> bool:
            return (await place()).what == "place 3 of 4 in the queue of main"

        await until(is_third)
        told = await place()
        shown = slurm.exec("squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--format=%i").split()
        for job in (taken, *ahead, behind):
            await found.client.cancel_job(int(job))

        assert shown == [*ahead, str(state.job), behind]
        assert [f"job {job} of root" in told.because for job in (*ahead, behind)] == [True, True, False]
        await until(lambda: found.is_running(UID))
        assert "in the queue" not in (await place()).what


async def of_no_gang(_uid: str) -> tuple[Finding, ...]:
    return ()


async def test_only_the_scripts_own_token_speaks_for_its_placeholder(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (job,) = await found.alive()
        assert found.answerer is not None
        wrong = await found.answerer.released(ReleasePlacement(job=job.job_id, token="guessed"))  # noqa: S106 - nobody's
        unknown = await found.answerer.released(ReleasePlacement(job=99999))
        right = await found.answerer.released(
            ReleasePlacement(job=job.job_id, token=tokens.token(KEY, UID, 0))
        )

        assert getattr(wrong, "code", "") == "forbidden"
        assert unknown == PlacementReleased(is_pod_gone=True)
        assert right == PlacementReleased(is_pod_gone=False, pod="default/infer")
        await until(lambda: found.pods.pods[UID].is_terminating)


class Killed(BaseException):
    """The process was killed here."""


class Fuse:
    """Kills at the call number *at*, before it is made or after."""

    def __init__(self, at: int, *, is_after: bool) -> None:
        self._left = at
        self._is_after = is_after
        self.is_blown = False

    def around(self, inner: Any) -> Any:  # noqa: ANN401 - it stands for whatever it wraps
        """Return *inner* with its writes on this fuse."""
        fuse = self

        class Fused:
            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it stands for whatever it wraps
                found = getattr(inner, name)
                if name not in {
                    "submit_job",
                    "update_job",
                    "cancel_job",
                    "annotate",
                    "bind",
                    "delete",
                    "record",
                    "forget",
                    "report_end",
                }:
                    return found

                async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - it stands for whatever it wraps
                    fuse._left -= 1
                    if fuse._left == -1 and not fuse._is_after:
                        fuse.is_blown = True
                        raise Killed
                    result = await found(*args, **kwargs)
                    if fuse._left == -1:
                        fuse.is_blown = True
                        raise Killed
                    return result

                return call

        return Fused()


class CountedJobs(PlaceholderJobs):
    """Remembers which jobs were looked at."""

    def __init__(self, found: World) -> None:
        super().__init__(found.client, found.slurm_jobs, KEY, timeout_s=WITHIN_S)
        self.looked: list[int] = []

    async def look(self, job: int, owner: Owner) -> AnyJob:
        self.looked.append(job)
        return await super().look(job, owner)


async def test_a_new_leader_asks_slurm_of_no_job_that_is_as_it_was_unless_what_the_bus_says_is_old(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, newest, free_tcp_port) as found:
        try:
            async with running(found):
                found.pods.put(manifest())
                await until(lambda: found.is_running(UID))
                newest.exec("scontrol", "update", "PartitionName=main", "State=DOWN")  # Its jobs wait.
                found.pods.put(manifest(uid="waits", name="waits"))
                await until(lambda: found.phase("waits") == "released")
                jobs = {uid: state.job for uid in (UID, "waits") if (state := found.placements.get(uid))}
                bases = ["RUNNING", "PENDING"]
                await until(lambda: [known(found, jobs[uid]) for uid in (UID, "waits")] == bases)

            assert await looked_at(found, UID, "waits") == []
            assert (found.phase(UID), found.phase("waits")) == ("bound", "released")

            await found.say_answered(now() - timedelta(minutes=10))

            assert await looked_at(found, UID, "waits") == [jobs[UID], jobs["waits"]]
        finally:
            newest.exec("scontrol", "update", "PartitionName=main", "State=UP")


def known(found: World, job: int | None) -> str:
    """Return the state of a job as the bus has it; it comes and goes."""
    state = found.slurm_jobs.get(str(job))
    return "" if state is None or state.flags else state.state


async def looked_at(found: World, *uids: str) -> list[int]:
    """Return at which jobs a new leader looks when it looks at Pods."""
    jobs = CountedJobs(found)
    scheduler = found.scheduler(jobs=jobs)
    for uid in uids:
        await scheduler.reconcile(uid)
    return jobs.looked


@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after it"])
async def test_killed_at_any_call_the_next_scheduler_ends_with_one_pod_on_one_job(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int, *, is_after: bool
) -> None:
    async with world(nats, newest, free_tcp_port) as found:
        found.script = "#!/bin/bash\nexec sleep 600\n"  # We announce it, and TERM ends it at once.
        for at in range(30):
            uid = f"uid-{at}"
            requests, asked = {"cpu": "1", "memory": "1Mi"}, {"sunk.coreweave.com/priority": "77"}
            found.pods.put(manifest(uid=uid, name=f"pod-{at}", requests=requests, annotations=asked))
            fuse = Fuse(at, is_after=is_after)
            await drive(found, fused_scheduler(found, fuse), uid, fuse)
            if fuse.is_blown:
                await drive(found, found.scheduler(), uid, None)
            await sweep_all(found)
            (job,) = [job for job in await found.alive() if job.name == f"default/pod-{at}"]
            state = found.placements.get(uid)

            assert found.is_running(uid)
            assert found.pods.pods[uid].spec.node_name == f"kube-{job.nodes}"
            assert state is not None
            assert state.job == job.job_id
            await found.client.cancel_job(job.job_id)
            found.pods.vanish(uid)
            await until(partial(leaves, found, uid))
            if not fuse.is_blown:
                assert job.priority.value == 77
                assert at > 9  # The way has that many writes at least.
                return
        pytest.fail("the way to a bound Pod has no end")


@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after it"])
async def test_killed_at_any_call_while_a_pod_ends_by_its_job_the_next_scheduler_ends_it_for_the_same_cause(
    nats: NatsServer,
    newest: HostSlurm,
    free_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_after: bool,
) -> None:
    users = [""]

    async def who_cancelled(*_: object) -> str:
        return users[-1]

    monkeypatch.setattr(PlaceholderJobs, "who_cancelled", who_cancelled)
    async with world(nats, newest, free_tcp_port) as found:
        found.script = "#!/bin/bash\nexec sleep 600\n"  # We announce it, and TERM ends it at once.
        for at in range(20):
            uid, users[:] = f"uid-{at}", [""]
            found.pods.put(manifest(uid=uid, name=f"pod-{at}", requests={"cpu": "1", "memory": "1Mi"}))
            await drive(found, found.scheduler(), uid, None)
            (job,) = [job for job in await found.alive() if job.name == f"default/pod-{at}"]
            await found.client.cancel_job(job.job_id)
            await until(partial(is_over, found, job.job_id))
            fuse = Fuse(at, is_after=is_after)
            await end(found, fused_scheduler(found, fuse), uid, fuse)
            if fuse.is_blown:
                users[:] = ["ada"]  # Accounting learns of it a moment later.
                await end(found, found.scheduler(), uid, None)

            assert uid not in found.pods.pods
            whose = f", by Slurm user {users[0]}" if users[0] and at == 0 and not is_after else ""
            cause = f"job {job.job_id} was cancelled (scancel): it is CANCELLED{whose}"
            assert found.pods.all_ends[uid] == {f"Pod default/pod-{at} ends: {cause}"}
            if not fuse.is_blown:
                assert at > 4  # Its state twice, the Event, its deletion, and that it is forgotten.
                return
        pytest.fail("the way to the end of a Pod has no end")


async def end(found: World, scheduler: Reconciler, uid: str, fuse: Fuse | None) -> None:
    """Look at the Pod until it is forgotten, as its kubelet lets go of it; or until the fuse blows."""
    with anyio.fail_after(WITHIN_S):
        while found.phase(uid):
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(scheduler.reconcile, uid)
            except BaseExceptionGroup as group:
                if fuse is None or group.split(Killed)[1] is not None:
                    raise
                return
            if (pod := found.pods.pods.get(uid)) is not None and pod.is_terminating:
                found.pods.vanish(uid)
            await anyio.sleep(0.02)


def fused_scheduler(found: World, fuse: Fuse) -> Reconciler:
    """Return a scheduler whose writes to Slurm, to Pods and to the bus are on *fuse*."""
    jobs = found.jobs(fuse.around(found.client))
    writer = StateWriter(found.bus, found.placements, fence=None)
    return found.scheduler(jobs=jobs, pods=fuse.around(found.pods), writer=fuse_writer(fuse, writer))


def fuse_writer(fuse: Fuse, writer: StateWriter[PlacementState]) -> Any:  # noqa: ANN401 - it stands for whatever it wraps
    """Return *writer* with its writes on *fuse*."""
    fused = fuse.around(writer)
    fused.view = writer.view
    return fused


async def test_killed_between_a_jobs_release_and_its_priority_the_next_scheduler_sets_it(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    newest.exec("scontrol", "update", "PartitionName=main", "State=DOWN")  # Its jobs wait.
    try:
        async with world(nats, newest, free_tcp_port) as found:
            found.pods.put(manifest(annotations={"sunk.coreweave.com/priority": "77"}))
            fuse = Fuse(4, is_after=True)  # Intent, submission, annotation, its id, release: and no more.
            with pytest.raises(BaseExceptionGroup):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(fused_scheduler(found, fuse).reconcile, UID)
            (job,) = await found.alive()
            assert fuse.is_blown
            assert job.state_reason != "JobHeldUser"
            assert job.priority.value != 77

            await found.scheduler().reconcile(UID)

            (job,) = await found.alive()
            assert job.priority.value == 77
            assert (found.phase(UID), found.pods.last_reasons[UID]) == ("released", "PlaceholderSubmitted")
    finally:
        newest.exec("scontrol", "update", "PartitionName=main", "State=UP")


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def locking(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm of two nodes, each of whose prologs waits until a file says that its node is locked."""
    more = ("PrologFlags=Alloc,DeferBatch", "Prolog=/lab/etc/prolog")
    wait = 'until [ -e "/lab/etc/locked-$SLURMD_NODENAME" ]; do sleep 0.1; done'
    with running_slurm(request.param, nodes=NodeRange(count=2, first_port=0), more=more) as found:
        found.write_file("prolog", f"#!/bin/bash\nexport PATH=/usr/bin:/bin\n{wait}\n")
        yield found


async def tell_locks(found: World, *names: str, job: int | None, is_granted: bool = False) -> None:
    """Tell the bus of the locks of nodes, as the nodeset-controller does: for nobody, or for *job*."""
    view, moment = found.views.locks.view, now()
    writer = StateWriter(found.bus, view, fence=None)
    for name in names:
        granted = moment if is_granted else None
        holder = LockHolder(job=job or 0, level="strict", asked=moment, granted=granted)
        told = LockState(
            changed=moment,
            node=name,
            kube_node=f"kube-{name}",
            lock="false" if job is None else "locked_strict" if is_granted else "pending",
            holders=() if job is None else (holder,),
        )
        await writer.record(name, told, revision=view.revision(name))


async def is_one_in_its_prolog(found: World) -> bool:
    return any(job.state_reason == "Prolog" for job in await found.alive())


async def is_for(found: World, job: int, reason: str) -> bool:
    seen = await found.client.job(job)
    return seen is not None and seen.state_now.base == "RUNNING" and seen.state_reason == reason


async def test_a_job_that_its_user_holds_releases_and_calls_started_in_its_prolog_binds_none_before_its_lock(
    nats: NatsServer, locking: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, locking, free_tcp_port) as found:
        await tell_locks(found, *found.names, job=None)
        found.pods.put(manifest())
        async with running(found):
            await until(lambda: found.phase(UID) == "released")
            (job,) = await found.alive()
            await until(partial(is_for, found, job.job_id, "Prolog"))
            await tell_locks(found, *found.names, job=job.job_id)
            user = ("setpriv", "--reuid", str(Policy().user_id), "--clear-groups", "scontrol")
            locking.exec(*user, "hold", str(job.job_id))
            locking.exec(*user, "release", str(job.job_id))
            locking.exec(*user, "update", f"JobId={job.job_id}", f"Extra={job.extra}{marks.STARTED}")
            assert await is_for(found, job.job_id, "None")
            await until(lambda: found.pods.last_reasons.get(UID) == "WaitingForLock")
            assert (found.phase(UID), found.pods.pods[UID].spec.node_name) == ("released", "")

        async with running(found) as after_a_kill:  # It has heard no script, and the lock is not granted yet.
            await after_a_kill.reconcile(UID)
            assert (found.phase(UID), found.pods.pods[UID].spec.node_name) == ("released", "")
            await tell_locks(found, *found.names, job=job.job_id, is_granted=True)

            await until(lambda: found.is_running(UID))
        assert [one.job_id for one in await found.alive()] == [job.job_id]
        for name in found.names:
            locking.write_file(f"locked-{name}", "")


async def leaves(found: World, uid: str) -> bool:
    await found.scheduler().reconcile(uid)
    return found.phase(uid) == ""


async def sweep_all(found: World) -> None:
    """Tell the bus of every job, and sweep until no job of ours is undecided."""
    sweeper = found.sweeper()
    with anyio.move_on_after(0.3):
        await found.play_syncer()
    for job in await found.alive():
        await sweeper.sweep(str(job.job_id))


async def drive(found: World, scheduler: Reconciler, uid: str, fuse: Fuse | None) -> None:
    """Look at the Pod until it is bound, announcing its job as the script would; or until the fuse blows."""
    with anyio.fail_after(WITHIN_S):
        while not found.is_running(uid):
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(scheduler.reconcile, uid)
                await announce(found, scheduler, uid)
            except BaseExceptionGroup as group:
                if fuse is None or group.split(Killed)[1] is not None:
                    raise
                return
            await anyio.sleep(0.02)


async def announce(found: World, scheduler: Reconciler, uid: str) -> None:
    state = found.placements.get(uid)
    # Who was killed right after the release has not stored it, and the job may run before the next one looks.
    is_placing = state is not None and state.phase in {"submitted", "released"}
    if state is None or state.job is None or not is_placing or found.answerer is None:
        return
    job = await found.client.job(state.job)
    if job is None or job.state_now.base != "RUNNING":
        return
    async with anyio.create_task_group() as tasks:

        def enqueue(uid: str) -> None:
            tasks.start_soon(scheduler.reconcile, uid)

        found.enqueue = enqueue
        token = tokens.token(KEY, uid, state.attempt)
        question = PlacementAnnounced(job=job.job_id, node=job.nodes, token=token)
        await found.answerer.announced(question)
        found.enqueue = lambda _uid: None


class NoJobs:
    """No Pod here was made by a Kubernetes Job."""

    async def is_gang(self, membership: GangMembership) -> bool:
        raise AssertionError(membership.title)

    async def size(self, membership: GangMembership) -> Size:
        raise AssertionError(membership.title)


def gangs(found: World, pods: PodPort | None = None) -> GangDispatcher:
    """Return what looks at gangs, with a scheduler that remembers nothing."""
    mailbox, workloads, pods = Mailbox(), NoJobs(), pods or found.pods
    jobs = found.jobs(found.client)
    snapshotter = GangSnapshotter(
        pods=found.pods,
        jobs=jobs,
        placements=found.placements,
        takers=found.takers(jobs),
        views=found.views,
        mailbox=mailbox,
        workloads=workloads,
        rules=found.rules,
        key=KEY,
    )
    single = found.scheduler()
    found.answerer = Handlers(found.placements, found.pods, mailbox, KEY, found.enqueued)
    return GangDispatcher(
        single=single,
        pods=found.pods,
        placements=found.placements,
        slurm_jobs=found.slurm_jobs,
        mailbox=mailbox,
        executor=Executor(found.context(jobs, pods)),
        snapshotter=snapshotter,
        workloads=workloads,
        limits=Limits(kill_wait_s=KILL_WAIT_S),
        key=KEY,
        enqueue=found.enqueued,
    )


@asynccontextmanager
async def ganging(
    found: World, *, least: int | None = None, exclusive: str = ""
) -> AsyncGenerator[list[str]]:
    """Run what looks at gangs, with one of a Pod for each node; yield their uids when *least* of them run."""
    size, uids = len(found.names), [f"uid-{index}" for index in range(len(found.names))]
    annotations = {GANG_SIZE: str(size), "sunk.coreweave.com/exclusive": exclusive}
    if least is not None:
        annotations[GANG_MIN_AVAILABLE] = str(least)
    async with looking_at_gangs(found):
        for uid in uids:
            found.pods.put(grouped(manifest(uid=uid, name=uid, annotations=annotations)))
        await until(lambda: sum(found.is_running(uid) for uid in uids) == (least or size))
        yield uids


@asynccontextmanager
async def looking_at_gangs(found: World) -> AsyncGenerator[None]:
    """Run what looks at gangs, the syncer's part and the gateway's."""
    loop = KeyLoop("pods", gangs(found).reconcile)
    found.enqueue = loop.enqueue
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.play_syncer)
        tasks.start_soon(partial(loop.run, found.placements.changes(), found.views.locks.woken()))
        tasks.start_soon(serve_http, "127.0.0.1", found.port, Health(), found.routes())
        yield
        tasks.cancel_scope.cancel()


async def test_a_gang_whose_user_holds_its_job_in_its_prolog_is_bound_nowhere_before_all_its_nodes_are_locked(
    nats: NatsServer, locking: HostSlurm, free_tcp_port: int
) -> None:
    first, *others = locking.node_names
    annotations, uids = {GANG_SIZE: str(1 + len(others))}, [f"uid-{name}" for name in locking.node_names]
    async with world(nats, locking, free_tcp_port) as found, looking_at_gangs(found):
        await tell_locks(found, *found.names, job=None)
        for uid in uids:
            found.pods.put(grouped(manifest(uid=uid, name=uid, annotations=annotations)))
        await until(lambda: is_one_in_its_prolog(found))
        (job,) = await found.alive()
        await tell_locks(found, *found.names, job=job.job_id)
        user = ("setpriv", "--reuid", str(Policy().user_id), "--clear-groups", "scontrol")
        locking.exec(*user, "hold", str(job.job_id))
        locking.write_file(f"locked-{first}", "")
        await tell_locks(found, first, job=job.job_id, is_granted=True)
        await until(lambda: job.job_id in found.announced)  # Although a prolog waits for its lock.
        await until(lambda: all(found.pods.last_reasons.get(uid) == "WaitingForLock" for uid in uids))
        assert [found.pods.pods[uid].spec.node_name for uid in uids] == [""] * len(uids)

        for name in others:
            locking.write_file(f"locked-{name}", "")
        await tell_locks(found, *others, job=job.job_id, is_granted=True)

        await until(lambda: all(found.is_running(uid) for uid in uids))
        assert [one.job_id for one in await found.alive()] == [job.job_id]


async def test_a_gang_is_one_job_on_as_many_nodes_and_scancel_takes_all_of_it_before_the_job_leaves(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, ganging(found, exclusive="false") as uids:
        (job,) = await found.alive()

        assert found.pods.warned == {uid: ["OldAnnotation"] for uid in uids}
        assert (job.node_count.value, job.cpus.value) == (len(uids), len(uids))
        assert [found.pods.pods[uid].spec.node_name for uid in uids] == [
            f"kube-{name}" for name in sorted(found.names)
        ]

        slurm.exec("scancel", str(job.job_id))
        await until(lambda: all(found.pods.pods[uid].is_terminating for uid in uids))
        assert [found.pods.ends[uid].partition(" ends: ")[2] for uid in uids] == [
            f"job {job.job_id} was cancelled (scancel): it is CANCELLED"
        ] * len(uids)
        found.pods.vanish(uids[0])
        await anyio.sleep(1)  # Longer than Slurm needs to free the nodes of a job that has ended.
        leaving = await found.client.job(job.job_id)

        assert leaving is not None
        assert leaving.state_now.is_completing

        for uid in uids[1:]:
            found.pods.vanish(uid)
        await until(lambda: not list(found.placements.keys()))


async def test_a_gang_that_may_run_with_fewer_starts_on_as_many_nodes_as_slurm_has(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    taken, *_ = slurm.node_names
    quiet = ("--chdir=/", "--output=/dev/null")
    other = slurm.exec(
        "sbatch", "--parsable", "--exclusive", "-w", taken, *quiet, "--wrap", "sleep 600"
    ).strip()
    async with world(nats, slurm, free_tcp_port) as found, ganging(found, least=1) as uids:
        (job,) = await found.alive()
        first, *others = uids

        assert job.node_count.value == len(uids) - 1
        assert found.pods.pods[first].spec.node_name not in {"", f"kube-{taken}"}
        await until(lambda: {found.pods.last_reasons[uid] for uid in others} == {"GangFull"})

        slurm.exec("scancel", other, str(job.job_id))
        await until(lambda: found.pods.pods[first].is_terminating)
        found.pods.vanish(first)
        for uid in others:
            found.pods.vanish(uid)
        await until(lambda: not list(found.placements.keys()))


UPGRADE = (Taint(key="upgrade", effect="NoSchedule"),)


async def occupied(found: World, slurm: HostSlurm, name: str) -> int:
    """Return a job that has the node *name* for itself."""
    job = int(submit(slurm, f"--nodelist={name}", "--exclusive"))
    await until(lambda: is_base(found, job, "RUNNING"))
    return job


async def is_told(found: World, excluded: str) -> bool:
    """Whether the one job that waits was told to keep off *excluded*."""
    return [job.excluded_nodes for job in await found.alive() if job.state_now.is_pending] == [excluded]


async def test_a_job_that_waits_is_told_when_a_node_loses_or_gets_a_taint(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    first, second = slurm.node_names
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        other = await occupied(found, slurm, first)
        found.pods.put_node(node(f"kube-{second}", taints=UPGRADE))
        found.pods.put(manifest(annotations={"sunk.coreweave.com/priority": "4711"}))
        await until(lambda: is_told(found, second))
        (before,) = await found.alive()

        found.pods.put_node(node(f"kube-{first}", taints=UPGRADE))  # Now none is left: what was told stands.
        await anyio.sleep(0.5)
        assert await is_told(found, second)
        found.pods.put_node(node(f"kube-{second}"))
        await until(lambda: found.is_running(UID))
        (after,) = await found.alive()
        await found.client.cancel_job(other)

        assert (after.job_id, after.nodes, after.excluded_nodes) == (before.job_id, second, first)
        assert after.priority.value == before.priority.value == 4711


async def test_a_pod_is_not_bound_by_a_job_that_was_made_smaller_while_it_waited(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    slurm.exec("scontrol", "update", "PartitionName=main", "State=DOWN")  # Its jobs wait.
    try:
        async with world(nats, slurm, free_tcp_port) as found, running(found):
            requests = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "8"}
            found.pods.put(manifest(requests=requests))
            await until(lambda: found.phase(UID) == "released")
            (before,) = await found.alive()
            smaller = ("gres=gpu:0", "numcpus=1", "minmemorynode=1")
            slurm.exec("scontrol", "update", f"JobId={before.job_id}", *smaller)

            slurm.exec("scontrol", "update", "PartitionName=main", "State=UP")
            await until(lambda: found.pods.last_reasons[UID] == "JobTooSmall")
            await until(lambda: found.is_running(UID))

            (after,) = await found.alive()
            assert after.job_id != before.job_id
            assert (after.gpus, after.cpus.value) == (8, 2)
    finally:
        slurm.exec("scontrol", "update", "PartitionName=main", "State=UP")


async def test_a_pod_is_not_bound_to_a_node_that_joined_later_and_does_not_do_and_its_job_ends_at_once(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    first, second = slurm.node_names
    async with world(nats, slurm, free_tcp_port) as found, running(found):
        other = await occupied(found, slurm, first)
        found.pods.put_node(node(f"kube-{first}", labels={"disk": "fast"}))
        await found.leave(second)
        spec = structs.replace(manifest().spec, node_selector={"disk": "fast"})
        found.pods.put(manifest(spec=spec))
        await until(lambda: found.phase(UID) == "started")  # On the node that nobody knows.
        (before,) = await found.alive()
        assert (before.nodes, before.excluded_nodes) == (second, "")

        await found.join(second)
        await until(lambda: found.pods.last_reasons[UID] == "NodeUnsuited")
        over = await found.client.job(before.job_id)
        assert over is not None
        assert over.state_now.base == "CANCELLED"
        await until(lambda: is_told(found, second))
        assert found.pods.pods[UID].spec.node_name == ""
        await found.client.cancel_job(other)
        await until(lambda: found.is_running(UID))

        assert found.pods.pods[UID].spec.node_name == f"kube-{first}"


async def test_a_gang_that_waits_is_told_when_a_node_does_for_it(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    first, second = slurm.node_names
    async with world(nats, slurm, free_tcp_port) as found, anyio.create_task_group() as tasks:
        other = await occupied(found, slurm, first)
        found.pods.put_node(node(f"kube-{second}", taints=UPGRADE))
        told: list[int] = []

        async def untaint() -> None:
            await until(lambda: is_told(found, second))
            told.extend(job.job_id for job in await found.alive())
            found.pods.put_node(node(f"kube-{second}"))

        tasks.start_soon(untaint)
        async with ganging(found, least=1) as uids:
            (job,) = await found.alive()
            await found.client.cancel_job(other)

            assert (job.nodes, [job.job_id]) == (second, told)
            assert [found.is_running(uid) for uid in uids] == [True, False]


@pytest.mark.faults
async def test_a_gang_whose_job_slurmctld_has_lost_runs_on_and_gets_another_job_on_its_nodes(
    nats: NatsServer, hooked: HostSlurm, free_tcp_port: int
) -> None:
    write_epilog(hooked, free_tcp_port)
    async with world(nats, hooked, free_tcp_port) as found, ganging(found) as uids:
        (before,) = await found.alive()
        lose_state(hooked)

        def is_adopted() -> bool:
            assert not any(found.pods.pods[uid].is_terminating for uid in uids), found.pods.ends
            return all(found.pods.last_reasons[uid] == "JobFound" for uid in uids)

        await until(is_adopted)
        (after,) = await found.alive()

        assert drained(hooked) == []
        assert (after.nodes, after.state_now.base) == (before.nodes, "RUNNING")
        assert marks.is_started(after.extra)


@pytest.mark.faults
async def test_an_elastic_gang_whose_job_slurmctld_has_lost_does_not_wait_for_the_node_of_an_empty_seat(
    nats: NatsServer, plain: HostSlurm, free_tcp_port: int
) -> None:
    # With one node only it would be a gang of one: elastic.
    await until(lambda: {*plain.exec("sh", "-c", "sinfo -h -N -o %T; true").split()} == {"idle"})
    async with world(nats, plain, free_tcp_port) as found, looking(found):
        first, second, *_ = plain.node_names
        asked = {GANG_SIZE: "2", GANG_MIN_AVAILABLE: "1"}
        for uid in ("one", "two"):
            where = {"sunk.coreweave.com/required-nodes": f"{first},{second}"}
            found.pods.put(grouped(manifest(uid=uid, name=uid, annotations={**asked, **where})))
        await until(lambda: found.is_running("one") and found.is_running("two"))
        # A member that goes before the gang itself is bound, a moment after its last Pod, ends all of it.
        await until(lambda: {state.phase for state in found.placements.values()} == {"bound"})
        kept = found.pods.pods["one"].spec.node_name.removeprefix("kube-")
        left = next(name for name in (first, second) if name != kept)
        found.pods.vanish("two")
        await until(lambda: found.phase("two") == "ended")
        (lost,) = [job.job_id for job in await found.alive() if job.state_now.is_running]
        lose_state(plain)
        # Only a number that is another job's by now shows here that it is lost. It may have had a second job.
        held = [int(submit(plain, "--hold")) for _ in range(1, lost)]
        other = await occupied(found, plain, left)
        assert other == lost
        try:
            await until(lambda: "JobFound" in found.pods.history["one"])
        except TimeoutError:
            pytest.fail(f"{found.pods.history}, {[*found.placements.values()]}, {await found.alive()}")
        (after,) = await found.alive()
        for job in (other, *held):
            await found.client.cancel_job(job)

        assert (after.nodes, after.state_now.base) == (kept, "RUNNING")
        assert not found.pods.pods["one"].is_terminating


def grouped(pod: Pod, owner: str = "") -> Pod:
    """Return *pod* with the label of a PodGroup; *owner*: the uid of the Job that made it."""
    made_by = OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=owner, controller=True)
    owners = (made_by,) if owner else ()
    meta = structs.replace(pod.metadata, labels={LABEL_POD_GROUP: "ring"}, owner_references=owners)
    return structs.replace(pod, metadata=meta)


def failed(pod: Pod, code: int) -> Pod:
    """Return *pod* as its kubelet tells of it when its container has ended with *code*."""
    ended = ContainerState(terminated=ContainerTerminated(exit_code=code))
    status = PodStatus(phase="Failed", container_statuses=(ContainerStatus(state=ended),))
    return structs.replace(pod, status=status)


@asynccontextmanager
async def looking(found: World, pods: PodPort | None = None) -> AsyncGenerator[None]:
    """Run what looks at gangs, the syncer's part and the gateway's."""
    loop = KeyLoop("pods", gangs(found, pods).reconcile)
    found.enqueue = loop.enqueue
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.play_syncer)
        tasks.start_soon(partial(loop.run, found.placements.changes()))
        tasks.start_soon(serve_http, "127.0.0.1", found.port, Health(), found.routes())
        yield
        tasks.cancel_scope.cancel()


async def test_what_is_left_of_a_pod_group_forms_again_when_one_has_succeeded_and_one_failed(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, looking(found):
        for uid in ("one", "two"):
            found.pods.put(grouped(manifest(uid=uid, name=uid, annotations={GANG_SIZE: "2"}), "job"))
        await until(lambda: found.is_running("one") and found.is_running("two"))
        (job,) = await found.alive()
        found.pods.put(finished(found.pods.pods["one"]))
        found.pods.put(failed(found.pods.pods["two"], 3))
        await until(lambda: not list(found.placements.keys()))
        over = await found.client.job(job.job_id)
        assert over is not None
        assert (over.state_now.base, over.exit_code.return_code.value) == ("FAILED", 3)

        found.pods.put(grouped(manifest(uid="three", name="three", annotations={GANG_SIZE: "2"}), "job"))
        await until(lambda: found.is_running("three"))
        (again,) = await found.alive()

        assert (again.node_count.value, again.cpus.value) == (1, 1)
        found.pods.put(finished(found.pods.pods["three"]))
        await until(lambda: not list(found.placements.keys()))
        over = await found.client.job(again.job_id)
        assert over is not None
        assert over.state_now.base == "COMPLETED"


class Shut(MemoryPods):
    """Pods of which one cannot be bound yet."""

    def __init__(self, pods: MemoryPods, uid: str) -> None:
        super().__init__()
        self.__dict__ |= vars(pods)
        self._uid = uid

    async def bind(self, pod: Pod, node: str) -> None:
        if pod.metadata.uid == self._uid:
            raise KubeUnavailableError("the API server is away")
        await super().bind(pod, node)


async def test_a_member_that_fails_before_all_are_bound_gives_the_job_its_exit_code(
    nats: NatsServer, slurm: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, slurm, free_tcp_port) as found, looking(found, Shut(found.pods, "two")):
        for uid in ("one", "two"):
            found.pods.put(grouped(manifest(uid=uid, name=uid, annotations={GANG_SIZE: "2"}), "job"))
        await until(lambda: found.pods.pods["one"].spec.node_name != "")
        (job,) = await found.alive()
        found.pods.put(failed(found.pods.pods["one"], 3))
        await until(lambda: is_over(found, job.job_id))
        over = await found.client.job(job.job_id)

        assert over is not None
        assert (over.state_now.base, over.exit_code.return_code.value) == ("FAILED", 3)
        assert found.pods.pods["two"].spec.node_name == ""


async def test_members_that_share_a_node_and_a_host_port_are_refused_in_words_and_no_job_is_submitted(
    nats: NatsServer, newest: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, newest, free_tcp_port) as found, looking(found):
        for uid in ("one", "two"):
            asked = {GANG_SIZE: "2", "sunk.coreweave.com/gang-members-per-node": "2"}
            pod = manifest(uid=uid, name=uid, annotations=asked)
            (main,) = pod.spec.containers
            main = structs.replace(main, ports=(ContainerPort(host_port=29500),))
            found.pods.put(grouped(structs.replace(pod, spec=structs.replace(pod.spec, containers=(main,)))))
        await until(lambda: found.pods.last_reasons == dict.fromkeys(("one", "two"), "ValidationFailed"))

        assert await found.alive() == []


@pytest.mark.faults
async def test_a_running_pod_whose_job_slurmctld_has_lost_stays_and_gets_another_job_on_its_node(
    nats: NatsServer, hooked: HostSlurm, free_tcp_port: int
) -> None:
    write_epilog(hooked, free_tcp_port)
    async with world(nats, hooked, free_tcp_port) as found, running(found):
        found.pods.put(manifest())
        await until(lambda: found.is_running(UID))
        (before,) = await found.alive()
        where = found.pods.pods[UID].spec.node_name
        lose_state(hooked)
        await until(lambda: found.pods.last_reasons[UID] == "JobLost")

        def is_adopted() -> bool:
            assert not found.pods.pods[UID].is_terminating
            return found.pods.last_reasons[UID] == "JobFound"

        await until(is_adopted)
        await until(lambda: found.is_running(UID))  # It is stored once it is said.
        (after,) = await found.alive()

        assert drained(hooked) == []
        assert (after.nodes, after.state_now.base) == (before.nodes, "RUNNING")
        assert marks.is_started(after.extra)
        assert found.is_running(UID)
        assert found.pods.pods[UID].spec.node_name == where


@pytest.mark.faults
async def test_a_running_pod_whose_job_slurmctld_has_lost_ends_only_when_its_node_is_given_away(
    nats: NatsServer, hooked: HostSlurm, free_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_pod_scheduler.placement.lost_jobs.LEAVES", timedelta(seconds=2))
    write_epilog(hooked, free_tcp_port)
    async with world(nats, hooked, free_tcp_port) as found:
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.is_running(UID))
            (before,) = await found.alive()
        lose_state(hooked)
        hooked.exec("scontrol", "update", f"nodename={before.nodes}", "state=drain", "reason=operator")

        async with running(found):
            await until(lambda: "waits in Slurm" in str(found.placements.get(UID)))
            state = found.placements.get(UID)
            assert state is not None
            # As if that had been for an hour: its node is an operator's, and nobody else's.
            hour_ago = structs.replace(state, lost=now() - timedelta(hours=1))
        writer = StateWriter(found.bus, found.placements, fence=None)
        await writer.record(UID, hour_ago, revision=found.placements.revision(UID))
        await found.scheduler().reconcile(UID)
        assert (found.phase(UID), found.pods.ends) == ("released", {})
        (waiting,) = await found.alive()

        hooked.exec("scontrol", "hold", str(waiting.job_id))
        hooked.exec("scontrol", "update", f"nodename={before.nodes}", "state=resume")
        stranger = int(submit(hooked, "-w", before.nodes, "--exclusive"))
        await until(lambda: is_base(found, stranger, "RUNNING"))
        async with running(found):
            await until(lambda: found.pods.pods[UID].is_terminating)

            assert f"given node {before.nodes} to job {stranger}" in found.pods.ends[UID]
            found.pods.vanish(UID)
            await until(lambda: found.phase(UID) == "")
            assert await is_base(found, stranger, "RUNNING")
            assert await found.alive() == []


@pytest.mark.faults
async def test_a_pod_that_waits_takes_no_node_from_pods_whose_jobs_slurmctld_has_lost(
    nats: NatsServer, hooked: HostSlurm, free_tcp_port: int
) -> None:
    """To Slurm their nodes are empty, and its job, lost too, may be submitted before theirs."""
    write_epilog(hooked, free_tcp_port)
    full = {f"{PREFIX}exclusive": "none"}
    async with world(nats, hooked, free_tcp_port) as found, running(found):
        runs = [f"runs-{index}" for index, _ in enumerate(hooked.node_names)]
        for uid in runs:
            found.pods.put(manifest(uid=uid, name=uid, annotations=full))
            await until(partial(found.is_running, uid))
        found.pods.put(manifest(uid="waits", name="waits", annotations=full))
        await until(lambda: found.phase("waits") == "released")
        lose_state(hooked)

        def are_adopted() -> bool:
            assert not any(found.pods.pods[uid].is_terminating for uid in runs), found.pods.ends
            return all("JobFound" in found.pods.history[uid] and found.is_running(uid) for uid in runs)

        await until(are_adopted, within_s=2 * WITHIN_S)
        assert found.pods.pods["waits"].spec.node_name == ""

        found.pods.put(finished(found.pods.pods[runs[0]]))
        await until(lambda: found.is_running("waits"))
        assert not found.pods.pods[runs[1]].is_terminating


@pytest.mark.faults
async def test_the_next_job_of_a_running_pod_comes_ahead_of_all_that_wait_for_its_node(
    nats: NatsServer, hooked: HostSlurm, free_tcp_port: int
) -> None:
    write_epilog(hooked, free_tcp_port)
    async with world(nats, hooked, free_tcp_port) as found:
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.is_running(UID))
            (before,) = await found.alive()
        lose_state(hooked)
        hooked.exec("scontrol", "update", f"nodename={before.nodes}", "state=drain", "reason=operator")
        whole = ("-w", before.nodes, "--exclusive")
        queue = [int(submit(hooked, *whole)) for _ in range(3)]  # Older than the Pod's next job.
        urgent = int(submit(hooked, *whole, "--priority=4000000000"))

        async with running(found):
            await until(lambda: "waits in Slurm" in str(found.placements.get(UID)))
            (waiting,) = await found.alive()
            assert waiting.priority.value == 4_294_967_293
            hooked.exec("scontrol", "update", f"nodename={before.nodes}", "state=resume")
            await until(lambda: found.pods.last_reasons[UID] == "JobFound")
            await until(lambda: found.is_running(UID))
            (after,) = await found.alive()

            assert (after.job_id, after.nodes) == (waiting.job_id, before.nodes)
            assert found.pods.ends == {}
            assert [await is_base(found, job, "PENDING") for job in (*queue, urgent)] == [True] * 4
            for job in (*queue, urgent):
                await found.client.cancel_job(job)


MOST = 200
"""Pods of a crowd."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def roomy(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A Slurm with room for a crowd on its first nodes, and for strangers on the last."""
    nodes = NodeRange(count=3, first_port=0, cpus=MOST // 2, memory_mib=100_000)
    with running_slurm(request.param, nodes=nodes, more=("Epilog=/lab/etc/epilog",)) as found:
        yield found


@asynccontextmanager
async def crowded(found: World, kube: KubeClient, namespace: str) -> AsyncGenerator[PodStore]:
    """Run a scheduler of Pods on the API server, of which no kubelet knows."""
    for name in found.names:
        await kube.create(NODES, {"metadata": {"name": f"kube-{name}"}})
    watched = Reflector(kube, PODS, namespace=namespace, fields="spec.schedulerName=sunk-crowd")
    nodes, recorder = Reflector(kube, NODES), EventRecorder(kube)
    pods = PodStore(kube, [watched], nodes, recorder, [watched.index(keys_of(KEY))])
    scheduler = found.scheduler(pods=pods)
    loop, sweep = KeyLoop("pods", scheduler.reconcile), KeyLoop("strays", found.sweeper(pods).sweep)
    found.enqueue, found.rest_s = loop.enqueue, 1.0
    try:
        async with anyio.create_task_group() as tasks:
            for run in (watched.run, nodes.run, recorder.run):
                tasks.start_soon(run)
            await watched.complete()
            await nodes.complete()
            tasks.start_soon(found.play_syncer)
            tasks.start_soon(partial(loop.run, pods.changes(), found.placements.changes()))
            tasks.start_soon(partial(sweep.run, found.slurm_jobs.changes()))
            tasks.start_soon(serve_http, "127.0.0.1", found.port, Health(), found.routes())
            yield pods
            tasks.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(10, shield=True):
            for name in found.names:
                await kube.delete(NODES, f"kube-{name}")


async def make_crowd(kube: KubeClient, namespace: str, kept_off: str, crowd: int) -> list[str]:
    """Make *crowd* Pods that tolerate that their Nodes have no kubelet; return their uids."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}
    spec = {
        "schedulerName": "sunk-crowd",
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    uids: list[str] = []

    async def make(number: int) -> None:
        meta = {"name": f"pod-{number}", "annotations": {"sunk.coreweave.com/excluded-nodes": kept_off}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        while True:
            try:
                made = await kube.create(PODS, body, namespace)
            except KubeRejectedError:  # A new namespace has no default ServiceAccount for a moment.
                await anyio.sleep(0.1)
            else:
                uids.append(made.metadata.uid)
                return

    await each(range(crowd), make)
    return uids


@pytest.mark.faults
@pytest.mark.timeout(800)
@pytest.mark.parametrize("crowd", [40, pytest.param(MOST, marks=pytest.mark.nightly)])
async def test_a_crowd_of_pods_outlives_a_slurmctld_that_lost_its_state_and_touches_no_strangers_job(  # noqa: PLR0917 - fixtures
    nats: NatsServer, roomy: HostSlurm, kube: KubeClient, namespace: str, free_tcp_port: int, crowd: int
) -> None:
    write_epilog(roomy, free_tcp_port)
    *_, last = roomy.node_names
    async with world(nats, roomy, free_tcp_port) as found, crowded(found, kube, namespace) as pods:
        uids = await make_crowd(kube, namespace, last, crowd)

        def bound() -> dict[str, int]:
            states = [found.placements.get(uid) for uid in uids]
            told = [one for one in states if one is not None and one.phase == "bound" and one.lost is None]
            return {one.uid: one.job for one in told if one.job is not None}

        await until(lambda: len(bound()) == crowd, within_s=240.0)
        before = bound()
        where = {uid: (uid, job.nodes) for job in await found.alive() for uid in whose(job)}
        lose_state(roomy)
        strangers = submit_strangers(roomy, last, crowd * 3 // 5)
        assert len(strangers & set(before.values())) > crowd // 8

        def are_followed() -> bool:
            assert [found.placements.get(uid) for uid in leaving(pods, uids)] == []
            states = [found.placements.get(uid) for uid in bound()]
            return sum(one is not None and one.attempt > 0 for one in states) == crowd

        await until(are_followed, within_s=240.0)
        await are_untouched(found, strangers)
        after, jobs = bound(), {job.job_id: job for job in await found.alive()}
        assert {uid: (*whose(jobs[job]), jobs[job].nodes) for uid, job in after.items()} == where
        assert len(set(after.values())) == len(jobs) == crowd
        assert drained(roomy) == []

        gone = [*bound()][: crowd // 10]
        for uid in gone:
            pod = pods.watched(uid)
            assert pod is not None
            await kube.delete(PODS, pod.metadata.name, namespace, grace_period_s=0)
        await until(lambda: all(found.placements.get(uid) is None for uid in gone), within_s=120.0)
        await are_untouched(found, strangers)
        roomy.exec("scancel", *(str(number) for number in strangers))


def leaving(pods: PodStore, uids: list[str]) -> list[str]:
    """Return which of the Pods are gone, or about to go."""
    there = {uid: pods.watched(uid) for uid in uids}
    return [uid for uid, pod in there.items() if pod is None or pod.is_terminating]


def whose(job: Job) -> list[str]:
    """Return the uid of the Pod whose placeholder *job* is."""
    mark = marks.read_extra(KEY, job.extra, job.user_id)
    return [] if mark is None else [mark.uid]


def drained(slurm: HostSlurm) -> list[str]:
    """Return which nodes Slurm starts nothing on any more, and why."""
    return slurm.exec("sinfo", "-h", "-N", "-t", "drain,draining,drained", "-o", "%N: %E").splitlines()


def submit_strangers(slurm: HostSlurm, node: str, count: int) -> set[int]:
    """Submit *count* jobs that are nobody's placeholders once slurmctld answers; return their numbers."""
    wrap = f"sbatch --parsable -w {node} --mem=1 -o /dev/null --wrap 'exec sleep 600'"
    wait = "until scontrol ping | grep -q UP; do sleep 0.1; done"
    script = f"{wait}; for _ in {{1..{count}}}; do {wrap}; done"
    return {int(number) for number in slurm.exec("bash", "-c", script).split()}


async def are_untouched(found: World, strangers: set[int]) -> None:
    """Hold that nobody has ended strangers' jobs, or written to them."""
    for number in strangers:
        job = await found.client.job(number)
        assert job is not None
        assert (job.name, job.extra, job.hold) == ("wrap", "", False)
        assert job.state_now.base in {"RUNNING", "PENDING"}


def lose_state(slurm: HostSlurm, *, everything: bool = False) -> None:
    """Have slurmctld come back without a single job; *everything*: as with an empty volume."""
    shown = slurm.exec("scontrol", "show", "config")
    folder = next(
        line.split("=")[1].strip() for line in shown.splitlines() if line.startswith("StateSaveLocation")
    )
    slurm.kill_daemon("slurmctld")
    lost = ("*",) if everything else ("job_state*", "last_job_id", "hash.*")
    slurm.exec("sh", "-c", "rm -rf " + " ".join(f"{folder}/{name}" for name in lost))
    slurm.start_daemon("slurmctld")


@asynccontextmanager
async def accounting(found: World, slurm: HostSlurm) -> AsyncGenerator[SlurmAccounting]:
    """Have schedulers ask accounting."""
    async with SlurmAccounting(slurm.url, KeyTokens(slurm.jwt_key)) as opened:
        found.accounting = opened
        yield opened


async def records(asked: SlurmAccounting, job: int) -> tuple[AccountedJob, ...]:
    return await asked.jobs(job, timeout_s=10)


@pytest.mark.faults
async def test_a_pod_whose_job_ended_and_was_forgotten_while_nobody_looked_ends_as_accounting_says(
    nats: NatsServer, accounted: HostSlurm, free_tcp_port: int
) -> None:
    """Accounting has the job's Extra once it has ended, and not before: it comes with the end."""
    async with world(nats, accounted, free_tcp_port) as found:
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.is_running(UID))
            (job,) = await found.alive()
        accounted.exec("scancel", str(job.job_id))
        await until(partial(is_forgotten, found, job.job_id), within_s=180.0)
        await look_anew(found)
        assert (found.pods.last_reasons[UID], found.pods.pods[UID].is_terminating) == ("JobLost", False)

        async with accounting(found, accounted) as asked:
            await until(partial(are_noted, asked, job.job_id, "CANCELLED"))
        async with accounting(found, accounted) as asked, running(found):
            (record,) = await records(asked, job.job_id)
            assert record.kill_request_user == "root"
            assert record.extra.endswith(marks.STARTED)
            assert record.submitted == job.submit_time
            await until(lambda: found.pods.pods[UID].is_terminating)

            assert found.pods.ends[UID].endswith(f"job {job.job_id} has ended, and Slurm has forgotten it")
            found.pods.vanish(UID)
            await until(lambda: found.phase(UID) == "")


async def test_the_end_of_a_pod_names_its_job_the_cause_and_who_cancelled_it(
    nats: NatsServer, accounted: HostSlurm, free_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_history, "WHO_S", WITHIN_S)
    async with (
        world(nats, accounted, free_tcp_port) as found,
        accounting(found, accounted) as asked,
        running(found),
    ):
        jobs, cancelled = asked.jobs, set[int]()

        async def once_noted(job: int, *, timeout_s: float) -> tuple[AccountedJob, ...]:
            """Answer what is asked once as if slurmdbd had kept pace."""
            while True:
                answer = await jobs(job, timeout_s=timeout_s)
                if job not in cancelled or any(one.state_now.base == "CANCELLED" for one in answer):
                    return answer
                await anyio.sleep(0.02)

        monkeypatch.setattr(asked, "jobs", once_noted)
        for user in ("root", "sunk"):
            found.pods.put(manifest(uid=user, name=user))
            await until(partial(found.is_running, user))
            (job,) = await found.alive()
            cancelled.add(job.job_id)
            accounted.exec("setpriv", "--reuid", user, "--clear-groups", "scancel", str(job.job_id))
            await until(lambda user=user: found.pods.pods[user].is_terminating)

            cause = f"job {job.job_id} was cancelled (scancel): it is CANCELLED"
            assert found.pods.ends[user].endswith(f"{cause}, by Slurm user {user}")
            found.pods.vanish(user)
            await until(lambda user=user: found.phase(user) == "")


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_pod_whose_job_was_forgotten_while_one_that_came_after_it_is_there_ends_without_accounting(
    nats: NatsServer, forgetful: HostSlurm, free_tcp_port: int
) -> None:
    async with world(nats, forgetful, free_tcp_port) as found:
        forgetful.exec("scontrol", "update", "PartitionName=main", "State=DOWN")
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.phase(UID) == "released")
            await anyio.sleep(2.0)  # Slurm's moments are whole seconds.
            submit(forgetful, "--hold")
            await anyio.sleep(APART_S)
            forgetful.exec("scontrol", "update", "PartitionName=main", "State=UP")
            await until(lambda: found.is_running(UID))
            (job,) = await found.alive()
        forgetful.exec("scancel", str(job.job_id))
        await until(partial(is_forgotten, found, job.job_id), within_s=180.0)
        await look_anew(found)
        assert not found.pods.pods[UID].is_terminating

        async with running(found):
            await until(lambda: found.pods.pods[UID].is_terminating)

            said = found.pods.ends[UID]
            assert f"Slurm does not know job {job.job_id} any more, and knows one that came after it" in said
            assert [one.job_id for one in await found.ours()] == []  # No other was submitted for it.
            found.pods.vanish(UID)
            await until(lambda: found.phase(UID) == "")


async def look_anew(found: World) -> None:
    """Have a new leader look at the Pod's job, as what the bus says of it is old."""
    await found.say_answered(now() - timedelta(minutes=10))
    await found.scheduler().reconcile(UID)


async def is_forgotten(found: World, job: int) -> bool:
    return await found.client.job(job) is None


@pytest.mark.faults
@pytest.mark.parametrize("name", ["train", "default/infer"], ids=["of another name", "of the same name"])
async def test_accountings_record_of_a_job_that_slurmctld_lost_and_one_of_its_number_anew_end_no_pod(
    nats: NatsServer, accounted: HostSlurm, free_tcp_port: int, name: str
) -> None:
    """What slurmdbd says after slurmctld has started without its state.

    24.11 has noted every job that was not over as CANCELLED, by nobody, without its Extra; so has 26.05, but
    only where it was started with ``-c``: else it leaves them RUNNING for ever. Neither writes NODE_FAIL.
    """
    async with world(nats, accounted, free_tcp_port) as found:
        async with running(found):
            found.pods.put(manifest())
            await until(lambda: found.is_running(UID))
            (before,) = await found.alive()
        lose_state(accounted, everything=True)
        async with accounting(found, accounted) as asked:
            noted = "RUNNING" if accounted.release is SLURM_26_05 else "CANCELLED"
            await until(partial(are_noted, asked, before.job_id, noted))
            (record,) = await records(asked, before.job_id)
            assert (record.kill_request_user, record.extra) == ("", "")
            await look_anew(found)
            assert (found.pods.last_reasons[UID], found.pods.pods[UID].is_terminating) == ("JobLost", False)

            other = next(node for node in accounted.node_names if node != before.nodes)
            await until(lambda: "idle" in accounted.exec("sinfo", "-h", "-n", other, "-o", "%T"))
            stranger = int(submit(accounted, f"--job-name={name}", f"--nodelist={other}", "--uid=sunk"))
            assert stranger == before.job_id  # Numbers are given anew.
            await until(lambda: is_base(found, stranger, "RUNNING"))
            accounted.exec("scancel", str(stranger))
            await until(partial(are_noted, asked, before.job_id, noted, "CANCELLED"))
            async with running(found):

                def is_adopted() -> bool:
                    assert not found.pods.pods[UID].is_terminating, found.pods.ends
                    return found.pods.last_reasons[UID] == "JobFound"

                await until(is_adopted)
                await until(lambda: found.is_running(UID))
                (after,) = await found.alive()

                assert (after.nodes, after.state_now.base) == (before.nodes, "RUNNING")


async def are_noted(asked: SlurmAccounting, job: int, *bases: str) -> bool:
    """Whether accounting has records of the number *job* in these states, in the order of submission."""
    found = sorted(await records(asked, job), key=lambda record: record.time.submission)
    return tuple(record.state_now.base for record in found) == bases
