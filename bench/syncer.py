"""The syncer between a real slurmctld and a real NATS: what it costs, and how late it is.

Results: ``syncer.bare`` (what Slurm itself needs to answer the start's and the cordons' questions),
``syncer.start`` (until the state is complete on a bus that knows nothing), ``syncer.restart`` (of another
process, on a bus that knows), ``syncer.rest`` and ``syncer.busy`` (cores used, memory and lists asked for),
``syncer.change_polled`` and ``syncer.change_nudged`` (a drain by hand until its fact), ``syncer.cordon_one``
and ``syncer.cordon_500`` (a cordon on the bus until the drain's fact). Some nodes have a real slurmd, the
others are mere records. Held jobs are what the queue is full of.
"""

import argparse
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from figures import emit, percentiles, require
from msgspec.structs import replace
from syncer_stage import CLUSTER, JOB, WITHIN_S, Sizes, Stage, Usages, staged
from waiting import until

from sunk_events.nodes import NodeDrained
from sunk_events.nodesets import KubePodState
from sunk_events.requests import NudgeNode
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_runtime.requests import ask
from sunk_syncer.pollers.poll_loop import LOOKS_AT_ONCE

MANY: Final = 500
"""Nodes that are cordoned at once."""
LOOKS_OF_A_DRAIN: Final = 12
"""At the one node that is drained at the start: before and after the drain, and its Extra."""
AT_ONCE: Final = 4
"""Submissions of a kind under way at once, while it is busy."""


async def bare(stage: Stage) -> None:
    """What the start and 500 cordons ask of Slurm, without a syncer, by the same client."""
    usages, lists_before = await Usages.begin(stage)
    jobs_s = await each(map(str, await stage.client.job_states()), lambda job: stage.client.job(int(job)))
    nodes_s = await seconds(stage.client.nodes())
    used = await usages.figures(lists_before)
    used = {key: value for key, value in used.items() if key.endswith("_cpu_s")}
    took = {"jobs_s": round(jobs_s, 2), "nodes_s": round(nodes_s, 2)}
    many = stage.records[:MANY]
    drains_s = await each(many, stage.client.node)
    for batch in batched(many, 100):
        drains_s += await seconds(stage.client.drain_several(batch, "bench"))
    drains_s += await each(many, stage.client.node)
    await each(many, stage.client.undrain)
    emit("syncer.bare", 1, size(stage), took, {"drains_s": round(drains_s, 2)}, used)


async def each(names: Iterable[str], ask_of: Callable[[str], Awaitable[object]]) -> float:
    """Ask Slurm about each of *names*, as many at once as the syncer does; return how long that took."""
    left = iter(names)

    async def work() -> None:
        for name in left:
            await ask_of(name)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(LOOKS_AT_ONCE):
            tasks.start_soon(work)
    return time.perf_counter() - began


async def seconds(deed: Awaitable[object]) -> float:
    """Return how long *deed* took."""
    began = time.perf_counter()
    await deed
    return time.perf_counter() - began


def batched(names: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """Return *names* in parts of at most *size*."""
    return [names[first : first + size] for first in range(0, len(names), size)]


async def start(stage: Stage) -> None:
    """From nothing to a complete state; a node that is cordoned before is drained on the way."""
    sizes, cordoned = stage.sizes, stage.records[:1]
    await say_pods(stage, cordoned, is_cordoned=True)
    began = time.perf_counter()
    stage.syncer.start()
    usages, before = await Usages.begin(stage)
    await until(lambda: len(stage.nodes) >= sizes.nodes, within_s=WITHIN_S)
    nodes_s = time.perf_counter() - began
    await until(lambda: len(stage.jobs) >= sizes.jobs, within_s=WITHIN_S)
    jobs_s = time.perf_counter() - began
    used = await usages.figures(before)
    used = {key: value for key, value in used.items() if not key.endswith("_cores")}
    require(holds=used["full_job_lists"] == 0, claim="no list of all jobs is asked for")
    require(holds=used["job_looks"] <= sizes.jobs, claim="a job is looked at once at most")
    require(
        holds=used["node_looks"] <= LOOKS_OF_A_DRAIN, claim="no node is looked at but the one to be drained"
    )
    drained_s = await stage.fact_ms(NodeDrained, cordoned[0], began) / 1000
    took = {"drained_s": round(drained_s, 2), "nodes_s": round(nodes_s, 2), "s": round(jobs_s, 2)}
    emit("syncer.start", 1, size(stage), took, used)
    await say_pods(stage, cordoned, is_cordoned=False)
    await until(lambda: not _is_drain(stage, cordoned[0]), within_s=WITHIN_S)


async def restart(stage: Stage) -> None:
    """From the start of another process until it has told of a node and of a job that changed meanwhile."""
    name, job = stage.records[-1], next(iter(await stage.client.job_states()))
    await anyio.to_thread.run_sync(stage.syncer.kill, signal.SIGTERM)
    await stage.client.drain(name, "bench")
    await stage.client.cancel_job(job)
    began = time.perf_counter()
    stage.syncer.start()
    usages, before = await Usages.begin(stage)
    await until(lambda: _is_over(stage, job) and _is_drain(stage, name), within_s=WITHIN_S)
    took_s = time.perf_counter() - began
    used = await usages.figures(before)
    used = {key: value for key, value in used.items() if not key.endswith("_cores")}
    emit("syncer.restart", 1, size(stage), {"s": round(took_s, 2)}, used)
    await stage.client.undrain(name)


def size(stage: Stage) -> dict[str, float]:
    """Return what the figures are about."""
    return {"nodes": stage.sizes.nodes, "slurmd": stage.sizes.slurmd, "jobs": stage.sizes.jobs}


async def rest(stage: Stage) -> None:
    """Nothing happens but the pings of real slurmd."""
    await anyio.sleep(min(15.0, stage.sizes.seconds))  # What the start set off dies away.
    usages, before = await Usages.begin(stage)
    await anyio.sleep(stage.sizes.seconds)
    used = await usages.figures(before)
    require(holds=used["full_job_lists"] == 0, claim="no list of all jobs is asked for")
    emit("syncer.rest", 1, size(stage), {"s": stage.sizes.seconds}, used)


async def drained_by_hand(stage: Stage, name: str, *, is_nudged: bool) -> float:
    """Drain a node as a person would and return after how many milliseconds its fact came."""
    began = time.perf_counter()
    await stage.client.drain(name, "bench")
    if is_nudged:
        await ask(stage.bus, CLUSTER, NudgeNode(node=name))
    return await stage.fact_ms(NodeDrained, name, began)


async def changes(stage: Stage, *, is_nudged: bool) -> list[float]:
    """Drain nodes by hand at odd times, seldom enough to be a cluster at rest; undrain them at the end."""
    began = time.perf_counter()
    await stage.client.nodes()
    apart_s = 0.3 if is_nudged else max(1.0, 10 * (time.perf_counter() - began))
    names = random.sample(stage.records, min(stage.sizes.rounds, len(stage.records)))
    took: list[float] = []
    for name in names:
        await anyio.sleep(apart_s * random.uniform(0.5, 1.5))  # noqa: S311 - not in step with anybody.
        took.append(await drained_by_hand(stage, name, is_nudged=is_nudged))
    for name in names:
        await stage.client.undrain(name)
        await ask(stage.bus, CLUSTER, NudgeNode(node=name))
    await until(lambda: not any(_is_drain(stage, name) for name in names), within_s=WITHIN_S)
    return took


def _is_drain(stage: Stage, name: str) -> bool:
    state = stage.nodes.get(name)
    return state is not None and state.is_drain


def _is_over(stage: Stage, job: int) -> bool:
    state = stage.jobs.get(str(job))
    return state is not None and state.is_over


def _is_described(stage: Stage, name: str) -> bool:
    state = stage.nodes.get(name)
    return state is not None and f"kube-{name}" in state.extra


async def say_pods(stage: Stage, names: Iterable[str], *, is_cordoned: bool) -> None:
    """Say on the bus that the Pods of *names* are ready, and their Nodes cordoned or not."""
    moment = datetime.now(UTC)
    limit = anyio.CapacityLimiter(32)

    async def say(name: str) -> None:
        state = KubePodState(
            changed=moment,
            pod=name,
            namespace="bench",
            nodeset="bench",
            kube_node=f"kube-{name}",
            uid=f"uid-{name}",
            phase="running",
            is_ready=True,
            is_cordoned=is_cordoned,
            cordon_reason="bench" if is_cordoned else "",
        )
        async with limit:
            await stage.pods.record(name, state, revision=stage.pods.view.revision(name))

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(say, name)


async def cordons(stage: Stage, names: tuple[str, ...]) -> tuple[list[float], float, dict[str, float]]:
    """Cordon *names* at once; return the milliseconds until each drain's fact, all seconds, the usage."""
    usages, lists_before = await Usages.begin(stage)
    began = time.perf_counter()
    await say_pods(stage, names, is_cordoned=True)
    took = [await stage.fact_ms(NodeDrained, name, began) for name in names]
    used = {key: value for key, value in (await usages.figures(lists_before)).items() if "_cpu_s" in key}
    await say_pods(stage, names, is_cordoned=False)
    await until(lambda: not any(_is_drain(stage, name) for name in names), within_s=WITHIN_S)
    return took, max(took) / 1000, used


async def cordon(stage: Stage) -> None:
    """Cordon one by one, then many at once."""
    many = stage.records[:MANY]
    await say_pods(stage, many, is_cordoned=False)
    await until(lambda: all(_is_described(stage, name) for name in many), within_s=WITHIN_S)
    took: list[float] = []
    for _ in range(stage.sizes.rounds):
        took += (await cordons(stage, (random.choice(many),)))[0]  # noqa: S311 - which one does not matter.
    emit("syncer.cordon_one", len(took), size(stage), percentiles(took))
    took, all_s, used = await cordons(stage, many)
    emit("syncer.cordon_500", len(many), size(stage), percentiles(took), {"s": round(all_s, 3)}, used)


async def busy(stage: Stage) -> None:
    """50 submissions and cancellations and 10 jobs that really run a second; changes at odd times."""
    took: list[float] = []

    async def change(name: str) -> None:
        took.append(await drained_by_hand(stage, name, is_nudged=False))
        await stage.client.undrain(name)

    rates = {"cancelled": Rate(), "run": Rate()}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(at_rate, 50.0, partial(submit_and_cancel, stage), rates["cancelled"])
        tasks.start_soon(at_rate, 10.0, partial(submit_to_run, stage), rates["run"])
        await anyio.sleep(5.0)
        usages, before = await Usages.begin(stage)
        done_before = {name: rate.done for name, rate in rates.items()}
        began = time.monotonic()
        async with anyio.create_task_group() as changes:
            for name in random.sample(stage.records, min(max(30, stage.sizes.rounds), len(stage.records))):
                changes.start_soon(change, name)
                await anyio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - not in step with anybody.
        took_s = time.monotonic() - began
        used = await usages.figures(before)
        per_s = {
            f"{name}_per_s": round((rate.done - done_before[name]) / took_s, 1)
            for name, rate in rates.items()
        }
        emit("syncer.busy", len(took), size(stage), percentiles(took, "polled_"), per_s, used)
        tasks.cancel_scope.cancel()


class Rate:
    """How often something was done."""

    done = 0


async def at_rate(per_s: float, deed: Callable[[], Awaitable[None]], rate: Rate) -> None:
    """Do *deed* so often, several at a time, until cancelled."""

    async def work() -> None:
        while True:
            began = time.monotonic()
            await deed()
            rate.done += 1
            await anyio.sleep(max(0.0, AT_ONCE / per_s - (time.monotonic() - began)))

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)


async def submit_and_cancel(stage: Stage) -> None:
    """Submit a held job and cancel it."""
    await stage.client.cancel_job(await stage.client.submit_job(replace(JOB, hold=True)))


async def submit_to_run(stage: Stage) -> None:
    """Submit a job that runs at once and ends."""
    await stage.client.submit_job(JOB)


async def measure(sizes: Sizes) -> None:
    """Measure everything, one after the other."""
    with tempfile.TemporaryDirectory(prefix="sunk-bench-") as name:
        async with staged(sizes, Path(name)) as stage:
            await bare(stage)
            await start(stage)
            for part in PARTS if sizes.only is None else sizes.only:
                await PARTS[part](stage)
                require(holds=stage.syncer.is_running(), claim="the syncer still runs")


async def polled(stage: Stage) -> None:
    """Changes that nobody tells the syncer of."""
    took = await changes(stage, is_nudged=False)
    emit("syncer.change_polled", len(took), size(stage), percentiles(took))


async def nudged(stage: Stage) -> None:
    """Changes that the syncer is told to look at."""
    took = await changes(stage, is_nudged=True)
    emit("syncer.change_nudged", len(took), size(stage), percentiles(took))


PARTS: Final[dict[str, Callable[[Stage], Awaitable[None]]]] = {
    "rest": rest,
    "polled": polled,
    "nudged": nudged,
    "cordon": cordon,
    "restart": restart,
    "busy": busy,
}
"""What is measured after the start, in this order."""


def main() -> None:
    """Measure on a cluster of our own."""
    parser = argparse.ArgumentParser(prog="bench syncer", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200, help="of all kinds")
    parser.add_argument("--slurmd", type=int, default=0, help="of the nodes have a real slurmd; 0: up to 200")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="of rest, and of being busy")
    parser.add_argument(
        "--only", nargs="*", choices=[*PARTS], help="beside the start; none of them: only that"
    )
    parser.add_argument("--slurm", default=SLURM_26_05.version, help="release")
    sizes = parser.parse_args(namespace=Sizes())
    sizes.slurmd = sizes.slurmd or min(200, sizes.nodes // 4)
    anyio.run(measure, sizes)


if __name__ == "__main__":
    main()
