"""The charts' policies on a real API server: what our services write on Pods and Nodes, nobody else does."""

import ast
import inspect
import itertools
import json
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_kube import wellknown
from sunk_lab.charts import Objects, render
from sunk_lab.errors import LabError
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for

CHARTS: Final = Path(__file__).parents[2] / "helm"
POLICY: Final = "ValidatingAdmissionPolicy"
TENANT: Final = "system:serviceaccount:team:tenant"
OPERATOR: Final = "olga"
SCHEDULER: Final = "system:serviceaccount:slurm:slurm-scheduler"
CONTROLLER: Final = "system:serviceaccount:sunk:sunk-nodeset-controller"
PREFIX: Final = wellknown.PREFIX
SIGNED: Final = json.dumps({"job": 7})
RULES_OF_ACCESS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
FIELDS: Final = {"LABEL": "labels", "ANNOTATION": "annotations"}


def made_by_the_charts(**policies: object) -> Objects:
    """Return all objects of both charts: `prod` in the namespace slurm, the sunk release in sunk."""
    known: dict[str, Any] = {
        "clusters": [{"name": "prod", "namespace": "slurm"}],
        "admissionPolicies": policies,
    }
    cluster: dict[str, Any] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
    sunk = render(helm.Chart.load(CHARTS / "sunk"), known, name="sunk", namespace="sunk")
    slurm = render(helm.Chart.load(CHARTS / "slurm"), cluster, name="slurm", namespace="slurm")
    return sunk | slurm


def what_they_write() -> dict[tuple[str, str, str], set[str]]:
    """Return the keys that `wellknown` says our services write: by service, kind of object, and field."""
    found: dict[tuple[str, str, str], set[str]] = {}
    body = ast.parse(inspect.getsource(wellknown)).body
    for statement, after in itertools.pairwise(body):
        told = ast.unparse(after)
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, writer = statement.target.id, re.search(r"Writer: (pod-scheduler|nodeset-controller)\b", told)
        field = FIELDS.get(name.partition("_")[0])
        if writer is None or field is None:
            continue
        for kind in ("Node", "Pod"):
            if re.search(rf"\b(On|and) (NodeSet )?{kind}s\b", told) or (kind == "Pod" and "members" in told):
                found.setdefault((writer[1], kind, field), set()).add(getattr(wellknown, name))
    return found


def test_the_policies_name_each_key_that_a_service_writes_and_no_other() -> None:
    made = made_by_the_charts()

    def named(policy: str, variable: str) -> list[set[str]]:
        variables = made[POLICY, policy]["spec"]["variables"]
        (text,) = (one["expression"] for one in variables if one["name"] == variable)
        lists = re.findall(r"\[((?:'[a-z_-]+'(?:, )?)+)\]", text)
        return [{PREFIX + key for key in re.findall(r"'([a-z_-]+)'", one)} for one in lists]

    node_labels, pod_labels = named("sunk-controller-writes", "changed_labels")
    node_annotations, pod_annotations = named("sunk-controller-writes", "changed_annotations")
    (scheduler,) = named("sunk-scheduler-writes", "written")
    assert what_they_write() == {
        ("nodeset-controller", "Node", "labels"): node_labels,
        ("nodeset-controller", "Pod", "labels"): pod_labels,
        ("nodeset-controller", "Node", "annotations"): node_annotations,
        ("nodeset-controller", "Pod", "annotations"): pod_annotations,
        ("pod-scheduler", "Pod", "annotations"): scheduler,
    }


def test_whoever_repairs_by_hand_is_in_a_group_of_the_values() -> None:
    made = made_by_the_charts(repairGroups=["sunk:repair"])

    for name in ("sunk-controller-writes", "sunk-scheduler-writes"):
        (condition, *_) = made[POLICY, name]["spec"]["matchConditions"]
        assert 'group in ["sunk:repair"]' in condition["expression"]


def test_without_policies_nothing_is_kept_from_anybody() -> None:
    made = made_by_the_charts(enabled=False)

    assert {name for kind, name in made if kind == POLICY} == set()


def test_no_pod_through_slurm_is_resized_in_place() -> None:
    policy = made_by_the_charts()[POLICY, "sunk-scheduler-writes"]["spec"]

    assert "pods/resize" in policy["matchConstraints"]["resourceRules"][0]["resources"]
    assert "request.subResource != 'resize'" in policy["validations"][0]["expression"]


class Somebody:
    """kubectl as one user, or as the lab's administrator."""

    def __init__(self, lab: KubeLab, name: str = "", *groups: str) -> None:
        self._lab = lab
        self._as = [f"--as={name}"] * bool(name) + [f"--as-group={group}" for group in groups]

    def kubectl(self, *args: str, body: Mapping[str, Any] | None = None) -> str:
        text = None if body is None else json.dumps(body)
        return self._lab.kubectl(*self._as, *args, input=text)

    def create(self, body: Mapping[str, Any]) -> None:
        self.kubectl("create", "-f", "-", body=body)

    def annotate(self, kind: str, name: str, *words: str) -> None:
        self.kubectl("-n", "team", "annotate", "--overwrite", kind, name, *words)

    def label(self, kind: str, name: str, *words: str) -> None:
        self.kubectl("-n", "team", "label", "--overwrite", kind, name, *words)

    def resize(self, name: str, body: Mapping[str, Any]) -> None:
        self.kubectl("-n", "team", "patch", "pod", name, "--subresource=resize", "-p", json.dumps(body))

    def patch_status(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        where = ("-n", "team", "patch", kind, name, "--subresource=status", "--type=merge")
        self.kubectl(*where, "-p", json.dumps(body))


def released() -> list[dict[str, Any]]:
    """Return of both releases what judges, and whom it knows."""
    made = made_by_the_charts(repairGroups=["sunk:repair"])
    kinds = (POLICY, f"{POLICY}Binding", "PriorityClass", *RULES_OF_ACCESS)
    made["ConfigMap", "slurm-pods-policy"]["metadata"]["namespace"] = "slurm"  # As Helm does.
    return [one for (kind, name), one in made.items() if kind in kinds or name == "slurm-pods-policy"]


def stays(one: Mapping[str, Any]) -> bool:
    """Return whether `helm uninstall` leaves it."""
    return "helm.sh/resource-policy" in one["metadata"].get("annotations", {})


def until_policies_hold(everybody: Somebody) -> None:
    for probe in (pod("probe", job=SIGNED), nodeset_pod("probe")):  # Nobody tells when a policy holds.
        wait_for("the policy to hold", lambda probe=probe: is_refused(everybody, probe))


@pytest.fixture(scope="module")
def lab(kube_lab: KubeLab) -> Generator[KubeLab]:
    """A lab with the charts' policies and accounts, and a team with a tenant and an operator."""
    everybody = Somebody(kube_lab)
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("slurm", "sunk", "team")
    ]
    given = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"test-{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
        for name, role, subject in (
            (  # As if the team's namespace were that of a Slurm cluster.
                "controller",
                "sunk-nodeset-controller-namespace",
                {"kind": "ServiceAccount", "name": "sunk-nodeset-controller", "namespace": "sunk"},
            ),
            ("tenant", "admin", {"kind": "ServiceAccount", "name": "tenant", "namespace": "team"}),
            (
                "operator",
                "cluster-admin",
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR},
            ),
        )
    ]
    try:
        for one in (namespaces, [*given, *released()]):
            everybody.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", body=listed(one))
        until_policies_hold(everybody)
        yield kube_lab
    finally:
        gone = [*namespaces, *given, *(one for one in released() if not stays(one))]
        everybody.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", body=listed(gone))


def listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def is_refused(somebody: Somebody, body: Mapping[str, Any]) -> bool:
    """Return whether *body* would be refused for its keys."""
    try:
        somebody.kubectl("create", "--dry-run=server", "-f", "-", body=body)
    except LabError as error:
        return "writes this" in str(error)
    return False


def pod(name: str, *, labels: Mapping[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    """Return a Pod that Slurm is to place."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": dict(labels or {}),
            "annotations": {PREFIX + key.replace("_", "-"): text for key, text in annotations.items()},
        },
        "spec": {
            "schedulerName": "slurm-slurm",
            "terminationGracePeriodSeconds": 20,
            "containers": [
                {"name": "main", "image": PAUSE, "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}}}
            ],
        },
    }


def nodeset_pod(name: str, **annotations: str) -> dict[str, Any]:
    """Return a Pod that says that it is of a NodeSet, for Kubernetes' own scheduler."""
    made = pod(name, labels={PREFIX + "nodeset": "cpu", PREFIX + "cluster": "prod"}, **annotations)
    made["spec"]["schedulerName"] = "default-scheduler"
    return made


def binding(name: str, **annotations: str) -> dict[str, Any]:
    """Return what binds a Pod to node1."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "team", "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"},
    }


def bind(somebody: Somebody, name: str, **annotations: str) -> None:
    """Bind the Pod *name*."""
    path = f"/api/v1/namespaces/team/pods/{name}/binding"
    somebody.kubectl("create", "--raw", path, "-f", "-", body=binding(name, **annotations))


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_a_tenant_writes_what_he_asks_for_and_nothing_that_the_scheduler_writes(lab: KubeLab) -> None:
    tenant, scheduler = Somebody(lab, TENANT), Somebody(lab, SCHEDULER)
    job, rank = PREFIX + "job", PREFIX + "gang-rank"

    tenant.create(pod("mine", partition="all", gang_size="2"))
    tenant.annotate("pod", "mine", f"{PREFIX}partition=main", f"{PREFIX}gang-size=3")
    with pytest.raises(LabError, match=rf"annotations: {job}: only the pod-scheduler writes this$"):
        tenant.annotate("pod", "mine", f"{job}={SIGNED}")
    with pytest.raises(LabError, match=rf"{job}: only the pod-scheduler writes this; remove it from"):
        tenant.create(pod("copied", job=SIGNED))

    scheduler.annotate("pod", "mine", f"{job}={SIGNED}", f"{rank}=0", f"{PREFIX}gang-size=2")
    tenant.annotate("pod", "mine", f"{PREFIX}comment=still mine")
    for what in (f"{job}={{}}", f"{job}-", f"{rank}=1", f"{PREFIX}gang-size=5"):
        with pytest.raises(LabError, match="only the pod-scheduler writes this"):
            tenant.annotate("pod", "mine", what)
    with pytest.raises(LabError, match="only the pod-scheduler writes this"):
        Somebody(lab, OPERATOR).patch_status("pod", "mine", {"metadata": {"annotations": {job: "8"}}})
    with pytest.raises(LabError, match="only the pod-scheduler writes this"):
        bind(Somebody(lab, OPERATOR), "mine", **{job: "8"})
    Somebody(lab, OPERATOR, "sunk:repair").annotate("pod", "mine", f"{PREFIX}gang-leader=mine")

    bind(scheduler, "mine")
    template = ("-n", "team", "get", "pod", "mine", "-o", "jsonpath={.status.phase}")
    wait_for("a real kubelet to have said so", lambda: tenant.kubectl(*template) == "Running", 90)
    larger = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2m"}}}]}}
    with pytest.raises(LabError, match="has what Slurm gave its job"):
        Somebody(lab, OPERATOR).resize("mine", larger)
    tenant.kubectl("-n", "team", "delete", "pod", "mine", "--wait=true")


def evict(somebody: Somebody, name: str, **options: object) -> None:
    """Have the Pod *name* evicted, or see that it might be."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "team"},
        "deleteOptions": {"dryRun": ["All"], **options},
    }
    somebody.kubectl("create", "--raw", f"/api/v1/namespaces/team/pods/{name}/eviction", "-f", "-", body=body)


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_a_pod_through_slurm_is_not_removed_before_its_containers_have_ended(lab: KubeLab) -> None:
    """Its kubelet keeps to the grace of the first deletion, and Slurm gives the node away once it is gone."""
    tenant, operator = Somebody(lab, TENANT), Somebody(lab, OPERATOR)

    def delete(somebody: Somebody, name: str, *how: str) -> None:
        somebody.kubectl("-n", "team", "delete", "pod", name, "--wait=false", *how)

    tenant.create(pod("runs"))
    delete(tenant, "runs", "--force", "--grace-period=0", "--dry-run=server")  # It has no node yet.
    bind(Somebody(lab, SCHEDULER), "runs")
    shown = ("-n", "team", "get", "pod", "runs", "-o", "jsonpath={.status.phase}")
    wait_for("it to run", lambda: tenant.kubectl(*shown) == "Running")
    for how, why in (
        (("--force", "--grace-period=0"), "a Pod through Slurm must end before it is removed"),
        (("--grace-period=86400",), "86400: a Pod through Slurm has at most 20 seconds to end"),
    ):
        with pytest.raises(LabError, match=why):
            delete(tenant, "runs", *how)
        delete(operator, "runs", *how, "--dry-run=server")
    for grace_s, why in ((86400, "has at most 30 seconds to end"), (0, "must end before it is removed")):
        with pytest.raises(LabError, match=why):
            evict(tenant, "runs", gracePeriodSeconds=grace_s)
        evict(operator, "runs", gracePeriodSeconds=grace_s)
    evict(tenant, "runs", gracePeriodSeconds=5)
    evict(tenant, "runs")

    ordinary = pod("ordinary")
    ordinary["spec"]["schedulerName"] = "default-scheduler"
    tenant.create(ordinary)
    delete(tenant, "ordinary", "--force", "--grace-period=0")
    delete(tenant, "runs", "--grace-period=5")
    gone = ("-n", "team", "get", "pod", "runs", "--ignore-not-found", "-o", "name")
    wait_for("its kubelet to end and remove it", lambda: tenant.kubectl(*gone) == "")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_a_deployment_makes_pods_through_slurm_and_one_with_a_copied_key_says_which(lab: KubeLab) -> None:
    tenant = Somebody(lab, TENANT)

    def deployment(name: str, **annotations: str) -> dict[str, Any]:
        template = pod(name, labels={"app": name}, **annotations)
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {key: template["metadata"][key] for key in ("labels", "annotations")},
                    "spec": template["spec"],
                },
            },
        }

    def names(app: str) -> list[str]:
        return tenant.kubectl("-n", "team", "get", "pods", "-l", f"app={app}", "-o", "name").split()

    def told() -> str:
        shown = (
            "-n",
            "team",
            "get",
            "deployment",
            "copied",
            "-o",
            "jsonpath={.status.conditions[*].message}",
        )
        return tenant.kubectl(*shown)

    tenant.create(deployment("good", partition="all"))
    wait_for("its Pod", lambda: len(names("good")) == 1, 60)
    (first,) = names("good")
    tenant.kubectl("-n", "team", "delete", first)
    wait_for("another Pod", lambda: names("good") not in ([], [first]), 60)

    tenant.create(deployment("copied", job=SIGNED))
    wait_for("the Deployment to say why", lambda: f"{PREFIX}job: only the pod-scheduler" in told(), 60)
    assert "remove it from what makes this Pod, such as the template of a Deployment" in told()
    assert names("copied") == []


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_nobody_but_the_nodeset_controller_says_what_a_node_and_a_nodesets_pod_are(lab: KubeLab) -> None:
    tenant, operator, controller = (Somebody(lab, name) for name in (TENANT, OPERATOR, CONTROLLER))
    why = "only the nodeset-controller writes this"

    with pytest.raises(LabError, match=rf"{PREFIX}cluster, {PREFIX}nodeset: {why}; remove it from"):
        tenant.create(nodeset_pod("slurmd"))
    tenant.create(pod("other", labels={PREFIX + "cluster": "prod"}, lock="mine"))  # Of no NodeSet.
    with pytest.raises(LabError, match=rf"{PREFIX}nodeset: {why}$"):
        tenant.label("pod", "other", f"{PREFIX}nodeset=cpu")
    controller.create(nodeset_pod("slurmd", features="a"))
    tenant.label("pod", "slurmd", "team=a")
    for what in (f"{PREFIX}protected=false", f"{PREFIX}nodeset-"):
        with pytest.raises(LabError, match=why):
            tenant.label("pod", "slurmd", what)
    for what in (f"{PREFIX}condemned=update", f"{PREFIX}features-"):
        with pytest.raises(LabError, match=why):
            tenant.annotate("pod", "slurmd", what)
    running = ("-n", "team", "get", "pod", "slurmd", "-o", "jsonpath={.status.phase}")
    wait_for("the Pod to run", lambda: tenant.kubectl(*running) == "Running", 90)

    with pytest.raises(LabError, match=why):
        operator.annotate("node", "node1", f"{PREFIX}lock-holders=[]")
    with pytest.raises(LabError, match=why):
        operator.label("node", "node1", f"{PREFIX}pod=x")
    with pytest.raises(LabError, match=why):
        operator.patch_status("node", "node1", {"metadata": {"annotations": {PREFIX + "lock": "false"}}})
    operator.annotate("node", "node1", "node.coreweave.cloud/cordonReason=disk")
    controller.label("node", "node1", f"{PREFIX}pod=slurmd")
    controller.annotate("node", "node1", f"{PREFIX}lock=pending")
    operator.patch_status("node", "node1", {"status": {"nodeInfo": {"bootID": "another"}}})
    boot = ("get", "node", "node1", "-o", "jsonpath={.status.nodeInfo.bootID}")
    wait_for("the kubelet to put it right", lambda: operator.kubectl(*boot) != "another", 90)
    Somebody(lab, OPERATOR, "sunk:repair").label("node", "node1", f"{PREFIX}pod-")
    controller.annotate("node", "node1", f"{PREFIX}lock-")
    operator.annotate("node", "node1", "node.coreweave.cloud/cordonReason-")
    for name in ("other", "slurmd"):
        tenant.kubectl("-n", "team", "delete", "pod", name, "--wait=true")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_no_other_pod_has_the_priority_class_of_slurmds(lab: KubeLab) -> None:
    tenant, controller = Somebody(lab, TENANT), Somebody(lab, CONTROLLER)
    stranger, slurmd = pod("as-worthy"), nodeset_pod("worthy")
    for one in (stranger, slurmd):
        one["spec"]["priorityClassName"] = "sunk-slurmd"

    with pytest.raises(
        LabError, match=r"sunk-slurmd is for slurmd's Pods, which the nodeset-controller creates"
    ):
        tenant.create(stranger)
    controller.create(slurmd)

    tenant.label("pod", "worthy", "team=a")
    tenant.kubectl("-n", "team", "delete", "pod", "worthy", "--wait=true")


def lease(namespace: str, name: str) -> dict[str, Any]:
    """Return what a pod-scheduler tells the others."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {
                wellknown.ANNOTATION_SCHEDULES: json.dumps({"cluster": "x", "names": ["slurm-slurm"]})
            },
        },
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 15},
    }


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_no_lease_outside_a_slurm_clusters_namespace_speaks_for_a_scheduler(lab: KubeLab) -> None:
    administrator = Somebody(lab)
    refused = "schedules: only the pod-schedulers of the Slurm clusters write this"

    for somebody in (Somebody(lab, TENANT), administrator):
        with pytest.raises(LabError, match=refused):
            somebody.create(lease("team", "mine"))

    plain = lease("team", "plain")
    del plain["metadata"]["annotations"]
    administrator.create(plain)
    with pytest.raises(LabError, match=refused):
        administrator.annotate("lease", "plain", f"{wellknown.ANNOTATION_SCHEDULES}={{}}")
    administrator.create(lease("slurm", "scheduler"))


def test_the_policies_of_a_new_release_hold_though_the_one_before_was_uninstalled(lab: KubeLab) -> None:
    everybody = Somebody(lab)
    everybody.kubectl("delete", "-f", "-", body=listed([one for one in released() if not stays(one)]))
    wait_for("no policy to hold", lambda: not is_refused(everybody, pod("probe", job=SIGNED)))

    everybody.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", body=listed(released()))

    until_policies_hold(everybody)
