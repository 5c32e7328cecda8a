# pyright: reportUnknownMemberType=false
"""The processes of a trial as their director holds them, and what the streams hold when it is over."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import Signals
from typing import Final, Self, TypeVar, cast

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig, StreamSource

from sunk_events import subjects
from sunk_events.codec import decode_event, decode_state
from sunk_events.nodes import NodeDrained, SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_runtime.errors import BusUnavailableError, PermanentError, SunkError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.pull import create_consumer, pulling
from sunk_trials.verdict import StoredFact, StoredState
from sunk_trials.watched import number_of
from sunk_trials.words import Line, Order, Report, WorkerSettings
from sunk_trials.worker import CLUSTER

FACTS: Final = subjects.fact_stream(CLUSTER)
STATES: Final = subjects.bucket_stream(subjects.bucket(CLUSTER, SlurmNodeState))
WITNESS: Final = "TRIAL_WITNESS"
"""A mirror of the bucket that keeps what the bucket forgets."""
_ANSWER_S: Final = 120.0
"""A machine that runs other trials beside this one takes its time to start a process."""


class GoneError(Exception):
    """The process has ended."""


class Actor:
    """One process of a trial."""

    def __init__(self, settings: WorkerSettings, process: Process) -> None:
        self.settings = settings
        self._process = process
        out = process.stdout
        assert out is not None
        self._answers = BufferedByteReceiveStream(out)

    @property
    def pid(self) -> int:
        """Its pid, whether it runs or not."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.returncode is None

    async def order(self, order: Order) -> Report:
        """Give it an order and return its answer.

        Raises:
            GoneError: It has ended.
        """
        to = self._process.stdin
        assert to is not None
        try:
            with anyio.fail_after(_ANSWER_S):
                await to.send(msgspec.json.encode(order) + b"\n")
                answer = await self._answers.receive_until(b"\n", 1 << 22)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise GoneError(self.settings.name) from error
        return msgspec.json.decode(answer, type=Report)

    async def report(self) -> Report:
        """Ask it how it is."""
        return await self.order(Order(say="report"))

    async def ended(self) -> int:
        """Return its exit code once it has ended."""
        return await self._process.wait()

    def signal(self, number: Signals) -> None:
        """Send it a signal; having ended is success."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


@asynccontextmanager
async def acting(settings: WorkerSettings) -> AsyncGenerator[Actor]:
    """Run a process while the context lasts; it is killed at the end."""
    argument = msgspec.json.encode(settings).decode()
    with Path(settings.journal).with_suffix(".log").open("ab") as log:
        process = await anyio.open_process(
            [sys.executable, "-m", "sunk_trials.worker", argument], stderr=log, cwd=Path(__file__).parents[1]
        )
    try:
        yield Actor(settings, process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()


class Site:
    """One NATS or three, with the same words for both."""

    def __init__(self, folder: Path, size: int = 1, *, extra: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = NatsCluster(folder / "nats", extra=extra) if size > 1 else None
        alone = [] if self.cluster else [NatsServer(folder / "nats", extra=extra)]
        self.servers = self.cluster.servers if self.cluster else alone
        self.replicas: Final = size

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return ",".join(server.url for server in self.servers)

    def start(self) -> None:
        """Start all that do not run, and return when JetStream answers."""
        for server in self.servers:
            server.start()
        if self.cluster:
            self.cluster.start()

    def kill(self) -> None:
        """End all."""
        for server in self.servers:
            server.kill()

    async def leader(self, bus: Bus, stream: str) -> NatsServer:
        """Return the server that leads *stream*."""
        cluster = (await bus.js.stream_info(stream)).cluster
        name = (cluster and cluster.leader) or "n0"
        return self.servers[int(name[1:]) if self.cluster else 0]


T = TypeVar("T")


async def tried(ask: Callable[[], Awaitable[T]], *, within_s: float = 30.0) -> T:
    """Ask JetStream until it answers: a cluster that lost a server needs seconds."""
    with anyio.fail_after(within_s):
        while True:
            try:
                return await ask()
            except PermanentError:
                raise
            except SunkError:
                await anyio.sleep(0.1)


async def witness(bus: Bus, replicas: int) -> None:
    """Keep every state that is ever stored."""
    config = StreamConfig(
        name=WITNESS, mirror=StreamSource(STATES), storage=StorageType.FILE, num_replicas=replicas
    )
    await tried(lambda: bus.js.add_stream(config))


async def stored_facts(bus: Bus) -> list[StoredFact]:
    """Return what the stream of facts holds, in its order."""
    return [_fact(message, at_ns) for message, at_ns, _ in await _read(bus, FACTS)]


async def stored_states(bus: Bus) -> list[StoredState]:
    """Return every state that the witness saw stored, and those that it has yet to see, in order."""
    found = {seq: _state(message, at_ns, seq) for message, at_ns, seq in await _read(bus, WITNESS)}
    found |= {seq: _state(message, at_ns, seq) for message, at_ns, seq in await _read(bus, STATES)}
    return [found[seq] for seq in sorted(found)]


async def bucket(bus: Bus) -> dict[str, tuple[int, int]]:
    """Return number and revision of each key, as the bucket's leader has them."""
    states = [_state(message, at_ns, seq) for message, at_ns, seq in await _read(bus, STATES)]
    return {state.key: (state.number, state.revision) for state in states}


async def _read(bus: Bus, stream: str) -> list[tuple[Message, int, int]]:
    """Return each message of *stream* with its time and sequence; one try after the other."""
    with anyio.fail_after(60):
        while True:
            try:
                return await _read_once(bus, stream)
            except SunkError:
                await anyio.sleep(0.2)


async def _read_once(bus: Bus, stream: str) -> list[tuple[Message, int, int]]:
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True, num_replicas=1)
    # Of three servers the consumer may sit on one that lags; what there is to read, the leader says.
    wanted = (await bus.js.stream_info(stream)).state.last_seq
    consumer, pending = await create_consumer(bus, stream, config)
    found: list[tuple[Message, int, int]] = []
    async with pulling(bus, stream, consumer) as pull:
        while pending:
            for message in await pull.batch():
                at = message.metadata
                pending = at.num_pending
                found.append((message, round(at.timestamp.timestamp() * 1e9), at.sequence.stream))
    await bus.js.delete_consumer(stream, consumer)
    if stream != WITNESS and (found[-1][2] if found else 0) < wanted:
        raise BusUnavailableError(f"{stream} was read from a server that lags")
    return found


def _fact(message: Message, at_ns: int) -> StoredFact:
    fact = cast("NodeDrained", decode_event(message.data))
    number, token = int(fact.data.reason), fact.data.state
    return StoredFact(id=fact.id, key=fact.subject, number=number, at_ns=at_ns, token=token)


def _state(message: Message, at_ns: int, revision: int) -> StoredState:
    state = decode_state(SlurmNodeState, message.data)
    return StoredState(
        key=state.node, number=number_of(state), revision=revision, at_ns=at_ns, token=state.state
    )


def noted(journals: Iterable[Path]) -> list[Line]:
    """Return the lines of *journals*, but for a last one that was cut short."""
    there = [path for path in journals if path.exists()]
    return [
        msgspec.json.decode(raw, type=Line) for path in there for raw in path.read_bytes().split(b"\n")[:-1]
    ]
