"""How long the death of one of two is felt: from a kill until the next cordon, Pod or job is served.

Results: ``failover.bare`` (a cordon, a Pod and a job with a prolog while nothing dies), then one of each
service that leads, ended by SIGKILL and by SIGTERM (``failover.syncer_kill``, ``failover.syncer_term`` and
so on), one of two hook-gateways and of two slurmrestd (``failover.gateway_kill``,
``failover.slurmrestd_kill``), the NATS server that leads the stream by which cordons reach the syncer
(``failover.nats_kill``; ``failover.nats_term``: it ends as the chart ends it), and slurmctld, whose backup
takes over (``failover.slurmctld_kill``).
"""

import argparse
import itertools
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from failover_stage import GATEWAY, LEASES, WITHIN_S, Sizes, Stage, staged
from figures import emit, require
from msgspec.structs import replace
from nodesets_stage import NAMESPACE, kube_node
from scheduler_pods import manifest
from syncer_stage import JOB
from waiting import until

from sunk_kube.resources import NODES, PODS
from sunk_kube.wellknown import ANNOTATION_CORDON_REASON
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_slurm.submission import JobDescription

Reaction = Callable[[Stage], Awaitable[None]]
Shot = Callable[[], object]
Aim = Callable[[Stage], Awaitable[Shot]]
"""Finds what is to end, before the clock runs."""
LEASE_S: Final = 3
SLEEP: Final = "#!/bin/bash\nsleep infinity\n"

_names = itertools.count(1)


async def set_cordon(stage: Stage, reason: str | None) -> None:
    """Cordon the first Node for *reason*, or uncordon it for None."""
    marked = {"annotations": {ANNOTATION_CORDON_REASON: reason}}
    change = {"metadata": marked, "spec": {"unschedulable": True if reason else None}}
    await stage.kube.patch(NODES, kube_node(1)["metadata"]["name"], change)


async def cordon(stage: Stage) -> None:
    """Cordon a Node; return when Slurm shows the drain with exactly that reason."""
    reason = f"bench-{next(_names)}"
    change = {
        "metadata": {"annotations": {ANNOTATION_CORDON_REASON: reason}},
        "spec": {"unschedulable": True},
    }
    await stage.kube.patch(NODES, kube_node(1)["metadata"]["name"], change)
    await drained(stage, f"k8s: cordon: {reason}")


async def drained(stage: Stage, reason: str | None) -> None:
    """Return when the first node's drain has *reason*; None: when it has no drain."""
    node = stage.slurm.node_names[0]

    async def is_so() -> bool:
        return await stage.drain_reason(node) == reason

    await until(is_so, within_s=WITHIN_S)


async def uncordon(stage: Stage) -> None:
    """Uncordon the Node, and return when Slurm shows no drain."""
    await set_cordon(stage, None)
    await drained(stage, None)


async def place(stage: Stage) -> None:
    """Create a Pod; return when it is bound."""
    name = f"pod-{next(_names)}"
    await stage.kube.create(PODS, manifest(name), NAMESPACE)

    async def is_bound() -> bool:
        found = await stage.kube.find(PODS, name, NAMESPACE)
        return found is not None and bool(found.spec.node_name)

    await until(is_bound, within_s=WITHIN_S)


async def unplace(stage: Stage) -> None:
    """Remove the Pods that were placed."""
    for pod in await stage.kube.list_all(PODS, NAMESPACE):
        if pod.metadata.name.startswith("pod-"):
            await stage.kube.delete(PODS, pod.metadata.name, NAMESPACE, grace_period_s=0)


async def run_job(stage: Stage) -> None:
    """Submit a job; return when it is over: its prolog and its epilog have called the gateway."""
    job = await stage.clients[0].submit_job(on_node(stage, JOB))

    async def is_over() -> bool:
        return "COMPLETED" in await stage.job_words(job)

    await until(is_over, within_s=WITHIN_S)


async def nothing(_: Stage) -> None:
    """Do nothing."""


def on_node(stage: Stage, job: JobDescription) -> JobDescription:
    """Return *job* for the second node, which is never cordoned."""
    return replace(job, required_nodes=(stage.slurm.node_names[1],))


def leader_of(service: str, number: signal.Signals) -> Aim:
    """Return what finds the replica of *service* that leads, and ends it by the signal *number*."""

    async def aim(stage: Stage) -> Shot:
        return partial((await stage.leader(service)).signal, number)

    return aim


async def gateway(stage: Stage) -> Shot:
    """Kill one of two hook-gateways."""
    return partial(stage.replicas[GATEWAY][0].signal, signal.SIGKILL)


async def slurmrestd(stage: Stage) -> Shot:
    """Kill one of two slurmrestd."""
    return partial(stage.slurm.kill_daemon, "slurmrestd")


async def slurmctld(stage: Stage) -> Shot:
    """Kill the slurmctld that leads, once it has stored jobs: it does so some seconds after they came."""

    def has_stored_jobs() -> bool:
        with suppress(FileNotFoundError):  # It is replaced by a new one, and is away for a moment.
            return JOB.name.encode() in (stage.slurm.state / "job_state").read_bytes()
        return False

    await until(has_stored_jobs, within_s=WITHIN_S)
    return partial(stage.slurm.kill_daemon, "slurmctld")


async def nats(stage: Stage) -> Shot:
    """Kill the NATS server that leads the stream by which cordons reach the syncer."""
    return (await stage.stream_leader()).kill


async def nats_that_retires(stage: Stage) -> Shot:
    """End the same server as its Pod does: it hands over what it leads."""
    stage.retiring = await stage.stream_leader()
    return stage.retiring.retire


@dataclass(frozen=True)
class Part:
    """What dies, and by what a user would notice."""

    aim: Aim
    reaction: Reaction
    clean_up: Reaction
    bare: str
    """The same reaction while nothing dies."""


def parts() -> dict[str, Part]:
    """Return all that is measured, by name."""
    made: dict[str, Part] = {}
    for service in LEASES:
        for word, number in (("kill", signal.SIGKILL), ("term", signal.SIGTERM)):
            aim = leader_of(service, number)
            is_scheduler = service == "pod-scheduler"
            made[f"{service}_{word}"] = (
                Part(aim, place, unplace, "pod") if is_scheduler else Part(aim, cordon, uncordon, "cordon")
            )
    made["gateway_kill"] = Part(gateway, run_job, nothing, "job")
    made["slurmrestd_kill"] = Part(slurmrestd, cordon, uncordon, "cordon")
    made["nats_kill"] = Part(nats, cordon, uncordon, "cordon")
    made["nats_term"] = Part(nats_that_retires, cordon, uncordon, "cordon")
    made["slurmctld_kill"] = Part(slurmctld, cordon, uncordon, "cordon")
    return made


async def timed(reaction: Reaction, stage: Stage) -> float:
    """Return how many seconds *reaction* took."""
    began = time.perf_counter()
    await reaction(stage)
    return time.perf_counter() - began


async def bare(stage: Stage) -> dict[str, float]:
    """Measure the reactions while nothing dies; return the median of each.

    The first of each counts for nothing: it falls into the start of all services.
    """
    took: dict[str, float] = {}
    for name, reaction, clean_up in (
        ("cordon", cordon, uncordon),
        ("pod", place, unplace),
        ("job", run_job, nothing),
    ):
        each_s: list[float] = []
        for _ in range(stage.sizes.rounds + 1):
            each_s.append(await timed(reaction, stage))
            await clean_up(stage)
        took[name] = statistics.median(each_s[1:])
    emit("failover.bare", stage.sizes.rounds, {f"{name}_p50_s": round(s, 3) for name, s in took.items()})
    return took


async def measure(stage: Stage, name: str, part: Part, bare_s: float) -> None:
    """Kill, and wait for the reaction, so many rounds; then all runs again before the next."""
    took: list[float] = []
    losses = stage.losses
    for _ in range(stage.sizes.rounds):
        shot = await part.aim(stage)
        await anyio.sleep(random.uniform(0.0, 1.0))  # noqa: S311 - no secret; a lease is renewed each second.
        began = time.perf_counter()
        await anyio.to_thread.run_sync(shot)
        await part.reaction(stage)
        took.append(time.perf_counter() - began)
        await part.clean_up(stage)
        await stage.start_all()
    words = await stage.job_words(stage.job)
    claim = f"a job runs on after {name}: it is {' '.join(words) or 'unknown'}"
    if not words:
        claim = "\n".join((claim, *stage.recovered()))
    require(holds="RUNNING" in words, claim=claim)
    emit(
        f"failover.{name.replace('-', '_')}",
        len(took),
        {"p50_s": round(statistics.median(took), 2), "max_s": round(max(took), 2)},
        {"bare_s": round(bare_s, 2), "lost": stage.losses - losses, "load": round(os.getloadavg()[0], 1)},
    )


async def run(sizes: Sizes) -> None:
    """Measure what was asked for."""
    with tempfile.TemporaryDirectory() as folder:
        async with staged(sizes, Path(folder)) as stage:
            stage.job = await stage.clients[0].submit_job(on_node(stage, replace(JOB, script=SLEEP)))
            bare_s = await bare(stage)
            for name, part in parts().items():
                if not sizes.only or any(name.startswith(one) for one in sizes.only):
                    await measure(stage, name, part, bare_s[part.bare])


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="bench failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each")
    parser.add_argument("--only", nargs="*", help="results whose names begin so")
    parser.add_argument("--lease-s", type=int, default=LEASE_S, help="of each service that leads")
    parser.add_argument("--slurmctld-timeout-s", type=int, default=15, help="SlurmctldTimeout")
    parser.add_argument("--slurm", default=SLURM_26_05.version)
    anyio.run(run, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
