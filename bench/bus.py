# pyright: reportUnknownMemberType=false
"""The bus through the chassis, each figure beside bare nats-py on the same server in the same run.

Results: ``bus.publish``, ``bus.consume``, ``bus.view``, ``bus.request`` and ``bus.kill_recovery``; keys that
begin with ``bare`` are nats-py's own. ``cpu_us`` is this process' processor time a message: on a busy machine
it says more than the rate. A result was checked before it is printed (nothing lost, order per key kept, views
equal to the bucket); what does not hold ends the run.
"""

import argparse
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import nats
from figures import Stopwatch, emit, latencies, longest_stall, percentiles, require
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.kv import KeyValue
from waiting import until

from sunk_events import subjects
from sunk_events.base import Event, event_id
from sunk_events.codec import encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, NodeUndrained, SlurmNodeState
from sunk_events.requests import ConfirmNode, NodeConfirmed
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.requests import answering, ask
from sunk_runtime.settle import FactConsumer
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import publish

CLUSTER: Final = "bench"
STREAM: Final = subjects.fact_stream(CLUSTER)
BUCKET: Final = subjects.bucket(CLUSTER, SlurmNodeState)
IN_FLIGHT: Final = 256
WITHIN_S: Final = 120.0
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Sizes(argparse.Namespace):
    """How much is measured."""

    facts: int
    nodes: int
    keys: int
    requests: int
    views: int
    sync: str


def node_name(number: int) -> str:
    """Return a NodeName."""
    return f"gpu-{number:05}"


def fact(number: int, nodes: int) -> Event:
    """Return the *number*-th fact. One node's facts alternate between two subjects."""
    kind = NodeUndrained if number // nodes % 2 else NodeDrained
    node = node_name(number % nodes)
    return kind(
        id=event_id("bench", node, number),
        source=f"/{CLUSTER}/bench",
        subject=node,
        time=NOW,
        data=NodeSnapshot(node=node, state="IDLE", flags=("DRAIN",), reason="k8s: cordon: bench"),
    )


def state(number: int) -> SlurmNodeState:
    """Return the state of the *number*-th node."""
    return SlurmNodeState(
        changed=NOW,
        node=node_name(number),
        state="MIXED",
        flags=("DYNAMIC_NORM",),
        cpus=128,
        cpus_allocated=number % 128,
        memory_mib=2_000_000,
        gpus=8,
        partitions=("gpu",),
        address=f"10.0.{number >> 8}.{number & 255}",
    )


async def at_once(numbers: Iterable[int], deed: Callable[[int], Awaitable[object]]) -> None:
    """Do *deed* for each number in order, `IN_FLIGHT` of them at once."""
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            await deed(number)

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(work)


async def bench_publish(bus: Bus, bare: Client, sizes: Sizes) -> None:
    """Store facts, acknowledged; they are what `bench_consume` reads."""
    js = bare.jetstream()
    facts = [fact(number, sizes.nodes) for number in range(sizes.facts)]

    async def bare_publish(number: int) -> None:
        event = facts[number]
        headers = {"Nats-Msg-Id": event.id}
        await js.publish(f"bare.{event.subject}", encode(event), headers=headers)

    await js.add_stream(name="BARE", subjects=["bare.>"])
    watch = Stopwatch()
    await at_once(range(sizes.facts), bare_publish)
    bare_figures = watch.figures(sizes.facts, "bare_")

    watch = Stopwatch()
    await at_once(range(sizes.facts), lambda number: publish(bus, CLUSTER, facts[number]))
    figures = watch.figures(sizes.facts)

    stored = (await bus.js.stream_info(STREAM)).state.messages
    require(holds=stored == sizes.facts, claim="each acknowledged fact is stored once")
    emit("bus.publish", sizes.facts, figures, bare_figures)


async def bench_consume(bus: Bus, bare: Client, sizes: Sizes) -> None:
    """Settle every fact of the stream; bare is nats-py's `fetch` of 500 and an ack each."""
    js = bare.jetstream()
    subscription = await js.pull_subscribe("bare.>", durable="bare", stream="BARE")
    watch, fetched = Stopwatch(), 0
    while fetched < sizes.facts:
        for message in await subscription.fetch(500):
            await message.ack()
            fetched += 1
    await bare.flush()
    bare_figures = watch.figures(sizes.facts, "bare_")

    last: dict[str, int] = {}
    handled = 0
    done = anyio.Event()

    async def handle(event: Event) -> None:
        nonlocal handled
        number = int(event.id.rpartition(":")[2])
        before = last.get(event.subject)
        require(holds=before is None or number == before + sizes.nodes, claim="each node's facts keep order")
        last[event.subject] = number
        handled += 1
        if handled == sizes.facts:
            done.set()

    async def is_settled() -> bool:
        info = await bus.js.consumer_info(STREAM, "bench")
        return (info.num_ack_pending, info.num_pending, info.num_redelivered) == (0, 0, 0)

    watch = Stopwatch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, CLUSTER, "bench", handle).run)
        with anyio.fail_after(WITHIN_S):
            await done.wait()
        await until(is_settled)
        tasks.cancel_scope.cancel()
    figures = watch.figures(sizes.facts)
    require(holds=len(last) == sizes.nodes and handled == sizes.facts, claim="each fact is handled once")
    emit("bus.consume", sizes.facts, figures, bare_figures)


async def bench_view(bus: Bus, bare: Client, sizes: Sizes) -> None:
    """Read a whole bucket into a view; bare is nats-py's watch of the same bucket, not decoded."""
    wanted = {node_name(number): state(number) for number in range(sizes.keys)}

    async def put(number: int) -> None:
        subject = subjects.key_subject(BUCKET, node_name(number))
        await bus.publish(subject, encode(wanted[node_name(number)]))

    await at_once(range(sizes.keys), put)
    bucket = await bare.jetstream().key_value(BUCKET)
    watch, found = Stopwatch(), 0
    watcher, is_last = await bucket.watchall(), False
    while not is_last:  # On a busy machine nats-py says that this was all (None) before the first entry.
        entry = await watcher.updates(timeout=WITHIN_S)
        if isinstance(entry, KeyValue.Entry):
            found, is_last = found + 1, entry.delta == 0
    bare_figures = watch.figures(sizes.keys, "bare_")
    await watcher.stop()
    require(holds=found == sizes.keys, claim=f"the bucket holds every key, not {found}")

    worst = [0.0]
    figures: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(longest_stall, worst)
        await anyio.sleep(0.01)
        view, watch = StateView(bus, CLUSTER, SlurmNodeState), Stopwatch()
        async with following(view):
            with anyio.fail_after(WITHIN_S):
                await view.complete()
            figures = watch.figures(sizes.keys)
            require(
                holds={one.node: one for one in view.values()} == wanted, claim="view and bucket are equal"
            )
        tasks.cancel_scope.cancel()
    emit("bus.view", sizes.keys, figures, {"stall_ms": round(worst[0] * 1000, 1)}, bare_figures)


async def bench_request(bus: Bus, bare: Client, sizes: Sizes, settings: BusSettings) -> None:
    """Ask one question after the other; asker and answerer are two connections of this process."""
    question = ConfirmNode(node="gpu-00001")

    async def bare_answer(message: Msg) -> None:
        await message.respond(message.data)

    async def answer(request: ConfirmNode) -> NodeConfirmed:
        return NodeConfirmed(node=request.node, is_known=True, is_drained_and_idle=True)

    async with AsyncExitStack() as stack:
        other = await nats.connect(settings.url)
        stack.push_async_callback(other.close)
        await other.subscribe("bare-question", cb=bare_answer)
        await other.flush()
        await other.flush()  # nats-py's first one overtakes the subscription (ADR 0021).
        data = encode(question)
        floor = await latencies(sizes.requests, lambda: bare.request("bare-question", data, timeout=5))

        answerer = await stack.enter_async_context(connect(settings, "answerer"))
        await stack.enter_async_context(answering(answerer, CLUSTER, ConfirmNode, answer))
        watch = Stopwatch()
        took = await latencies(sizes.requests, lambda: ask(bus, CLUSTER, question))
        figures = watch.figures(sizes.requests)
        reply = await ask(bus, CLUSTER, question)
    require(holds=isinstance(reply, NodeConfirmed) and reply.is_known, claim="the question is answered")
    emit("bus.request", sizes.requests, percentiles(took), figures, percentiles(floor, "bare_"))


async def bench_kill_recovery(server: NatsServer, settings: BusSettings, sizes: Sizes) -> None:
    """Kill the server, start it, and wait until every view shows what was written after that.

    Each view has a connection of its own, as in five services, but they share one process here.
    """
    async with AsyncExitStack() as stack:
        views: list[StateView[SlurmNodeState]] = []
        for number in range(sizes.views):
            bus = await stack.enter_async_context(connect(settings, f"view-{number}"))
            views.append(StateView(bus, CLUSTER, SlurmNodeState))
        writer = await stack.enter_async_context(connect(settings, "writer"))
        await stack.enter_async_context(following(*views))
        await until(lambda: all(view.is_complete for view in views), within_s=WITHIN_S)

        server.kill()
        await until(lambda: not any(view.is_complete for view in views))
        server.start()
        watch = Stopwatch()
        await until(lambda: writer.is_connected)
        await writer.publish(subjects.key_subject(BUCKET, "new"), encode(state(0)))
        written = watch.figures(1, "first_write_")["first_write_s"]
        await until(lambda: all(view.is_complete and view.get("new") for view in views), within_s=WITHIN_S)
        figures = watch.figures(sizes.keys * sizes.views)
        same = all(
            len(view) == sizes.keys + 1 and view.get(node_name(number)) == state(number)
            for view in views
            for number in range(sizes.keys)
        )
        require(holds=same, claim="each view equals the bucket after the kill")
    emit("bus.kill_recovery", sizes.keys, {"views": sizes.views, "first_write_s": written}, figures)


async def run(sizes: Sizes) -> None:
    """Measure everything on a server of our own."""
    with (
        tempfile.TemporaryDirectory(prefix="sunk-bench-") as folder,
        NatsServer(Path(folder) / "nats", sync=sizes.sync) as server,
    ):
        settings = BusSettings(url=server.url)
        async with connect(settings, "bench") as bus:
            await bus.provision(CLUSTER, settings)
            bare = await nats.connect(settings.url)
            try:
                await bench_publish(bus, bare, sizes)
                await bench_consume(bus, bare, sizes)
                await bench_view(bus, bare, sizes)
                await bench_request(bus, bare, sizes, settings)
            finally:
                await bare.close()
        await bench_kill_recovery(server, settings, sizes)


def main() -> None:
    """Read the sizes and measure."""
    parser = argparse.ArgumentParser(prog="bench bus", description=__doc__)
    parser.add_argument("--facts", type=int, default=60_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--views", type=int, default=5)
    parser.add_argument(
        "--sync", default="always", help="when NATS writes to the disk: always, or such as 2m"
    )
    anyio.run(run, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
