"""Node locks: from a prolog's call to its answer, beside the bare calls of the API server.

Results: ``locks.idle`` (nothing to evict), ``locks.one_pod`` (a Pod that ends at once, on a real kubelet),
``locks.thousand`` (every node's prolog at once), ``locks.blocked`` (every node's prolog held, for a Pod that
never goes). Nodes but one are mere records, whose Pods no kubelet runs; the gateway and the lock manager
are processes of their own.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import anyio
from figures import Cores, Usage, emit, latencies, percentiles
from locks_stage import NAMESPACE, TAINT, WITHIN_S, Sizes, Stage, in_parallel, made, manage, pod, staged
from waiting import until

from sunk_kube.client import KubeClient
from sunk_kube.resources import NODES, PODS
from sunk_kube.wellknown import ANNOTATION_LOCK
from sunk_lab.reserved import reserved_lab
from sunk_nodeset_controller.lock_controller.controller import CONCURRENCY
from sunk_runtime.lifecycle import run


def size(stage: Stage) -> dict[str, float]:
    """Return what the figures are about."""
    return {"nodes": stage.sizes.nodes, "pods": stage.sizes.pods}


async def idle(stage: Stage) -> None:
    """Locks with nothing in the way, one after the other; bare: the four calls that each is made of.

    Between them passes what a fleet's prologs would not wait for each other: see `apart`.
    """
    names = stage.nodes
    await stage.locked(names[0], 1)  # Whatever is slow once.
    await stage.released(names[0], 1)
    took: list[float] = []
    bare: list[float] = []
    for number in range(stage.sizes.rounds):
        name = names[number % len(names)]
        job = 1000 + number  # Another each time: who was just released is doubted for a while.
        await apart()
        took += await latencies(1, lambda name=name, job=job: stage.locked(name, job))
        await stage.released(name, job)
        await apart()
        bare += await latencies(1, lambda name=name: bare_calls(stage.kube, name))
    emit("locks.idle", len(took), size(stage), percentiles(took), percentiles(bare, "bare_"))


async def apart() -> None:
    """Wait for a moment, another each time.

    A consistent list waits until the API server's watch cache has come as far as etcd, and it asks etcd for
    that at most each 100 ms: a list right after another one waits for the rest of those.
    """
    await anyio.sleep(random.uniform(0.1, 0.3))  # noqa: S311 - no secret


async def bare_calls(kube: KubeClient, name: str) -> None:
    """Make the calls of a lock that has nothing to wait for."""
    await kube.get(NODES, name)
    await kube.patch(NODES, name, {"metadata": {"annotations": {"bench.example/n": "1"}}})
    await kube.list_all(PODS, fields=f"spec.nodeName={name}")
    await kube.patch(NODES, name, {"metadata": {"annotations": {"bench.example/n": "2"}}})


async def one_pod(stage: Stage) -> None:
    """Locks with one Pod to evict; bare: from the taint until the Pod is gone, which is Kubernetes' own."""
    took: list[float] = []
    bare: list[float] = []
    for number in range(max(3, stage.sizes.rounds // 5)):
        await running(stage, f"took-{number}")
        took += await latencies(1, lambda number=number: stage.locked(stage.real, 1000 + number))
        await stage.released(stage.real, 1000 + number)
        await running(stage, f"bare-{number}")
        bare += await latencies(1, lambda number=number: tainted_until_gone(stage, f"bare-{number}"))
        await stage.kube.patch(NODES, stage.real, {"spec": {"taints": None}})
    emit("locks.one_pod", len(took), size(stage), percentiles(took), percentiles(bare, "bare_"))


async def running(stage: Stage, name: str) -> None:
    """Have a Pod run on the Node with a kubelet."""

    async def runs() -> bool:
        found = await stage.kube.find(PODS, name, NAMESPACE)
        if found is None:
            await made(stage.kube, pod(name, stage.real, stays=False))
        elif found.is_over:  # Kubelet, and the controller of taints, hear later than we that one is gone.
            await stage.kube.delete(PODS, name, NAMESPACE)
        return found is not None and found.is_ready

    await until(runs, within_s=WITHIN_S)


async def tainted_until_gone(stage: Stage, name: str) -> None:
    """Set the taint and nothing else."""
    taint = {"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}
    await stage.kube.patch(NODES, stage.real, {"spec": {"taints": [taint]}})

    async def is_gone() -> bool:
        return await stage.kube.find(PODS, name, NAMESPACE) is None

    await until(is_gone, within_s=WITHIN_S)


async def thousand(stage: Stage) -> None:
    """All nodes' prologs at once; bare: the calls of the API server that they are made of."""
    began = time.perf_counter()
    await in_parallel([lambda name=name: bare_calls(stage.kube, name) for name in stage.nodes], CONCURRENCY)
    bare = {"bare_s": round(time.perf_counter() - began, 2)}
    took: list[float] = []
    usages, cores = {"gateway": Usage(stage.gateway), "manager": Usage(stage.manager)}, Cores()
    servers = {name: Usage(pid) for name, pid in stage.servers.items()}

    async def prolog(name: str) -> None:
        began = time.perf_counter()
        await stage.locked(name, 4)
        took.append((time.perf_counter() - began) * 1000)

    async with anyio.create_task_group() as tasks:
        for name in stage.nodes:
            tasks.start_soon(prolog, name)
    used = {key: value for who, one in usages.items() for key, value in one.figures(who).items()}
    others = {f"{who}_cpu_s": round(one.cpu_s, 2) for who, one in servers.items()}
    emit(
        "locks.thousand",
        len(took),
        size(stage),
        {"s": round(max(took) / 1000, 2)} | bare,
        percentiles(took),
        used,
        others | {"idle": round(cores.idle, 2)},
    )
    await in_parallel(lambda name=name: stage.released(name, 4) for name in stage.nodes)


async def blocked(stage: Stage) -> None:
    """All nodes' prologs held, for a Pod that no kubelet ends."""
    await in_parallel(
        lambda name=name: made(stage.kube, pod(f"stays-{name}", name, stays=False)) for name in stage.nodes
    )
    async with anyio.create_task_group() as tasks:
        for name in stage.nodes:
            tasks.start_soon(stage.prehook, name, 5)
        await until(lambda: are_held(stage), within_s=WITHIN_S)
        await until(lambda: are_pending(stage), within_s=WITHIN_S)
        await anyio.sleep(5)  # What the start set off dies away.
        usages = {"gateway": Usage(stage.gateway), "manager": Usage(stage.manager)}
        await anyio.sleep(stage.sizes.seconds)
        used = {key: value for who, one in usages.items() for key, value in one.figures(who).items()}
        await until(lambda: are_held(stage), within_s=WITHIN_S)  # One that was held for long calls again.
        emit("locks.blocked", len(stage.nodes), size(stage), {"s": stage.sizes.seconds}, used)
        tasks.cancel_scope.cancel()


async def are_held(stage: Stage) -> bool:
    """Whether the gateway holds the call of each node."""
    line = f'sunk_hook_calls_held{{call="prehook"}} {float(len(stage.nodes))}'
    async with stage.http.get("/metrics") as answer:
        return line in await answer.text()


async def are_pending(stage: Stage) -> bool:
    """Whether the lock of each node stands, and waits."""
    nodes = await stage.kube.list_all(NODES)
    waiting = [node for node in nodes if node.metadata.annotations.get(ANNOTATION_LOCK) == "pending"]
    return len(waiting) == len(stage.nodes)


async def measure(sizes: Sizes) -> None:
    """Measure everything, one after the other, in a lab of our own."""
    with tempfile.TemporaryDirectory(prefix="sunk-bench-") as folder, reserved_lab() as lab:
        await anyio.to_thread.run_sync(lambda: lab.up(nodes=1))
        async with staged(sizes, Path(folder), lab) as stage:
            await idle(stage)
            await one_pod(stage)
            await thousand(stage)
            await blocked(stage)


def main() -> None:
    """Measure, or be the lock manager that is measured."""
    parser = argparse.ArgumentParser(prog="bench locks", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which calls are held")
    parser.add_argument("--manage", default="", help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", default="", help=argparse.SUPPRESS)
    sizes = parser.parse_args(namespace=Sizes())
    if sizes.manage:
        run("nodeset-controller", lambda: manage(sizes))
    else:
        anyio.run(measure, sizes)


if __name__ == "__main__":
    main()
