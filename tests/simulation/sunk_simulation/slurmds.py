"""slurmds in Pods: what a Pod starts on a Node of the model of Kubernetes, in the model of Slurm."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from sunk_simulation.kubernetes.kubelets import END_S, Sleeper, Workload, Workloads
from sunk_simulation.kubernetes.model import ModelKubernetes
from sunk_simulation.slurm.model import ModelSlurm
from sunk_simulation.slurm.slurmd import NodeConf

LOOKS_S: Final = 1.0
"""How often a readiness probe looks."""


class Probes:
    """What asks whether slurmds are ready: for a while it hears no answer from any."""

    def __init__(self, slurm: ModelSlurm) -> None:
        self.do_answer = True
        self._later: Final = slurm.loop.network.later
        self._pokes: dict[str, Callable[[], None]] = {}

    def fail(self, seconds: float) -> None:
        """Have all slurmds be not ready for so long, though they run."""
        self._set(answers=False)
        self._later(seconds, lambda: self._set(answers=True))

    def add(self, name: str, enqueue: Callable[[], None]) -> None:
        """Take note of a slurmd; one that has ended is enqueued in vain."""
        self._pokes[name] = enqueue

    def _set(self, *, answers: bool) -> None:
        self.do_answer = answers
        for enqueue in self._pokes.values():
            enqueue()


class SlurmdInPod:
    """A container whose process is a slurmd; its node has the Pod's name."""

    def __init__(
        self, slurm: ModelSlurm, conf: NodeConf, boot_time: int, enqueue: Callable[[], None], probes: Probes
    ) -> None:
        name = conf.name
        self._slurm: Final = slurm
        self._probes: Final = probes
        probes.add(name, enqueue)
        self._name: Final = name
        self._enqueue: Final = enqueue
        self._slurmd: Final = slurm.add_node(conf)
        self._slurmd.boot_time = boot_time
        self._is_over = False
        self._look()

    @property
    def is_ready(self) -> bool:
        """Whether it runs, and slurmctld knows its node."""
        is_known = self._name in self._slurm.state.nodes
        return self._slurmd.is_running and is_known and self._probes.do_answer

    @property
    def has_ended(self) -> bool:
        """Whether it does not run."""
        return not self._slurmd.is_running

    def stop(self) -> None:
        """End it, as SIGTERM does."""
        self._slurmd.kill()

    def kill(self) -> None:
        """End it with all that it has started."""
        self._is_over = True
        self._slurmd.end_all()

    def _look(self) -> None:
        if not self._is_over and not self.is_ready:
            self._slurm.loop.network.later(LOOKS_S, self._look)
        self._enqueue()


def slurmds(
    slurm: ModelSlurm, probes: Probes | None = None, kubernetes: ModelKubernetes | None = None
) -> Workloads:
    """Return what starts a slurmd in each Pod; a container tells when its machine began, as the kernel does.

    Without *kubernetes* no machine begins anew.
    """
    asks, first = probes or Probes(slurm), slurm.now()

    def start(pod: dict[str, Any], enqueue: Callable[[], None]) -> SlurmdInPod:
        address = pod["status"].get("podIP", "127.0.0.1")
        conf = NodeConf(pod["metadata"]["name"], gpus=8, address=address, is_dynamic=True)
        boot = int(kubernetes.kubelets[pod["spec"]["nodeName"]].boot_s) if kubernetes is not None else first
        return SlurmdInPod(slurm, conf, boot, enqueue, asks)

    return start


def slurmds_and_others(
    slurm: ModelSlurm, kubernetes: ModelKubernetes, random: Random, *, namespace: str
) -> Workloads:
    """Return what starts a slurmd in each Pod of *namespace*, and what does nothing in all others."""
    start = slurmds(slurm, kubernetes=kubernetes)

    def now_s() -> float:
        return kubernetes.registry.now().timestamp()

    def workload(pod: dict[str, Any], enqueue: Callable[[], None]) -> Workload:
        if pod["metadata"]["namespace"] == namespace:
            return start(pod, enqueue)
        return Sleeper(pod, now_s, random.uniform(*END_S))

    return workload
