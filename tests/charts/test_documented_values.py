"""Values by the names that SUNK's documents have for them: what they make of a cluster."""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

import sunk_pod_scheduler.config
import sunk_syncer.config
from sunk_lab.charts import Objects, env_of, pod_specs, render
from sunk_runtime.config import load

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, **values: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    return render(chart, VALUES | values, name="prod", namespace="slurm")


def settings(objects: Objects, deployment: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings and the arguments of a service."""
    spec = pod_specs(objects)[deployment]
    given = {name: value for name, value in env_of(spec).items() if name.startswith("SUNK_")}
    return given, spec["containers"][0].get("args", [])


def scheduler(objects: Objects) -> sunk_pod_scheduler.config.Config:
    given, args = settings(objects, "prod-scheduler")
    return load(sunk_pod_scheduler.config.Config, given, sunk_pod_scheduler.config.PREFIX, args)


def syncer(objects: Objects) -> sunk_syncer.config.Config:
    given, args = settings(objects, "prod-syncer")
    return load(sunk_syncer.config.Config, given, sunk_syncer.config.PREFIX, args)


def test_scheduler_enabled_is_whether_there_is_one(chart: helm.Chart) -> None:
    with_one, without = made(chart), made(chart, scheduler={"enabled": False})

    assert ("Deployment", "prod-scheduler") in with_one
    assert {kind for kind, name in without if name.endswith("-scheduler")} == {"NetworkPolicy"}  # Of nobody.


def test_scheduler_name_is_what_pods_call_it(chart: helm.Chart) -> None:
    assert "batch" in scheduler(made(chart, scheduler={"name": "batch"})).scheduler_names


@pytest.mark.parametrize(
    ("scope", "watched"),
    [
        pytest.param({"type": "cluster"}, [None], id="the whole cluster"),
        pytest.param({"type": "namespace"}, ["slurm"], id="its own namespace"),
        pytest.param({"type": "namespace", "namespaces": ["a", "b"]}, ["a", "b"], id="a list"),
        pytest.param({"type": "namespace", "namespaces": "a,b"}, ["a", "b"], id="with commas"),
    ],
)
def test_scheduler_scope_is_where_pods_are_ours(
    chart: helm.Chart, scope: dict[str, Any], watched: list[str | None]
) -> None:
    assert list(scheduler(made(chart, scheduler={"scope": scope})).watched_namespaces) == watched


@pytest.mark.parametrize("is_wanted", [True, False])
def test_slurm_node_clean_up_is_whether_records_of_gone_nodes_go(
    chart: helm.Chart, *, is_wanted: bool
) -> None:
    config = {"config": {"syncer": {"slurmNodeCleanUp": is_wanted}}}

    assert syncer(made(chart, syncer=config)).slurm_node_clean_up is is_wanted


@pytest.mark.parametrize("is_permitted", [True, False])
def test_node_permissions_are_whether_scontrol_reboot_does_something(
    chart: helm.Chart, *, is_permitted: bool
) -> None:
    permissions = {"nodePermissions": {"enabled": is_permitted}}

    conf = made(chart, syncer=permissions)["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]

    assert ("\nRebootProgram=" in conf) is is_permitted
    assert ("reboot_from_controller" in conf) is is_permitted


def test_a_shared_file_system_is_where_users_and_their_jobs_are(chart: helm.Chart) -> None:
    volume = {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}
    mount = {"name": "home", "mountPath": "/home"}
    shared = {"volumes": [volume], "volumeMounts": [mount]}

    objects = made(chart, **{"global": shared, "compute": {"nodes": {"cpu": {}}}})

    specs = {
        (kind, name): found["spec"]["template"]["spec"]
        for (kind, name), found in objects.items()
        if kind in ("NodeSet", "StatefulSet", "Deployment", "Job")
    }
    assert {key for key, spec in specs.items() if volume in spec.get("volumes", [])} == {
        ("NodeSet", "prod-cpu"),
        ("StatefulSet", "prod-login"),
    }
    for key in (("NodeSet", "prod-cpu"), ("StatefulSet", "prod-login")):
        assert mount in specs[key]["containers"][0]["volumeMounts"]


def test_users_come_in_as_the_load_balancer_wants_it(chart: helm.Chart) -> None:
    wanted = {"type": "LoadBalancer", "port": 2222, "externalTrafficPolicy": "Local"}

    service = made(chart, login={"service": wanted | {"annotations": {"example.com/address": "public"}}})[
        "Service", "prod-login"
    ]

    spec = service["spec"]
    assert service["metadata"]["annotations"] == {"example.com/address": "public"}
    assert (spec["type"], spec["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [(2222, "ssh")]


def test_a_spank_plugin_is_told_to_slurm_if_an_image_has_it(chart: helm.Chart) -> None:
    objects = made(chart, slurmConfig={"plugstackConfig": "required spank_pyxis.so"})

    assert objects["ConfigMap", "prod-slurm-conf"]["data"]["plugstack.conf"] == "required spank_pyxis.so\n"
    assert "plugstack.conf" not in made(chart)["ConfigMap", "prod-slurm-conf"]["data"]


def slurmd(objects: Objects) -> dict[str, Any]:
    """Return the Pods' spec of the set `cpu`."""
    return objects["NodeSet", "prod-cpu"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "line", ["JobContainerType=job_container/tmpfs", "x=1\nNamespaceType = namespace/tmpfs"]
)
def test_a_tmp_of_each_jobs_own_is_told_to_slurm_with_the_prolog_flag_that_it_needs(
    chart: helm.Chart, line: str
) -> None:
    config = {"extraConfig": line, "jobContainerConfig": "AutoBasePath=true\nBasePath=/jobs"}

    nodes: dict[str, Any] = {"compute": {"nodes": {"cpu": {}}}}
    objects = made(chart, slurmConfig=config, **nodes)
    files = objects["ConfigMap", "prod-slurm-conf"]["data"]

    assert files["job_container.conf"] == "AutoBasePath=true\nBasePath=/jobs\n"
    assert "PrologFlags=Alloc,Contain,DeferBatch" in files["slurm.conf"].splitlines()
    # Only their slurmds make the namespaces that it takes on some kernels.
    assert env_of(slurmd(objects))["SUNK_JOB_NAMESPACES"] == "1"
    assert "SUNK_JOB_NAMESPACES" not in env_of(slurmd(made(chart, **nodes)))
