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


def test_a_compute_pod_that_goes_ends_its_jobs_first_and_has_the_time_for_it(chart: helm.Chart) -> None:
    def pod(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - values are free-form.
        nodes = {"gpu": values.pop("gpu", {})}
        return made(chart, {"compute": {"nodes": nodes}, **values})["NodeSet", "prod-gpu"]["spec"][
            "template"
        ]["spec"]

    hook = pod()["containers"][0]["lifecycle"]["preStop"]
    assert hook == {"exec": {"command": ["/etc/sunk/scripts/stop-slurmd"]}}
    assert pod()["terminationGracePeriodSeconds"] == 60
    assert pod(slurmConfig={"killWait": 90})["terminationGracePeriodSeconds"] == 120
    assert pod(gpu={"terminationGracePeriodSeconds": 25})["terminationGracePeriodSeconds"] == 25


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


TYPES: Final = {"scheduler": {"config": {"scheduler": {"gpuTypes": {"NVIDIA_H100": "hopper"}}}}}


@pytest.mark.parametrize(
    ("gres_gpu", "more", "expected"),
    [
        ("", {}, ("FromNode", None, "true")),
        ("", TYPES, ("FromNode", None, "true")),
        ("h100:8", {}, (None, "gpu:h100:8", "false")),
        ("none", {}, (None, None, "true")),
        ("", {"slurmConfig": {"gresConfig": "AutoDetect=nvml"}}, (None, None, "false")),
    ],
    ids=["of the Node", "with a table", "by hand", "none", "a gres.conf of the values"],
)
def test_gpus_are_those_of_the_node_unless_the_values_say_otherwise(
    chart: helm.Chart,
    gres_gpu: str,
    more: dict[str, Any],
    expected: tuple[str | None, str | None, str],
) -> None:
    objects = made(chart, {"compute": {"nodes": {"gpu": {"gresGpu": gres_gpu}}}} | more)
    spec = objects["NodeSet", "prod-gpu"]["spec"]
    scheduler = env_of(objects["Deployment", "prod-scheduler"]["spec"]["template"]["spec"])

    given = env_of(spec["template"]["spec"]).get("SUNK_GRES")
    assert (spec.get("gpus"), given, scheduler["SUNK_POD_SCHEDULER_SPELLS_GPU_TYPES"]) == expected
    assert spec.get("gpuTypes") == ({"NVIDIA_H100": "hopper"} if more is TYPES else None)


@pytest.mark.parametrize(("gres_gpu", "gres_conf"), [("none", None), ("", "AutoDetect=nvidia\n")])
def test_slurm_looks_for_gpus_unless_no_set_has_any(
    chart: helm.Chart, gres_gpu: str, gres_conf: str | None
) -> None:
    objects = made(chart, {"compute": {"nodes": {"cpu": {"gresGpu": gres_gpu}}}})
    assert objects["ConfigMap", "prod-slurm-conf"]["data"].get("gres.conf") == gres_conf


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


def test_the_notes_have_the_next_commands(chart: helm.Chart) -> None:
    files = chart.render(VALUES | {"compute": SET}, name="prod", namespace="slurm")

    told = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
    assert "kubectl --namespace slurm exec prod-login-0 --container sshd -- sinfo" in told
    assert "kubectl --namespace slurm get nodesets,pods" in told
    assert "rollout status statefulset/prod-controller statefulset/prod-login deployment/prod-rest " in told
    assert "helm test prod --namespace slurm" in told


@pytest.mark.parametrize(
    ("values", "told", "untold"),
    [
        (
            {"compute": {"nodes": {"cpu": {"slurm": {"cpus": 4, "memory": 4000}}}}},
            "partition cpu 1000 MiB.",
            "do not say",
        ),
        (
            {"compute": {"nodes": {"cpu": {}}}},
            "how much memory per CPU the nodes of cpu have",
            "partition cpu",
        ),
        (
            {"compute": {"nodes": {"cpu": {}}}, "slurmConfig": {"defMemPerCPU": 500}},
            "",
            "A job that requests no memory",
        ),
        ({}, "There are no Slurm nodes yet", "A job that requests no memory"),
    ],
    ids=["known", "unknown", "given", "no nodes"],
)
def test_an_install_tells_what_memory_a_job_gets(
    chart: helm.Chart, values: dict[str, Any], told: str, untold: str
) -> None:
    files = chart.render(VALUES | values, name="prod", namespace="slurm")

    notes = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
    assert told in notes
    assert untold not in notes


def spec_of(chart: helm.Chart, **own: object) -> dict[str, Any]:
    """Return the Pod's spec of a set with *own* values."""
    objects = made(chart, {"compute": {"nodes": {"gpu": own}}})
    return objects["NodeSet", "prod-gpu"]["spec"]["template"]["spec"]


def test_the_names_of_slurms_nodes_resolve_in_compute_login_and_slurmctld_pods(chart: helm.Chart) -> None:
    objects = made(chart, {"compute": SET, "global": {"clusterDomain": "example.org"}})

    service = objects["Service", "prod-compute"]["spec"]
    labels = objects["NodeSet", "prod-gpu"]["spec"]["template"]["metadata"]["labels"]
    specs = [
        objects["NodeSet", "prod-gpu"]["spec"]["template"]["spec"],
        objects["StatefulSet", "prod-login"]["spec"]["template"]["spec"],
        objects["StatefulSet", "prod-controller"]["spec"]["template"]["spec"],
    ]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= labels.items()
    assert specs[0]["subdomain"] == "prod-compute"
    searches = ["prod-compute.slurm.svc.example.org"]
    assert [spec["dnsConfig"]["searches"] for spec in specs] == [searches] * 3


def test_a_set_on_its_nodes_own_network_asks_the_clusters_dns(chart: helm.Chart) -> None:
    def policy(**own: object) -> object:
        return spec_of(chart, **own).get("dnsPolicy")

    assert (policy(), policy(hostNetwork=True)) == (None, "ClusterFirstWithHostNet")
    assert policy(hostNetwork=True, dnsPolicy="Default") == "Default"


@pytest.mark.parametrize(
    ("own", "size"),
    [
        ({}, None),
        ({"slurm": {"memory": 4000}}, "2000Mi"),
        ({"resources": {"limits": {"memory": "7Gi"}}}, "3584Mi"),
        ({"resources": {"limits": {"memory": "500Mi"}}}, "250Mi"),
        ({"resources": {"limits": {"memory": "2Ti"}}}, "1024Gi"),
        ({"resources": {"limits": {"memory": "5G"}}}, None),
        ({"slurm": {"memory": 4000}, "sharedMemory": "1Gi"}, "1Gi"),
    ],
    ids=str,
)
def test_dev_shm_is_half_of_the_memory_where_the_values_say_how_much_that_is(
    chart: helm.Chart, own: dict[str, Any], size: str | None
) -> None:
    spec = spec_of(chart, **own)

    (volume,) = (one["emptyDir"] for one in spec["volumes"] if one["name"] == "shm")
    assert (volume["medium"], volume.get("sizeLimit")) == ("Memory", size)
    mounts = spec["containers"][0]["volumeMounts"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in mounts  # noqa: S108 - a mount point


def test_limits_of_jobs_are_values_and_bring_the_capability_that_they_need(chart: helm.Chart) -> None:
    def container(limits: dict[str, object]) -> dict[str, Any]:
        nodes = {"gpu": {"limits": {"nofile": 4096}}}
        objects = made(chart, {"compute": {"nodes": nodes, "limits": limits}})
        return objects["NodeSet", "prod-gpu"]["spec"]["template"]["spec"]["containers"][0]

    with_both = container({"memlock": "unlimited", "nofile": 1024})
    env = {one["name"]: one.get("value") for one in with_both["env"]}
    assert (env["SUNK_LIMIT_MEMLOCK"], env["SUNK_LIMIT_NOFILE"]) == ("unlimited", "4096")
    assert "SUNK_LIMIT_STACK" not in env
    assert "SYS_RESOURCE" in with_both["securityContext"]["capabilities"]["add"]
    without = spec_of(chart)["containers"][0]
    assert "SYS_RESOURCE" not in without["securityContext"]["capabilities"]["add"]


def test_words_of_scheduler_parameters_replace_the_charts_one_by_one(chart: helm.Chart) -> None:
    given = {"slurmConfig": {"schedulerParameters": "bf_interval=30,max_rpc_cnt=150"}}

    lines = made(chart, given)["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"].splitlines()

    (line,) = (line for line in lines if line.startswith("SchedulerParameters="))
    words = line.removeprefix("SchedulerParameters=").split(",")
    assert {"bf_interval=30", "max_rpc_cnt=150", "bf_continue", "batch_sched_delay=0"} <= set(words)
    assert "bf_interval=1" not in words


def test_slurmd_has_the_priority_class_of_the_sunk_release_unless_its_set_has_one(chart: helm.Chart) -> None:
    sunk = helm.Chart.load(CHART.parent / "sunk")
    clusters = [{"name": "prod", "namespace": "slurm"}]
    made_there = render(sunk, {"clusters": clusters}, name="sunk", namespace="sunk")

    assert made_there["PriorityClass", "sunk-slurmd"]["preemptionPolicy"] == "Never"
    assert spec_of(chart)["priorityClassName"] == "sunk-slurmd"
    assert spec_of(chart, priorityClassName="mine")["priorityClassName"] == "mine"
    without = made(chart, {"compute": SET, "sunk": {"priorityClassName": ""}})
    assert "priorityClassName" not in without["NodeSet", "prod-gpu"]["spec"]["template"]["spec"]


def test_time_limits_and_preemption_of_the_sets_partitions_are_values(chart: helm.Chart) -> None:
    partition = {"maxTime": "7-0", "defaultTime": "1:00:00", "preemptMode": "REQUEUE", "graceTime": 120}
    values = {"compute": SET | {"autoPartition": partition}, "slurmConfig": {"preemptMode": "CANCEL"}}

    lines = made(chart, values)["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"].splitlines()

    assert (
        "PartitionName=gpu Nodes=gpu PriorityTier=1 MaxTime=7-0 DefaultTime=1:00:00 PreemptMode=REQUEUE"
        " GraceTime=120 State=UP" in lines
    )
    assert "PreemptMode=CANCEL" in lines


@pytest.mark.parametrize(
    ("service", "is_for_all"),
    [
        ({}, True),
        ({"type": "LoadBalancer"}, False),
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"}, True),
    ],
    ids=["inside the cluster", "callers are known", "callers have the addresses of Nodes"],
)
def test_a_scanner_locks_no_user_out(chart: helm.Chart, service: dict[str, str], *, is_for_all: bool) -> None:
    objects = made(chart, {"login": {"service": service}})

    lines = objects["ConfigMap", "prod-scripts"]["data"]["sshd_config"].splitlines()

    assert ("PerSourcePenalties no" in lines) == is_for_all
    # sshd reads it only when it starts.
    templates = [one["StatefulSet", "prod-login"]["spec"]["template"] for one in (objects, made(chart, {}))]
    assert (templates[0] == templates[1]) == is_for_all


def test_scratch_is_a_volume_of_each_pod_where_the_values_have_a_size(chart: helm.Chart) -> None:
    nodes = {"gpu": {}, "cpu": {"scratch": {"size": ""}}}
    compute = {"scratch": {"size": "1Ti", "storageClassName": "nvme"}, "nodes": nodes}
    objects = made(chart, {"compute": compute})

    def volumes(name: str) -> list[dict[str, Any]]:
        spec = objects["NodeSet", name]["spec"]["template"]["spec"]
        return [one for one in spec["volumes"] if one["name"] == "scratch"]

    (volume,) = volumes("prod-gpu")
    claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("nvme", "1Ti")
    assert volumes("prod-cpu") == []
    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"].splitlines()
    assert "TaskProlog=/etc/sunk/scripts/task-prolog" in conf
    # PMIx and X11 make folders of their own there, also on nodes that have no such volume.
    assert not any(line.startswith("TmpFS") for line in conf)
    without = made(chart, {"compute": SET})["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    assert "TaskProlog" not in without


def test_a_new_user_restarts_no_login_pod(chart: helm.Chart) -> None:
    def template(users: list[dict[str, Any]]) -> object:
        return made(chart, {"users": users})["StatefulSet", "prod-login"]["spec"]["template"]

    assert template([{"name": "ada", "uid": 2000, "sshKeys": ["ssh-ed25519 AAAA"]}]) == template([])


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        ({}, []),
        ({"hookGateway": {"tls": {}}}, ["hooks do not use TLS"]),
        ({"hookGateway": {"tls": {"generate": True, "required": False}}}, ["still answers hooks without"]),
        ({"users": [{"name": "ada", "uid": 2000}]}, ["no shared file system is mounted below /home"]),
        (
            {
                "users": [{"name": "ada", "uid": 2000}],
                "global": {
                    "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
                    "volumeMounts": [{"name": "home", "mountPath": "/home"}],
                },
            },
            [],
        ),
        ({"compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}}}, ["compute.nodes.gpu has GPUs and no"]),
        ({"compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}, "limits": {"memlock": "unlimited"}}}, []),
    ],
    ids=["nothing", "no TLS", "TLS not required", "users", "users with homes", "GPUs", "GPUs with memlock"],
)
def test_an_install_warns_of_what_users_will_miss(
    chart: helm.Chart, values: dict[str, Any], warnings: list[str]
) -> None:
    tls = {key: {"tls": {"generate": True}} for key in ("hookGateway", "rest")}
    files = chart.render(VALUES | tls | values, name="prod", namespace="slurm")

    told = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
    assert told.count("WARNING:") == len(warnings)
    assert all(words in told for words in warnings)
