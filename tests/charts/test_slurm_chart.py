"""What the chart that each Slurm cluster has makes of its values, by Helm's own engine."""

import contextlib
import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import msgspec
import pytest
import yaml

import sunk_hook_gateway.config
import sunk_metrics_exporter.config
import sunk_pod_scheduler.config
import sunk_syncer.config
from sunk_lab.charts import Objects, env_of, pod_specs, render, rights
from sunk_lab.processes import wait_for
from sunk_lab.slurm.conf import RESTD_ENVIRONMENT
from sunk_lab.stack.rbac import RULES
from sunk_pod_scheduler.podspec.namespace_policy import Grant, Policy, PriorityClassTerms
from sunk_runtime.config import load

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
NATS: Final = {"nats": {"existingSecret": "passwords"}}
VALUES: Final[dict[str, Any]] = {
    "clusterName": "prod",
    **NATS,
    "compute": {"nodes": {"gpu": {"gresGpu": "h100:8"}}},
}
EXAMPLES: Final = sorted((CHART / "examples").glob("*.yaml"))
SERVICES: Final = {
    "prod-syncer": sunk_syncer.config,
    "prod-scheduler": sunk_pod_scheduler.config,
    "prod-hook-gateway": sunk_hook_gateway.config,
    "prod-metrics-exporter": sunk_metrics_exporter.config,
}
DATABASE: Final = {"host": "db", "existingSecret": "db"}
RUN_AS_ROOT: Final = {"prod-login"}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, **values: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    return render(chart, VALUES | values, name="prod", namespace="slurm")


def controls(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the specs of all Pods but the compute Pods, whose NodeSet is no workload of Kubernetes' own."""
    return pod_specs(objects)


def nodeset(objects: Objects, name: str) -> dict[str, Any]:
    return objects["NodeSet", name]["spec"]


def is_hook(found: dict[str, Any]) -> bool:
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_is_a_whole_cluster(chart: helm.Chart, example: Path) -> None:
    values = yaml.safe_load(example.read_text())

    objects = render(chart, values, name="prod", namespace="slurm")

    kinds = {kind for kind, _ in objects}
    assert {"StatefulSet", "Deployment", "NodeSet", "NetworkPolicy", "Secret"} <= kinds


def test_a_pod_through_slurm_fits_beside_slurmd_on_a_gpu_node_of_the_example(chart: helm.Chart) -> None:
    values = yaml.safe_load((CHART / "examples/gpu.yaml").read_text())
    spec = nodeset(render(chart, values, name="prod", namespace="slurm"), "prod-h100")
    template = spec["template"]

    (slurmd,) = template["spec"]["containers"]
    assert slurmd["resources"] == {"requests": {"cpu": "1", "memory": "4Gi"}}
    env = env_of(template["spec"])
    assert (env["SUNK_CPUS"], env["NVIDIA_VISIBLE_DEVICES"]) == ("120", "all")
    assert "SUNK_GRES" not in env
    assert (spec["gpus"], spec["gpuTypes"]) == ("FromNode", {"NVIDIA_H100": "h100"})


def test_whoever_has_to_know_users_has_sssd_beside_it_if_there_is_a_directory(chart: helm.Chart) -> None:
    def asking(**values: Any) -> set[str]:  # noqa: ANN401 - values are free-form.
        objects = made(chart, compute={"nodes": {"cpu": {}}}, **values)
        specs = pod_specs(objects) | {"cpu": nodeset(objects, "prod-cpu")["template"]["spec"]}
        mounting: set[str] = set()
        for spec in specs.values():
            beside = {one["name"] for one in spec.get("initContainers", [])}
            found = {
                one["name"]
                for one in spec["containers"]
                if any(mount["mountPath"] == "/var/lib/sss" for mount in one.get("volumeMounts", []))
            }
            assert ("sssd" in beside) == bool(found)
            mounting |= found
        return mounting

    assert asking() == set()
    assert asking(directory={"existingSecret": "ldap"}) == {
        *("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "sshd"),
    }


def test_a_cluster_needs_fewer_than_25_lines_of_values() -> None:
    assert len((CHART / "examples/minimal.yaml").read_text().splitlines()) < 25


@pytest.mark.parametrize("name", SERVICES)
def test_every_setting_of_a_service_is_one_that_it_knows(chart: helm.Chart, name: str) -> None:
    module = SERVICES[name]
    settings = {"settings": {"RESYNC_S": "200"}}
    more = dict.fromkeys(("syncer", "scheduler"), settings)
    spec = controls(made(chart, **more))[name]
    given = {key: value for key, value in env_of(spec).items() if key.startswith("SUNK_")}

    config = load(module.Config, given, module.PREFIX, spec["containers"][0].get("args", []))

    assert given
    assert config.cluster == "prod"
    assert config.nats_user == module.PREFIX.removeprefix("SUNK_").replace("_", "-").lower() + "prod"


def test_the_syncer_gives_a_prolog_up_only_after_slurm_has(chart: helm.Chart) -> None:
    objects = made(chart, slurmConfig={"hookDeadline": 600}, hooks={"timeoutSeconds": 300})

    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    (slurms,) = re.findall(r"^PrologEpilogTimeout=(\d+)$", conf, re.MULTILINE)
    assert float(env_of(controls(objects)["prod-syncer"])["SUNK_SYNCER_PROLOG_LIMIT_S"]) > float(slurms) > 900


def test_the_scheduler_is_told_the_documents_two_arguments(chart: helm.Chart) -> None:
    objects = made(chart, slurmConfig={"killWait": 45}, scheduler={"name": "batch"})

    (container,) = controls(objects)["prod-scheduler"]["containers"]
    assert container["name"] == "scheduler"
    assert container["args"] == ["--scheduler-name=batch,sunk-scheduler", "--slurm-kill-wait=45s"]
    assert "KillWait=45\n" in objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]


def test_the_schedulers_policy_is_one_that_it_reads(chart: helm.Chart) -> None:
    granted = {"ml": {"userIds": [1001], "partitions": ["batch"], "priorityMax": 4000000}}
    objects = made(chart, scheduler={"policyByNamespace": granted})

    text = objects["ConfigMap", "prod-scheduler-policy"]["data"]["policy.json"]
    policy = msgspec.json.decode(text, type=Policy)

    assert policy.namespaces == {"ml": Grant(user_ids=(1001,), partitions=("batch",), priority_max=4000000)}
    assert policy.default == "deny"


def test_the_table_of_priority_classes_is_one_that_the_scheduler_reads_and_a_bad_one_is_refused(
    chart: helm.Chart,
) -> None:
    objects = made(chart, scheduler={"priorityClasses": {"high": {"qos": "urgent"}}})

    text = objects["ConfigMap", "prod-scheduler-policy"]["data"]["policy.json"]
    policy = msgspec.json.decode(text, type=Policy)

    assert policy.priority_classes == {"high": PriorityClassTerms(qos="urgent")}
    refused: list[dict[str, object]] = [
        {"high": "urgent"},
        {"high": {}},
        {"high": {"qos": "a,b"}},
        {"High!": {"qos": "urgent"}},
    ]
    for bad in refused:
        with pytest.raises(helm.HelmValuesError, match=r"priorityClasses|High!"):
            made(chart, scheduler={"priorityClasses": bad})


def test_another_policy_restarts_the_scheduler_which_reads_it_once(chart: helm.Chart) -> None:
    def template(qos: str, default: str = "deny") -> object:
        scheduler = {"policyByNamespace": {"*": {"qos": [qos]}}, "defaultPolicy": default}
        objects = made(chart, scheduler=scheduler)
        return objects["Deployment", "prod-scheduler"]["spec"]["template"]

    assert template("normal") != template("high")
    assert template("high") == template("high") != template("high", "allow")


def test_the_scheduler_has_a_token_of_each_user_whose_jobs_it_submits_and_the_syncer_of_none(
    chart: helm.Chart,
) -> None:
    granted = {"*": {"userIds": [1001, 1002]}, "ml": {"userIds": [1002]}, "web": {"qos": ["low"]}}
    specs = controls(made(chart, scheduler={"policyByNamespace": granted, "userId": 64100}))

    commands = {
        name: specs[name]["initContainers"][0]["command"] for name in ("prod-scheduler", "prod-syncer")
    }
    assert commands["prod-scheduler"][6:] == ["/token/users.json", "1001", "1002", "64100"]
    assert commands["prod-scheduler"][:6] == commands["prod-syncer"]
    given = env_of(specs["prod-scheduler"])["SUNK_POD_SCHEDULER_USER_TOKENS_FILE"]
    assert given == "/run/slurm-token/users.json"


def test_a_policy_that_is_neither_deny_nor_allow_is_refused(chart: helm.Chart) -> None:
    with pytest.raises(helm.HelmValuesError, match="defaultPolicy"):
        made(chart, scheduler={"defaultPolicy": "open"})


OTHERS = ("coordination.k8s.io", "leases", "list")
"""The Leases of other schedulers."""


def test_the_scheduler_without_a_name_is_called_for_its_namespace_and_release(chart: helm.Chart) -> None:
    (container,) = controls(made(chart))["prod-scheduler"]["containers"]

    assert "--scheduler-name=slurm-prod,sunk-scheduler" in container["args"]


@pytest.mark.parametrize(
    ("packing", "counted", "expected"),
    [
        pytest.param("fill", "CR_Core_Memory", "CR_Core_Memory", id="as it is"),
        pytest.param("spread", "CR_Core_Memory", "CR_Core_Memory,CR_LLN", id="the least loaded first"),
        pytest.param("spread", "CR_CPU_Memory,CR_LLN", "CR_CPU_Memory,CR_LLN", id="said already"),
    ],
)
def test_pods_fill_nodes_or_spread(chart: helm.Chart, packing: str, counted: str, expected: str) -> None:
    objects = made(chart, scheduler={"packing": packing}, slurmConfig={"selectTypeParameters": counted})

    assert (
        f"SelectTypeParameters={expected}\n" in objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    )


@pytest.mark.parametrize(
    ("scheduler", "names", "is_alias"),
    [
        pytest.param({"alias": False}, "slurm-prod", False, id="not wanted"),
        pytest.param({"name": "sunk-scheduler"}, "sunk-scheduler", False, id="it is its own name"),
        pytest.param({}, "slurm-prod,sunk-scheduler", True, id="the first release"),
    ],
)
def test_the_first_scheduler_serves_the_common_name_too_and_judges_pods_that_give_it(
    chart: helm.Chart, scheduler: dict[str, Any], names: str, *, is_alias: bool
) -> None:
    objects = made(chart, scheduler=scheduler)
    (container,) = controls(objects)["prod-scheduler"]["containers"]
    annotations = objects["Deployment", "prod-scheduler"]["metadata"]["annotations"]

    assert f"--scheduler-name={names}" in container["args"]
    assert objects["ConfigMap", "prod-pods-policy"]["data"]["scheduler-names"] == names
    assert annotations.get("sunk.coreweave.com/scheduler-alias") == ("true" if is_alias else None)


@pytest.mark.parametrize(
    "namespaces", [["a", "b"], "a,b", "a, b"], ids=["a list", "commas", "commas with spaces"]
)
def test_a_scope_of_namespaces_gives_no_right_on_pods_elsewhere(
    chart: helm.Chart, namespaces: object
) -> None:
    scope = {"scope": {"type": "namespace", "namespaces": namespaces}}
    objects = made(chart, scheduler=scope)

    wide = rights(objects["ClusterRole", "slurm-prod-scheduler"]["rules"])
    texts = chart.render(VALUES | {"scheduler": scope}, name="prod", namespace="slurm")
    found = yaml.safe_load_all(texts["slurm/templates/scheduler/rbac.yaml"])
    pods = ("", "pods", "delete")
    roles = [role for role in found if role["kind"] == "Role" and pods in rights(role["rules"])]
    assert wide == {("", "nodes", verb) for verb in ("list", "watch")} | {OTHERS}
    assert {role["metadata"]["namespace"] for role in roles} == {"a", "b"}
    assert env_of(controls(objects)["prod-scheduler"])["SUNK_POD_SCHEDULER_NAMESPACES"] == "a,b"


def test_the_scheduler_may_do_what_the_labs_may_and_leases_only_at_home(chart: helm.Chart) -> None:
    objects = made(chart)
    wide = rights(objects["ClusterRole", "slurm-prod-scheduler"]["rules"])
    home = rights(objects["Role", "prod-scheduler-lease"]["rules"])
    labs = {
        (group, resource, verb)
        for group, resources, verbs in RULES["pod-scheduler"]
        for resource in resources
        for verb in verbs
    }

    assert wide | home == labs
    assert OTHERS in wide
    assert home == {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update", "patch")}
    by_name = [
        rule for rule in objects["Role", "prod-scheduler-lease"]["rules"] if rule["verbs"] != ["create"]
    ]
    assert [rule.get("resourceNames") for rule in by_name] == [["sunk-pod-scheduler-prod"]]
    assert objects["Role", "prod-view-lease"]["rules"] == [
        {**by_name[0], "verbs": ["get"]},
    ]


def test_nobody_else_may_do_anything_in_kubernetes(chart: helm.Chart) -> None:
    objects = made(chart)

    bound = {
        (subject["namespace"], subject["name"])
        for (kind, _), found in objects.items()
        if kind in ("RoleBinding", "ClusterRoleBinding")
        for subject in found["subjects"]
    }
    with_token = {
        name for name, spec in controls(objects).items() if spec["automountServiceAccountToken"] is not False
    }
    assert bound == {
        ("slurm", "prod-scheduler"),
        ("slurm", "prod-uninstall"),
        ("sunk", "sunk-nodeset-controller"),
        ("sunk", "sunk-view"),
    }
    # The gateway reads the published keys.
    assert with_token == {"prod-scheduler", "prod-hook-gateway", "prod-uninstall"}
    assert nodeset(objects, "prod-gpu")["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("sunk", "account"),
    [
        ({}, ("sunk", "sunk-nodeset-controller")),
        ({"namespace": "hpc", "controllerName": "other"}, ("hpc", "other")),
    ],
    ids=["as the sunk release has it", "another"],
)
def test_the_nodeset_controller_has_its_rights_on_pods_in_the_namespace_of_the_release(
    chart: helm.Chart, sunk: dict[str, Any], account: tuple[str, str]
) -> None:
    binding = made(chart, sunk=sunk)["RoleBinding", "prod-nodeset-controller"]
    namespace, name = account

    assert binding["metadata"]["namespace"] == "slurm"
    assert binding["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}  # In a rollback.
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", f"{name}-namespace")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]


def test_whoever_uninstalls_may_empty_and_delete_nodesets_and_delete_pods_at_home(chart: helm.Chart) -> None:
    group = "sunk.coreweave.com"

    found = rights(made(chart)["Role", "prod-uninstall"]["rules"])

    assert found == {(group, "nodesets", verb) for verb in ("list", "patch", "delete")} | {
        ("", "pods", verb) for verb in ("list", "delete")
    }


def test_pods_that_name_our_scheduler_are_judged_where_they_are_ours(chart: helm.Chart) -> None:
    narrow = {"scope": {"type": "namespace", "namespaces": "a,b"}, "settings": {"POD_AFFINITY": "refuse"}}
    names = ("prod-slurm-pods", "prod-slurm-scheduler-writes", "prod-slurm-pods-deletion")
    bindings = [("ValidatingAdmissionPolicyBinding", name) for name in names]

    wide, own = made(chart), made(chart, scheduler=narrow, slurmConfig={"killWait": 60})
    off = made(chart, scheduler={"admissionPolicy": {"enabled": False}})

    for binding in bindings:
        (rule,) = own[binding]["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert rule == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
        assert "matchResources" not in wide[binding]["spec"]
        assert own[binding]["spec"]["paramRef"]["name"] == "prod-pods-policy"
        assert binding not in off
    assert own["ConfigMap", "prod-pods-policy"]["data"] == {
        "scheduler-names": "slurm-prod,sunk-scheduler",
        "scheduler-account": "system:serviceaccount:slurm:prod-scheduler",
        "kill-wait-s": "60",
        "pod-affinity": "refuse",
    }


def test_slurmctld_finds_each_login_pod_by_the_host_name_that_its_srun_tells(chart: helm.Chart) -> None:
    objects = made(chart, login={"replicas": 2})
    pods = [f"prod-login-{index}" for index in range(2)]

    found = {name: objects["Service", name]["spec"] for name in pods}

    selected = [spec["selector"]["statefulset.kubernetes.io/pod-name"] for spec in found.values()]
    assert selected == pods
    assert all(spec["clusterIP"] == "None" for spec in found.values())


def test_every_pod_but_login_and_compute_is_of_the_restricted_standard(chart: helm.Chart) -> None:
    for name, spec in controls(made(chart)).items():
        if name in RUN_AS_ROOT:
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(spec):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])


def test_nothing_of_the_host_is_asked_for(chart: helm.Chart) -> None:
    objects = made(chart)
    specs = {**controls(objects), "slurmd": nodeset(objects, "prod-gpu")["template"]["spec"]}

    for name, spec in specs.items():
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, name
        assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume], name
        assert not [one for one in containers(spec) if one["securityContext"].get("privileged")], name


def test_the_jwt_key_is_seen_by_slurmctld_slurmdbd_and_what_makes_and_checks_tokens(
    chart: helm.Chart,
) -> None:
    for name, spec in controls(made(chart)).items():
        holders = {
            volume["name"]
            for volume in spec.get("volumes", [])
            if "jwt.key" in [item["key"] for item in volume.get("secret", {}).get("items", [])]
        }
        seen_by = {
            container["name"]
            for container in containers(spec)
            for mount in container.get("volumeMounts", [])
            if mount["name"] in holders
        }
        expected = {
            "prod-syncer": {"token"},
            "prod-scheduler": {"token"},
            "prod-hook-gateway": {"token-checker"},
            "prod-controller": {"keys"},
            "prod-accounting": {"keys"},
            "prod-accounting-setup": {"keys"},
        }
        assert seen_by == expected.get(re.sub("-setup-.*", "-setup", name), set()), name


def test_whoever_signs_reads_the_set_of_keys_where_the_kubelet_brings_it(chart: helm.Chart) -> None:
    objects = made(chart)
    specs = {**controls(objects), "prod-gpu": nodeset(objects, "prod-gpu")["template"]["spec"]}
    readers: set[str] = set()
    for name, spec in specs.items():
        for container in containers(spec):
            variables = {one["name"]: one.get("value") for one in container.get("env", [])}
            mounts = {one["name"]: one["mountPath"] for one in container.get("volumeMounts", [])}
            assert ("SLURM_SACK_KEY" in variables) == ("SLURM_SACK_JWKS" in variables) == ("jwks" in mounts)
            if "jwks" in mounts:
                assert variables["SLURM_SACK_JWKS"] == f"{mounts['jwks']}/slurm.jwks"
                readers.add(name)
        volumes = {one["name"]: one for one in spec.get("volumes", [])}
        assert ("jwks" in volumes) == (name in readers)

    assert readers >= {"prod-controller", "prod-accounting", "prod-login", "prod-gpu"}


def test_another_set_of_keys_restarts_slurmdbd_alone(chart: helm.Chart) -> None:
    before = controls(made(chart)), made(chart)["NodeSet", "prod-gpu"]
    turned = made(chart, keys={"slurmKeyIds": ["2", "1"]})
    annotated = {
        (kind, name): found["spec"]["template"]["metadata"]
        for kind, name in turned
        if kind in ("Deployment", "StatefulSet")
        for found in (turned[kind, name],)
    }
    old = made(chart)

    assert (controls(turned), turned["NodeSet", "prod-gpu"]) == before
    assert [
        key for key, metadata in annotated.items() if metadata != old[key]["spec"]["template"]["metadata"]
    ] == [("StatefulSet", "prod-accounting")]


def test_no_pod_of_ours_or_through_slurm_is_evicted_by_a_lock(chart: helm.Chart) -> None:
    specs = controls(made(chart, sunk={"lockKey": "example.com/lock"}))

    for name, spec in specs.items():
        assert {"key": "example.com/lock", "operator": "Exists"} in spec["tolerations"], name
    assert env_of(specs["prod-scheduler"])["SUNK_POD_SCHEDULER_LOCK_KEY"] == "example.com/lock"


def test_a_conversion_of_the_database_may_take_a_day(chart: helm.Chart) -> None:
    (slurmdbd,) = controls(made(chart))["prod-accounting"]["containers"]

    probe = slurmdbd["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600


def test_slurmdbd_is_ended_once_it_listens_or_has_no_database(chart: helm.Chart) -> None:
    with socket.create_server(("127.0.0.1", 0)) as database:
        external = {"host": "127.0.0.1", "port": database.getsockname()[1], "existingSecret": "db"}
        objects = made(chart, accounting={"external": external})
        (slurmdbd,) = controls(objects)["prod-accounting"]["containers"]
        command = slurmdbd["lifecycle"]["preStop"]["exec"]["command"]
        with socket.create_connection(database.getsockname()):
            ending = subprocess.Popen(command)

            def is_waiting() -> bool:
                children = Path(f"/proc/{ending.pid}/task/{ending.pid}/children").read_text().split()
                with contextlib.suppress(FileNotFoundError):
                    return any(Path(f"/proc/{one}/comm").read_text() == "sleep\n" for one in children)
                return False

            wait_for("it to wait for the conversion", is_waiting, 30)
        assert ending.wait(timeout=240) == 0  # Without a connection there is no conversion.


def test_no_probe_kills_a_slurmctld_that_is_busy(chart: helm.Chart) -> None:
    (slurmctld,) = controls(made(chart))["prod-controller"]["containers"]

    # It fails only where slurmctld waits for slurmdbd and that for slurmctld: see test_start_scripts.py.
    assert slurmctld["livenessProbe"]["exec"]["command"] == ["/etc/sunk/scripts/check-slurmctld"]
    assert slurmctld["startupProbe"]["exec"]["command"] == ["/etc/sunk/scripts/has-slurmctld-started"]
    assert slurmctld["readinessProbe"]["exec"]["command"] == ["scontrol", "ping"]


@pytest.mark.parametrize("may", [True, False])
def test_the_gateway_takes_calls_for_reboots_only_where_slurm_has_a_program_for_them(
    chart: helm.Chart, *, may: bool
) -> None:
    objects = made(chart, syncer={"nodePermissions": {"enabled": may}})

    (gateway,) = objects["Deployment", "prod-hook-gateway"]["spec"]["template"]["spec"]["containers"]
    settings = {one["name"]: one.get("value") for one in gateway["env"]}
    assert settings["SUNK_HOOK_GATEWAY_REBOOTS"] == str(may).lower()
    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    assert ("RebootProgram=" in conf) == may
    pods = controls(objects) | {"gpu": nodeset(objects, "prod-gpu")["template"]["spec"]}
    (account,) = (settings["SUNK_HOOK_GATEWAY_SLURMCTLD_ACCOUNTS"] or "").split(",")
    (slurmctld,) = (spec for spec in pods.values() if spec["serviceAccountName"] == account)
    assert slurmctld["containers"][0]["name"] == "slurmctld"
    mounts = slurmctld["containers"][0]["volumeMounts"]
    assert ("/var/run/secrets/sunk" in [mount["mountPath"] for mount in mounts]) == may
    heard = objects["NetworkPolicy", "prod-sunk-hook-gateway"]["spec"]["ingress"][0]["from"]
    callers = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in heard}
    assert callers == {"slurmd", "slurm-login", *(["slurmctld"] if may else [])}


@pytest.mark.parametrize("login", [{"enabled": False}, {"explain": {"enabled": False}}])
def test_where_no_user_may_ask_the_gateway_has_no_key_and_login_pods_do_not_reach_it(
    chart: helm.Chart, login: dict[str, Any]
) -> None:
    objects = made(chart, login=login)

    spec = objects["Deployment", "prod-hook-gateway"]["spec"]["template"]["spec"]
    assert "initContainers" not in spec
    assert not {"keys", "users"} & {volume["name"] for volume in spec["volumes"]}
    assert "USER_TOKENS" not in str(spec)
    heard = objects["NetworkPolicy", "prod-sunk-hook-gateway"]["spec"]["ingress"][0]["from"]
    callers = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in heard}
    assert "slurm-login" not in callers


def test_slurmrestd_knows_the_users_that_slurmctld_knows_and_has_no_key(chart: helm.Chart) -> None:
    specs = controls(made(chart, users=[{"name": "ada", "uid": 2000}], directory={"existingSecret": "ldap"}))
    known = [
        {
            (mount["mountPath"], mount.get("subPath"))
            for mount in specs[name]["containers"][0]["volumeMounts"]
            if mount["name"] in {"accounts", "sss"}
        }
        for name in ("prod-rest", "prod-controller")
    ]

    assert (
        known[0]
        == known[1]
        == {
            ("/etc/passwd", "passwd"),
            ("/etc/group", "group"),
            ("/var/lib/sss", None),
        }
    )
    rest = specs["prod-rest"]
    assert not {"secret", "keys"} & {volume["name"] for volume in rest["volumes"]}


def test_the_gateway_reaches_the_checker_of_tokens_by_a_socket_that_only_this_writes(
    chart: helm.Chart,
) -> None:
    spec = made(chart)["Deployment", "prod-hook-gateway"]["spec"]["template"]["spec"]
    (checker,), (gateway,) = spec["initContainers"], spec["containers"]

    mounts = {mount["name"]: mount for mount in gateway["volumeMounts"]}
    settings = {one["name"]: one.get("value") for one in gateway["env"]}
    assert settings["SUNK_HOOK_GATEWAY_USER_TOKENS_SOCKET"] == checker["command"][-1] == "/run/users/socket"
    assert mounts["users"] == {"name": "users", "mountPath": "/run/users", "readOnly": True}
    assert "keys" not in mounts
    assert checker["restartPolicy"] == "Always"


def test_with_munge_its_key_is_in_no_container_but_mungeds_which_starts_before_all_others(
    chart: helm.Chart,
) -> None:
    objects = made(chart, auth={"type": "munge"}, accounting={"enabled": True})
    specs = controls(objects) | {"gpu": nodeset(objects, "prod-gpu")["template"]["spec"]}
    signing = {
        name: spec for name, spec in specs.items() if any(c["name"] == "munged" for c in containers(spec))
    }

    assert {"gpu", "prod-controller", "prod-accounting", "prod-login", "prod-test"} <= signing.keys()
    for spec in signing.values():
        first, *others = containers(spec)
        assert (first["name"], first["restartPolicy"]) == ("munged", "Always")
        for container in others:
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert not mounts & {"munge-secret", "munge-key", "jwks"}
    keys = {
        item["key"]
        for spec in specs.values()
        for volume in spec.get("volumes", [])
        if volume["name"] == "secret"
        for item in volume["secret"]["items"]
    }
    assert keys == {"jwt.key"}


def test_slurmrestd_gives_memory_back_and_needs_no_key(chart: helm.Chart) -> None:
    spec = controls(made(chart))["prod-rest"]

    assert RESTD_ENVIRONMENT.items() <= env_of(spec).items()
    assert not [volume for volume in spec.get("volumes", []) if "secret" in volume]


def test_every_container_takes_its_image_from_one_registry_if_there_is_one(chart: helm.Chart) -> None:
    images = {"imageRegistry": "mirror.example.com", "imagePullSecrets": ["mirror"]}
    objects = made(chart, **{"global": images})
    specs = {**controls(objects), "slurmd": nodeset(objects, "prod-gpu")["template"]["spec"]}

    for name, spec in specs.items():
        assert spec["imagePullSecrets"] == [{"name": "mirror"}], name
        for container in containers(spec):
            assert container["image"].startswith("mirror.example.com/"), (name, container["name"])
            assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("component", ["controller", "accounting", "mariadb", "rest", "login", "syncer"])
def test_every_component_has_its_own_place_environment_and_volumes(chart: helm.Chart, component: str) -> None:
    own: dict[str, Any] = {
        "nodeSelector": {"size": "big"},
        "tolerations": [{"key": "big", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"x": 1}},
        "priorityClassName": "high",
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "podAnnotations": {"a": "b"},
        "resources": {"limits": {"memory": "3Gi"}},
        "image": {"tag": "mine"},
    }
    default = {"podDefaults": {"nodeSelector": {"size": "small"}}}

    objects = made(chart, **{component: own}, **default)
    spec = controls(objects)[f"prod-{component}"]

    main = spec["containers"][0]
    assert spec["nodeSelector"] == own["nodeSelector"]
    assert own["tolerations"][0] in spec["tolerations"]
    assert spec["affinity"] == own["affinity"]
    assert spec["priorityClassName"] == "high"
    assert {"name": "TZ", "value": "UTC"} in main["env"]
    assert own["extraVolumes"][0] in spec["volumes"]
    assert own["extraVolumeMounts"][0] in main["volumeMounts"]
    assert main["resources"]["limits"] == own["resources"]["limits"]
    assert main["image"].endswith(":mine")
    other = "prod-hook-gateway"
    assert controls(objects)[other]["nodeSelector"] == {"size": "small"}


def test_with_a_certificate_hooks_are_called_with_tls_and_nodes_get_nothing_but_its_authority(
    chart: helm.Chart,
) -> None:
    objects = made(
        chart, hookGateway={"tls": {"existingSecret": "hooks-tls"}}, networkPolicy={"enabled": True}
    )
    url = "https://prod-hook-gateway.slurm.svc:8443"
    settings = objects["ConfigMap", "prod-scripts"]["data"]["hooks.env"].splitlines()
    specs = controls(objects)
    scheduler, gateway = (env_of(specs[f"prod-{name}"]) for name in ("scheduler", "hook-gateway"))
    compute = nodeset(objects, "prod-gpu")["template"]["spec"]
    secrets = [volume["secret"] for volume in compute["volumes"] if "secret" in volume]
    ports = objects["Service", "prod-hook-gateway"]["spec"]["ports"]
    rules = objects["NetworkPolicy", "prod-sunk-hook-gateway"]["spec"]["ingress"]

    assert {f"SUNK_HOOKS_URL={url}", "SUNK_HOOKS_CA_FILE=/etc/sunk/hooks-ca/ca.crt"} < {*settings}
    assert scheduler["SUNK_POD_SCHEDULER_HOOKS_URL"] == url
    assert scheduler["SUNK_POD_SCHEDULER_HOOKS_CA_FILE"] == "/etc/sunk/hooks-ca/ca.crt"
    assert gateway["SUNK_HOOK_GATEWAY_TLS_CERT_FILE"] == "/etc/sunk/tls/tls.crt"
    assert [secret["items"] for secret in secrets if secret["secretName"] == "hooks-tls"] == [
        [{"key": "ca.crt", "path": "ca.crt"}]
    ]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(8443, 8443)]
    # By number: Pods of the version before serve until the first new one is ready, and name it otherwise.
    assert [rule["ports"] for rule in rules] == [[{"port": 8443}]]


def test_a_gateway_that_does_not_require_tls_is_called_without_it_by_pods_that_lack_its_authority(
    chart: helm.Chart,
) -> None:
    tls = {"existingSecret": "hooks-tls", "required": False}
    objects = made(chart, hookGateway={"tls": tls}, networkPolicy={"enabled": True})
    url = "http://prod-hook-gateway.slurm.svc:8080"
    settings = objects["ConfigMap", "prod-scripts"]["data"]["hooks.env"].splitlines()
    specs = controls(objects)
    scheduler, gateway = (env_of(specs[f"prod-{name}"]) for name in ("scheduler", "hook-gateway"))
    ports = objects["Service", "prod-hook-gateway"]["spec"]["ports"]
    allowed = [
        port["port"]
        for suffix in ("", "-without-tls")
        for rule in objects["NetworkPolicy", f"prod-sunk-hook-gateway{suffix}"]["spec"]["ingress"]
        for port in rule["ports"]
    ]

    assert {
        "SUNK_HOOKS_URL=https://prod-hook-gateway.slurm.svc:8443",
        f"SUNK_HOOKS_URL_WITHOUT_TLS={url}",
    } < {*settings}
    assert scheduler["SUNK_POD_SCHEDULER_HOOKS_ENV_FILE"] == "/etc/sunk/scripts/hooks.env"
    assert gateway["SUNK_HOOK_GATEWAY_TLS_REQUIRED"] == "false"
    assert [(port["name"], port["port"]) for port in ports] == [("https", 8443), ("http", 8080)]
    assert allowed == [8443, 8080]


def test_a_generated_certificate_has_the_gateways_names_and_what_is_rendered_has_no_key(
    chart: helm.Chart,
) -> None:
    values = {
        "hookGateway": {"tls": {"generate": True}},
        "networkPolicy": {"enabled": True},
        "syncer": {"nodePermissions": {"enabled": True}},
    }
    first, objects = made(chart, **values), made(chart, **values)
    program = controls(objects)["prod-certificates"]
    settings = env_of(program)
    (rule,) = objects["Role", "prod-certificates"]["rules"]
    secrets = ["prod-hooks-authority", "prod-hooks-tls"]
    pods = {name: json.dumps(spec) for name, spec in controls(objects).items()}
    nodes = json.dumps(nodeset(objects, "prod-gpu")["template"]["spec"])

    assert {key: found for key, found in first.items() if key[1] in secrets} == {
        ("Secret", name): objects["Secret", name] for name in secrets
    }
    for name in secrets:
        assert not {"data", "stringData"} & objects["Secret", name].keys()
        assert objects["Secret", name]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "prod-hook-gateway.slurm.svc" in settings["SUNK_CERTIFICATE_NAMES"].split(",")
    assert [settings[f"SUNK_CERTIFICATE_{kind}_SECRET"] for kind in ("AUTHORITY", "SERVER")] == secrets
    assert (rule["resourceNames"], rule["verbs"]) == (secrets, ["get", "patch"])
    assert [name for name, spec in pods.items() if "tls.key" in spec] == ["prod-hook-gateway"]
    assert not [spec for spec in (*pods.values(), nodes) if '"secretName": "prod-hooks-authority"' in spec]
    assert '{"key": "ca.crt", "path": "ca.crt"}' in nodes
    waits = {
        name: [one["secret"].get("optional", False) for one in spec["volumes"] if one["name"] == "hooks-ca"]
        for name, spec in {
            **controls(objects),
            "nodes": nodeset(objects, "prod-gpu")["template"]["spec"],
        }.items()
        if '"name": "hooks-ca", "secret"' in json.dumps(spec)
    }
    # Login and slurmctld are there without a CA, jobs are not.
    assert waits == {"nodes": [False], "prod-login": [True], "prod-controller": [True]}
    assert "tls.key" not in nodes


@pytest.mark.parametrize("key", ["hookGateway", "rest"])
def test_two_certificates_for_one_server_are_refused(chart: helm.Chart, key: str) -> None:
    with pytest.raises(helm.HelmRenderError, match=rf"{key}.tls.generate: .* set one of the two"):
        made(chart, **{key: {"tls": {"generate": True, "existingSecret": "mine"}}})


@pytest.mark.parametrize("required", [True, False])
def test_with_a_certificate_slurmrestd_is_called_with_tls_and_without_it_only_if_that_is_not_required(
    chart: helm.Chart, *, required: bool
) -> None:
    tls = {"generate": True, "required": required}
    objects = made(chart, rest={"tls": tls}, networkPolicy={"enabled": True})
    specs = controls(objects)
    services = {name: env_of(specs[f"prod-{name}"]) for name in ("syncer", "scheduler")}
    daemon, proxy = specs["prod-rest"]["containers"]
    ports = [port["port"] for port in objects["Service", "prod-rest"]["spec"]["ports"]]
    policies = [name for kind, name in objects if kind == "NetworkPolicy" and "slurmrestd" in name]
    volumes = {
        name: [one["secret"] for one in spec.get("volumes", ()) if "prod-rest-tls" in json.dumps(one)]
        for name, spec in specs.items()
    }

    for name, settings in services.items():
        prefix = f"SUNK_{'POD_' if name == 'scheduler' else ''}{name.upper()}_SLURM"
        assert settings[f"{prefix}_URL"] == "https://prod-rest.slurm.svc:6821"
        assert settings[f"{prefix}_CA_FILE"] == "/etc/sunk/rest-ca/ca.crt"
        assert [[item["key"] for item in one["items"]] for one in volumes[f"prod-{name}"]] == [["ca.crt"]]
    assert daemon["args"][-1] == ("127.0.0.1:6820" if required else "0.0.0.0:6820")
    assert ("exec" if required else "tcpSocket") in daemon["readinessProbe"]
    assert proxy["args"] == ["/etc/sunk/scripts/serve-tls", "6821", "127.0.0.1:6820"]
    assert ports == ([6821] if required else [6821, 6820])
    assert len(policies) == (1 if required else 2)
    assert {name for name, found in volumes.items() if "tls.key" in json.dumps(found)} == {"prod-rest"}


def test_a_pod_monitor_names_a_port_of_the_pods_that_it_selects(chart: helm.Chart) -> None:
    objects = made(chart, podMonitor={"enabled": True, "labels": {"release": "prometheus"}})
    monitors = [found for (kind, _), found in objects.items() if kind == "PodMonitor"]

    def is_of(labels: dict[str, str], found: dict[str, Any]) -> bool:
        return labels.items() <= found["spec"]["template"]["metadata"]["labels"].items()

    deployments = [found for (kind, _), found in objects.items() if kind == "Deployment"]
    assert len(monitors) == len(SERVICES)
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (one,) = [one for one in deployments if is_of(monitor["spec"]["selector"]["matchLabels"], one)]
        ports = one["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert endpoint["port"] in [port["name"] for port in ports]
        assert one["spec"]["template"]["metadata"]["labels"]["sunk.coreweave.com/cluster"] == "prod"
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_without_the_operator_the_pods_themselves_say_where_they_are_scraped(chart: helm.Chart) -> None:
    own = {"podAnnotations": {"example.com/a": "b"}}
    scraped = made(chart, podMonitor={"annotations": True}, syncer=own)
    silent = made(chart)

    for objects, wanted in ((scraped, {"scrape": "true", "path": "/metrics"}), (silent, {})):
        for service in SERVICES:
            pod = objects["Deployment", service]["spec"]["template"]
            said = pod["metadata"].get("annotations", {})
            marks = {name.removeprefix("prometheus.io/"): said[name] for name in said if "prometheus" in name}
            (port,) = (one for one in pod["spec"]["containers"][0]["ports"] if one["name"] == "metrics")
            assert marks == (wanted and {**wanted, "port": str(port["containerPort"])})


def test_one_value_sends_the_traces_of_every_service_to_a_collector(chart: helm.Chart) -> None:
    def sent(objects: Objects) -> dict[str, list[str]]:
        env = {name: env_of(pod_specs(objects)[name]) for name in SERVICES}
        return {name: [env[name][key] for key in sorted(env[name]) if "_TRACES_" in key] for name in SERVICES}

    own = {"settings": {"TRACES_RATIO": "0.5"}}
    objects = made(chart, tracing={"endpoint": "http://collector:4318", "ratio": 1}, syncer=own)

    everywhere = {name: ["http://collector:4318", "1"] for name in SERVICES}
    assert sent(objects) == everywhere | {"prod-syncer": ["http://collector:4318", "0.5"]}
    assert not any(sent(made(chart)).values())


def test_slurmctld_waits_for_the_topology_that_it_needs(chart: helm.Chart) -> None:
    def topology(plugin: str) -> dict[str, Any]:
        spec = controls(made(chart, slurmConfig={"topologyPlugin": plugin}))["prod-controller"]
        (conf,) = [volume for volume in spec.get("volumes", []) if volume["name"] == "conf"]
        (source,) = [
            one for one in conf["projected"]["sources"] if one["configMap"]["name"] == "prod-topology"
        ]
        return source["configMap"]

    assert topology("topology/default")["optional"] is True
    assert topology("topology/tree")["optional"] is False


@pytest.mark.parametrize("file", ["topology.conf", "topology.yaml", "none"])
def test_slurmctld_and_the_syncer_have_the_topology_file_that_is_chosen(chart: helm.Chart, file: str) -> None:
    objects = made(chart, slurmConfig={"topologyFile": file})
    (conf,) = [one for one in controls(objects)["prod-controller"]["volumes"] if one["name"] == "conf"]
    sources = [one["configMap"] for one in conf["projected"]["sources"]]
    items = [source["items"] for source in sources if source["name"] == "prod-topology"]

    assert items == ([] if file == "none" else [[{"key": file, "path": file}]])
    (syncer,) = objects["Deployment", "prod-syncer"]["spec"]["template"]["spec"]["containers"][:1]
    (files,) = [one["value"] for one in syncer["env"] if one["name"].endswith("RECONFIGURE_FILES")]
    assert ("/etc/slurm/topology.yaml" in files) is (file == "topology.yaml")
    assert ("/etc/slurm/topology.conf" in files) is (file != "topology.yaml")


def test_whoever_is_named_by_a_network_policy_is_there(chart: helm.Chart) -> None:
    objects = made(chart)
    names = {
        found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
        for (kind, _), found in objects.items()
        if kind in ("Deployment", "StatefulSet", "Job", "NodeSet")
    } | {"slurm-test"}

    policies = [found["spec"] for (kind, _), found in objects.items() if kind == "NetworkPolicy"]
    peers = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        for policy in policies
        for rule in policy["ingress"]
        for peer in rule.get("from", [])
    ]
    subjects = {policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for policy in policies}
    assert set(peers) <= names
    assert subjects == names - {"slurm-test", "slurm-accounting-setup", "slurm-uninstall"}


def test_the_database_hears_slurmdbd_alone(chart: helm.Chart) -> None:
    (rule,) = made(chart)["NetworkPolicy", "prod-mariadb"]["spec"]["ingress"]

    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "slurmdbd"


def test_a_job_that_differs_is_another_job_for_none_may_be_changed(chart: helm.Chart) -> None:
    def jobs(**values: Any) -> set[str]:  # noqa: ANN401 - values are free-form.
        found = made(chart, **values).items()
        return {name for (kind, name), job in found if kind == "Job" and not is_hook(job)}

    assert jobs() == jobs(rest={"replicas": 3})
    assert not jobs() & jobs(podDefaults={"nodeSelector": {"a": "b"}})
    assert not jobs() & jobs(accounting={"setup": ["add account physics"]})
    assert not jobs() & jobs(accounting={"external": DATABASE})  # Which knows nothing yet.


def test_another_database_restarts_slurmdbd_and_slurmctld_and_another_password_slurmdbd_alone(
    chart: helm.Chart,
) -> None:
    def changed(**external: object) -> list[bool]:
        both = [made(chart, accounting={"external": DATABASE | one}) for one in ({}, external)]
        names = ("prod-accounting", "prod-controller")
        before, after = ([objects["StatefulSet", name] for name in names] for objects in both)
        return [
            one["spec"]["template"] != other["spec"]["template"]
            for one, other in zip(before, after, strict=True)
        ]

    assert changed(port=3307) == [True, True]
    assert changed(database="books") == [True, True]
    assert changed(existingSecret="other") == [True, False]


def test_the_placeholders_association_is_that_of_whoever_they_run_as(chart: helm.Chart) -> None:
    def setup(**scheduler: object) -> dict[str, Any]:
        specs = controls(made(chart, scheduler=scheduler))
        return next(spec for name, spec in specs.items() if "accounting-setup" in name)

    assert env_of(setup(userId=2000))["SUNK_USER_ID"] == "2000"
    assert "account=sunk" not in setup(enabled=False)["containers"][0]["args"][2]


def test_nothing_that_is_to_end_runs_for_ever(chart: helm.Chart) -> None:
    objects = made(chart)
    bounds = {
        name: found["spec"].get("activeDeadlineSeconds", 0)
        for (kind, name), found in objects.items()
        if kind in ("Job", "Pod")
    }

    assert len(bounds) == 3
    assert min(bounds.values()) > 0


def test_another_version_of_the_chart_alone_restarts_nothing(chart: helm.Chart) -> None:
    for (kind, name), found in made(chart).items():
        if kind in ("Deployment", "StatefulSet", "Job", "NodeSet"):
            labels = found["spec"]["template"]["metadata"]["labels"]
            assert not labels.keys() & {"helm.sh/chart", "app.kubernetes.io/version"}, name
