"""The reaction times of the story, each beside the bare calls that it rests on, measured in the same run.

Results: ``story.cordon_to_drain``, ``story.drain_to_condition``, ``story.lock_idle``, ``story.pod_bound``.
Keys: ``name``, ``n``, ``p50_ms``, ``p99_ms``, ``floor_p50_ms`` and ``nodes``.
"""

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from sunk_lab.config import from_environment
from sunk_lab.stack.raw import Object, dig
from sunk_lab.stack.stack import Stack
from sunk_lab.stack.users import OTHER_TEAMS
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import ComputeNode, StoryError
from sunk_lab.story.stage import Stage
from sunk_lab.story.tail import Tail

PERCENT: Final = 100


def timed(deed: Callable[[], object]) -> float:
    """Return how long *deed* took, in seconds."""
    began = time.perf_counter()
    deed()
    return time.perf_counter() - began


def percentile(values: list[float], percent: int) -> float:
    """Return the *percent*-th percentile: the smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // PERCENT) - 1)]


def result(name: str, values: list[float], floor: list[float], nodes: int) -> None:
    """Print one result."""
    line: Object = {
        "name": f"story.{name}",
        "nodes": nodes,
        "n": len(values),
        "p50_ms": round(statistics.median(values) * 1000, 1),
        "p99_ms": round(percentile(values, 99) * 1000, 1),
        "floor_p50_ms": round(statistics.median(floor) * 1000, 1),
    }
    print(json.dumps(line), flush=True)


def cordon_to_drain(stage: Stage, node: ComputeNode, rounds: int) -> tuple[list[float], list[float]]:
    """Cordon until Slurm shows the drain; the floor is the cordon, the drain and the look alone.

    The first round counts for nothing: on a stack that has just come up it falls into the services' start.
    """
    do = stage.deeds
    took: list[float] = []
    floor: list[float] = []
    for _ in range(rounds + 1):
        reason = fresh("bench")

        def cordon(reason: str = reason) -> None:
            do.set_cordon(node, reason)
            do.drained(node, f"k8s: cordon: {reason}")

        took.append(timed(cordon))
        do.set_uncordon(node)
        do.undrained(node)
        do.pod_shows(node, "False")

        def bare() -> None:
            do.kube.patch("Node", node.kube_node, {"metadata": {"annotations": {"bench": fresh("b")}}})
            do.slurm.update_node(node.node, comment=fresh("b"))
            do.slurm.node(node.node)

        floor.append(timed(bare))
    return took[1:], floor[1:]


def drain_to_condition(stage: Stage, node: ComputeNode, rounds: int) -> tuple[list[float], list[float]]:
    """Drain in Slurm until the Pod's condition says so; the floor is the drain and the condition alone."""
    do = stage.deeds
    took: list[float] = []
    floor: list[float] = []
    for _ in range(rounds):
        reason = fresh("bench")

        time.sleep(random.uniform(1.0, 2.0))  # noqa: S311 - no secret; a Pod is written once a second at most.

        def drain(reason: str = reason) -> None:
            do.drain_by_hand(node, reason)
            do.pod_shows(node, "True", reason)

        took.append(timed(drain))
        do.resume_by_hand(node)
        do.pod_shows(node, "False")

        def bare() -> None:
            do.slurm.update_node(node.node, comment=fresh("b"))
            do.slurm.node(node.node)
            do.kube.patch(
                "Pod", node.node, {"metadata": {"annotations": {"bench": fresh("b")}}}, node.namespace
            )
            do.kube.get("Pod", node.node, node.namespace)

        floor.append(timed(bare))
    return took, floor


def lock_idle(stage: Stage, node: ComputeNode, rounds: int) -> tuple[list[float], list[float]]:
    """A prolog's call until its answer, with nothing in the way; the floor is two PATCHes and a list."""
    do = stage.deeds
    took: list[float] = []
    floor: list[float] = []
    answered = threading.Event()

    def see(subject: str, event: Object) -> None:
        if subject.endswith(".prehook_called") and dig(event, "data", "node") == node.node:
            took.append(float(dig(event, "data", "waited_s")))
            answered.set()

    with Tail(stage.stack.nats_url_of(OTHER_TEAMS), see):
        for _ in range(rounds):
            answered.clear()
            job = do.slurm.submit("#!/bin/bash\nexit 0\n", node=node.node, name="bench")
            if not answered.wait(240):
                raise StoryError(f"no prolog of job {job} was answered")
            do.job_left(job)
            do.unlocked(node)

            def bare() -> None:
                for _ in range(2):
                    change = {"metadata": {"annotations": {"bench": fresh("b")}}}
                    do.kube.patch("Node", node.kube_node, change)
                do.kube.list("Pod", node.namespace, fieldSelector=f"spec.nodeName={node.kube_node}")

            floor.append(timed(bare))
    return took, floor


def pod_bound(stage: Stage, rounds: int) -> tuple[list[float], list[float]]:
    """A Pod's creation until it is bound; the floor is a bare job's submission until it is allocated."""
    do = stage.deeds
    took: list[float] = []
    floor: list[float] = []
    for _ in range(rounds):
        name = fresh("bench")
        took.append(do.place(name)[1])
        job = do.placeholder_of(name)
        do.kube.delete("Pod", name, manifests.NAMESPACE)
        do.pod_gone(name)
        do.job_left(job)
        for node in stage.nodes:
            do.unlocked(node)

        def bare() -> None:
            do.job_reaches(do.slurm.submit("#!/bin/bash\nexit 0\n", name="bare"), "RUNNING", "COMPLETED")

        floor.append(timed(bare))
        for node in stage.nodes:
            do.unlocked(node)
    return took, floor


def main() -> None:
    """Measure on a stack that is up, or bring one up for it."""
    parser = argparse.ArgumentParser(prog="bench story", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = int(parser.parse_args().rounds)
    stack = Stack(from_environment(), report=lambda line: print(line, file=sys.stderr, flush=True))
    was_up = stack.is_up()
    stack.up()
    try:
        stage = Stage(stack)
        node, nodes = stage.nodes[0], len(stage.nodes)
        result("cordon_to_drain", *cordon_to_drain(stage, node, rounds), nodes)
        result("drain_to_condition", *drain_to_condition(stage, node, rounds), nodes)
        result("lock_idle", *lock_idle(stage, node, rounds), nodes)
        result("pod_bound", *pod_bound(stage, rounds), nodes)
    finally:
        if not was_up:
            stack.down()


if __name__ == "__main__":
    main()
