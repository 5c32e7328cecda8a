"""A rolling update of every slurmd Pod while jobs run: no job is lost, whoever is killed on the way."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from sunk_lab.kube.cgroups import processes_of
from sunk_lab.processes import stopped
from sunk_lab.stack.kubeapi import condition
from sunk_lab.stack.raw import Object, dig
from sunk_lab.stack.slurmapi import node_state
from sunk_lab.story.deeds import HOLDING, fresh
from sunk_lab.story.observe import ComputeNode, until
from sunk_lab.story.scrape import Series
from sunk_lab.story.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.timeout(600)]

WITHIN_S = 240.0
AT_ONCE = 2
NAMESPACE, NODESET = "slurm", "gpu"
CONDEMNED = "sunk.coreweave.com/condemned"
JOB = "#!/bin/bash\nsleep 6\n"


def pods(stage: Stage) -> list[Object]:
    return [pod for _, pod in stage.stack.nodeset_pods()]


def uids(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(stage)}


def update(stage: Stage) -> None:
    """Change the template, so that every Pod is to be replaced, two at once."""
    template = {"metadata": {"annotations": {"lab.sunk/update": fresh("update")}}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": AT_ONCE}}
    change = {"spec": {"template": template, "updateStrategy": strategy}}
    stage.deeds.kube.patch("NodeSet", NODESET, change, NAMESPACE)


class Film:
    """Every step of every slurmd Pod, as the API server tells it, and how many serve after each."""

    def __init__(self, stage: Stage) -> None:
        self._kube = stage.deeds.kube
        self._pods: dict[str, Object] = {}
        self._came_up: set[str] = set()
        self._version = ""
        self.serving: list[int] = []
        self.roll()
        self.serving.clear()  # The first steps are what was there, one after the other.

    def roll(self) -> None:
        """Take in what has happened since the last time."""
        label = {"labelSelector": "sunk.coreweave.com/nodeset"}
        for step in self._kube.changes("Pod", NAMESPACE, since=self._version, **label):
            assert step["type"] in ("ADDED", "MODIFIED", "DELETED"), step
            pod = step["object"]
            meta = pod["metadata"]
            self._version = max(self._version, meta["resourceVersion"], key=lambda one: int(one or 0))
            if step["type"] == "DELETED":
                self._pods.pop(meta["name"], None)
            else:
                self._pods[meta["name"]] = pod
            if (condition(pod, "Ready") or {}).get("status") == "True":
                self._came_up.add(meta["uid"])
            self.serving.append(sum(map(self._is_serving, self._pods.values())))

    def _is_serving(self, pod: Object) -> bool:
        """Whether *pod* came up, and nobody takes it away; a kubelet that stalls is no update."""
        meta = pod["metadata"]
        is_leaving = "deletionTimestamp" in meta or CONDEMNED in meta.get("annotations", {})
        return meta["uid"] in self._came_up and not is_leaving


def is_updated(stage: Stage) -> bool:
    nodeset = stage.deeds.kube.get("NodeSet", NODESET, NAMESPACE)
    is_seen = dig(nodeset, "status", "observedGeneration") == dig(nodeset, "metadata", "generation")
    said = [(condition(nodeset, kind) or {}).get("status") for kind in ("Updated", "Ready")]
    return is_seen and said == ["True", "True"]


def how_it_stands(stage: Stage) -> object:
    nodeset = stage.deeds.kube.get("NodeSet", NODESET, NAMESPACE)
    drains = {node.node: stage.deeds.eyes.drain_reason(node.node) for node in stage.nodes}
    return dig(nodeset, "status", "conditions"), drains


def wait(stage: Stage, film: Film, what: str, is_so: Callable[[], bool]) -> None:
    """Wait until *is_so*, and leave out nothing of what happens until then."""

    def is_so_now() -> bool:
        film.roll()
        return is_so()

    until(what, is_so_now, lambda: how_it_stands(stage), patience_s=WITHIN_S)


def kill_the_controller_when(stage: Stage, film: Film, what: str, is_so: Callable[[], bool]) -> None:
    wait(stage, film, what, is_so)
    stage.stack.services.kill("nodeset-controller")
    stage.stack.services.start("nodeset-controller")


def await_end(stage: Stage, job: int) -> None:
    """Wait until the job has ended; after a refused prolog it waits in the queue again, for two minutes."""

    def words() -> set[str]:
        return stage.deeds.eyes.job_words(job)

    until(f"job {job} to end", lambda: not words() & {*HOLDING, "PENDING"}, words, patience_s=WITHIN_S)


def refusals(stage: Stage) -> float:
    """Return how many prologs the hook-gateway has refused at their deadline."""
    found = Series(stage.stack.metrics_of("hook-gateway")).samples
    return sum(one.value for one in found if one.name == "sunk_hook_refusals_total")


def test_an_update_loses_no_job_and_ends_though_its_controller_is_killed_at_each_step(stage: Stage) -> None:
    do, before, refused_before = stage.deeds, uids(stage), refusals(stage)
    jobs = [do.slurm.submit(JOB, node=node.node, name="training") for node in stage.nodes]
    for job in jobs:
        do.job_reaches(job, "RUNNING")
    film = Film(stage)
    update(stage)

    kill_the_controller_when(
        stage,
        film,
        "a Pod to be condemned",
        lambda: any(CONDEMNED in pod["metadata"].get("annotations", {}) for pod in pods(stage)),
    )
    jobs += [do.slurm.submit(JOB, name="late") for _ in range(3)]
    kill_the_controller_when(stage, film, "a Pod to be gone", lambda: not before <= uids(stage))
    kill_the_controller_when(stage, film, "a new Pod", lambda: bool(uids(stage) - before))
    wait(stage, film, "the update to end", lambda: is_updated(stage))
    film.roll()

    for job in jobs:
        await_end(stage, job)
    assert not before & uids(stage)
    assert min(film.serving) >= len(before) - AT_ONCE
    assert [do.eyes.job_words(job) for job in jobs] == [{"COMPLETED"}] * len(jobs)
    restarts = sum(int((do.slurm.job(job) or {})["restart_cnt"]) for job in jobs)
    # A controller that needs longer to start than a prolog waits has it refused, and its job requeued.
    assert restarts <= refusals(stage) - refused_before
    for node in stage.nodes:
        do.undrained(node)
        do.unlocked(node)


@contextmanager
def unreached(stage: Stage, node: ComputeNode) -> Generator[None]:
    """Have slurmctld not reach the slurmd of *node*, whose Pod stays ready, and call the node down."""
    (uid,) = [pod["metadata"]["uid"] for pod in pods(stage) if pod["metadata"]["name"] == node.node]
    found = stage.deeds.slurm.node
    with stopped(processes_of(uid, "slurmd")):
        until(
            "slurmctld to miss it",  # Until then what it answered before may have slurmctld call it up again.
            lambda: "NOT_RESPONDING" in node_state(found(node.node)),
            lambda: found(node.node),
        )
        stage.deeds.slurm.update_node(node.node, state=["DOWN"], reason="bad dimm")
        yield


@contextmanager
def held(stage: Stage, node: ComputeNode) -> Generator[None]:
    """Keep the Pod of *node* from being gone, so that its drain stays until then."""
    kube = stage.deeds.kube
    kube.patch("Pod", node.node, {"metadata": {"finalizers": ["lab.sunk/held"]}}, NAMESPACE)
    try:
        yield
    finally:
        kube.patch("Pod", node.node, {"metadata": {"finalizers": None}}, NAMESPACE)


def is_back(stage: Stage, node: ComputeNode) -> None:
    """Wait until Slurm uses *node* again."""
    found = stage.deeds.slurm.node
    until(
        "the node to be back",
        lambda: not {"DOWN", "NOT_RESPONDING"} & node_state(found(node.node)),
        lambda: found(node.node),
    )


def test_kubectl_drain_gets_past_a_node_that_is_down_though_its_pod_is_ready(stage: Stage) -> None:
    do, before, node = stage.deeds, uids(stage), stage.nodes[0]
    only = ("--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=sunk.coreweave.com/nodeset")
    try:
        with unreached(stage, node):
            drain = ("drain", node.kube_node, *only, f"--timeout={WITHIN_S:.0f}s")
            stage.stack.kubectl(*drain, timeout_s=WITHIN_S + 60)
            left = before - uids(stage)
    finally:
        stage.stack.kubectl("uncordon", node.kube_node)

    assert len(left) == 1
    do.undrained(node)
    is_back(stage, node)


def test_an_update_gets_past_a_node_that_is_down_though_its_pod_is_ready(stage: Stage) -> None:
    """slurmctld does not reach its slurmd, which answers its probe: nothing but a drain lets its Pod go."""
    do, before, node = stage.deeds, uids(stage), stage.nodes[0]
    with unreached(stage, node):
        film = Film(stage)
        with held(stage, node):
            update(stage)
            kept = re.compile("k8s: pod.*; was down: bad dimm")
            wait(
                stage,
                film,
                "why it is down to be kept",
                lambda: bool(kept.match(do.eyes.drain_reason(node.node) or "")),
            )
        wait(stage, film, "the update to end", lambda: is_updated(stage))

    assert not before & uids(stage)
    assert min(film.serving) >= len(before) - AT_ONCE
    for one in stage.nodes:
        do.undrained(one)
    is_back(stage, node)


def without_slurmd(template: Object) -> Object:
    """Return *template* with Pods that are ready, and never make their nodes known to slurmctld."""
    (container,) = template["spec"]["containers"]
    idle = {key: value for key, value in container.items() if key not in ("args", "readinessProbe")}
    containers = [{**idle, "command": ["sleep", "infinity"]}]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def test_a_template_that_slurm_cannot_use_stops_at_the_first_node_until_another_one_mends_it(
    stage: Stage,
) -> None:
    do, before, kube = stage.deeds, uids(stage), stage.deeds.kube
    good = dig(kube.get("NodeSet", NODESET, NAMESPACE), "spec", "template")
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    bad = {"spec": {"template": without_slurmd(good), "updateStrategy": one_by_one}}

    def held_by() -> list[str]:
        said = condition(kube.get("NodeSet", NODESET, NAMESPACE), "Updated") or {}
        return re.findall(r"nodes of these updated Pods: (\S+) \(", str(said.get("message", "")))

    try:
        kube.patch("NodeSet", NODESET, bad, NAMESPACE)
        until(
            "an update that waits", lambda: bool(held_by()), lambda: how_it_stands(stage), patience_s=WITHIN_S
        )
        (bad_node,) = held_by()
        # A controller that begins anew knows no more of the template, and jobs run on the others meanwhile.
        stage.stack.services.kill("nodeset-controller")
        stage.stack.services.start("nodeset-controller")
        jobs = [do.slurm.submit(JOB, node=one.node) for one in stage.nodes if one.node != bad_node]
        for job in jobs:
            do.job_reaches(job, "COMPLETED")
        made = [pod["metadata"]["name"] for pod in pods(stage) if pod["metadata"]["uid"] not in before]
        assert made == [bad_node]
    finally:
        kube.patch("NodeSet", NODESET, {"spec": {"template": good}}, NAMESPACE)
    until("the update to end", lambda: is_updated(stage), lambda: how_it_stands(stage), patience_s=WITHIN_S)
    for node in stage.nodes:
        do.undrained(node)
        is_back(stage, node)
