"""Who may stay on a Node that is locked for a Slurm job, by the policy of the chart on a real API server."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.charts import Objects, render
from sunk_lab.errors import LabError
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for

CHART: Final = Path(__file__).parents[2] / "helm/sunk"
POLICY: Final = "ValidatingAdmissionPolicy"
NAME: Final = "sunk-lock-bearers"
TENANT: Final = "system:serviceaccount:bearers-team:tenant"
DAEMONS: Final = "system:serviceaccount:kube-system:daemon-set-controller"
SCHEDULER: Final = "system:serviceaccount:bearers-slurm:prod-scheduler"
EVERYTHING: Final = {"operator": "Exists"}
OWN: Final = {"key": TAINT_LOCK, "operator": "Exists"}
EVICTING: Final[dict[str, Any]] = {"nodesetController": {"lock": {"effect": "NoSchedule"}}}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, values: Mapping[str, Any] | None = None, **bearers: object) -> Objects:
    known: dict[str, Any] = {
        "clusters": [{"name": "prod", "namespace": "bearers-slurm"}],
        "admissionPolicies": {"lockBearers": bearers},
        **(values or {}),
    }
    return render(chart, known, name="sunk", namespace="bearers-sunk")


def judged(objects: Objects) -> tuple[str, list[str], str]:
    """Return what happens where it cannot be judged, what is done, and the fields that are judged."""
    spec = objects[POLICY, NAME]["spec"]
    fields = [one["messageExpression"].split(":")[0].strip("'") for one in spec["validations"]]
    return (
        spec["failurePolicy"],
        objects[f"{POLICY}Binding", NAME]["spec"]["validationActions"],
        " ".join(fields),
    )


def test_pods_are_warned_of_by_default_and_refused_where_the_values_say_so(chart: helm.Chart) -> None:
    assert judged(made(chart)) == ("Ignore", ["Warn", "Audit"], "spec.tolerations")
    assert judged(made(chart, action="Deny")) == ("Fail", ["Deny"], "spec.tolerations")


def test_where_we_evict_all_is_judged_that_lets_a_pod_stay(chart: helm.Chart) -> None:
    def fields(**lock: object) -> str:
        return judged(made(chart, {"nodesetController": {"lock": {"effect": "NoSchedule"} | lock}}))[2]

    assert fields() == "spec.tolerations spec.priorityClassName metadata.ownerReferences"
    assert fields(exemptDaemonSets=False) == "spec.tolerations spec.priorityClassName"


def test_our_own_namespaces_and_those_of_the_values_are_not_judged(chart: helm.Chart) -> None:
    def spared(objects: Objects) -> list[str]:
        constraints = objects[POLICY, NAME]["spec"]["matchConstraints"]
        (one,) = constraints["namespaceSelector"]["matchExpressions"]
        assert (one["key"], one["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        return list(one["values"])

    exempt = {"nodesetController": {"lock": {"effect": "NoSchedule", "exemptNamespaces": ["logs"]}}}
    assert spared(made(chart)) == ["bearers-slurm", "bearers-sunk", "kube-system"]
    assert spared(made(chart, namespaces=["cilium"])) == ["bearers-slurm", "bearers-sunk", "cilium"]
    assert spared(made(chart, exempt)) == ["bearers-slurm", "bearers-sunk", "kube-system", "logs"]


@pytest.mark.parametrize(
    "values",
    [{"admissionPolicies": {"enabled": False}}, {"admissionPolicies": {"lockBearers": {"enabled": False}}}],
)
def test_without_the_policy_nobody_is_judged(chart: helm.Chart, values: dict[str, Any]) -> None:
    assert (POLICY, NAME) not in made(chart, values)


def test_the_values_of_a_release_of_before_the_policy_are_taken_as_they_are(chart: helm.Chart) -> None:
    """As `helm upgrade --reuse-values` gives them: without what they lack, be it a default of the chart."""

    def both(objects: Objects) -> list[object]:
        return [objects[kind, NAME] for kind in (POLICY, f"{POLICY}Binding")]

    now = both(made(chart))

    assert both(made(chart, {"admissionPolicies": {"lockBearers": None}})) == now
    lacking = dict.fromkeys(("enabled", "action", "namespaces", "serviceAccounts"))
    assert both(made(chart, **lacking)) == now


@pytest.mark.parametrize(
    ("bearers", "why"),
    [
        ({"action": "Audit"}, "must be one of 'Warn', 'Deny'"),
        ({"namespaces": ["Cilium"]}, "does not match pattern"),
        ({"serviceAccounts": ["cilium"]}, "does not match pattern"),
        ({"namespace": []}, "'namespace' not allowed"),
    ],
)
def test_a_wrong_value_is_refused(chart: helm.Chart, bearers: dict[str, Any], why: str) -> None:
    values = {
        "clusters": [{"name": "prod", "namespace": "slurm"}],
        "admissionPolicies": {"lockBearers": bearers},
    }

    with pytest.raises(helm.HelmValuesError) as refused:
        chart.validate_schema(values)

    assert why in refused.value.detail


@pytest.mark.parametrize(
    ("policies", "is_open"),
    [
        ({}, True),
        ({"lockBearers": {"action": "Deny"}}, False),
        ({"lockBearers": {"action": "Deny", "enabled": False}}, True),
        ({"lockBearers": {"action": "Deny"}, "enabled": False}, True),
    ],
)
def test_an_install_says_that_tenants_may_stay_on_locked_nodes_unless_they_are_refused(
    chart: helm.Chart, policies: dict[str, Any], *, is_open: bool
) -> None:
    values = {"clusters": [{"name": "prod", "namespace": "slurm"}], "admissionPolicies": policies}
    texts = chart.render(values, name="sunk", namespace="sunk")
    (notes,) = (text for path, text in texts.items() if path.endswith("NOTES.txt"))

    assert ("WARNING: any tenant's Pod may stay on a Node that is locked" in notes) == is_open


def pod(
    name: str,
    *tolerations: Mapping[str, object],
    namespace: str = "bearers-team",
    priority: str = "",
    owners: Sequence[Mapping[str, object]] = (),
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": list(owners)},
        "spec": {
            "priorityClassName": priority,
            "tolerations": list(tolerations),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": PAUSE}],
        },
    }


class Somebody:
    """kubectl as one user, who may do everything that the policy lets him."""

    def __init__(self, lab: KubeLab, name: str, group: str = "system:masters") -> None:
        self._lab = lab
        self._as = (f"--as={name}", f"--as-group={group}")

    def kubectl(self, *args: str, body: Mapping[str, Any] | None = None) -> str:
        return self._lab.kubectl(*self._as, *args, input=None if body is None else json.dumps(body))

    def create(self, body: Mapping[str, Any], *flags: str) -> None:
        self.kubectl("create", *flags, "-f", "-", body=body)

    def told(self, body: Mapping[str, Any]) -> str:
        """Return why *body* would be refused, or what he would be warned of; nothing if neither."""
        return said(lambda: self.create(body, "--dry-run=server", "--warnings-as-errors"))

    def tolerate(self, name: str, *tolerations: Mapping[str, object]) -> None:
        """Give the tenant's Pod *tolerations* besides those it has: nobody may take one away."""
        patch = json.dumps(
            [{"op": "add", "path": "/spec/tolerations/-", "value": one} for one in tolerations]
        )
        self.kubectl("-n", "bearers-team", "patch", "pod", name, "--type=json", "-p", patch)


def said(call: Callable[[], object]) -> str:
    """Return what *call* is refused with; nothing if it is not."""
    try:
        call()
    except LabError as error:
        return str(error)
    return ""


def release(
    lab: KubeLab, chart: helm.Chart, values: Mapping[str, Any] | None = None, **bearers: object
) -> None:
    """Have the policy judge by these values."""
    objects = made(chart, values, **bearers)
    both = [objects[kind, NAME] for kind in (POLICY, f"{POLICY}Binding")]
    lab.kubectl(
        "apply",
        "--server-side",
        "-f",
        "-",
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": both}),
    )


@pytest.fixture(scope="module")
def lab(kube_lab: KubeLab) -> Generator[KubeLab]:
    """A lab with a team, whose Pods are judged by what `release` says."""
    names = ("bearers-team", "bearers-slurm")
    try:
        for name in names:
            kube_lab.kubectl("create", "namespace", name)
        yield kube_lab
    finally:
        for kind in (f"{POLICY}Binding", POLICY):
            kube_lab.kubectl("delete", "--ignore-not-found", kind.lower(), NAME)
        tenant = Somebody(kube_lab, TENANT)
        wait_for("nobody to be judged", lambda: not tenant.told(pod("probe", EVERYTHING)))
        for name in names:
            with suppress(LabError):
                kube_lab.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_a_tenant_is_warned_at_first_and_his_pod_is_made(lab: KubeLab, chart: helm.Chart) -> None:
    tenant = Somebody(lab, TENANT)
    release(lab, chart)
    wait_for("the policy to hold", lambda: bool(tenant.told(pod("probe", EVERYTHING))))

    assert "Warning: Validation failed for ValidatingAdmissionPolicy" in tenant.told(pod("a", EVERYTHING))
    assert "spec.tolerations: operator Exists without a key lets this Pod" in tenant.told(
        pod("a", EVERYTHING)
    )
    assert f"the key {TAINT_LOCK} lets this Pod" in tenant.told(pod("a", OWN))
    assert tenant.told(pod("a", {"key": "gpu", "operator": "Exists"})) == ""
    tenant.create(pod("warned", EVERYTHING))
    assert "warned" in tenant.kubectl("-n", "bearers-team", "get", "pod", "warned", "-o", "name")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_a_tenant_is_refused_where_the_values_say_so_and_keeps_what_he_had(
    lab: KubeLab, chart: helm.Chart
) -> None:
    tenant, scheduler = Somebody(lab, TENANT), Somebody(lab, SCHEDULER)
    tenant.create(pod("plain"))
    lab.kubectl("delete", "--ignore-not-found", f"{POLICY}Binding".lower(), NAME)
    wait_for("the policy to hold no more", lambda: not tenant.told(pod("probe", EVERYTHING)))
    tenant.create(pod("before", EVERYTHING))
    release(lab, chart, action="Deny")
    wait_for("the policy to hold", lambda: "is forbidden" in tenant.told(pod("probe", EVERYTHING)))

    refused = tenant.told(pod("a", EVERYTHING))
    assert "add the namespace bearers-team to admissionPolicies.lockBearers.namespaces" in refused
    for one in (
        OWN,
        OWN | {"effect": "NoExecute", "tolerationSeconds": 60},
        {"key": TAINT_LOCK, "value": "true"},
    ):
        assert f"spec.tolerations: the key {TAINT_LOCK}" in tenant.told(pod("a", one))
    assert tenant.told(pod("a", EVERYTHING | {"effect": "NoSchedule"})) == ""  # It does not let it stay.

    assert "operator Exists" in said(lambda: tenant.tolerate("plain", EVERYTHING))
    tenant.tolerate("plain", {"key": "gpu", "operator": "Exists"})
    tenant.kubectl("-n", "bearers-team", "label", "pod", "before", "team=a")
    assert TAINT_LOCK in said(lambda: tenant.tolerate("before", OWN))
    scheduler.tolerate("plain", OWN)
    tenant.kubectl("-n", "bearers-team", "label", "pod", "plain", "team=a")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_the_namespace_of_a_daemonset_decides_and_not_that_a_controller_makes_its_pods(
    lab: KubeLab, chart: helm.Chart
) -> None:
    daemons = Somebody(lab, DAEMONS)
    release(lab, chart, action="Deny")
    wait_for("the policy to hold", lambda: "is forbidden" in daemons.told(pod("probe", EVERYTHING)))

    assert daemons.told(pod("a", EVERYTHING, namespace="kube-system")) == ""
    labels, spec = {"app": "agent"}, pod("agent", EVERYTHING)["spec"]
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "bearers-team"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    tenant = Somebody(lab, TENANT)
    tenant.create(agent)
    events = (
        "-n",
        "bearers-team",
        "get",
        "events",
        "--field-selector=involvedObject.name=agent,reason=FailedCreate",
    )
    wait_for(
        "the DaemonSet to say why", lambda: NAME in tenant.kubectl(*events, "-o", "jsonpath={..message}"), 60
    )
    assert tenant.kubectl("-n", "bearers-team", "get", "pods", "-l", "app=agent", "-o", "name") == ""
    release(lab, chart, action="Deny", namespaces=["kube-system", "bearers-team"])
    pods = ("-n", "bearers-team", "get", "pods", "-l", "app=agent", "-o", "name")
    wait_for("its Pods, once its namespace is named", lambda: bool(tenant.kubectl(*pods)), 120)
    tenant.kubectl("-n", "bearers-team", "delete", "daemonset", "agent")


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_an_account_of_the_values_and_kubelets_are_not_judged(lab: KubeLab, chart: helm.Chart) -> None:
    tenant, named = Somebody(lab, TENANT), Somebody(lab, "system:serviceaccount:ops:agent")
    release(lab, chart, action="Deny", serviceAccounts=["ops:agent"])
    wait_for("the policy to hold", lambda: "is forbidden" in tenant.told(pod("probe", EVERYTHING)))
    wait_for("the account to be known", lambda: not named.told(pod("probe", EVERYTHING)))

    uid = lab.kubectl("get", "node", "node1", "-o", "jsonpath={.metadata.uid}")
    node = {"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": uid, "controller": True}
    mirror = pod("static-node1", EVERYTHING | {"effect": "NoExecute"}, owners=[node])
    mirror["metadata"]["annotations"] = {
        f"kubernetes.io/config.{key}": "x" for key in ("mirror", "hash", "source", "seen")
    }
    mirror["spec"]["nodeName"] = "node1"
    assert Somebody(lab, "system:node:node1", "system:nodes").told(mirror) == ""
    assert "is forbidden" in tenant.told(mirror)
    stranger = Somebody(lab, "system:serviceaccount:bearers-team:x-scheduler")
    assert "is forbidden" in stranger.told(pod("a", EVERYTHING))


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_where_we_evict_neither_a_priority_class_that_stays_nor_a_daemonset_is_claimed(
    lab: KubeLab, chart: helm.Chart
) -> None:
    tenant = Somebody(lab, TENANT)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "1", "controller": True}
    release(lab, chart, EVICTING | {"admissionPolicies": {"lockBearers": {"action": "Deny"}}})
    critical = pod("a", priority="system-node-critical")
    wait_for("the policy to hold", lambda: bool(tenant.told(critical)))

    assert "spec.priorityClassName: system-node-critical lets this Pod stay" in tenant.told(critical)
    assert "metadata.ownerReferences: a DaemonSet as its controller lets" in tenant.told(
        pod("a", owners=[owner])
    )
    assert tenant.told(pod("a", owners=[owner | {"controller": False}])) == ""
    assert tenant.told(pod("a", priority="system-cluster-critical")) == ""
    tenant.create(pod("adopted"))
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    adopt = ("-n", "bearers-team", "patch", "pod", "adopted", "--type=merge", "-p", patch)
    assert "a DaemonSet as its controller" in said(lambda: tenant.kubectl(*adopt))
