"""nodeset-controller on a real API server with thousands of Nodes: what it costs, and how late it is.

Results: ``nodesets.create`` (a NodeSet until its Pods exist; bare: the same Pods, nothing else),
``nodesets.rest`` (nothing happens), ``nodesets.condition`` (a change of Slurm's state on the bus until its
Pod shows it),
``nodesets.condition_all`` (all change at once; bare: patches of the same size, nothing else),
``nodesets.restart`` (process start until a change made meanwhile is shown; nothing else is written).
"""

import argparse
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

import anyio
from figures import emit, percentiles, require
from nodesets_stage import NAMESPACE, WITHIN_S, Sizes, Stage, bare_pod, each, nodeset, run_pod, staged
from waiting import until

from sunk_kube.resources import NODESETS, PODS

BARE_MAX: Final = 500
"""Bare Pods are made until their rate is known."""


async def create(stage: Stage) -> None:
    """From a NodeSet to all of its Pods; then they run, and Slurm knows them."""
    sizes = stage.sizes
    bare_per_s = await bare_creates_per_s(stage)
    stage.service.start()
    await stage.is_led()
    await anyio.sleep(3)
    usage = stage.usage()
    began = time.perf_counter()
    await stage.kube.create(NODESETS, nodeset(), NAMESPACE)
    await until(lambda: len(stage.pods.keys()) >= sizes.nodes, within_s=WITHIN_S)
    took_s = time.perf_counter() - began
    used = usage.figures("service")
    per_s = sizes.nodes / took_s
    rates = {"per_s": round(per_s), "bare_per_s": round(bare_per_s), "share": round(per_s / bare_per_s, 2)}
    emit("nodesets.create", sizes.nodes, {"s": round(took_s, 2), **rates}, used)
    await until(lambda: all(pod.spec.node_name for pod in stage.pods.values()), within_s=WITHIN_S)
    await each(stage.pods.values(), lambda pod: run_pod(stage.kube, pod))
    stage.names = tuple(pod.metadata.name for pod in stage.pods.values())
    await each(stage.names, lambda name: stage.says(name, ""))
    await stage.all_show("")


async def bare_creates_per_s(stage: Stage) -> float:
    """Return how many such Pods a second the API server takes from a client that does nothing else."""
    numbers = range(1, min(stage.sizes.nodes, BARE_MAX) + 1)
    began = time.perf_counter()
    made = [bare_pod(number) for number in numbers]
    await each(made, lambda body: stage.kube.create(PODS, body, NAMESPACE))
    per_s = len(made) / (time.perf_counter() - began)
    await each(
        made, lambda body: stage.kube.delete(PODS, body["metadata"]["name"], NAMESPACE, grace_period_s=0)
    )
    return per_s


async def settled(stage: Stage) -> None:
    """Return when nothing was written for some seconds."""
    before: dict[str, str] = {}

    async def is_still() -> bool:
        nonlocal before
        await anyio.sleep(5)
        was, before = before, stage.versions()
        return was == before

    await until(is_still, within_s=WITHIN_S)


async def rest(stage: Stage) -> None:
    """Nothing happens."""
    await settled(stage)
    usage = stage.usage()
    await anyio.sleep(stage.sizes.seconds)
    emit("nodesets.rest", stage.sizes.nodes, {"s": stage.sizes.seconds}, usage.figures("service"))


async def one_by_one(stage: Stage) -> None:
    """Change nodes at a steady rate, each until its Pod shows it."""
    sizes = stage.sizes
    took: list[float] = []
    names = random.sample(stage.names, min(sizes.changes, len(stage.names)))

    async def one(name: str) -> None:
        began = time.perf_counter()
        await stage.says(name, "one")
        await until(lambda: stage.shows(name, "one"), within_s=WITHIN_S)
        took.append((time.perf_counter() - began) * 1000)

    usage = stage.usage()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
            await anyio.sleep(1 / sizes.rate)
    emit(
        "nodesets.condition",
        len(took),
        {"per_s": sizes.rate},
        percentiles(took),
        usage.figures("service"),
    )


async def all_at_once(stage: Stage) -> None:
    """Change all, beside bare patches of the same objects."""
    await settled(stage)
    number = len(stage.names)
    began = time.perf_counter()

    async def change(name: str) -> None:
        await stage.says(name, "all")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(each, stage.names, change)
        await stage.all_show("all")
    took_s = time.perf_counter() - began
    await settled(stage)

    async def bare(name: str) -> None:
        drain = {"type": "BenchDrain", "status": "True", "reason": "Drained", "message": "bare"}
        body = {"metadata": {"annotations": {"bench": "bare"}}, "status": {"conditions": [drain]}}
        await stage.kube.patch_status(PODS, name, body, NAMESPACE, kind="strategic")

    began = time.perf_counter()
    await each(stage.names, bare)
    bare_s = time.perf_counter() - began
    emit(
        "nodesets.condition_all",
        number,
        {
            "s": round(took_s, 2),
            "per_s": round(number / took_s),
            "bare_per_s": round(number / bare_s),
            "share": round(bare_s / took_s, 2),
        },
    )


async def restart(stage: Stage) -> None:
    """Stop, change one node, start: until that is seen, and nothing else was written."""
    await settled(stage)
    stage.service.end(signal.SIGTERM)
    await anyio.sleep(4)
    changed = random.choice(stage.names)  # noqa: S311 - any of them.
    await stage.says(changed, "restart")
    before = stage.versions()
    began = time.perf_counter()
    stage.service.start()
    await until(lambda: stage.shows(changed, "restart"), within_s=WITHIN_S)
    took_s = time.perf_counter() - began
    await settled(stage)
    after = stage.versions()
    written = [key for key in after if after[key] != before.get(key)]
    require(holds=len(written) <= 2, claim=f"a restart writes only what changed, not {written[:5]}")  # noqa: PLR2004 - the Pod and its Node
    emit("nodesets.restart", stage.sizes.nodes, {"s": round(took_s, 2), "written": len(written)})


async def run(sizes: Sizes) -> None:
    """Measure all of it."""
    with tempfile.TemporaryDirectory() as folder:
        async with staged(sizes, Path(folder)) as stage:
            for part in (create, rest, one_by_one, all_at_once, restart):
                await part(stage)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="nodesets", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--changes", type=int, default=500, help="of one node each")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="at rest")
    anyio.run(run, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
