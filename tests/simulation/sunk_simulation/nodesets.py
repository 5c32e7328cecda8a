"""NodeSets on the models of Kubernetes, Slurm and NATS: syncers, nodeset-controllers, slurmds in Pods.

People cordon Nodes and change the template. What must hold, whatever goes wrong meanwhile: no two slurmds run
on one Node, and in the end each Node has a Pod of the present template, and is drained in Slurm if cordoned.
"""

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from sunk_kube.crds import crds
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.kubernetes.kinds import DEFINITIONS, NODES, PODS
from sunk_simulation.kubernetes.model import KUBECONFIG, ModelKubernetes
from sunk_simulation.services import TOKEN, keep
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.model import PORT, ModelSlurm
from sunk_simulation.slurmds import Probes, slurmds

CLUSTER: Final = "c1"
NODESETS: Final = "nodesets.sunk.coreweave.com"
SIZE: Final = 3


class World:
    """Three Nodes, a NodeSet for them, and all that makes slurmds of it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.version = 1
        """Of the NodeSet's template."""
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), SlurmConf())
        self.kubernetes = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
        self.probes = Probes(self.slurm)
        self._ready: dict[str, str] = {}
        """Nodes whose Pods are ready, and these Pods' uids."""
        self._taken: dict[str, None] = {}
        """Nodes whose ready Pods an update has taken, and that have none yet which is."""
        for server in (self.nats, self.slurm, self.kubernetes):
            server.changed = sim.changed
            server.start()
        for number in range(1, SIZE + 1):
            self.kubernetes.add_node(f"k{number}", slurmds(self.slurm, self.probes))
        for crd in crds():
            self.kubernetes.registry.create(DEFINITIONS, crd)
        kind = self.kubernetes.registry.kinds()[NODESETS]
        container = {"name": "slurmd", "image": "slurm:1"}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 5}
        template = {"metadata": {"annotations": {"version": "1"}}, "spec": spec}
        body = {"metadata": {"name": "gpu"}, "spec": {"cluster": CLUSTER, "template": template}}
        self.kubernetes.registry.create(kind, body, "default")
        nats = {"nats_url": "nats://nats:4222"}
        slurm = {"slurm_url": f"http://slurmrestd:{PORT}", "slurm_token_file": str(TOKEN), "cluster": CLUSTER}
        kube = {"clusters": CLUSTER, "kubeconfig": str(KUBECONFIG), "lease_namespace": "default"}
        self.services = [
            *(keep(sim, "syncer", replica, nats | slurm) for replica in (0, 1)),
            *(keep(sim, "nodeset-controller", replica, nats | kube) for replica in (0, 1)),
        ]

    def pods(self) -> dict[str, Mapping[str, Any]]:
        """Return the NodeSet's Pods by the Nodes that they are on."""
        found = (one.object for one in self.kubernetes.store.of(PODS.resource).values())
        return {one["spec"].get("nodeName", ""): one for one in found}

    def node(self, kube_node: str, spec: Mapping[str, Any]) -> None:
        """Change a Node as a person does."""

        def change(found: dict[str, Any]) -> dict[str, Any]:
            return {**found, "spec": {**found["spec"], **spec}}

        self.kubernetes.registry.update(NODES, kube_node, change, manager="kubectl", is_patch=True)

    def update(self) -> None:
        """Give the NodeSet the next version of its template."""
        self.version += 1
        version = str(self.version)

        def change(found: dict[str, Any]) -> dict[str, Any]:
            found["spec"]["template"]["metadata"] = {"annotations": {"version": version}}
            return found

        kind = self.kubernetes.registry.kinds()[NODESETS]
        self.kubernetes.registry.update(kind, "default/gpu", change, manager="kubectl", is_patch=True)

    def two_on_a_node(self) -> str | None:
        """Return where two of the NodeSet's Pods run beside each other."""
        for name, kubelet in self.kubernetes.kubelets.items():
            if len(kubelet.runs) > 1:
                return f"{sorted(kubelet.runs)} run on {name}"
        return None

    def too_many_are_taken(self) -> str | None:
        """Return which Pods that were ready have been deleted beyond ``maxUnavailable``, which is 1."""
        for kube_node, pod in self.pods().items():
            meta, conditions = pod["metadata"], pod["status"].get("conditions") or ()
            if "deletionTimestamp" in meta:
                if self._ready.get(kube_node) == meta["uid"]:
                    del self._ready[kube_node]
                    self._taken[kube_node] = None
            elif any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
                self._ready[kube_node] = meta["uid"]
                self._taken.pop(kube_node, None)
            elif self._ready.get(kube_node) == meta["uid"]:
                del self._ready[kube_node]
        return f"Pods of {sorted(self._taken)} were ready and went together" if len(self._taken) > 1 else None

    def blip(self, random: Random) -> None:
        """Update, and have all Pods be not ready for a moment meanwhile."""
        with suppress(CommandError):  # So that nobody goes at once.
            self.slurm.exec(
                "sbatch", "--parsable", f"--nodes={SIZE}", f"--wrap=sleep {random.randint(30, 60)}"
            )
        self.sim.network.later(2, self.update)
        self.sim.network.later(random.uniform(3, 10), self.probes.fail, random.uniform(2, 20))

    def unready(self) -> str | None:
        """Return which of the nodes is not as it should be."""
        pods = self.pods()
        for kube_node in self.kubernetes.kubelets:
            pod = pods.get(kube_node)
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                return f"{kube_node} has no Pod"
            annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
            if annotations.get("version") != str(self.version):
                return f"the Pod of {kube_node} is not updated"
            node = self.slurm.state.nodes.get(pod["metadata"]["name"])
            unschedulable = self.kubernetes.registry.get(NODES, kube_node).object["spec"].get("unschedulable")
            if node is None or ("DRAIN" in node.flags) is not bool(unschedulable):
                return f"the Slurm node of {kube_node} is not as its Node: {node}"
        return None

    def strike(self, random: Random) -> None:
        """Let something go wrong."""
        victim, seconds = random.choice(self.services).process, random.uniform(1, 30)
        kubernetes, later = self.kubernetes, self.sim.network.later
        match random.randrange(10):
            case 0:
                victim.kill()
            case 1:
                victim.pause(seconds)
            case 2:
                kubernetes.lose_answers(random.randint(1, 3))
            case 3:
                kubernetes.double(random.randint(1, 3))
            case 4:
                kubernetes.refuse(random.randint(1, 5), random.choice(["TooManyRequests", "InternalError"]))
            case 5:
                kubernetes.compact()
                kubernetes.end_watches()
            case 6:
                kubernetes.stall_watches(seconds)
            case 7:
                kubernetes.kill()
                later(seconds, kubernetes.start)
            case 8:
                kubernetes.delay(random.randint(1, 3), seconds)
            case _:
                kubernetes.lag(seconds)

    def live(self, random: Random) -> None:
        """Let a person do something."""
        match random.randrange(5):
            case 4:
                self.blip(random)
            case 0:
                self.update()
            case _:
                kube_node = random.choice(sorted(self.kubernetes.kubelets))
                self.node(kube_node, {"unschedulable": random.random() < 0.5})


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Cordon, uncordon and update, whatever goes wrong meanwhile; see that all is as it is wanted."""
    world, random = World(sim), sim.random("faults")
    sim.never("two slurmds run on one Node", world.two_on_a_node)
    sim.never("an update takes more Pods than it may", world.too_many_are_taken)
    ends = hours * 3600
    while sim.now_s < ends:
        await sim.sleep(min(random.uniform(5, 60), max(0.0, ends - sim.now_s)))
        is_fault = random.random() < 0.5 and faults
        lots = sim.item("fault" if is_fault else "deed")
        if lots is not None:
            (world.strike if is_fault else world.live)(lots)
    await sim.sleep(60)  # What was to come back is back.
    await sim.settles("all is as it is wanted", world.unready, within_s=900)
    for kept in world.services:
        kept.stop()
