"""Stories of the nodeset-controller that is killed at each `await` of what it does for GPUs.

    PYTHONPATH=tests/simulation python -m sunk_simulation.kills announced

Each is told in a process of its own, in which no service was imported before `install`: else a clock that is
a default argument is the real one.
"""

# ruff: noqa: E402
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from sunk_simulation.ambient import install

install()

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from sunk_kube.crds import crds
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.kubernetes.kinds import DEFINITIONS, NODES, PODS
from sunk_simulation.kubernetes.model import KUBECONFIG, ModelKubernetes
from sunk_simulation.kubernetes.store import Change
from sunk_simulation.services import keep
from sunk_simulation.simulation import Simulation

NODESETS: Final = "nodesets.sunk.coreweave.com"
MODEL: Final = "gpu.nvidia.com/model"
GPU: Final = "nvidia.com/gpu"
NODE: Final = "k1"
WAIT_S: Final = 60
"""For how long a Pod waits for GPUs."""
SOON_S: Final = 120.0
"""Longer than a restart, and until the lease of the one that was killed has ended."""
MANY: Final = 8
EACH: Final = int(os.environ.get("SUNK_KILLS_EACH", "1"))
"""1: it is killed at each await; 6: at each sixth."""
TURNS_MAX: Final = 2000
NOT_ANNOUNCED: Final = "GPUsNotAnnounced"


class GpuWorld:
    """A Node with a GPU's label, a NodeSet that has its GPUs from it, and the nodeset-controller."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.kubernetes = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
        self.made: list[str] = []
        """What slurmd learns from each Pod that was made: its GPUs, or nothing."""
        for server in (self.nats, self.kubernetes):
            server.changed = sim.changed
            server.start()
        self.kubernetes.add_node(NODE)
        for crd in crds():
            self.kubernetes.registry.create(DEFINITIONS, crd)
        self.kind = self.kubernetes.registry.kinds()[NODESETS]
        self.kubernetes.store.follow(self._note)
        self.controller = keep(
            sim,
            "nodeset-controller",
            0,
            {
                "nats_url": "nats://nats:4222",
                "clusters": "c1",
                "kubeconfig": str(KUBECONFIG),
                "lease_namespace": "default",
                "gpu_wait_s": str(WAIT_S),
            },
        )

    async def begin(self) -> None:
        """Make the NodeSet, and see that its Pod waits."""
        await self.sim.settles("the Node is there", self._unregistered, within_s=SOON_S)
        self._node(lambda node: node["metadata"]["labels"].update({MODEL: "NVIDIA_H100"}))
        spec = {"containers": [{"name": "slurmd", "image": "slurm:1"}], "terminationGracePeriodSeconds": 1}
        body = {"cluster": "c1", "gpus": "FromNode", "template": {"spec": spec}}
        self.kubernetes.registry.create(self.kind, {"metadata": {"name": "gpu"}, "spec": body}, "default")
        await self.sim.settles("the Pod waits", self.unwaited, within_s=SOON_S)

    def _unregistered(self) -> str | None:
        return None if NODE in self.kubernetes.store.of(NODES.resource) else "no Node"

    def _note(self, change: Change) -> None:
        if change.resource == PODS.resource and change.type == "ADDED":
            (container,) = change.after.object["spec"]["containers"]
            env = {one["name"]: one.get("value", "") for one in container.get("env") or ()}
            self.made.append(env.get("SUNK_NODE_GRES", ""))

    def _node(self, change: Callable[[dict[str, Any]], None], subresource: str = "") -> None:
        def changed(found: dict[str, Any]) -> dict[str, Any]:  # Any: a Node has every shape.
            change(found)
            return found

        update = self.kubernetes.registry.update
        update(NODES, NODE, changed, manager="kubelet", subresource=subresource, is_patch=True)

    def announce(self, count: str | None) -> None:
        """Play the device plugin; None: there is none."""

        def change(node: dict[str, Any]) -> None:
            for kind in ("capacity", "allocatable"):
                node["status"][kind].pop(GPU, None)
                node["status"][kind].update({} if count is None else {GPU: count})

        self._node(change, "status")

    def lose_pod(self) -> None:
        """Delete the NodeSet's Pod."""
        for key in list(self.kubernetes.store.of(PODS.resource)):
            self.kubernetes.registry.delete(PODS, key)

    @property
    def status(self) -> Mapping[str, Any]:
        return self.kubernetes.registry.get(self.kind, "default/gpu").object.get("status") or {}

    def reason(self) -> str:
        """Return why the NodeSet is not scheduled, as it says itself."""
        found = {one["type"]: one for one in self.status.get("conditions") or ()}
        return found.get("Scheduled", {}).get("reason", "")

    def unwaited(self) -> str | None:
        """Return what is wrong if the NodeSet's Pod does not wait for GPUs, as its status says."""
        if pods := list(self.kubernetes.store.of(PODS.resource)):
            return f"there is {pods}"
        awaited = [one["kubeNode"] for one in self.status.get("gpusAwaited") or ()]
        return None if (self.reason(), awaited) == (NOT_ANNOUNCED, [NODE]) else f"{self.status}"

    def unmade(self) -> str | None:
        """Return what is wrong if the NodeSet has no Pod, as its status says."""
        pods = [one.object["metadata"] for one in self.kubernetes.store.of(PODS.resource).values()]
        if not pods or any("deletionTimestamp" in meta for meta in pods):
            return f"there is {pods}"
        is_told = self.reason(), self.status.get("gpusAwaited") or []
        return None if is_told == ("AllScheduled", []) else f"{self.status}"


async def announced(sim: Simulation) -> None:
    """GPUs are announced: one Pod is made, and with them."""
    world = GpuWorld(sim)
    await world.begin()
    for turns in range(0, TURNS_MAX, EACH):
        before, victim = len(world.made), world.controller.process
        world.announce("8")
        victim.kill_after(turns)
        await sim.settles(f"a Pod, killed after {turns}", world.unmade, within_s=SOON_S)
        assert world.made[before:] == ["gpu:h100:8"]
        if victim.is_alive:
            assert turns > 100
            return
        world.announce(None)
        world.lose_pod()
        await sim.settles("the Pod waits", world.unwaited, within_s=SOON_S)
    raise AssertionError("the way has no end")


async def beginning(sim: Simulation) -> None:
    """A wait begins: the NodeSet says so, and no Pod is made."""
    world = GpuWorld(sim)
    await world.begin()
    for turns in range(0, TURNS_MAX, EACH):
        world.announce("8")
        await sim.settles("a Pod", world.unmade, within_s=SOON_S)
        before, victim = len(world.made), world.controller.process
        world.announce(None)
        world.lose_pod()
        victim.kill_after(turns)
        await sim.settles(f"the Pod waits, killed after {turns}", world.unwaited, within_s=SOON_S)
        if victim.is_alive:
            victim.kill_after(None)
            assert turns > 100
            return
        assert world.made[before:] == []
    raise AssertionError("the way has no end")


async def forever(sim: Simulation) -> None:
    """GPUs never come, and no controller lives as long as their Pod waits: that ends all the same."""
    world = GpuWorld(sim)
    await world.begin()
    kills = 0
    while not world.made and kills < MANY:
        assert world.unwaited() is None
        await sim.sleep(WAIT_S / 4)
        world.controller.process.kill()
        kills += 1
        await sim.sleep(WAIT_S / 4)

    assert 1 < kills < MANY
    assert world.made == [""]


STORIES: Final[Mapping[str, Callable[[Simulation], Coroutine[Any, Any, None]]]] = {
    "announced": announced,
    "beginning": beginning,
    "forever": forever,
}


if __name__ == "__main__":
    with Simulation(out=sys.stdout if "--trace" in sys.argv else None) as sim:
        sim.run(STORIES[sys.argv[1]](sim))
