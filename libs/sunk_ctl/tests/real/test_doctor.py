"""`sunkctl doctor` on a real Kubernetes: the API server does not reach sunk-view, and its Pod is ready."""

import json
from collections.abc import Generator
from typing import Any, Final

import helm_python as helm
import pytest
from typer.testing import CliRunner, Result

from sunk_ctl.main import app
from sunk_ctl.testing import CHART
from sunk_events.view import GROUP, VERSION
from sunk_lab.charts import render
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for

pytestmark = pytest.mark.lab

NAMESPACE: Final = "unreached"
APISERVICE: Final = f"{VERSION}.{GROUP}"
VALUES: Final[dict[str, Any]] = {
    "clusters": [{"name": "c1", "namespace": "slurm"}],
    "view": {"enabled": True},
}
STAYS: Final = "stays"
"""A namespace that is to be deleted."""


def condition(lab: KubeLab, kind: str, name: str, wanted: str) -> str:
    path = f"{{.status.conditions[?(@.type=='{wanted}')].status}}"
    return lab.kubectl("get", kind, name, "-o", f"jsonpath={path}")


@pytest.fixture
def lab(kube_lab: KubeLab) -> Generator[KubeLab]:
    """Yield a Kubernetes with the chart's Service and APIService, and a Pod that nothing listens in."""
    made = render(helm.Chart.load(CHART), VALUES, name="sunk", namespace=NAMESPACE)
    service, apiservice = made["Service", "sunk-view"], made["APIService", APISERVICE]
    labels = service["metadata"]["labels"]
    ports = [{"name": "https", "containerPort": 8443}]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "view", "image": PAUSE, "ports": ports}],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sunk-view", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": service["spec"]["selector"]},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    for name in (NAMESPACE, STAYS):
        kube_lab.kubectl("create", "namespace", name)
    try:
        for one in (service, deployment):
            kube_lab.kubectl("apply", "-f", "-", input=json.dumps(one))
        rollout = ("rollout", "status", "deployment/sunk-view", "--timeout=120s")
        kube_lab.kubectl("-n", NAMESPACE, *rollout)
        kube_lab.kubectl("apply", "-f", "-", input=json.dumps(apiservice))
        yield kube_lab
    finally:
        kube_lab.kubectl("delete", "apiservice", APISERVICE, "--ignore-not-found")
        for name in (NAMESPACE, STAYS):
            kube_lab.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s")


def doctor(lab: KubeLab) -> Result:
    words = ("--kubeconfig", str(lab.kubeconfig), "--namespace", NAMESPACE, "--seconds", "1", "-o", "json")
    return CliRunner(env={"NO_PROXY": "*"}).invoke(app, ["doctor", *words])


def test_a_view_that_is_out_of_reach_is_named_with_the_namespaces_that_stay(lab: KubeLab) -> None:
    wait_for(
        "what is not available", lambda: condition(lab, "apiservice", APISERVICE, "Available") == "False"
    )
    lab.kubectl("delete", "namespace", STAYS, "--wait=false")
    wait_for(
        "a namespace that stays",
        lambda: condition(lab, "namespace", STAYS, "NamespaceDeletionDiscoveryFailure") == "True",
        120,
    )

    broken = doctor(lab)
    lab.kubectl("delete", "apiservice", APISERVICE)
    lab.kubectl("wait", "--for=delete", f"namespace/{STAYS}", "--timeout=180s")
    well = doctor(lab)

    (found,) = json.loads(broken.stdout)["findings"]
    assert (broken.exit_code, found["where"]) == (1, APISERVICE)
    assert "Kubernetes deletes no namespace meanwhile: FailedDiscoveryCheck" in found["what"]
    assert (well.exit_code, json.loads(well.stdout)["findings"]) == (0, [])
