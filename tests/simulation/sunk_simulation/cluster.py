# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A whole cluster: all five services between models of NATS, Slurm and Kubernetes, and all who use them.

Slurm jobs and Pods share the Nodes of one NodeSet. Users, tenants and administrators do what they may;
servers, services, Nodes and the network fail. What must never happen is looked for all the time, and in the
end everything has to be as it is wanted, and nobody writes any more.
"""

from collections import Counter
from random import Random
from typing import Final

from sunk_kube.crds import crds
from sunk_kube.wellknown import TAINT_LOCK
from sunk_simulation.bugs import Bugs
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.checks import OLD_S, BusChecks, JobChecks, SlurmChecks, differs, facts_without_state
from sunk_simulation.kubernetes.kinds import DEFINITIONS, NAMESPACES, NODES, PODS
from sunk_simulation.kubernetes.model import KUBECONFIG, ModelKubernetes
from sunk_simulation.kubernetes.store import Stored
from sunk_simulation.services import TOKEN, keep
from sunk_simulation.sharing import Sharing
from sunk_simulation.simulation import Kept, Simulation
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.hooks import Hooks, HooksEnv
from sunk_simulation.slurm.life import Life
from sunk_simulation.slurm.model import PORT, ModelSlurm
from sunk_simulation.slurmds import slurmds_and_others
from sunk_simulation.tenants import NAMESPACE as TENANT
from sunk_simulation.tenants import SCHEDULER, NodeSet, Tenants
from sunk_simulation.writers import Writers

CLUSTER: Final = "c1"
NAMESPACE: Final = "slurm"
NODESETS: Final = "nodesets.sunk.coreweave.com"
SIZE: Final = 3
KILL_WAIT_S: Final = 30
GATEWAY: Final = "hook-gateway"
GATEWAY_PORT: Final = 8080
LASTS_S: Final = (1.0, 60.0)
"""How long a fault lasts."""
JUMPS_S: Final = (-30.0, 30.0)
"""How far a clock jumps."""
BETWEEN_S: Final = ((4.0, 40.0), (20.0, 180.0))
"""How long it is quiet between faults, of which a seed has one."""
IN_FLIGHT_S: Final = 10.0
"""How late a write may come while nothing is wrong."""
LAST_JOBS: Final = 2
LAST_POD: Final = f"{TENANT}/placed-last"
FORGETS_S: Final = 150.0
"""After so long nothing is left of what has gone: a job is forgotten, a lock that failed too."""
REST_S: Final = (80.0, 80.0, 80.0, 320.0)
"""How long nobody may write at the end; a seed has one of these. The last is longer than any look at all
there is again: two fifths of a calm seed's work. The others are longer than what comes round each minute."""
PAIR: Final = (0, 1)
_BEATS: Final = ("_lease", "_kube_watch", "_slurm_statistics")
"""Buckets in which something is written though nothing happens."""
SETTLES_S: Final = 1200.0
"""Within so long after the last fault all is as it is wanted."""


class World:
    """All of it."""

    def __init__(self, sim: Simulation, *, replicas: tuple[int, ...] = PAIR) -> None:
        """Start all of it, with so many of each service."""
        self.sim = sim
        self._replicas = replicas
        lots = sim.random("world")
        self._struck_s = float("-inf")
        self.effect = lots.choice(("NoExecute", "NoSchedule"))
        """Of the lock's taint."""
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        release = lots.choice(("24.11", "26.05"))
        conf = SlurmConf(release=release, kill_wait_s=KILL_WAIT_S, min_job_age_s=60)
        self.slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), conf)
        self.kubernetes = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
        self.checks = SlurmChecks(self.slurm)
        self.writers = self._look_at_writers()
        self._look_at_all()
        for server in (self.nats, self.slurm, self.kubernetes):
            server.changed = sim.changed
            server.start()
        token = TOKEN.read_text().strip()
        Hooks(self.slurm, HooksEnv(f"http://{GATEWAY}:{GATEWAY_PORT}", token=token)).install()
        containers = sim.random("containers")
        workloads = slurmds_and_others(self.slurm, self.kubernetes, containers, namespace=NAMESPACE)
        for number in range(1, SIZE + 1):
            self.kubernetes.add_node(f"k{number}", workloads)
        self.kubernetes.registry.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.nodeset = self._make_nodeset()
        self.tenants = Tenants(sim, self.kubernetes, self.slurm, self.nodeset)
        self.services = self._start_services()
        self.bugs = Bugs(self.services)
        sim.never("a service meets a bug", self.bugs.said)

    def slack_s(self) -> float:
        """Return how late a write may come: somebody may have been paused, or his word be on its way."""
        return OLD_S if self.sim.now_s < self._struck_s + 2 * LASTS_S[1] else IN_FLIGHT_S

    def lose_slurmd(self, node: str) -> None:
        """End the container of a node's Pod, which its kubelet starts again."""
        for kubelet in self.kubernetes.kubelets.values():
            kubelet.crash(f"{NAMESPACE}/{node}")

    def pods(self, namespace: str) -> dict[str, Stored]:
        """Return the Pods of a namespace, by their keys."""
        found = self.kubernetes.store.of(PODS.resource).items()
        return {key: one for key, one in found if key.startswith(f"{namespace}/")}

    def unsettled(self) -> str | None:
        """Return what is not as it should be when nobody wants anything any more but the NodeSet."""
        return self.undone() or facts_without_state(self.nats, CLUSTER)

    def undone(self) -> str | None:
        """Return the same, but for facts: a bucket that was lost knows of nobody who has gone since."""
        return self._unready() or self._left_over() or differs(self.nats, self.slurm, CLUSTER)

    def strike(self, random: Random) -> None:
        """Let something go wrong."""
        victim, seconds = random.choice(self.services).process, random.uniform(*LASTS_S)
        self._struck_s = self.sim.now_s
        match random.randrange(14):
            case 0 | 1:
                victim.kill()
            case 2 | 3:
                victim.pause(seconds)
            case 4:
                victim.clock.jump(random.uniform(*JUMPS_S))
            case 5:
                server = random.choice(["nats", "slurmrestd", "kubernetes", GATEWAY])
                self._cut_off(victim.host, f"{GATEWAY}-0" if server == GATEWAY else server, seconds)
            case 6:
                self._strike_nats(random, seconds)
            case 7:
                self.slurm.restd.strike(random, seconds)
            case 8:
                self._strike_slurmctld(random, seconds)
            case 9 | 10:
                self._strike_kubernetes(random, seconds)
            case _:
                self._strike_node(random, seconds)

    def _cut_off(self, host: str, other: str, seconds: float) -> None:
        for link in self.sim.network.between(host, other):
            link.hold(seconds)

    def _strike_nats(self, random: Random, seconds: float) -> None:
        match random.randrange(4):
            case 0:
                self.nats.lose_answers(random.randint(1, 3))
                return
            case 1:
                if streams := sorted(self.nats.store.streams):
                    self.nats.have_no_leader(random.choice(streams), seconds)
                return
            case 2:
                self.nats.kill()
            case _:
                self.nats.lose_power()
        self.sim.network.later(seconds, self.nats.start)

    def _strike_slurmctld(self, random: Random, seconds: float) -> None:
        match random.randrange(6):
            case 0 | 1:
                self.slurm.kill_ctld()
            case 2 | 3:
                self.slurm.stop_ctld()
            case 4:
                self.slurm.lose_jobs()
            case _:
                if self.slurm.ctld is not None:
                    self.slurm.ctld.process.pause(seconds)
                return
        self.checks.forget_what_slurm_lost()
        self.sim.network.later(seconds, self.slurm.start_ctld)

    def _strike_kubernetes(self, random: Random, seconds: float) -> None:
        kubernetes, later = self.kubernetes, self.sim.network.later
        match random.randrange(9):
            case 0:
                kubernetes.lose_answers(random.randint(1, 3))
            case 1:
                kubernetes.double(random.randint(1, 3))
            case 2:
                how = random.choice(["TooManyRequests", "InternalError", "Conflict"])
                kubernetes.refuse(random.randint(1, 5), how)
            case 3:
                kubernetes.compact()
                kubernetes.end_watches()
            case 4:
                kubernetes.stall_watches(seconds)
            case 5:
                kubernetes.kill()
                later(seconds, kubernetes.start)
            case 6:
                kubernetes.delay(random.randint(1, 3), seconds)
            case 7:
                kubernetes.lag(seconds)
            case _:
                if kubernetes.manager is not None:
                    kubernetes.manager.pause(seconds)

    def _strike_node(self, random: Random, seconds: float) -> None:
        kubernetes, later = self.kubernetes, self.sim.network.later
        node = random.choice(sorted(kubernetes.kubelets))
        kubelet = kubernetes.kubelets[node]
        match random.randrange(6):
            case 0:
                kubernetes.kubelet_process(node).kill()
                later(seconds, kubernetes.start_kubelet, node)
            case 1:
                kubelet.is_cut = True
                later(seconds, kubelet.reconnect)
            case 2:
                kubernetes.lose_power(node)
                later(seconds, kubernetes.start_kubelet, node)
            case 3:
                kubernetes.lose_power(node)
                self.tenants.delete_node(node)
                later(seconds, kubernetes.start_kubelet, node)
            case 4:
                if kubelet.runs:
                    kubelet.crash(random.choice(sorted(kubelet.runs)))
            case _:
                for slurmd in self.slurm.slurmds.values():
                    self._cut_off(slurmd.host, random.choice(["slurmctld", f"{GATEWAY}-0"]), seconds)

    def written(self) -> Counter[str]:
        """Return how often what has changed so far, but for leases, signs of life and statistics."""
        found = self.writers.changes.copy()
        for name, stream in self.nats.store.streams.items():
            found[f"bus {name}"] = 0 if name.endswith(_BEATS) else stream.last_seq
        return found

    def _look_at_writers(self) -> Writers:
        leases = {
            "nodeset-controller": f"{NAMESPACE}/sunk-nodeset-controller",
            "pod-scheduler": f"{NAMESPACE}/sunk-pod-scheduler-{CLUSTER}",
        }
        hosts = {
            f"{service}-{replica}": service for service in ("syncer", *leases) for replica in self._replicas
        }
        return Writers(
            self.sim.network,
            self.nats,
            self.slurm,
            self.kubernetes,
            cluster=CLUSTER,
            leases=leases,
            hosts=hosts,
            slack_s=self.slack_s,
        )

    def _look_at_all(self) -> None:
        sharing = Sharing(
            self.slurm, self.kubernetes, namespace=NAMESPACE, scheduler=SCHEDULER, slack_s=self.slack_s
        )
        for name, check in {
            "a service touches what is another's": self.checks.drain_of_another_is_changed,
            "an older leader writes upon a later one": BusChecks(self.nats).older_leader_writes,
            "a job is forgotten": JobChecks(self.nats, self.slurm, CLUSTER).living_job_is_forgotten,
            "two write for one lease": self.writers.two_write,
            "a job runs beside a foreign Pod": sharing.job_beside_foreign_pod,
            "a Pod is bound where Slurm did not place it": sharing.bound_elsewhere,
            "two Pods have one place": sharing.two_pods_on_a_place,
            "a Pod has two jobs": sharing.two_jobs_of_a_pod,
            "a node is lifted under a Pod": sharing.lifted_under_a_pod,
            "a Node is unlocked under a job": sharing.unlocked_under_a_job,
        }.items():
            self.sim.never(name, check)

    def running(self) -> set[str]:
        """Return the keys of the Pods whose containers run."""
        kubelets = self.kubernetes.kubelets.values()
        return {key for one in kubelets for key, run in one.runs.items() if run.began}

    def not_working(self) -> str | None:
        """Return which of the last job and the last Pod does not run."""
        if LAST_POD not in self.running():
            return f"{LAST_POD} does not run"
        steps = [step for slurmd in self.slurm.slurmds.values() for step in slurmd.steps]
        return None if len(steps) == LAST_JOBS else f"{len(steps)} jobs run"  # One of them is the Pod's.

    def _unready(self) -> str | None:
        pods = {one.object["spec"].get("nodeName", ""): one for one in self.pods(NAMESPACE).values()}
        if len(pods) != len(self.pods(NAMESPACE)):
            return "two Pods of the NodeSet are on one Node"
        for kube_node in self.kubernetes.kubelets:
            pod = pods.get(kube_node)
            if pod is None or "deletionTimestamp" in pod.meta:
                return f"{kube_node} has no Pod"
            if (pod.meta.get("annotations") or {}).get("version") != str(self.nodeset.version):
                return f"the Pod of {kube_node} is not updated"
            node = self.slurm.state.nodes.get(pod.meta["name"])
            if node is None or node.flags - {"DYNAMIC_NORM"} or node.base != "IDLE":
                return f"the Slurm node of {kube_node} is not idle: {node}"
        return None

    def _left_over(self) -> str | None:
        for key in self.pods(TENANT):
            return f"{key} is still there"
        alive = [job.job_id for job in self.slurm.state.jobs.values() if not job.is_over or job.is_completing]
        if alive:
            return f"jobs {alive} are still there"
        for name, node in self.kubernetes.store.of(NODES.resource).items():
            if any(taint["key"] == TAINT_LOCK for taint in node.object["spec"].get("taints") or ()):
                return f"{name} is still locked"
        return None

    def _make_nodeset(self) -> NodeSet:
        registry = self.kubernetes.registry
        for crd in crds():
            registry.create(DEFINITIONS, crd)
        self.add_nodeset("gpu")
        return NodeSet(self.kubernetes, registry.kinds()[NODESETS], f"{NAMESPACE}/gpu", SIZE)

    def delete_nodeset(self, name: str) -> None:
        """Delete a NodeSet, whose Nodes others take then."""
        registry = self.kubernetes.registry
        registry.delete(registry.kinds()[NODESETS], f"{NAMESPACE}/{name}")

    def add_nodeset(self, name: str) -> None:
        """Have one more NodeSet: it takes the Nodes that no other one has."""
        container = {"name": "slurmd", "image": "slurm:1"}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 5}
        template = {"metadata": {"annotations": {"version": "1"}}, "spec": spec}
        body = {"metadata": {"name": name}, "spec": {"cluster": CLUSTER, "template": template}}
        registry = self.kubernetes.registry
        registry.create(registry.kinds()[NODESETS], body, NAMESPACE)

    def _start_services(self) -> list[Kept]:
        sim, pair = self.sim, self._replicas
        nats = {"nats_url": "nats://nats:4222"}
        one = {**nats, "cluster": CLUSTER}
        slurm = {"slurm_url": f"http://slurmrestd:{PORT}", "slurm_token_file": str(TOKEN)}
        kube = {"kubeconfig": str(KUBECONFIG)}
        nodesets = {"clusters": CLUSTER, "lease_namespace": NAMESPACE, "lock_effect": self.effect}
        placing = {
            "namespace": NAMESPACE,
            "scheduler_names": SCHEDULER,
            "slurm_kill_wait_s": str(KILL_WAIT_S),
            "hooks_url": f"http://{GATEWAY}:{GATEWAY_PORT}",
            "key_file": str(TOKEN),
        }
        hooks = {
            "http_host": "0.0.0.0",  # noqa: S104 - in memory
            "http_port": str(GATEWAY_PORT),
            "static_token_file": str(TOKEN),
            "namespace": NAMESPACE,
        }
        sim.network.name(GATEWAY, *(f"{GATEWAY}-{replica}" for replica in pair))
        return [
            *(keep(sim, "syncer", replica, one | slurm) for replica in pair),
            *(keep(sim, "nodeset-controller", replica, nats | kube | nodesets) for replica in pair),
            *(keep(sim, "pod-scheduler", replica, one | slurm | kube | placing) for replica in pair),
            *(keep(sim, "hook-gateway", replica, one | hooks) for replica in pair),
            keep(sim, "metrics-exporter", 0, one),
        ]


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Let everybody do what he does, and everything fail; see how it is at the end."""
    world = World(sim)
    life = Life(sim, world.slurm, world.lose_slurmd)
    tenants = world.tenants
    going_on = [sim.loop.outside.spawn(one.go_on()) for one in (life, tenants)]
    random = sim.random("faults")
    between = random.choice(BETWEEN_S)
    ends = hours * 3600
    while sim.now_s < ends:
        await sim.sleep(min(random.uniform(*between), max(0.0, ends - sim.now_s)))
        if faults and sim.now_s < ends and (lots := sim.item("fault")) is not None:
            world.strike(lots)
    for one in going_on:
        one.cancel()
    await sim.sleep(120)  # What was to come back is back.
    life.end()
    tenants.end()
    await sim.settles("all is as it is wanted", world.unsettled, within_s=SETTLES_S)
    life.work()
    tenants.work(LAST_POD)
    await sim.settles("a job and a Pod run", world.not_working, within_s=120)
    await sim.sleep(FORGETS_S)
    before = world.written()
    await sim.sleep(sim.random("rest").choice(REST_S))
    after = world.written()
    written = {what: after[what] - before[what] for what in sorted(after) if after[what] > before[what]}
    await sim.settles("at rest nobody writes", lambda: str(written) if written else None, within_s=0)
    for kept in world.services:
        kept.stop()
    world.bugs.end()
