"""The steps of the story.

Each does what people do, waits for what the other side must show, and raises `StoryError` if that fails.

Every step leaves the lab as it found it, and may be told again at once. *midway* is called in the middle of
one, when one side has acted and the other has not shown it yet: where tests kill a service.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sunk_lab.stack.slurmapi import job_state
from sunk_lab.story import manifests
from sunk_lab.story.deeds import Deeds, fresh
from sunk_lab.story.observe import ComputeNode, StoryError, is_running, until
from sunk_lab.story.scrape import Series
from sunk_lab.story.stage import Scene
from sunk_lab.story.witness import Witness


@dataclass(frozen=True)
class Timing:
    """A reaction and how long it took."""

    what: str
    seconds: float


Midway = Callable[[], None]


def nothing() -> None:
    """Do nothing midway."""


def cordon(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """A cordon drains the Slurm node and an uncordon undrains it; a drain set by hand stays."""
    do, (first, second, *_) = stage.deeds, stage.nodes
    do.set_cordon(first, "bad DIMM")
    midway()
    to_drain = do.drained(first, "k8s: cordon: bad DIMM")
    stage.show(
        f"{first.kube_node} is cordoned with a reason. Slurm has drained its node with the same reason", first
    )
    do.set_uncordon(first)
    to_undrain = do.undrained(first)
    stage.show(f"{first.kube_node} is uncordoned. The drain is gone", first)
    do.drain_by_hand(second, "by hand: fan")
    try:
        do.set_cordon(second, "rack work")
        do.set_cordon(first, "rack work")
        do.drained(first, "k8s: cordon: rack work")  # By now the second one's cordon was looked at too.
        do.set_uncordon(second)
        do.set_uncordon(first)
        do.undrained(first)
        if (reason := do.eyes.drain_reason(second.node)) != "by hand: fan":
            raise StoryError(f"{second.node}: the drain set by hand became {reason!r}")
        stage.show(
            "An administrator drained this node in Slurm. Cordon and uncordon did not change that drain",
            second,
        )
    finally:
        do.set_uncordon(second)
        do.resume_by_hand(second)
    do.undrained(second)
    return [Timing("cordon → Slurm node drained", to_drain), Timing("uncordon → undrained", to_undrain)]


def drain(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """A drain in Slurm shows on the Pod and the Node, and goes with it."""
    do, node = stage.deeds, stage.nodes[0]
    do.drain_by_hand(node, "ECC errors")
    midway()
    to_pod = do.pod_shows(node, "True", "ECC errors")
    to_node = to_pod + do.node_shows(node, "True")
    stage.show(
        "The node is drained in Slurm. The Pod has the condition SlurmDrain, the Node SlurmCordon", node
    )
    do.resume_by_hand(node)
    to_clear = do.pod_shows(node, "False")
    do.node_shows(node, "False")
    stage.show("The node is resumed. Both conditions are False", node)
    return [
        Timing("drain in Slurm → SlurmDrain on the Pod", to_pod),
        Timing("drain in Slurm → SlurmCordon on the Node", to_node),
        Timing("resume → condition gone", to_clear),
    ]


SPOOL: Final = "/var/spool/slurmd"
"""slurmd's own folder, which jobs of root write to and others see: /tmp may be a job's own."""
JOB_SCRIPT: Final = f"""#!/bin/bash
date +%s.%N > {SPOOL}/started-$SLURM_JOB_ID
while [ ! -e {SPOOL}/end-$SLURM_JOB_ID ]; do sleep 0.1; done
"""


def lock(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """A job's Node is cleared before its first line runs, and free again when it is over."""
    do, node, name = stage.deeds, stage.nodes[0], fresh("inference")
    pod = do.deploy(name, node)
    stage.show(f"An ordinary Deployment runs on {node.kube_node}, in Pod {pod}", node)
    try:
        with Witness(lambda: _is_there(do, pod)) as witness:
            job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="training")
            do.job_reaches(job, "RUNNING")
            began = time.monotonic()
            midway()
            do.locked(node)
            to_lock = time.monotonic() - began
            started = _first_line(stage, node, job)
        if started <= witness.last_seen:
            late = witness.last_seen - started
            raise StoryError(f"job {job} started {late:.3f} s before Pod {pod} was gone")
        stage.show(
            f"Job {job} runs. It started {started - witness.last_seen:.2f} s after the Pod had left", node
        )
        stage.in_slurmd(node, "touch", f"{SPOOL}/end-{job}")
        do.job_left(job)
        to_unlock = do.unlocked(node)
        began = time.monotonic()
        do.deployment_runs(name)
        back = time.monotonic() - began
        stage.show("The job has ended and the lock is gone. The Deployment's Pod is back", node)
    finally:
        do.kube.delete("Deployment", name, manifests.NAMESPACE)
    until(f"Deployment {name} gone", lambda: not do.eyes.pods("default", f"app={name}"), lambda: name)
    return [
        Timing("job allocated → Node locked, a Pod in the way", to_lock),
        Timing("job ended → lock gone (it stays a moment for a next job)", to_unlock),
        Timing("lock gone → the Deployment's Pod back", back),
    ]


ALL_REDUCE: Final = """
use IO::Socket::INET;
my ($rank, $ranks, $sum) = (@ENV{"SLURM_PROCID", "SLURM_NTASKS"}, $ENV{SLURM_PROCID} + 1);
if ($rank == 0) {
    my $server = IO::Socket::INET->new(Listen => $ranks, LocalPort => 29500, ReuseAddr => 1) or die "$@\\n";
    my @others = map { $server->accept } 2 .. $ranks;
    $sum += readline $_ for @others;
    for my $other (@others) { print $other "$sum\\n"; close $other }
} else {
    my $first;
    for (1 .. 100) {
        $first = IO::Socket::INET->new(PeerAddr => $ENV{MASTER_ADDR}, PeerPort => 29500) and last;
        select undef, undef, undef, 0.1;
    }
    $first or die "$ENV{MASTER_ADDR}: $@\\n";
    print $first "$sum\\n";
    chomp($sum = readline $first);
}
print "rank $rank of $ranks on $ENV{SLURMD_NODENAME} met at $ENV{MASTER_ADDR}: sum $sum\\n";
"""
"""What torchrun and NCCL do first: all ranks meet at a node's name, and add up what each has.

In Perl, for every Debian has it.
"""
TRAINING_SCRIPT: Final = f"""#!/bin/bash
export MASTER_ADDR=$(hostname)  # The script runs on the node of rank 0, which need not be the first by name.
srun -K -N2 -n2 perl -e '{ALL_REDUCE}' >{SPOOL}/trained-$SLURM_JOB_ID 2>&1
"""

OVER: Final = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}
"""The states in which a job is seen to have ended."""


def _seen(stage: Scene, job: int) -> list[str]:
    """Return the state of *job* with Slurm's reason, and both sides of all nodes."""
    found = stage.deeds.slurm.job(job) or {}
    return [f"{sorted(job_state(found))} {found.get('state_reason')}", *stage.both_sides(*stage.nodes)]


def train(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """The ranks of a job on two nodes meet at a node's name, and each learns the sum of what all have."""
    do, began = stage.deeds, time.monotonic()
    job = do.slurm.submit(  # The time counts from the allocation: the nodes' prologs are in it.
        TRAINING_SCRIPT, name="training", nodes="2", tasks=2, time_limit={"set": True, "number": 10}
    )
    midway()
    try:
        until(f"job {job} over", lambda: bool(do.eyes.job_words(job) & OVER), lambda: _seen(stage, job))
        to_end = time.monotonic() - began
    finally:
        do.slurm.cancel(job)
    ended = do.slurm.job(job) or {}
    if "COMPLETED" not in job_state(ended):
        raise StoryError(f"job {job}, over two nodes: {_seen(stage, job)}")
    name = str(ended.get("batch_host"))
    leader = next(node for node in stage.nodes if node.node == name)
    lines = sorted(stage.in_slurmd(leader, "cat", f"{SPOOL}/trained-{job}").splitlines())
    good = [
        [f"rank {rank} of 2 on {node} met at {name}: sum 3" for rank, node in enumerate((name, other.node))]
        for other in stage.nodes
        if other != leader
    ]
    if lines not in good:
        raise StoryError(f"the ranks of job {job}, over two nodes, did not meet at {name}: {lines}")
    stage.show(f"The ranks of job {job} on two nodes have met: {'; '.join(lines)}", *stage.nodes)
    for node in stage.nodes:
        do.unlocked(node)
    return [Timing("job on two nodes submitted → its ranks have met, the job has ended", to_end)]


def place(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """A Pod becomes a job and runs where Slurm says; whichever ends first, the Pod goes before the job."""
    do, name = stage.deeds, fresh("llm")
    do.kube.create(manifests.placed_pod(name))
    began = time.monotonic()
    midway()
    until(f"Pod {name} bound", lambda: bool(do.node_of(name)), lambda: do.story_of(name))
    bound = time.monotonic() - began
    do.pod_runs(name)
    running = time.monotonic() - began
    job = do.placeholder_of(name)
    _right_job(stage, job, name)
    where = [node for node in stage.nodes if node.kube_node == do.node_of(name)]
    stage.show(f"Pod {name} runs on the node of its placeholder job {job}", *where)
    do.kube.delete("Pod", name, manifests.NAMESPACE)
    gone_s, left_s = _goes_before(do, name, job)
    stage.show(f"Pod {name} is deleted. Job {job} ended after the Pod was gone", *where)
    second = fresh("llm")
    do.place(second)
    do.pod_runs(second)
    other = do.placeholder_of(second)
    do.slurm.cancel(other)
    cancel_s, _ = _goes_before(do, second, other)
    stage.show(f"Job {other} is cancelled. Pod {second} ended first, then the job", *where)
    for node in stage.nodes:
        do.unlocked(node)
    return [
        Timing("Pod created → bound", bound),
        Timing("Pod created → running", running),
        Timing("Pod deleted → Pod gone", gone_s),
        Timing("Pod gone → job ended", left_s),
        Timing("scancel → Pod gone", cancel_s),
    ]


def metrics(stage: Scene, midway: Midway = nothing) -> list[Timing]:
    """The exporter tells what Slurm tells, by the documented names."""
    do, node = stage.deeds, stage.nodes[0]
    job = do.slurm.submit("#!/bin/bash\nsleep 300\n", node=stage.nodes[1].node, name="metrics")
    do.job_reaches(job, "RUNNING")
    do.drain_by_hand(node, "for the metrics")
    midway()
    try:
        total = len(do.slurm.nodes())
        expected = {
            "slurm_nodes_total": float(total),
            "slurm_nodes_drain": 1.0,
            "slurm_queue_running": 1.0,
        }
        took = until(
            "the exporter shows the drain and the job",
            lambda: _tells(stage.scrape(), expected, node.node, job),
            lambda: {name: stage.scrape().value(name) for name in expected},
        )
        stage.show("The metrics show the same", node)
    finally:
        do.slurm.cancel(job)
        do.resume_by_hand(node)
    do.undrained(node)
    do.job_left(job)
    for each in stage.nodes:
        do.unlocked(each)
    return [Timing("drain and job in Slurm → in /metrics", took)]


def _tells(series: Series, expected: dict[str, float], node: str, job: int) -> bool:
    return (
        all(series.value(name) == value for name, value in expected.items())
        and any("drain" in state for state in series.labels("slurm_node_state", "state", node=node))
        and "running" in [state.lower() for state in series.labels("slurm_job_state", "state", id=str(job))]
    )


def _is_there(do: Deeds, pod: str) -> bool:
    found = do.kube.get("Pod", pod, manifests.NAMESPACE)
    return is_running(found) or bool(found and found["status"].get("phase") == "Running")


def _first_line(stage: Scene, node: ComputeNode, job: int) -> float:
    """Return when the job's first line ran, in seconds since the epoch."""
    found: list[str] = []

    def look() -> bool:
        text = stage.in_slurmd(node, "cat", f"{SPOOL}/started-{job}").strip()
        found.append(text)
        return bool(text)

    until(f"first line of job {job}", look, lambda: stage.deeds.eyes.job_words(job))
    return float(found[-1])


def _right_job(stage: Scene, job: int, pod: str) -> None:
    """The placeholder asks for what the Pod asks for, runs where the Pod is, and says that it has started."""
    do = stage.deeds
    found = do.slurm.job(job) or {}
    cpus = found.get("cpus", {}).get("number")
    extra = str(found.get("extra", ""))
    node = next((each for each in stage.nodes if each.kube_node == do.node_of(pod)), None)
    if node is None or str(found.get("nodes")) != node.node:
        raise StoryError(
            f"Pod {pod} is on {do.node_of(pod)}, its job {job} on Slurm node {found.get('nodes')}"
        )
    if cpus != 1:
        raise StoryError(f"job {job} has {cpus} CPUs, Pod {pod} asks for 1")
    if not extra.endswith(": started"):
        until(
            f"extra of job {job} ends with ': started'",
            lambda: str((do.slurm.job(job) or {}).get("extra", "")).endswith(": started"),
            lambda: (do.slurm.job(job) or {}).get("extra"),
        )


def _goes_before(do: Deeds, pod: str, job: int) -> tuple[float, float]:
    """Wait for the end of both and return their seconds; the Pod must go first."""
    with Witness(lambda: do.kube.get("Pod", pod, manifests.NAMESPACE) is not None) as witness:
        began = time.monotonic()
        do.job_left(job)
        left_at, left_s = time.time(), time.monotonic() - began
        do.pod_gone(pod)
    if witness.last_seen > left_at:
        raise StoryError(f"job {job} was over {witness.last_seen - left_at:.3f} s before Pod {pod} was gone")
    gone_s = max(0.0, witness.last_seen - (left_at - left_s))
    return gone_s, max(0.0, left_s - gone_s)


STEPS: Final = {
    "cordon": cordon,
    "drain": drain,
    "lock": lock,
    "train": train,
    "place": place,
    "metrics": metrics,
}
