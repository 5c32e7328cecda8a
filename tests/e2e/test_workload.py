"""A day's work in minutes: a Deployment through Slurm grows and shrinks while array jobs come and go.

A recorder looks at both sides all the while. What it counts: at the moment that Slurm tells its jobs, the
CPUs of the jobs that run on a node and those of the Pods that were there before and are there after are no
more than the node has. So nothing was given twice, not even while a Pod whose job is over still ends.
"""

import random
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.stack.raw import Object, dig, dig_text
from sunk_lab.stack.slurmapi import job_state
from sunk_lab.story import manifests
from sunk_lab.story.deeds import HOLDING, fresh
from sunk_lab.story.observe import is_running, until
from sunk_lab.story.stage import Stage

MINUTES: Final = max(2, from_environment().seeds)
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(MINUTES * 60 + 900),
    pytest.mark.nightly,
]

REPLICAS: Final = 12
SLURM_CPUS: Final = 8
"""Of each of the lab's nodes, in Slurm's eyes: more than the machine has."""
ARRAY: Final = "#!/bin/bash\nsleep $((SLURM_ARRAY_TASK_ID % 4 + 1))\n"
WITHIN_S: Final = 300.0


class Recorder:
    """Looks at both sides, again and again, and keeps what must not be."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._do, self._name = stage.deeds, name
        self._node = {node.kube_node: node.node for node in stage.nodes}
        self.looks = 0
        self.bound: set[str] = set()
        """The uids of all Pods that were ever seen on a Node."""
        self.wrong: list[str] = []

    def look(self) -> None:
        """Look once."""
        before = self._bound()
        jobs = [job for job in self._do.slurm.jobs() if job_state(job) & HOLDING]
        after = self._bound()
        there = {uid: node for uid, node in before.items() if after.get(uid) == node}
        own = f"{manifests.NAMESPACE}/{self._name}-"
        work = [job for job in jobs if not str(job["name"]).startswith(own)]
        self._count(there, work)
        self._count_jobs([job for job in jobs if str(job["name"]).startswith(own)])
        self.bound |= there.keys()
        self.looks += 1

    def _count_jobs(self, placeholders: Iterable[Object]) -> None:
        """Look for Pods with two jobs; one that was cancelled before its Pod was bound may be leaving."""
        told: dict[str, list[str]] = {}
        for job in placeholders:
            if "COMPLETING" not in (words := job_state(job)):
                told.setdefault(str(job["name"]), []).append(f"{job['job_id']} {'+'.join(sorted(words))}")
        self.wrong += [f"{pod} has jobs {jobs}" for pod, jobs in told.items() if len(jobs) > 1]

    def _count(self, pods: dict[str, str], work: Iterable[Object]) -> None:
        used = Counter(pods.values())  # Each is one CPU to Slurm.
        for job in work:
            if "RUNNING" in job_state(job):
                used[dig_text(job, "nodes")] += int(str(dig(job, "cpus", "number") or 0))
        self.wrong += [f"{node} gives {cpus} CPUs" for node, cpus in used.items() if cpus > SLURM_CPUS]

    def _bound(self) -> dict[str, str]:
        """Return the Slurm node of each Pod of ours that is on a Node and not over, by uid."""
        return {
            dig_text(pod, "metadata", "uid"): self._node[dig_text(pod, "spec", "nodeName")]
            for pod in self._do.eyes.pods(manifests.NAMESPACE, f"app={self._name}")
            if dig_text(pod, "spec", "nodeName")
            and dig_text(pod, "status", "phase") in {"Pending", "Running"}
        }


@contextmanager
def recording(stage: Stage, name: str) -> Generator[Recorder]:
    """Have a recorder look meanwhile, with connections of its own."""
    recorder, is_over = Recorder(Stage(stage.stack), name), Event()

    def run() -> None:
        while not is_over.is_set():
            try:
                recorder.look()
            except (LabError, OSError):
                continue  # One side is too busy to answer.

    thread = Thread(target=run)
    thread.start()
    try:
        yield recorder
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def name(stage: Stage) -> Generator[str]:
    """A Deployment's name; it goes with the test."""
    name = fresh("inference")
    yield name
    stage.deeds.kube.delete("Deployment", name)
    for job in stage.deeds.slurm.jobs():
        if job["name"] == f"work-{name}" and job_state(job) & {"PENDING", *HOLDING}:
            stage.deeds.slurm.cancel(int(job["job_id"]))
    until("its Pods gone", lambda: not pods(stage, name), lambda: len(pods(stage, name)), patience_s=WITHIN_S)
    for node in stage.nodes:
        stage.deeds.unlocked(node)


def pods(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={name}")


def deployment(name: str) -> Object:
    spec = manifests.placed_pod(name, cpu="100m", memory="20Mi")["spec"]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def scale(stage: Stage, name: str, replicas: int) -> None:
    stage.deeds.kube.patch("Deployment", name, {"spec": {"replicas": replicas}})


def all_run(stage: Stage, name: str) -> None:
    def running() -> int:
        return sum(is_running(pod) for pod in pods(stage, name))

    until(f"{REPLICAS} Pods run", lambda: running() == REPLICAS, running, patience_s=WITHIN_S)


def work(stage: Stage, name: str, chance: random.Random) -> None:
    """Change one thing, as people do."""
    do = stage.deeds
    match chance.choice(("scale", "array", "array", "delete", "cancel")):
        case "scale":
            scale(stage, name, chance.randint(2, REPLICAS))
        case "array":
            tasks, cpus = chance.randint(2, 8), chance.randint(1, 4)
            do.slurm.submit(ARRAY, name=f"work-{name}", array=f"0-{tasks}", cpus_per_task=cpus)
        case "delete":
            if found := pods(stage, name):
                do.kube.delete("Pod", chance.choice(found)["metadata"]["name"])
        case _:
            jobs = [job for job in do.slurm.jobs() if job_state(job) == {"RUNNING"}]
            if jobs:
                do.slurm.cancel(int(chance.choice(jobs)["job_id"]))


def test_nothing_is_given_twice_and_all_pods_come_back_while_both_sides_come_and_go(
    stage: Stage, name: str
) -> None:
    chance, ends = random.Random(MINUTES), time.monotonic() + MINUTES * 60  # noqa: S311 - it picks work
    stage.deeds.kube.create(deployment(name))
    all_run(stage, name)
    with recording(stage, name) as recorder:
        while time.monotonic() < ends:
            with suppress(LabError, OSError):  # One side is too busy to answer.
                work(stage, name, chance)
            time.sleep(chance.uniform(0.5, 3))
        scale(stage, name, REPLICAS)
        all_run(stage, name)
        until(
            "all work done",
            lambda: not [job for job in stage.deeds.slurm.jobs() if is_work(job, name)],
            lambda: [job["job_id"] for job in stage.deeds.slurm.jobs() if is_work(job, name)],
            patience_s=WITHIN_S,
        )
        all_run(stage, name)

    assert recorder.wrong == []
    assert len(recorder.bound) > REPLICAS
    assert recorder.looks > MINUTES


def is_work(job: Object, name: str) -> bool:
    return job["name"] == f"work-{name}" and bool(job_state(job) & {"PENDING", *HOLDING})
