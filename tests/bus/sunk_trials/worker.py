# pyright: reportUnknownMemberType=false
"""A process of a trial: counts things as a service of ours would, or reads what others counted.

Each key has a number, kept as state on the bus alone. To count is to read the state, publish the fact that
names its revision and store the next number: a killed process goes on where the bus says it was.
"""

import os
import resource
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from nats.js.api import ConsumerConfig

from sunk_events.base import Event, Reply, event_id, source
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import Noted, NudgeNode
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import BusLease, Leadership, lead
from sunk_runtime.lifecycle import run
from sunk_runtime.requests import answering, ask_until
from sunk_runtime.settle import FactConsumer
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_trials.watched import Journal, Trap, Watched, number_of
from sunk_trials.words import Line, Order, Report, WorkerSettings

CLUSTER: Final = "c1"
FACTS_MAX_BYTES: Final = 256 << 20
ASK_S: Final = 60.0
"""How long a question is asked again; far more than any fault of a trial lasts."""


def settings_of(url: str, replicas: int) -> BusSettings:
    """Return how each process of a trial connects."""
    return BusSettings(url=url, replicas=replicas, facts_max_bytes=FACTS_MAX_BYTES)


class Quick(FactConsumer):
    """The chassis' consumer, to which the server delivers again sooner."""

    ack_wait_s: float

    def _config(self) -> ConsumerConfig:
        return super()._config().evolve(ack_wait=self.ack_wait_s)


class Worker:
    """One process: its bus, its view, and what it counted of itself."""

    def __init__(self, settings: WorkerSettings, bus: Bus) -> None:
        self.settings = settings
        self.journal = Journal(Path(settings.journal))
        self.trap = Trap()
        self.bus = Watched(bus, self.journal, self.trap)
        self.view = StateView(self.bus, CLUSTER, SlurmNodeState)
        self.is_resting = False
        self.writing = 0
        self.writes = self.seen = self.answers = self.errors = 0
        self._writer = StateWriter(self.bus, self.view, fence=None)

    async def count(self, key: str) -> None:
        """Count *key* once more."""
        if self.is_resting:
            return
        self.writing += 1
        try:
            await self._count(key, "")
        except SunkError:
            self.errors += 1
            raise
        finally:
            self.writing -= 1

    async def _count(self, key: str, token: str) -> None:
        revision = self.view.revision(key)
        number = str(number_of(self.view.get(key)) + 1)
        moment = now()
        fact = NodeDrained(
            id=event_id("node_drained", key, revision),
            source=source(CLUSTER, self.settings.name),
            subject=key,
            time=moment,
            data=NodeSnapshot(node=key, state=token or "IDLE", reason=number),
        )
        state = SlurmNodeState(node=key, state=token or "IDLE", reason=number, changed=moment)
        await self._writer.record(key, state, [fact], revision=revision)
        self.writes += 1

    async def count_for_ever(self) -> None:
        """Count each key in turn, so many times a second all together."""
        loop = KeyLoop("trial", self.count)
        await self.view.complete()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run)
            turn = 0
            while True:
                await anyio.sleep(1 / self.settings.writes_per_s)
                if not self.is_resting:
                    loop.enqueue(f"{self.settings.name}.{turn % self.settings.keys}")
                turn += 1

    async def lead_and_count(self, leadership: Leadership) -> None:
        """Count one key as fast as it goes, each time only while we lead."""
        self._writer = StateWriter(self.bus, self.view, fence=leadership)
        await self.view.complete()
        while True:
            await anyio.sleep(0.005)
            leadership.check()
            try:
                await self._count("led", str(leadership.token))
            except SunkError:
                self.errors += 1

    async def contend(self) -> None:
        """Lead whenever nobody else does."""
        name = self.settings.name
        lease = BusLease(self.bus, CLUSTER, "trial", name, ttl_s=self.settings.lease_ttl_s)
        while True:
            try:
                await lead(lease, self.lead_and_count)
            except* TransientError:
                self.errors += 1

    async def see(self, event: Event) -> None:
        """Note a fact that was delivered."""
        number = int(event.data.reason) if isinstance(event, NodeDrained) else 0
        self.seen += 1
        self.journal.add(Line(what="seen", key=event.subject, number=number, id=event.id))

    async def ask_for_ever(self) -> None:
        """Ask so many questions a second."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(1 / self.settings.asks_per_s)
                tasks.start_soon(self._ask)

    async def _ask(self) -> None:
        try:
            await ask_until(self.bus, CLUSTER, NudgeNode(node="n1"), deadline=anyio.current_time() + ASK_S)
        except SunkError:
            self.errors += 1
        else:
            self.answers += 1

    async def answer(self, _: NudgeNode) -> Reply:
        """Answer a question."""
        self.answers += 1
        return Noted()

    def report(self) -> Report:
        """Return how this process is."""
        return Report(
            is_resting=self.is_resting and not self.writing,
            is_complete=self.view.is_complete,
            view={key: (number_of(self.view.get(key)), self.view.revision(key)) for key in self.view.keys()},  # noqa: SIM118 - a view is no dictionary
            rss_kib=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024,
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            tasks=len(anyio.get_running_tasks()),
            writes=self.writes,
            seen=self.seen,
            answers=self.answers,
            errors=self.errors,
        )

    async def obey(self) -> None:
        """Carry out the orders on standard input until it ends, which ends the process."""
        async for line in _lines(sys.stdin.fileno()):
            order = msgspec.json.decode(line, type=Order)
            if order.say == "kill":
                self.trap.set(order)
            if order.say == "rest":
                self.is_resting = True
            os.write(1, msgspec.json.encode(self.report()) + b"\n")

    def start(self, tasks: TaskGroup) -> None:
        """Start what this process is for."""
        match self.settings.role:
            case "writer":
                tasks.start_soon(self.count_for_ever)
            case "contender":
                tasks.start_soon(self.contend)
            case "consumer":
                consumer = Quick(self.bus, CLUSTER, "trial", self.see)
                consumer.ack_wait_s = self.settings.ack_wait_s
                tasks.start_soon(consumer.run)
        if self.settings.asks_per_s:
            tasks.start_soon(self.ask_for_ever)


async def _lines(file: int) -> AsyncGenerator[bytes]:
    """Read lines without a thread, which could not be cancelled."""
    rest = b""
    while True:
        await anyio.wait_readable(file)
        more = os.read(file, 65536)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield line


async def work(settings: WorkerSettings) -> None:
    """Be the process that *settings* describe until standard input ends."""
    bus_settings = settings_of(settings.url, settings.replicas)
    async with connect(bus_settings, settings.name) as bus:
        worker = Worker(settings, bus)
        async with following(worker.view), anyio.create_task_group() as tasks:
            if settings.is_answering:
                await tasks.start(_answer, worker)
            worker.start(tasks)
            await worker.obey()
            tasks.cancel_scope.cancel()


async def _answer(worker: Worker, *, task_status: TaskStatus[None]) -> None:
    async with answering(worker.bus, CLUSTER, NudgeNode, worker.answer):
        task_status.started()
        await anyio.sleep_forever()


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    run(f"trial-{given.name}", lambda: work(given))
