"""Each of the checks says what is wrong, where somebody does it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_simulation.bugs import Bugs
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.checks import SlurmChecks
from sunk_simulation.http import Request
from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.kinds import NAMESPACES, NODES, PODS, Object
from sunk_simulation.kubernetes.model import ModelKubernetes
from sunk_simulation.sharing import OVERDUE, Sharing
from sunk_simulation.simulation import BreachError, Simulation
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.model import ModelSlurm
from sunk_simulation.slurm.scripts import PLACEHOLDER
from sunk_simulation.slurm.slurmrestd import SERVICE_USER
from sunk_simulation.slurmds import slurmds_and_others
from sunk_simulation.writers import LEASES, Writers

LOCK = {"key": TAINT_LOCK, "value": "true", "effect": "NoExecute"}
SETTLED_S = 15.0


class World:
    """Two Nodes with a slurmd each, and nobody who keeps them in step."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), SlurmConf())
        self.kubernetes = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
        self.checks = SlurmChecks(self.slurm)
        self.sharing = Sharing(self.slurm, self.kubernetes, namespace="slurm", scheduler="sunk-scheduler")
        for server in (self.nats, self.slurm, self.kubernetes):
            server.changed = sim.changed
            server.start()
        self.kubernetes.registry.create(NAMESPACES, {"metadata": {"name": "slurm"}})
        lots = sim.random("containers")
        workloads = slurmds_and_others(self.slurm, self.kubernetes, lots, namespace="slurm")
        for number in (1, 2):
            self.kubernetes.add_node(f"k{number}", workloads)

    async def begin(self) -> None:
        await self.sim.sleep(2)
        for number in (1, 2):
            self.pod(f"n{number}", f"k{number}", namespace="slurm", scheduler="default-scheduler")
        await self.sim.sleep(SETTLED_S)

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        namespace: str = "default",
        scheduler: str = "nobody",
        group: str = "",
    ) -> str:
        body: Object = {
            "containers": [{"name": "main", "image": "app:1"}],
            "schedulerName": scheduler,
            "tolerations": [] if scheduler == "nobody" else [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            **({"nodeName": node} if node else {}),
        }
        labels = {"scheduling.x-k8s.io/pod-group": group} if group else {}
        made = self.kubernetes.registry.create(
            PODS, {"metadata": {"name": name, "labels": labels}, "spec": body}, namespace
        )
        return made.meta["uid"]

    def bind(self, name: str, node: str) -> None:
        target = {"metadata": {}, "target": {"name": node}}
        self.kubernetes.registry.update(
            PODS, f"default/{name}", lambda pod: pods.bound(pod, target), subresource="binding"
        )

    def placeholder(self, uid: str, node: str, nodes: int = 1) -> int:
        """Submit one as the pod-scheduler does; its script never ends."""
        assert self.slurm.ctld is not None
        asked = {
            "extra": msgspec.json.encode({"sunk": {"uid": uid}}).decode(),
            "required_nodes": [node],
            "minimum_nodes": nodes,
        }
        script = f"#!/bin/sh\n# {PLACEHOLDER}\n"
        self.slurm.scripts.batch = lambda _job, _node: self._sleep  # type: ignore[method-assign]
        return self.slurm.ctld.jobs.submit([asked], script, SERVICE_USER)

    def taints(self, node: str, *taints: Object) -> None:
        def change(found: Object) -> Object:
            found["spec"]["taints"] = list(taints)
            return found

        self.kubernetes.registry.update(NODES, node, change, is_patch=True)

    async def _sleep(self) -> None:
        await self.sim.loop.create_future()


def breaks(check: Callable[[World], Callable[[], str | None]], deed: Callable[[World], Any]) -> str:
    """Return what a check says of what was done."""
    with Simulation(seed=1) as sim:
        world = World(sim)

        async def story() -> None:
            await world.begin()
            sim.never("it", check(world))
            await deed(world)
            await sim.sleep(SETTLED_S)

        with pytest.raises(BreachError) as caught:
            sim.run(story())
    return caught.value.said


def beside(world: World) -> Callable[[], str | None]:
    return world.sharing.job_beside_foreign_pod


def test_a_job_that_starts_beside_a_pod_is_found() -> None:
    async def deed(world: World) -> None:
        world.pod("web", "k1")
        await world.sim.sleep(5)
        world.slurm.exec("sbatch", "--nodelist=n1", "--wrap=sleep 100")

    assert breaks(beside, deed) == "job 1 starts on k1, where default/web runs"


def test_a_pod_that_starts_beside_a_job_is_found_also_on_the_second_of_its_nodes() -> None:
    async def deed(world: World) -> None:
        world.slurm.exec("sbatch", "--nodes=2", "--wrap=sleep 100")
        await world.sim.sleep(5)
        world.pod("web", "k2")

    assert breaks(beside, deed) == "default/web starts on k2, where job 1 runs"


def test_a_job_that_starts_beside_a_pod_whose_placeholder_has_ended_is_found() -> None:
    async def deed(world: World) -> None:
        uid = world.pod("placed", scheduler="sunk-scheduler")
        job = world.placeholder(uid, "n1")
        await world.sim.sleep(5)
        world.bind("placed", "k1")
        await world.sim.sleep(5)
        world.slurm.exec("scancel", str(job))
        await world.sim.sleep(45)
        del world.slurm.scripts.batch
        world.slurm.exec("sbatch", "--nodelist=n1", "--wrap=sleep 100")

    assert breaks(beside, deed) == "job 2 starts on k1, where default/placed runs"


def test_a_pod_that_is_bound_where_slurm_did_not_place_it_is_found() -> None:
    async def deed(world: World) -> None:
        uid = world.pod("placed", scheduler="sunk-scheduler")
        world.placeholder(uid, "n1")
        await world.sim.sleep(5)
        world.bind("placed", "k2")

    said = breaks(lambda world: world.sharing.bound_elsewhere, deed)

    assert said.startswith("default/placed is bound to k2")


def test_two_pods_of_a_gang_on_one_place_are_found() -> None:
    async def deed(world: World) -> None:
        for name in ("one", "two"):
            world.pod(name, scheduler="sunk-scheduler", group="gang")
        for name in ("one", "two"):
            world.bind(name, "k1")
            await world.sim.sleep(5)

    said = breaks(lambda world: world.sharing.two_pods_on_a_place, deed)

    assert said == "default/two and default/one have one place, on k1"


def test_two_jobs_of_a_pod_are_found() -> None:
    async def deed(world: World) -> None:
        uid = world.pod("placed", scheduler="sunk-scheduler")
        world.placeholder(uid, "n1")
        world.placeholder(uid, "n2")

    def check(world: World) -> Callable[[], str | None]:
        return lambda: world.sharing.job_beside_foreign_pod() or world.sharing.two_jobs_of_a_pod()

    assert breaks(check, deed) == "jobs 1 and 2 are of one Pod"


def test_a_node_that_is_lifted_under_a_pod_is_found() -> None:
    async def deed(world: World) -> None:
        assert world.slurm.ctld is not None
        uid = world.pod("placed", scheduler="sunk-scheduler")
        job = world.placeholder(uid, "n1")
        await world.sim.sleep(5)
        world.bind("placed", "k1")
        await world.sim.sleep(5)
        world.slurm.exec("scancel", str(job))
        await world.sim.sleep(45)
        nodes = world.slurm.ctld.nodes
        nodes.update("n1", {"state": ["DRAIN"], "reason": OVERDUE}, SERVICE_USER)
        nodes.update("n1", {"state": ["UNDRAIN"]}, SERVICE_USER)

    said = breaks(lambda world: world.sharing.lifted_under_a_pod, deed)

    assert said == "n1 is lifted, and default/placed, whose job has ended, runs there"


@pytest.mark.parametrize("who", ["job", "Pod"])
def test_a_node_that_is_unlocked_under_a_job_or_a_pod_of_slurms_is_found(who: str) -> None:
    async def deed(world: World) -> None:
        world.taints("k1", LOCK)
        if who == "job":
            world.slurm.exec("sbatch", "--nodelist=n1", "--wrap=sleep 100")
        else:
            world.pod("placed", "k1", scheduler="sunk-scheduler")
        await world.sim.sleep(5)
        world.taints("k1")

    said = breaks(lambda world: world.sharing.unlocked_under_a_job, deed)

    assert said.startswith("k1 loses its lock while")


def test_who_writes_without_his_lease_is_found() -> None:
    with Simulation(seed=1) as sim:
        world = World(sim)
        writers = Writers(
            sim.network,
            world.nats,
            world.slurm,
            world.kubernetes,
            cluster="c1",
            leases={"pod-scheduler": "default/lease"},
            hosts={"pod-scheduler-0": "pod-scheduler", "pod-scheduler-1": "pod-scheduler"},
        )
        kind = world.kubernetes.registry.kinds()[LEASES]
        body = {
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": "pod-scheduler-pod-scheduler-0-101"},
        }
        world.kubernetes.registry.create(kind, body, "default")

        for replica in (0, 1):
            client = sim.network.address(f"pod-scheduler-{replica}")
            for path in ("/api/v1/namespaces/default/events", "/api/v1/namespaces/default/pods/web"):
                assert writers.two_write() is None
                world.kubernetes.on_written(Request("PATCH", path, {}, {}, b"", (), client))

    said = writers.two_write() or ""
    assert said.startswith("PATCH /api/v1/namespaces/default/pods/web by pod-scheduler-1")


def test_a_bug_of_a_service_is_found() -> None:
    with Simulation(seed=1) as sim:

        async def fail() -> None:
            raise TypeError("no such argument")

        kept = sim.keep("syncer-0", fail)
        bugs = Bugs([kept])
        sim.run(sim.sleep(0.1))
        bugs.end()

    assert "no such argument" in (bugs.said() or "")


def test_a_drain_that_prolog_sh_replaces_is_found() -> None:
    async def deed(world: World) -> None:
        world.slurm.exec("scontrol", "update", "node=n1", "state=drain", "reason=ticket 1")
        await world.sim.sleep(200)
        world.slurm.exec("scontrol", "update", "node=n1", "state=drain", "reason=k8s: prolog pre-hook failed")

    said = breaks(lambda world: world.checks.drain_of_another_is_changed, deed)

    assert said.startswith("n1 was drained by hand for 'ticket 1'; root set ['DRAIN']")
