# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What tenants and administrators do to Kubernetes, by the seed: Pods of all kinds, Nodes, NodeSets.

Tenants are hostile as far as they may be: they write on their Pods, and on their jobs, what they like.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sunk_kube.wellknown import ANNOTATION_CORDON_REASON, ANNOTATION_GANG_SIZE, ANNOTATION_JOB, PREFIX
from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.kinds import BUDGETS, NAMESPACES, NODES, PODS, Kind, Object
from sunk_simulation.kubernetes.kubelets import ANNOTATION_EXITS, ANNOTATION_RUNS_S
from sunk_simulation.kubernetes.model import ModelKubernetes
from sunk_simulation.kubernetes.store import Stored
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.model import ModelSlurm

NAMESPACE: Final = "tenant"
SCHEDULER: Final = "sunk-scheduler"
FINALIZER: Final = "tenant.example.com/slow"
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
EVERY_S: Final = (3.0, 30.0)
CORDONED: Final = 0.3
"""How many of the Nodes that are touched are cordoned then; the others are not any more."""
PODS_MAX: Final = 12
"""More they do not make."""
_SLURM_USER: Final = 64100
"""Whose placeholders are: what he may do to a job, tenants may who get at his rights."""


class NodeSet:
    """What an administrator wants of the one NodeSet."""

    def __init__(self, kubernetes: ModelKubernetes, kind: Kind, key: str, size: int) -> None:
        self.version = 1
        """Of its template."""
        self.replicas = size
        self._kubernetes = kubernetes
        self._kind = kind
        self._key = key

    def update(self) -> None:
        """Change its template."""
        self.version += 1
        template = {"annotations": {"version": str(self.version)}}
        self._change(lambda spec: spec["template"].update(metadata=template))

    def scale(self, replicas: int) -> None:
        """Change its size."""
        self.replicas = replicas
        self._change(lambda spec: spec.update(replicas=replicas))

    def _change(self, change: Callable[[Object], object]) -> None:
        def changed(found: Object) -> Object:
            change(found["spec"])
            return found

        registry = self._kubernetes.registry
        registry.update(self._kind, self._key, changed, manager="kubectl", is_patch=True)


class Tenants:
    """Tenants, and the administrator."""

    def __init__(
        self, sim: Simulation, kubernetes: ModelKubernetes, slurm: ModelSlurm, nodeset: NodeSet
    ) -> None:
        self.nodeset = nodeset
        self._sim = sim
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._random = sim.random("tenants")
        self._made = 0
        self._create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, namespace="")
        self._deeds: tuple[tuple[int, Callable[[], None]], ...] = (
            (8, self._place),
            (6, self._run),
            (2, self._gang),
            (6, self._delete),
            (3, self._let_go),
            (3, self._write_on_a_pod),
            (2, self._write_on_a_job),
            (3, self._cordon),
            (1, self._delete_slurmd),
            (1, self._update),
            (1, self._scale),
        )

    async def go_on(self) -> None:
        """Let things happen, for ever."""
        await self._sim.sleep(5)
        weights = [weight for weight, _ in self._deeds]
        pauses = self._sim.random("tenants")
        while True:
            await self._sim.sleep(pauses.uniform(*EVERY_S))
            lots = self._sim.item("tenant")
            if lots is not None:
                self._random = lots
                (deed,) = lots.choices([deed for _, deed in self._deeds], weights)
                self._try(deed)

    def end(self) -> None:
        """Delete what is there, let go of it, and have all Nodes take Pods again."""
        self.nodeset.scale(len(self._kubernetes.kubelets))
        for node in sorted(self._kubernetes.kubelets):
            self._try(lambda node=node: self._set_cordon(node, is_cordoned=False))
        for key in self._pods():
            self._try(lambda key=key: self._kubernetes.registry.delete(PODS, key))
            self._try(lambda key=key: self._finalize(key))

    def work(
        self,
        key: str,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Make a Pod that Slurm places, and that does not end by itself."""
        container: Object = {
            "name": "main",
            "image": "app:1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }
        spec = {"containers": [container], "schedulerName": SCHEDULER, "terminationGracePeriodSeconds": 5}
        meta = {
            "name": key.partition("/")[2],
            "annotations": {**(annotations or {})},
            "labels": {**(labels or {})},
        }
        self._create(PODS, {"metadata": meta, "spec": spec})

    def change(self, key: str, change: Callable[[Object], object]) -> None:
        """Write on a Pod what they like."""
        self._change(PODS, key, change)

    def delete(self, key: str) -> None:
        """Delete a Pod."""
        self._kubernetes.registry.delete(PODS, key)

    def _pods(self) -> dict[str, Stored]:
        found = sorted(self._kubernetes.store.of(PODS.resource).items())
        return {key: one for key, one in found if key.startswith(f"{NAMESPACE}/")}

    def _one(self, *, placed: bool = False) -> str | None:
        """Return one of their Pods."""
        keys = [
            key
            for key, one in self._pods().items()
            if not placed or one.object["spec"].get("schedulerName") == SCHEDULER
        ]
        return self._random.choice(keys) if keys else None

    def _place(self) -> None:
        """Make a Pod that Slurm places."""
        annotations: dict[str, str] = {}
        if self._random.random() < 0.2:
            asked = self._random.choice(
                (("time-limit", "1"), ("exclusive", "none"), ("exclusive", "ok"), ("partition", "nowhere"))
            )
            annotations[PREFIX + asked[0]] = asked[1]
        self._pod(f"placed-{self._next()}", annotations, schedulerName=SCHEDULER)

    def _gang(self) -> None:
        """Make Pods that Slurm places together."""
        number, size = self._next(), self._random.randint(2, 3)
        annotations = {ANNOTATION_GANG_SIZE: str(size)}
        labels = {POD_GROUP: f"gang-{number}"}
        for member in range(size):
            self._pod(f"gang-{number}-{member}", annotations, labels, schedulerName=SCHEDULER)

    def _run(self) -> None:
        """Make a Pod that kube-scheduler places."""
        spec: Object = {}
        if self._random.random() < 0.2:
            lock = {"key": f"{PREFIX}lock", "operator": "Exists", "tolerationSeconds": 20}
            spec["tolerations"] = [lock]
        number = self._next()
        if self._random.random() < 0.2:
            budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": f"app-{number}"}}}
            self._create(BUDGETS, {"metadata": {"name": f"app-{number}"}, "spec": budget})
        self._pod(f"web-{number}", {}, {"app": f"app-{number}"}, **spec)

    def _pod(
        self,
        name: str,
        annotations: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        if len(self._pods()) >= PODS_MAX:
            return
        meta: Object = {"name": name, "annotations": dict(annotations), "labels": dict(labels or {})}
        if self._random.random() < 0.2:
            meta["finalizers"] = [FINALIZER]
        if self._random.random() < 0.5:
            meta["annotations"][ANNOTATION_RUNS_S] = str(self._random.randint(5, 200))
            meta["annotations"][ANNOTATION_EXITS] = self._random.choice(("0", "0", "1"))
        cpus = str(self._random.randint(1, 2))
        container: Object = {
            "name": "main",
            "image": "app:1",
            "resources": {"requests": {"cpu": cpus, "memory": "1Gi"}},
        }
        if self._random.random() < 0.5:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": self._random.randint(1, 30)}}}
        body: Object = {
            "containers": [container],
            "restartPolicy": self._random.choice(("Never", "Always")),
            "terminationGracePeriodSeconds": self._random.randint(1, 20),
            **spec,
        }
        self._create(PODS, {"metadata": meta, "spec": body})

    def _delete(self) -> None:
        if key := self._one():
            self._kubernetes.registry.delete(PODS, key)

    def _let_go(self) -> None:
        for key, one in self._pods().items():
            if one.meta.get("deletionTimestamp") and one.meta.get("finalizers"):
                self._finalize(key)

    def _finalize(self, key: str) -> None:
        self._change(PODS, key, lambda pod: pod["metadata"].pop("finalizers", None))

    def _write_on_a_pod(self) -> None:
        """Write on a Pod what another one says, or nothing, or nonsense."""
        key, other = self._one(placed=True), self._one(placed=True)
        if key is None or other is None:
            return
        annotations: Mapping[str, str] = self._pods()[other].meta.get("annotations") or {}
        theirs = annotations.get(ANNOTATION_JOB, "")
        text = self._random.choice((theirs, "", "{", '{"job":1}'))

        def write(pod: Object) -> None:
            pod["metadata"].setdefault("annotations", {})[ANNOTATION_JOB] = text

        self._change(PODS, key, write)

    def _write_on_a_job(self) -> None:
        """Write on a job what another one says, or nothing."""
        alive = [job for job in self._slurm.state.jobs.values() if not job.is_over]
        if not alive:
            return
        job, other = self._random.choice(alive), self._random.choice(alive)
        text = self._random.choice((other.extra, "", "{", f"{other.extra}: started"))
        name = self._random.choice(("extra", "comment"))
        words = ("scontrol", "update", f"jobid={job.job_id}", f"{name}={text}")
        self._slurm.exec("setpriv", "--reuid", str(job.user_id), "--clear-groups", *words)

    def delete_node(self, node: str) -> None:
        """Delete a Node, as who takes a machine away."""
        self._try(lambda: self._kubernetes.registry.delete(NODES, node))

    def _delete_slurmd(self) -> None:
        found = self._kubernetes.store.of(PODS.resource)
        keys = [key for key in sorted(found) if not key.startswith(f"{NAMESPACE}/")]
        if keys:
            self._kubernetes.registry.delete(PODS, self._random.choice(keys))

    def _cordon(self) -> None:
        node = self._random.choice(sorted(self._kubernetes.kubelets))
        self._set_cordon(node, is_cordoned=self._random.random() < CORDONED)

    def _set_cordon(self, node: str, *, is_cordoned: bool) -> None:
        def change(found: Object) -> None:
            found["spec"]["unschedulable"] = is_cordoned
            found["metadata"].setdefault("annotations", {})[ANNOTATION_CORDON_REASON] = "maintenance"

        self._change(NODES, node, change)

    def _update(self) -> None:
        self.nodeset.update()

    def _scale(self) -> None:
        size = len(self._kubernetes.kubelets)
        self.nodeset.scale(self._random.randint(size - 1, size))

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _create(self, kind: Kind, body: Object, namespace: str = NAMESPACE) -> None:
        self._try(lambda: self._kubernetes.registry.create(kind, body, namespace, manager="kubectl"))

    def _change(self, kind: Kind, key: str, change: Callable[[Object], object]) -> None:
        def changed(found: Object) -> Object:
            change(found)
            return found

        self._kubernetes.registry.update(kind, key, changed, manager="kubectl", is_patch=True)

    def _try(self, deed: Callable[[], object]) -> None:
        """Do it, if the servers let it be done now."""
        if not self._kubernetes.is_running:
            return
        try:
            deed()
        except (CommandError, StatusError) as error:
            self._sim.trace.write("tenant", "is refused", error=error)
