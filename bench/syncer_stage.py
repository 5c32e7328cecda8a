"""What the syncer is measured on: a real slurmctld, a real NATS and the syncer between them."""

import argparse
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from figures import Usage
from msgspec.structs import replace
from waiting import until

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.codec import decode_event
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import NodeDrained, SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_lab.config import from_environment
from sunk_lab.nats import NatsServer
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import release_of
from sunk_runtime.jetstream import Bus, BusSettings, Message, connect
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_slurm.submission import JobDescription
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.testing.process import SyncerProcess
from sunk_syncer.testing.stage import CLUSTER

WITHIN_S: Final = 300.0
_LINES_SHOWN: Final = 20
"""Of the syncer's log, when a run fails."""

JOB: Final = JobDescription(
    script="#!/bin/bash\nexit 0\n",
    environment=("PATH=/usr/bin:/bin",),
    current_working_directory="/",
    standard_output="/dev/null",
    standard_error="/dev/null",
    partition="main",
    name="bench",
)


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    slurmd: int
    jobs: int
    rounds: int
    seconds: float
    only: list[str] | None
    slurm: str


@dataclass
class Stage:
    """What is measured, and with what."""

    sizes: Sizes
    slurm: HostSlurm
    syncer: SyncerProcess
    client: SlurmClient
    bus: Bus
    nodes: StateView[SlurmNodeState]
    jobs: StateView[SlurmJobState]
    pods: StateWriter[KubePodState]
    facts: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When the fact of a kind about something came last."""

    def note(self, fact: Event) -> None:
        """Remember when *fact* came."""
        self.facts[type(fact).__name__, fact.subject] = time.perf_counter()

    async def fact_ms(self, kind: type[Event], subject: str, began: float) -> float:
        """Wait for a fact that came after *began* and return how long it took."""
        key = kind.__name__, subject
        await until(lambda: self.facts.get(key, 0) > began, within_s=WITHIN_S)
        return (self.facts[key] - began) * 1000

    @property
    def records(self) -> tuple[str, ...]:
        """Nodes that nothing but us changes."""
        return self.slurm.record_names or self.slurm.node_names


class Usages:
    """The usage of all that works while we measure."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._of: dict[str, Usage] = {}
        if stage.syncer.is_running():
            self._of["syncer"] = Usage(stage.syncer.pid)
        for daemon in ("slurmrestd", "slurmctld"):
            if (pid := stage.slurm.pid_of(daemon)) is not None:
                self._of[daemon] = Usage(pid)
        self._of["bench"] = Usage(os.getpid())

    @classmethod
    async def begin(cls, stage: Stage) -> tuple["Usages", dict[str, int]]:
        """Return the usages from now on, and the lists asked for so far."""
        return cls(stage), await lists(stage)

    async def figures(self, lists_before: dict[str, int]) -> dict[str, float]:
        """Return what was used, and how many lists were asked for."""
        after = await lists(self._stage)
        asked = {name: float(after[name] - lists_before[name]) for name in after}
        return {
            key: value for who, one in self._of.items() for key, value in one.figures(who).items()
        } | asked


async def lists(stage: Stage) -> dict[str, int]:
    """Return how many lists, and single nodes and jobs, slurmctld was asked for."""
    diag = await stage.client.diag()
    counts = {rpc.message_type: rpc.count for rpc in diag.rpcs_by_message_type}
    return {
        "node_lists": counts.get("REQUEST_NODE_INFO", 0),
        "job_state_lists": counts.get("REQUEST_JOB_STATE", 0),
        "full_job_lists": counts.get("REQUEST_JOB_INFO", 0),
        "node_looks": counts.get("REQUEST_NODE_INFO_SINGLE", 0),
        "job_looks": counts.get("REQUEST_JOB_INFO_SINGLE", 0),
    }


async def fill_queue(client: SlurmClient, jobs: int) -> None:
    """Submit held jobs, several at a time."""
    left = iter(range(jobs))

    async def submit() -> None:
        for _ in left:
            await client.submit_job(replace(JOB, hold=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(submit)


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path) -> AsyncGenerator[Stage]:
    """Start everything but the syncer."""
    slurm = HostSlurm(
        release_of(sizes.slurm),
        folder / "slurm",
        cache=from_environment().cache,
        report=lambda line: print(line, file=sys.stderr, flush=True),
        nodes=sizes.slurmd,
        records=sizes.nodes - sizes.slurmd,
        more=(f"MaxJobCount={sizes.jobs + 50_000}",),
    )
    try:
        slurm.start()
        with NatsServer(folder / "nats") as nats:
            settings = BusSettings(url=nats.url)
            async with (
                connect(settings, "bench") as bus,
                SlurmClient(slurm.url, KeyTokens(slurm.jwt_key), timeout_s=60.0) as client,
            ):
                await bus.provision(CLUSTER, settings)
                await fill_queue(client, sizes.jobs)
                syncer = SyncerProcess(
                    folder,
                    cluster=CLUSTER,
                    nats_url=nats.url,
                    slurm_url=slurm.url,
                    slurm_key_file=str(slurm.jwt_key),
                )
                async with _watched(sizes, slurm, syncer, client, bus) as stage:
                    yield stage
    finally:
        slurm.stop()


@asynccontextmanager
async def _watched(
    sizes: Sizes, slurm: HostSlurm, syncer: SyncerProcess, client: SlurmClient, bus: Bus
) -> AsyncGenerator[Stage]:
    pods = StateView(bus, CLUSTER, KubePodState)
    nodes, jobs = StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, SlurmJobState)
    stage = Stage(sizes, slurm, syncer, client, bus, nodes, jobs, StateWriter(bus, pods, fence=None))

    async def note(message: Message) -> None:
        stage.note(decode_event(message.data))

    async with following(nodes, jobs, pods), bus.subscribed(subjects.facts(CLUSTER, NodeDrained), note):
        await pods.complete()
        try:
            yield stage
        except BaseException:
            for line in syncer.log[-_LINES_SHOWN:]:
                print(line, file=sys.stderr)
            raise
        finally:
            syncer.close()
