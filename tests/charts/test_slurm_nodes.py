"""What the chart of a Slurm cluster makes of its sets of nodes, and what a change of them restarts."""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import Objects, env_of, render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
SET: Final[dict[str, Any]] = {"nodes": {"gpu": {}}}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, values: dict[str, Any]) -> Objects:
    return render(chart, VALUES | values, name="prod", namespace="slurm")


def test_sets_of_nodes_are_layers(chart: helm.Chart) -> None:
    nodes = {
        "base": {
            "enabled": False,
            "features": {"staticFeatures": ["x86"]},
            "resources": {"limits": {"cpu": 8, "memory": "8Gi"}},
            "env": [{"name": "A", "value": "base"}, {"name": "B", "value": "base"}],
        },
        "fast": {
            "enabled": False,
            "features": {"staticFeatures": ["nvme"]},
            "nodeSelector": {"disk": "fast"},
        },
        "gpu": {
            "definitions": ["fast"],
            "resources": {"limits": {"cpu": 16}},
            "env": [{"name": "B", "value": "gpu"}],
        },
    }

    objects = made(chart, {"compute": {"nodes": nodes}})

    spec = objects["NodeSet", "prod-gpu"]["spec"]
    pod = spec["template"]["spec"]
    env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert [name for kind, name in objects if kind == "NodeSet"] == ["prod-gpu"]
    assert spec["podNamePrefix"] == "gpu"
    assert spec["features"]["staticFeatures"] == ["gpu", "x86", "nvme"]
    assert env["SUNK_FEATURES"] == "gpu,x86,nvme"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": 16, "memory": "8Gi"}
    assert (env["A"], env["B"]) == ("base", "gpu")
    assert pod["nodeSelector"] == {"disk": "fast"}


def test_an_update_may_requeue_jobs_by_the_documents_rule(chart: helm.Chart) -> None:
    rule = {"enabled": True, "method": "partition", "partitions": "cpu-epyc, all"}
    values = {"syncer": {"config": {"syncer": {"nodesetUpdateJobPreemption": rule}}}, "compute": SET}

    strategy = made(chart, values)["NodeSet", "prod-gpu"]["spec"]["updateStrategy"]

    assert strategy == {"rollingUpdate": {"requeue": {"partitions": ["cpu-epyc", "all"]}}}


def test_a_set_of_nodes_is_a_partition_and_its_gpus_are_found(chart: helm.Chart) -> None:
    values = {"compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}}}

    files = made(chart, values)["ConfigMap", "prod-slurm-conf"]["data"]
    lines = files["slurm.conf"].splitlines()

    assert "NodeSet=gpu Feature=gpu" in lines
    assert "PartitionName=gpu Nodes=gpu PriorityTier=1 MaxTime=INFINITE State=UP" in lines
    assert files["gres.conf"].strip() == "AutoDetect=nvidia"


def test_who_goes_first_and_who_preempts_whom_are_values(chart: helm.Chart) -> None:
    compute = SET | {"autoPartition": {"priorityTier": 10}}
    values = {"slurmConfig": {"priority": {"fairshare": 1000, "qos": 50}}, "compute": compute}

    lines = made(chart, values)["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"].splitlines()

    assert {line for line in lines if line.startswith("PriorityWeight")} == {
        "PriorityWeightFairshare=1000",
        "PriorityWeightQOS=50",
    }
    assert "PartitionName=gpu Nodes=gpu PriorityTier=10 MaxTime=INFINITE State=UP" in lines


def test_a_changed_time_out_restarts_nothing_and_another_plugin_restarts_slurmctld(chart: helm.Chart) -> None:
    def template(**slurm_config: object) -> object:
        objects = made(chart, {"slurmConfig": slurm_config})
        return objects["StatefulSet", "prod-controller"]["spec"]["template"]

    assert template(slurmdTimeout=120) == template()
    assert template(topologyPlugin="topology/tree") != template()


def test_a_set_may_keep_no_memory_from_slurms_jobs(chart: helm.Chart) -> None:
    def reserved(**own: int) -> object:
        objects = made(chart, {"compute": {"reservedMemory": 512, "nodes": {"gpu": own}}})
        return env_of(objects["NodeSet", "prod-gpu"]["spec"]["template"]["spec"])["SUNK_RESERVED_MIB"]

    assert (reserved(), reserved(reservedMemory=0)) == ("512", "0")


def test_room_for_daemonsets_is_left_where_it_is_asked_for(chart: helm.Chart) -> None:
    def asked(compute: str, **own: str) -> object:
        objects = made(chart, {"compute": {"leaveRoomFor": compute, "nodes": {"gpu": own}}})
        return objects["NodeSet", "prod-gpu"]["spec"].get("leaveRoomFor")

    assert [asked(""), asked("DaemonSets"), asked("DaemonSets", leaveRoomFor="")] == [
        None,
        "DaemonSets",
        None,
    ]
    assert asked("", leaveRoomFor="DaemonSets") == "DaemonSets"


def test_a_changed_service_of_compute_pods_is_an_update_of_each_set(chart: helm.Chart) -> None:
    def template(script: str) -> object:
        services = {"sssd": {"type": "longrun", "script": script}}
        return made(chart, {"compute": SET | {"s6": services}})["NodeSet", "prod-gpu"]["spec"]["template"]

    assert template("sssd -i") != template("sssd -i -d 3")


def test_a_new_user_restarts_slurmctld_and_slurmdbd_and_no_compute_pod(chart: helm.Chart) -> None:
    def templates(*users: object) -> list[object]:
        objects = made(chart, {"users": users, "compute": SET})
        names = (
            ("StatefulSet", "prod-controller"),
            ("StatefulSet", "prod-accounting"),
            ("NodeSet", "prod-gpu"),
        )
        return [objects[name]["spec"]["template"] for name in names]

    before, after = templates(), templates({"name": "ada", "uid": 2000})

    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True]


def test_whoever_installed_is_told_the_next_three_commands(chart: helm.Chart) -> None:
    files = chart.render(VALUES | {"compute": SET}, name="prod", namespace="slurm")

    told = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
    assert "kubectl --namespace slurm exec prod-login-0 --container sshd -- sinfo" in told
    assert "kubectl --namespace slurm get nodesets,pods" in told
    assert "helm test prod --namespace slurm" in told
