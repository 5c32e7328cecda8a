"""The admission policy on a real API server: it says what `validate` says."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import helm_python as helm
import msgspec
import pytest
import yaml

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError
from sunk_kube.objects import KubeObject
from sunk_kube.pods import Pod
from sunk_kube.resources import CONFIG_MAPS, PODS, Resource
from sunk_kube.wellknown import JOB_ANNOTATIONS, PREFIX
from sunk_lab.charts import render
from sunk_lab.pages import fenced
from sunk_pod_scheduler.podspec.validation import Rules, validate
from sunk_runtime.errors import ConflictError
from sunk_runtime.testing import until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CHARTS = Path(__file__).parents[4] / "helm"
GUIDE = Path(__file__).parents[4] / "docs/pods.md"
GROUP = "admissionregistration.k8s.io"
POLICIES = Resource(
    group=GROUP,
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    is_namespaced=False,
    struct=KubeObject,
)
BINDINGS = Resource(
    group=GROUP,
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    is_namespaced=False,
    struct=KubeObject,
)
OURS = "sunk-admitted-scheduler"
FOLLOW = "sunk-follow-configmaps"
GOOD = {"cpu": "10m", "memory": "1Mi"}
RULES = Rules(kill_wait_s=30, refuses_pod_affinity=True)


def manifest(
    *,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    grace_s: int | None = 2,
    scheduler: str = OURS,
    **more: object,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {"requests": GOOD if requests is None else requests},
            }
        ],
        **({} if grace_s is None else {"terminationGracePeriodSeconds": grace_s}),
    }
    metadata = {
        "generateName": "judged-",
        "annotations": {PREFIX + name: value for name, value in (annotations or {}).items()},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | more}


ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
        ]
    }
}
SIDECAR = {
    "name": "side",
    "image": "none",
    "restartPolicy": "Always",
    "resources": {"requests": GOOD},
}
GOOD_ANNOTATIONS = {
    "account": "root",
    "comment": "A Kubernetes job: ünïcode & <b>",
    "constraints": "h100&ib",
    "current-working-dir": "/path/to/use",
    "excluded-nodes": "a-01,a-[02-04,07]",
    "exclusive": "user",
    "group-id": "1002",
    "partition": "default",
    "prefer": "ib",
    "priority": "4294967293",
    "qos": "normal",
    "required-nodes": "a[1-2]b[3]",
    "reservation": "test",
    "timeout": "0123",
    "user-id": " 1001 ",
}


def examples() -> dict[str, dict[str, Any]]:
    """Return the guide's first Pod with the annotations of each of its examples."""
    blocks: list[dict[str, Any]] = [yaml.safe_load(text) for text in fenced(GUIDE.read_text(), "yaml")]
    (first,) = (block for block in blocks if "kind" in block)
    written: list[dict[str, str]] = [{}]
    written += [
        block["metadata"]["annotations"] for block in blocks if "annotations" in block.get("metadata", {})
    ]
    spec = first["spec"] | {"schedulerName": OURS}
    return {
        f"the guide's {', '.join(one)}": first
        | {"metadata": {"generateName": "guide-", "annotations": one}, "spec": spec}
        for one in written
    }


CASES: dict[str, dict[str, Any]] = {
    **examples(),
    "every annotation": manifest(annotations=GOOD_ANNOTATIONS),
    "empty annotations ask nothing": manifest(annotations=dict.fromkeys(GOOD_ANNOTATIONS, " ")),
    "the old boolean": manifest(annotations={"exclusive": "True"}),
    "a sidecar's requests count": manifest(requests={}, initContainers=[SIDECAR]),
    "no cpu": manifest(requests={"memory": "1Mi"}),
    "zero memory": manifest(requests={"cpu": "1", "memory": "0"}),
    "Kubernetes' default grace": manifest(grace_s=None),
    "the longest grace": manifest(grace_s=24),
    "a second too long": manifest(grace_s=25),
    "required anti-affinity": manifest(affinity=ANTI),
    "claimed devices": manifest(resourceClaims=[{"name": "gpu", "resourceClaimName": "some"}]),
    **{
        f"{name}={value[:20]!r}": manifest(annotations={name: value})
        for name, value in (
            ("comment", "x" * 1024),
            ("comment", "x" * 1023),
            ("comment", "a\nb"),
            ("account", "a b"),
            ("current-working-dir", "here"),
            ("exclusive", "yes"),
            ("exclusive", "USER"),
            ("required-nodes", "a-[1"),
            ("required-nodes", "a-[x]"),
            ("required-nodes", "cpu-000-012,$(id)"),
            ("excluded-nodes", "a;b"),
            ("excluded-nodes", "a]"),
            ("priority", "high"),
            ("priority", "0"),
            ("priority", "4294967294"),
            ("timeout", "-1"),
            ("timeout", "1.5"),
            ("timeout", "99999999999999999999"),
            ("user-id", "0"),
            ("group-id", "00"),
            ("user-id", "-1"),
        )
    },
}


def made_by_the_charts(namespace: str) -> tuple[dict[str, Any], ...]:
    """Return the policy, the settings and the binding of a Slurm cluster in *namespace*, and what stays."""
    known: dict[str, Any] = {"clusters": [{"name": "prod", "namespace": namespace}]}
    cluster: dict[str, Any] = {
        "clusterName": "prod",
        "nats": {"existingSecret": "passwords"},
        "scheduler": {"settings": {"POD_AFFINITY": "refuse"}},
    }
    sunk = render(helm.Chart.load(CHARTS / "sunk"), known, name="sunk", namespace="sunk")
    slurm = render(helm.Chart.load(CHARTS / "slurm"), cluster, name="slurm", namespace=namespace)
    return (
        sunk["ValidatingAdmissionPolicy", "sunk-pods"],
        slurm["ConfigMap", "slurm-pods-policy"],
        slurm["ValidatingAdmissionPolicyBinding", f"slurm-{namespace}-pods"],
        sunk["ValidatingAdmissionPolicy", FOLLOW],
        sunk["ValidatingAdmissionPolicyBinding", FOLLOW],
    )


@pytest.fixture
async def judged(kube: KubeClient, namespace: str) -> AsyncGenerator[str]:
    """A namespace in whose binding the policy holds already."""
    policy, settings, binding, *follow = made_by_the_charts(namespace)
    policy["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = namespace
    settings["data"]["scheduler-names"] = f"other,{OURS}"
    for resource, stays in zip((POLICIES, BINDINGS), follow, strict=True):
        with suppress(ConflictError):  # An earlier test made it.
            await kube.create(resource, stays)
    await kube.create(CONFIG_MAPS, settings, namespace)
    await kube.create(POLICIES, policy)
    await kube.create(BINDINGS, binding)
    said = ""

    async def holds() -> bool:
        nonlocal said
        said = await verdict(kube, namespace, CASES["a second too long"])
        return "termination" in said

    try:
        # Nobody tells when an API server has taken a policy in, nor a new namespace its ServiceAccount.
        with suppress(TimeoutError):
            await until(holds)
        assert "termination" in said
        yield namespace
    finally:
        with anyio.move_on_after(10, shield=True):
            await kube.delete(BINDINGS, namespace)
            await kube.delete(POLICIES, namespace)


async def verdict(kube: KubeClient, namespace: str, body: Mapping[str, Any]) -> str:
    """Return why the API server refuses the Pod; empty if it takes it."""
    try:
        await kube.create(PODS, body, namespace)
    except KubeRejectedError as error:
        return str(error)
    return ""


async def test_kubectl_apply_is_told_what_the_scheduler_would_say_and_other_pods_are_left_alone(
    kube: KubeClient, judged: str
) -> None:
    ours: dict[str, bool] = {}
    theirs: dict[str, bool] = {}
    for name, body in CASES.items():
        found = validate(msgspec.convert(body, Pod), RULES)
        said = await verdict(kube, judged, body)
        ours[name] = isinstance(found, tuple) and not _is_only_the_policys(found)
        theirs[name] = bool(said)
        if said and isinstance(found, tuple):
            assert _field(found[0]) in said, name

    assert theirs == ours
    assert not any(theirs[name] for name in examples())
    assert {PREFIX + name for name in GOOD_ANNOTATIONS} == set(JOB_ANNOTATIONS)
    # One policy a test run: an API server that has stopped to watch settings takes minutes to begin again.
    await leaves_others_alone(kube, judged)


def _is_only_the_policys(found: tuple[str, ...]) -> bool:
    """Whether all that is wrong is what only the scheduler's table of users knows."""
    return all("may not use" in problem for problem in found)


def _field(problem: str) -> str:
    """Return what *problem* is about."""
    return problem.partition(":")[0].partition(" (")[0]


async def leaves_others_alone(kube: KubeClient, judged: str) -> None:
    other = await kube.create(PODS, manifest(scheduler="somebody-elses", requests={}), judged)
    good = await kube.create(PODS, manifest(), judged)
    name = good.metadata.name

    def change(**annotations: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {PREFIX + key: value for key, value in annotations.items()}}}

    assert other.metadata.name
    await kube.patch(PODS, name, change(partition="main"), judged)
    with pytest.raises(KubeRejectedError, match="must be an integer"):
        await kube.patch(PODS, name, change(priority="high"), judged)
