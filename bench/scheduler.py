"""The pod-scheduler between API server and slurmctld: how long Pods wait, how many are placed a second.

Results: ``scheduler.slurm_alone`` and ``scheduler.kube_alone`` (the same jobs, the same Pods, without us),
``scheduler.single`` and ``scheduler.single_busy`` (one Pod after the other, on an idle cluster and beside
many other jobs), ``scheduler.burst_100``, ``scheduler.burst_500``, ``scheduler.release_100``,
``scheduler.gang``; each alone, with its option, ``scheduler.restart`` (until another finds all Pods),
``scheduler.burst_500_beside`` (beside thousands of other jobs), ``scheduler.memory``.
"""

import argparse
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
from figures import emit, percentiles, require
from nodesets_stage import NAMESPACE, each
from scheduler_pods import manifest, member, placeholder
from scheduler_stage import CPUS, WITHIN_S, Sizes, Stage, staged
from syncer_stage import fill_queue
from waiting import until

from sunk_kube.resources import PODS
from sunk_lab.slurm.releases import SLURM_26_05

SUBMITTERS = 8
BESIDE = 500
GANG_NODES, GANG_PER_NODE = 4, 8
LOOPS = ("pods", "strays")
ALL_JOBS, ONE_JOB = "REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE"


async def create(
    stage: Stage, prefix: str, count: int, make: Callable[[str], dict[str, Any]] = manifest
) -> dict[str, float]:
    """Create Pods; return when each was asked for, by uid."""
    asked: dict[str, float] = {}

    async def one(number: int) -> None:
        began = time.perf_counter()
        made = await stage.kube.create(PODS, make(f"{prefix}-{number}"), NAMESPACE)
        asked[made.metadata.uid] = began

    await each(range(count), one)
    return asked


async def bound(stage: Stage, asked: dict[str, float]) -> list[float]:
    """Return after how many milliseconds each Pod was bound."""
    await until(
        lambda: all(stage.at("PlacementBound", uid) < float("inf") for uid in asked), within_s=WITHIN_S
    )
    return [(stage.at("PlacementBound", uid) - began) * 1000 for uid, began in asked.items()]


def parts(stage: Stage, asked: dict[str, float]) -> dict[str, float]:
    """Return how long it took to submit a job, until its script was heard, and to bind the Pod."""
    took: dict[str, list[float]] = {"submit_": [], "slurm_": [], "bind_": []}
    for uid, began in asked.items():
        kinds = ("PlacementSubmitted", "PlacementStarted", "PlacementBound")
        moments = [began, *(stage.at(kind, uid) for kind in kinds)]
        for part, (start, end) in zip(took, pairwise(moments), strict=True):
            took[part].append((end - start) * 1000)
    return {key: value for part, ms in took.items() for key, value in percentiles(ms, part).items()}


async def finish(stage: Stage, asked: dict[str, float]) -> float:
    """Let Pods succeed; return in how many seconds the jobs of all are over, and remove the Pods."""
    states = [state for uid in asked if (state := stage.placements.get(uid)) is not None]
    jobs = [str(state.job) for state in states]
    began = time.perf_counter()

    async def succeed(name: str) -> None:
        await stage.kube.patch_status(PODS, name, {"status": {"phase": "Succeeded"}}, NAMESPACE)

    await each([state.pod for state in states], succeed)

    def are_over() -> bool:
        found = [stage.jobs.get(job) for job in jobs]
        return all(job is None or job.is_over for job in found)

    await until(are_over, within_s=WITHIN_S)
    took_s = time.perf_counter() - began
    await remove(stage, [state.pod for state in states])
    await until(lambda: not any(uid in stage.placements.keys() for uid in asked), within_s=WITHIN_S)  # noqa: SIM118 - not a dict
    return took_s


async def remove(stage: Stage, names: list[str]) -> None:
    """Remove Pods at once; no kubelet would."""
    await each(names, lambda name: stage.kube.delete(PODS, name, NAMESPACE, grace_period_s=0))


async def bare_jobs(stage: Stage, count: int, *, at_once: int) -> tuple[list[float], float]:
    """Start placeholders that call us, without any Pod; return the milliseconds of each, and all seconds."""
    stage.called.clear()
    described = placeholder(stage.calls_url)
    asked: dict[str, float] = {}
    left = iter(range(count))

    async def submit() -> None:
        for _ in left:
            if at_once == 1:
                await apart()
            began = time.perf_counter()
            job = str(await stage.client.submit_job(described))
            asked[job] = began
            if at_once == 1:
                await until(lambda job=job: job in stage.called, within_s=WITHIN_S)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(submit)
    await until(lambda: len(stage.called) >= count, within_s=WITHIN_S)
    took_s = max(stage.called.values()) - began
    return [(stage.called[job] - since) * 1000 for job, since in asked.items()], took_s


async def apart() -> None:
    """Wait for a moment, another each time.

    slurmctld starts jobs in turns, a second apart: one right after another would always meet the same moment.
    """
    await anyio.sleep(random.uniform(0.0, 1.0))  # noqa: S311 - no secret


async def end_jobs(stage: Stage) -> None:
    """Cancel the bare jobs, and wait until they are over."""
    jobs = list(stage.called)
    await each(jobs, lambda job: stage.client.cancel_job(int(job)))
    await until(lambda: all(_is_over(stage, job) for job in jobs), within_s=WITHIN_S)


def _is_over(stage: Stage, job: str) -> bool:
    state = stage.jobs.get(job)
    return state is not None and state.is_over


async def single(stage: Stage, name: str) -> None:
    """One Pod after the other, beside as many bare jobs."""
    bare, _ = await bare_jobs(stage, stage.sizes.rounds, at_once=1)
    await end_jobs(stage)
    total: list[float] = []
    everyone: dict[str, float] = {}
    for number in range(stage.sizes.rounds):
        await apart()
        asked = await create(stage, f"{name.replace('_', '-')}-{number}", 1)
        total += await bound(stage, asked)
        everyone |= asked
        await finish(stage, asked)
    figures = percentiles(total) | percentiles(bare, "bare_") | parts(stage, everyone)
    figures["ours_p50_ms"] = round(figures["p50_ms"] - figures["bare_p50_ms"], 3)
    emit(f"scheduler.{name}", len(total), size(stage), figures)


def size(stage: Stage) -> dict[str, float]:
    """Return what the figures are about."""
    return {"nodes": stage.sizes.nodes}


async def burst(stage: Stage, count: int, suffix: str = "") -> None:
    """Many Pods at once, beside Slurm alone and kube-scheduler alone."""
    alone_s, kube_s = await slurm_alone(stage, count), await kube_alone(stage, count)
    usage, costs, began = stage.usage(), stage.costs(), time.perf_counter()
    asked = await create(stage, f"burst-{count}{suffix.replace('_', '-')}", count)
    created_s = time.perf_counter() - began
    took = await bound(stage, asked)
    all_s = max(stage.at("PlacementBound", uid) for uid in asked) - began
    figures = {"s": round(all_s, 2), "created_s": round(created_s, 2), "per_s": round(count / all_s, 1)}
    figures |= {"share": round(alone_s / all_s, 2), "share_of_both": round((alone_s + kube_s) / all_s, 2)}
    figures |= costs.figures(count) | usage.figures("scheduler") | percentiles(took) | parts(stage, asked)
    emit(f"scheduler.burst_{count}{suffix}", count, size(stage), figures)
    await finish(stage, asked)


async def slurm_alone(stage: Stage, count: int) -> float:
    """The same jobs without Pods; return in how many seconds the last was heard."""
    costs = stage.costs()
    took_ms, took_s = await bare_jobs(stage, count, at_once=SUBMITTERS)
    figures = {"s": round(took_s, 2), "per_s": round(count / took_s, 1)} | costs.figures(count)
    emit(f"scheduler.slurm_alone_{count}", count, figures, percentiles(took_ms))
    await end_jobs(stage)
    return took_s


async def kube_alone(stage: Stage, count: int) -> float:
    """The same Pods through kube-scheduler; return in how many seconds the last was bound."""
    costs, began = stage.costs(), time.perf_counter()
    asked = await create(stage, f"kube-{count}", count, partial(manifest, scheduler="default-scheduler"))

    def are_bound() -> bool:
        found = [pod for pod in stage.pods.values() if pod.metadata.uid in asked]
        return len(found) == count and all(pod.spec.node_name for pod in found)

    await until(are_bound, within_s=WITHIN_S)
    took_s = time.perf_counter() - began
    figures = {"s": round(took_s, 2), "per_s": round(count / took_s, 1)} | costs.figures(count)
    emit(f"scheduler.kube_alone_{count}", count, figures)
    await remove(stage, [f"kube-{count}-{number}" for number in range(count)])
    return took_s


async def gangs(stage: Stage) -> None:
    """Gangs of 32 Pods on four nodes, one after the other: until the last is bound, and from the first on."""
    members = GANG_NODES * GANG_PER_NODE
    took: list[float] = []
    spread: list[float] = []
    for number in range(stage.sizes.gangs):
        name, began = f"gang-{number}", time.perf_counter()
        make = partial(member, group=name, size=members, per_node=GANG_PER_NODE)
        asked = await create(stage, name, members, make)
        await bound(stage, asked)
        moments = [stage.at("PlacementBound", uid) for uid in asked]
        took.append((max(moments) - began) * 1000)
        spread.append((max(moments) - min(moments)) * 1000)
        await finish(stage, asked)
    figures = percentiles(took) | percentiles(spread, "spread_")
    emit("scheduler.gang", len(took), size(stage), {"members": members}, figures)


async def release(stage: Stage) -> None:
    """Many Pods that end at once."""
    count = stage.sizes.release
    asked = await create(stage, "release", count)
    await bound(stage, asked)
    took_s = await finish(stage, asked)
    emit(f"scheduler.release_{count}", count, size(stage), {"s": round(took_s, 2)})


async def beside(stage: Stage) -> None:
    """A burst of 500 Pods, and the same jobs without Pods, beside many other jobs that all the bus knows."""
    await fill_queue(stage.client, stage.sizes.beside)
    await until(lambda: len(stage.jobs) >= stage.sizes.beside, within_s=2 * WITHIN_S)
    await burst(stage, BESIDE, "_beside")


async def memory(stage: Stage) -> None:
    """How much the scheduler takes with many Pods, whose jobs wait."""
    count = stage.sizes.memory
    stage.slurm.exec("scontrol", "update", "PartitionName=main", "State=DOWN")
    usage = stage.usage()
    asked = await create(stage, "waits", count)

    def do_wait() -> bool:
        states = (stage.placements.get(uid) for uid in asked)
        return all(state is not None and state.phase == "released" for state in states)

    await until(do_wait, within_s=5 * WITHIN_S)
    emit("scheduler.memory", count, size(stage), usage.figures("scheduler"))


async def restart(stage: Stage) -> None:
    """Replace the scheduler of many Pods: when has the next one looked at all of them and at their jobs?

    As many run as the nodes have CPUs, and the others wait in Slurm: scripts have the same cores as we.
    """
    count = stage.sizes.restart
    asked = await create(stage, "restart", count)

    def are_placed() -> bool:
        phases = Counter(state.phase for uid in asked if (state := stage.placements.get(uid)) is not None)
        running = phases["bound"]
        return running >= min(count, stage.sizes.nodes * CPUS - 1) and running + phases["released"] >= count

    await until(are_placed, within_s=WITHIN_S)
    jobs = {state.job for state in stage.placements.values()}
    figures: dict[str, float] = {}
    for prefix, number in (("", signal.SIGTERM), ("killed_", signal.SIGKILL)):
        stage.replace_scheduler(number)
        looks, usage, began = await stage.asked(ONE_JOB), stage.usage(), time.perf_counter()
        await until(lambda: _has_looked(stage, 0), within_s=WITHIN_S)
        figures[f"{prefix}leads_s"] = round(time.perf_counter() - began, 2)
        await until(lambda: _has_looked(stage, count), within_s=WITHIN_S)
        figures[f"{prefix}s"] = round(time.perf_counter() - began, 2)
        figures |= usage.figures(f"{prefix}scheduler")
        figures[f"{prefix}looks"] = await stage.asked(ONE_JOB) - looks
        now = {state.job for state in stage.placements.values()}
        require(holds=now == jobs, claim="every Pod keeps its job")
    emit("scheduler.restart", count, size(stage), figures)


async def _has_looked(stage: Stage, count: int) -> bool:
    """Whether the scheduler leads, and has looked at so many Pods and jobs: at none twice before all."""
    await anyio.sleep(0.1)  # To be asked costs it time.
    said = await stage.scheduler_says()
    looks = [said.get(f'sunk_keys_handled_total{{loop="{loop}",outcome="done"}}', 0) for loop in LOOPS]
    return min(looks) >= max(count, 1)


async def measure(sizes: Sizes) -> None:
    """Measure everything, one after the other; or just a restart."""
    with tempfile.TemporaryDirectory(prefix="sunk-bench-") as name:
        async with staged(sizes, Path(name)) as stage:
            await bound(stage, await create(stage, "first", 1))  # Everybody has begun.
            for alone in (restart, memory, beside):
                if getattr(sizes, alone.__name__):
                    await alone(stage)
                    return
            lists = await stage.asked(ALL_JOBS)
            await single(stage, "single")
            for count in sizes.bursts:
                await burst(stage, count)
            await release(stage)
            if sizes.gangs:
                await gangs(stage)
            if sizes.jobs:
                await fill_queue(stage.client, sizes.jobs)
                await single(stage, "single_busy")
            asked = await stage.asked(ALL_JOBS) - lists
            require(holds=asked == 0, claim="no list of all jobs is asked for")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="bench scheduler", description=__doc__)
    parser.add_argument("--nodes", type=int, default=50, help="Slurm nodes, each with a slurmd")
    parser.add_argument("--rounds", type=int, default=30, help="Pods one after the other")
    parser.add_argument("--bursts", type=int, nargs="*", default=[100, 500], help="Pods at once")
    parser.add_argument("--release", type=int, default=100, help="Pods that end at once")
    parser.add_argument("--gangs", type=int, default=5, help="gangs of 32 Pods, one after the other")
    parser.add_argument("--jobs", type=int, default=1000, help="others, held, for single_busy")
    parser.add_argument(
        "--restart", type=int, default=0, help="Pods that it has when it is replaced; nothing else"
    )
    parser.add_argument("--beside", type=int, default=0, help="held jobs beside burst_500; nothing else")
    parser.add_argument(
        "--memory", type=int, default=0, help="Pods that wait, and how much it takes; nothing else"
    )
    parser.add_argument("--slurm", default=SLURM_26_05.version, help="release")
    anyio.run(measure, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
