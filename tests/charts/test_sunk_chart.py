"""The chart that a Kubernetes cluster has once, rendered by Helm's own engine."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import msgspec
import pytest
import yaml

from sunk_events.permissions import LINK, User, as_nats, users
from sunk_events.teams import team_users
from sunk_events.view_user import VIEW
from sunk_lab import charts
from sunk_lab.charts import Objects, env_of, pod_specs, rights
from sunk_lab.nats import program
from sunk_lab.stack.rbac import RULES, RULES_IN_NAMESPACES, Rules
from sunk_nodeset_controller.config import PREFIX, Config
from sunk_runtime.config import load
from sunk_runtime.growing.config import GrowSettings

CHART: Final = Path(__file__).parents[2] / "helm/sunk"
CLUSTERS: Final = ("prod", "stage-2")
READ: Final = ("get", "list", "watch")
VALUES: Final[dict[str, Any]] = {"clusters": [{"name": name, "namespace": "slurm"} for name in CLUSTERS]}
WITH_VIEW: Final[dict[str, Any]] = {"view": {"enabled": True}}
"""Its user of the bus is there only with it."""


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def render(chart: helm.Chart, **values: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    return charts.render(chart, VALUES | values, name="sunk", namespace="sunk-system")


def nats_conf(made: Objects) -> str:
    (text,) = made["ConfigMap", "sunk-nats"]["data"].values()
    return str(text)


def teams_conf(made: Objects) -> str:
    return str(made["ConfigMap", "sunk-nats-teams"]["data"]["teams.conf"])


def nats_users(made: Objects, conf: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield each user of NATS, or of *conf*, with the variable of its password and its permissions."""
    pattern = r'user: "(.+)"\n +password: \$(\w+)\n(?: +permissions: (.+)\n)?'
    for name, variable, permissions in re.findall(pattern, conf or nats_conf(made)):
        yield name, variable, msgspec.json.decode(permissions) if permissions else None


def wide_and_namespaced(made: Objects) -> list[set[tuple[str, str, str]]]:
    """Return what nodeset-controller may do everywhere, and in the namespaces of Slurm clusters besides."""
    names = "sunk-nodeset-controller", "sunk-nodeset-controller-namespace"
    return [rights(made["ClusterRole", name]["rules"]) for name in names]


def test_nodeset_controller_may_do_what_the_stories_needed_and_nothing_else(chart: helm.Chart) -> None:
    def of(rules: Rules) -> set[tuple[str, str, str]]:
        return {
            (group, resource, verb)
            for group, resources, verbs in rules
            for resource in resources
            for verb in verbs
        }

    made = render(chart)
    wide, namespaced = wide_and_namespaced(made)
    at_home = rights(made["Role", "sunk-nodeset-controller"]["rules"])

    assert wide | at_home == of(RULES["nodeset-controller"])
    assert namespaced == of(RULES_IN_NAMESPACES["nodeset-controller"])
    assert {resource for _, resource, _ in at_home} == {"leases"}


def test_outside_the_namespaces_of_slurm_clusters_pods_are_evicted_and_neither_made_nor_deleted(
    chart: helm.Chart,
) -> None:
    def of_pods(**lock: Any) -> set[tuple[str, str]]:  # noqa: ANN401 - values are free-form.
        wide, _ = wide_and_namespaced(render(chart, nodesetController={"lock": lock}))
        return {(what, verb) for _, what, verb in wide if what.startswith("pods") and verb not in READ}

    evicted = ("pods/eviction", "create")
    assert of_pods() == of_pods(effect="NoSchedule") == {evicted}
    assert of_pods(effect="NoSchedule", deleteAfterSeconds=60) == {evicted, ("pods", "delete")}


def test_nodeset_controller_reads_no_secret_and_starts_no_workload_but_pods(chart: helm.Chart) -> None:
    granted = set[tuple[str, str, str]]().union(*wide_and_namespaced(render(chart)))

    assert "*" not in {word for right in granted for word in right}
    assert {resource for _, resource, _ in granted}.isdisjoint({"secrets", "configmaps", "serviceaccounts"})
    written = {right for right in granted if right[2] not in READ}
    assert {resource for group, resource, _ in written if group in ("apps", "batch")} == {
        "controllerrevisions"
    }


def test_nodeset_controller_writes_the_files_that_it_generates_and_no_other_config_map(
    chart: helm.Chart,
) -> None:
    wanted = {
        "topology": {"kind": "block", "labels": ["rack"]},
        "gres": {"resources": ["nvidia.com/gpu=gpu"]},
    }
    made = render(chart, nodesetController=wanted)
    rules = made["ClusterRole", "sunk-nodeset-controller-namespace"]["rules"]
    granted = [rule for rule in rules if "configmaps" in rule["resources"]]

    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in granted] == [
        (["prod-topology", "prod-gres", "stage-2-topology", "stage-2-gres"], ["get", "patch"]),
        (None, ["create"]),
    ]


def test_a_topology_is_generated_where_the_labels_exist_and_nowhere_else(tmp_path: Path) -> None:
    def kind(*labels: str, before: str = "") -> str:
        found = [{"metadata": {"name": f"n{at}", "labels": {label: "x"}}} for at, label in enumerate(labels)]
        probed = tmp_path / f"{before}{len(labels)}{'-'.join(labels).replace('/', '-')}"
        shutil.copytree(CHART, probed)
        (probed / "nodes.json").write_text(json.dumps(found))
        installed = render(helm.Chart.load(CHART), nodesetController={"topology": {"kind": before or "none"}})
        there = installed["Deployment", "sunk-nodeset-controller"] if before else {}
        (probed / "before.json").write_text(json.dumps(there))
        arguments = (
            '"nodes" (.Files.Get "nodes.json" | fromJsonArray) "before" (.Files.Get "before.json" | fromJson)'
        )
        ask = f'(include "sunk.topologyOf" (dict "root" . {arguments}))'
        env = probed / "templates/nodeset-controller/_env.tpl"
        text = env.read_text()
        env.write_text(text.replace('"TOPOLOGY" (include "sunk.topologyKind" .)', f'"TOPOLOGY" {ask}'))
        made = render(helm.Chart.load(probed))
        return env_of(pod_specs(made)["sunk-nodeset-controller"])[PREFIX + "TOPOLOGY"]

    assert kind() == "none"
    assert kind("kubernetes.io/os") == "none"
    assert kind("kubernetes.io/os", "ib.coreweave.cloud/leafgroup") == "both"
    assert kind("ds.coreweave.com/nvlink.domain") == "both"
    # What slurmctld has is not taken away because the Nodes with the labels are: it would end.
    assert kind(before="both") == "both"
    assert kind(before="none") == "none"


def test_both_topologies_are_of_the_documents_labels(chart: helm.Chart) -> None:
    made = render(chart, nodesetController={"topology": {"kind": "both"}})
    config = load(Config, env_of(pod_specs(made)["sunk-nodeset-controller"]), PREFIX)

    assert config.topology_rules.labels == tuple(
        f"ib.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup")
    )
    assert config.topology_rules.block_label == "ds.coreweave.com/nvlink.domain"


def test_nodeset_controller_leads_by_one_lease_of_its_own_namespace(chart: helm.Chart) -> None:
    role = render(chart)["Role", "sunk-nodeset-controller"]

    assert role["metadata"]["namespace"] == "sunk-system"
    named = [rule.get("resourceNames") for rule in role["rules"] if rule["verbs"] != ["create"]]
    assert named == [["sunk-nodeset-controller"]]


def test_nobody_but_nodeset_controller_has_a_token_for_the_api_server(chart: helm.Chart) -> None:
    specs = pod_specs(render(chart))

    assert {name for name, spec in specs.items() if spec["automountServiceAccountToken"]} == {
        "sunk-nodeset-controller"
    }


def test_whoever_may_look_at_a_namespace_sees_its_nodesets_and_only_its_admin_changes_them(
    chart: helm.Chart,
) -> None:
    made = render(chart)
    view, edit = (made["ClusterRole", f"sunk-nodesets-{what}"] for what in ("view", "edit"))

    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert {verb for _, _, verb in rights(view["rules"])} == {"get", "list", "watch"}
    assert [key for key in edit["metadata"]["labels"] if "aggregate" in key] == [
        "rbac.authorization.k8s.io/aggregate-to-admin"
    ]


def test_pods_run_with_the_least_they_need(chart: helm.Chart) -> None:
    for spec in pod_specs(render(chart)).values():
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_whoever_answers_a_lock_is_not_evicted_by_it(chart: helm.Chart) -> None:
    lock = {"key": "example.com/lock", "value": "yes"}
    specs = pod_specs(render(chart, nodesetController={"lock": lock}))

    assert [spec["tolerations"] for spec in specs.values()] == [
        [{"key": "example.com/lock", "operator": "Exists"}]
    ] * len(specs)


def test_services_of_our_own_names_never_look_like_settings(chart: helm.Chart) -> None:
    # Kubernetes would set SUNK_NODESET_CONTROLLER_PORT for the Service of that name, an unknown setting.
    assert {spec["enableServiceLinks"] for spec in pod_specs(render(chart)).values()} == {False}


def test_nodeset_controller_takes_its_settings(chart: helm.Chart) -> None:
    made = render(
        chart,
        nodesetController={
            "leaseSeconds": 9,
            "lock": {"lingerSeconds": 2.5, "effect": "NoSchedule", "exemptNamespaces": ["a", "b"]},
            "topology": {"kind": "block", "labels": ["rack"], "blockSizes": [4, 16]},
            "gres": {"resources": ["nvidia.com/gpu=gpu:/dev/nvidia"]},
        },
        nats={"replicas": 3},
        clusters=[
            {"name": name, "namespace": "slurm", "nodePermissions": name == "prod"} for name in CLUSTERS
        ],
    )

    config = load(Config, env_of(pod_specs(made)["sunk-nodeset-controller"]), PREFIX)

    assert config.clusters == CLUSTERS
    assert (config.lease_ttl_s, config.lock_linger_s, config.nats_replicas) == (9, 2.5, 3)
    assert (config.lock_effect, config.lock_exempt_namespaces) == ("NoSchedule", ("a", "b"))
    assert config.generated.topology.block_sizes == (4, 16)
    assert [gres.files for gres in config.generated.gres] == ["/dev/nvidia"]
    assert config.node_permissions == ("prod",)
    assert config.nats_url == "nats://sunk-nats.sunk-system:4222"
    assert (config.lease_namespace, config.kubeconfig) == ("sunk-system", None)


def test_without_the_operator_its_pods_say_where_they_are_scraped(chart: helm.Chart) -> None:
    def said(**own: bool) -> dict[str, str]:
        made = render(chart, nodesetController={"podMonitor": own})
        pod = made["Deployment", "sunk-nodeset-controller"]["spec"]["template"]
        found: dict[str, str] = pod["metadata"].get("annotations", {})
        return {name: value for name, value in found.items() if name.startswith("prometheus.io/")}

    assert said() == {}
    assert said(annotations=True) == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }


def test_every_setting_of_nodeset_controller_has_a_value_in_the_chart(chart: helm.Chart) -> None:
    env = env_of(pod_specs(render(chart))["sunk-nodeset-controller"])
    fields = {PREFIX + field.name.upper() for field in msgspec.structs.fields(Config)}

    # In a cluster there is no kubeconfig; the retries follow from the number of servers.
    assert fields - env.keys() == {PREFIX + "KUBECONFIG", PREFIX + "NATS_PUBLISH_RETRY_S"}


def unordered(permissions: Any) -> Any:  # noqa: ANN401 - NATS' own form.
    return permissions and {verb: set(said["allow"]) for verb, said in permissions.items()}


def as_rights(wanted: Iterable[User]) -> dict[str, Any]:
    return {user.name: unordered(as_nats(user.permissions)) if user.permissions else None for user in wanted}


def test_nats_has_the_users_and_permissions_that_the_code_says(chart: helm.Chart) -> None:
    teams = ["billing", "ops-2"]
    alone, together = render(chart), render(chart, nats={"subscribers": teams}, **WITH_VIEW)

    found = {name: unordered(permissions) for name, _, permissions in nats_users(alone)}
    assert found == as_rights(user for user in users(CLUSTERS) if user.name not in (LINK, VIEW))
    found = {name: unordered(permissions) for name, _, permissions in nats_users(together)}
    assert found == as_rights(users(CLUSTERS))
    theirs = nats_users(together, teams_conf(together))
    assert {name: unordered(rights) for name, _, rights in theirs} == as_rights(team_users(CLUSTERS, teams))


def test_every_user_of_nats_has_a_password_of_its_own_from_the_secret(chart: helm.Chart) -> None:
    made = render(chart, nats={"subscribers": ["billing"]}, **WITH_VIEW)
    specs = pod_specs(made)
    passwords = {
        name: base64.b64decode(text).decode()
        for name, text in made["Secret", "sunk-nats-users"]["data"].items()
    }

    named = {
        name: env_of(specs[server])[variable]["secretKeyRef"]
        for server, conf in (("sunk-nats", nats_conf(made)), ("sunk-nats-teams", teams_conf(made)))
        for name, variable, _ in nats_users(made, conf)
    }
    assert named == {name: {"name": "sunk-nats-users", "key": name} for name in passwords}
    expected = {user.name for user in (*users(CLUSTERS), *team_users(CLUSTERS, ["billing"]))}
    assert len(set(passwords.values())) == len(passwords)
    assert set(passwords) == expected
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]{40,}", password) for password in passwords.values())


def test_without_other_teams_there_is_no_server_for_them_and_no_door(chart: helm.Chart) -> None:
    made = render(chart)

    assert [key for key in made if "teams" in key[1]] == []
    assert "leafnodes" not in nats_conf(made)
    assert [port["name"] for port in made["Service", "sunk-nats"]["spec"]["ports"]] == ["nats"]


def test_values_of_an_earlier_version_make_the_server_of_other_teams(chart: helm.Chart) -> None:
    made = render(chart, nats={"subscribers": ["billing"], "teams": None})

    assert "max_connections: 100" in teams_conf(made)


@pytest.mark.parametrize("server", ["ours", "theirs"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_nats_takes_its_configuration(chart: helm.Chart, tmp_path: Path, replicas: int, server: str) -> None:
    made = render(chart, nats={"replicas": replicas, "subscribers": ["billing"]})
    conf = nats_conf(made) if server == "ours" else teams_conf(made)
    (tmp_path / "nats.conf").write_text(conf)
    env = {variable: "p1" for _, variable, _ in nats_users(made, conf)} | {"POD_NAME": "sunk-nats-0"}
    env["LINK"] = '"nats-leaf://teams:p1@sunk-nats.sunk-system:7422"'

    said = subprocess.run(
        [program(), "-t", "-c", "nats.conf"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "configuration file nats.conf is valid" in said.stderr
    assert nats_conf(made).count("nats-route://") == (replicas if replicas > 1 else 0)


@pytest.mark.parametrize(
    ("persistence", "said"),
    [({}, '"always"'), ({"syncInterval": "2m"}, '"2m"'), ({"syncInterval": None}, '"always"')],
    ids=["by default", "as set", "by values of an earlier version"],
)
def test_what_nats_acknowledges_is_on_its_disk_unless_set_otherwise(
    chart: helm.Chart, persistence: dict[str, Any], said: str
) -> None:
    assert f"sync_interval: {said}" in nats_conf(render(chart, nats={"persistence": persistence}))


def test_a_secret_of_ones_own_takes_the_place_of_the_made_one(chart: helm.Chart) -> None:
    made = render(chart, nats={"existingSecret": "mine"})

    assert ("Secret", "sunk-nats-users") not in made
    (volume,) = pod_specs(made)["sunk-nodeset-controller"]["volumes"]
    assert volume["secret"]["secretName"] == "mine"
    secrets = {
        value["secretKeyRef"]["name"]
        for value in env_of(pod_specs(made)["sunk-nats"]).values()
        if "secretKeyRef" in value
    }
    assert secrets == {"mine"}


def test_what_holds_state_or_definitions_stays_when_the_release_goes(chart: helm.Chart) -> None:
    kept = {
        key
        for key, found in render(chart).items()
        if found["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }

    assert kept == {
        ("CustomResourceDefinition", "nodesets.sunk.coreweave.com"),
        ("CustomResourceDefinition", "nodeslices.sunk.coreweave.com"),
        ("Secret", "sunk-nats-users"),
        ("ValidatingAdmissionPolicy", "sunk-follow-configmaps"),
        ("ValidatingAdmissionPolicyBinding", "sunk-follow-configmaps"),
    }


def test_every_image_can_come_from_one_registry(chart: helm.Chart) -> None:
    made = render(chart, **{"global": {"imageRegistry": "registry.example", "imagePullSecrets": ["pull"]}})

    for spec in pod_specs(made).values():
        assert spec["containers"][0]["image"].startswith("registry.example/")
        assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_what_every_pod_may_be_given_a_component_may_have_its_own(chart: helm.Chart) -> None:
    made = render(
        chart,
        podDefaults={"priorityClassName": "system-cluster-critical", "nodeSelector": {"pool": "infra"}},
        nats={"nodeSelector": {"pool": "disks"}, "extraEnv": [{"name": "A", "value": "b"}]},
    )
    specs = pod_specs(made)

    assert {spec["priorityClassName"] for spec in specs.values()} == {"system-cluster-critical"}
    assert specs["sunk-nats"]["nodeSelector"] == {"pool": "disks"}
    assert specs["sunk-nodeset-controller"]["nodeSelector"] == {"pool": "infra"}
    assert env_of(specs["sunk-nats"])["A"] == "b"


def test_a_drain_of_a_node_waits_for_no_server_that_is_the_only_one(chart: helm.Chart) -> None:
    def budgets(**values: Any) -> set[str]:  # noqa: ANN401 - values are free-form.
        return {name for kind, name in render(chart, **values) if kind == "PodDisruptionBudget"}

    assert budgets() == {"sunk-nodeset-controller"}
    assert budgets(nats={"replicas": 3}, nodesetController={"replicas": 1}) == {"sunk-nats"}


def test_only_our_own_services_reach_nats_and_whoever_is_named(chart: helm.Chart) -> None:
    team = {"namespaceSelector": {"matchLabels": {"team": "billing"}}}
    policy = render(chart, networkPolicy={"natsFrom": [team]})["NetworkPolicy", "sunk-nats"]

    (clients,) = (rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": 4222}])
    controller, named, other = clients["from"]
    assert controller["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "sunk-nodeset-controller"
    (expression,) = named["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["slurm"]
    assert other == team


def test_a_nodeset_may_be_made_where_its_cluster_is_and_nowhere_else(chart: helm.Chart) -> None:
    policy = render(chart)["ValidatingAdmissionPolicy", "sunk-nodesets"]["spec"]

    (known,) = (entry["expression"] for entry in policy["variables"] if entry["name"] == "namespaces")
    assert msgspec.json.decode(known) == {"prod": "slurm", "stage-2": "slurm"}
    assert policy["failurePolicy"] == "Fail"


def test_the_policy_of_pods_through_slurm_never_stands_in_the_way_of_others(chart: helm.Chart) -> None:
    policy = render(chart)["ValidatingAdmissionPolicy", "sunk-pods"]["spec"]

    assert policy["failurePolicy"] == "Ignore"  # The scheduler judges every Pod itself.
    assert {condition["name"] for condition in policy["matchConditions"]} >= {"names-our-scheduler"}


def test_whoever_installed_is_told_a_command_that_says_what_both_releases_must_say_alike(
    chart: helm.Chart,
) -> None:
    values = {
        "clusters": [{"name": "prod", "namespace": "hpc", "nodePermissions": True}],
        "global": {"imageRegistry": "registry.example"},
        "nats": {"replicas": 3, "existingSecret": "passwords"},
        "nodesetController": {"lock": {"key": "example.com/lock"}},
    }
    files = chart.render(values, name="sunk", namespace="bus")

    told = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
    (command,) = re.findall(r"helm install slurm helm/slurm -n hpc .* --set '(.+)'", told)
    assert command.split(",") == [
        "clusterName=prod",
        "sunk.namespace=bus",
        "global.imageRegistry=registry.example",
        "nats.replicas=3",
        "nats.usersSecret=passwords",
        "sunk.lockKey=example.com/lock",
        "hookGateway.tls.generate=true",
        "rest.tls.generate=true",
        "syncer.nodePermissions.enabled=true",
    ]


def test_the_release_of_one_slurm_cluster_is_called_slurm_as_in_the_docs_and_several_have_their_own_names(
    chart: helm.Chart,
) -> None:
    def names(*clusters: str) -> list[str]:
        values = VALUES | {"clusters": [{"name": name, "namespace": f"ns-{name}"} for name in clusters]}
        files = chart.render(values, name="sunk", namespace="sunk")
        notes = next(text for path, text in files.items() if path.endswith("NOTES.txt"))
        return re.findall(r"helm install (\S+) helm/slurm", notes)

    assert (names("prod"), names("prod", "dev")) == (["slurm"], ["prod", "dev"])


GROWING: Final = {"replicas": 3, "growing": True}


@pytest.mark.parametrize("name", ["growing.conf", "alone.conf"])
def test_while_the_bus_grows_no_service_reaches_a_server(
    chart: helm.Chart, tmp_path: Path, name: str
) -> None:
    made = render(chart, nats=GROWING)
    text = str(made["ConfigMap", "sunk-nats"]["data"][name])
    (tmp_path / name).write_text(text)

    said = subprocess.run(
        [program(), "-t", "-c", name],
        cwd=tmp_path,
        env={"PASSWORD_ADMIN": "p1", "POD_NAME": "sunk-nats-0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"configuration file {name} is valid" in said.stderr
    assert re.findall(r'user: "(.+)"', text) == ["admin"]
    assert "4222" not in text
    (port,) = made["Service", "sunk-nats"]["spec"]["ports"]
    containers = made["StatefulSet", "sunk-nats"]["spec"]["template"]["spec"]["containers"]
    assert port["targetPort"] not in {one["name"] for container in containers for one in container["ports"]}


def test_while_the_bus_grows_services_keep_one_replica_in_their_settings(chart: helm.Chart) -> None:
    def replicas(**nats: Any) -> str:  # noqa: ANN401 - values are free-form.
        env = env_of(pod_specs(render(chart, nats=nats))["sunk-nodeset-controller"])
        return str(env[PREFIX + "NATS_REPLICAS"])

    assert (replicas(**GROWING), replicas(replicas=3)) == ("1", "3")


def test_the_copy_goes_from_the_server_alone_to_the_three(chart: helm.Chart) -> None:
    made = render(chart, nats=GROWING)
    job = made["Job", "sunk-nats-growth-1"]

    env = {name: str(value) for name, value in env_of(job["spec"]["template"]["spec"]).items()}
    found = load(GrowSettings, env, "SUNK_GROW_")

    host = "sunk-nats-headless.sunk-system"
    assert found.source == f"nats://sunk-nats-0.{host}:4224"
    assert found.target.split(",") == [f"nats://sunk-nats-{number}.{host}:4223" for number in range(3)]
    assert (found.user, found.volume_mib) == ("admin", 10240)
    policy = made["NetworkPolicy", "sunk-nats"]["spec"]["ingress"]
    assert [{"port": 4223}, {"port": 4224}] in [rule["ports"] for rule in policy]
    assert "Job" not in {kind for kind, _ in render(chart, nats={"replicas": 3})}


MODES: Final[list[tuple[dict[str, Any], str]]] = [
    (GROWING, "growing"),
    ({"replicas": 3}, "three"),
    ({}, "one"),
]


@pytest.mark.parametrize(("nats", "mode"), MODES)
def test_each_server_first_looks_at_its_volume(chart: helm.Chart, nats: dict[str, Any], mode: str) -> None:
    spec = pod_specs(render(chart, nats=nats))["sunk-nats"]

    (container,) = spec["initContainers"]
    assert container["command"][3:] == [mode, "/data", "sunk-nats-0.sunk-nats-headless.sunk-system:6222"]


@pytest.mark.parametrize(("nats", "mode"), MODES)
def test_a_container_that_restarts_before_its_pod_is_replaced_never_takes_the_next_configuration(
    chart: helm.Chart, nats: dict[str, Any], mode: str
) -> None:
    def wanted(**nats: Any) -> set[str]:  # noqa: ANN401 - values are free-form.
        containers = pod_specs(render(chart, nats=nats))["sunk-nats"]["containers"]
        return {one["command"][2].removeprefix("/etc/nats/") for one in containers}

    files = render(chart, nats=nats)["ConfigMap", "sunk-nats"]["data"].keys()

    assert files == wanted(**nats)
    for others, name in MODES:
        assert name == mode or not files & wanted(**others)


def test_three_servers_on_three_nodes_are_recommended_and_the_example_is_that(chart: helm.Chart) -> None:
    def notes(**values: Any) -> str:  # noqa: ANN401 - values are free-form.
        files = chart.render(VALUES | values, name="sunk", namespace="sunk")
        return next(text for path, text in files.items() if path.endswith("NOTES.txt"))

    example = yaml.safe_load((CHART / "examples/high-availability.yaml").read_text())
    chart.validate_schema(example)

    assert "One server has the only copy of the stored facts" in notes()
    assert "only prefer different Nodes" in notes(nats={"replicas": 3})
    assert "RECOMMENDED" not in notes(**example)
    assert "RECOMMENDED" not in notes(nats={"enabled": False, "url": "nats://mine:4222"})


def test_while_the_bus_grows_the_next_commands_are_told_and_how_to_give_up(chart: helm.Chart) -> None:
    files = chart.render(VALUES | {"nats": GROWING}, name="sunk", namespace="sunk")
    notes = next(text for path, text in files.items() if path.endswith("NOTES.txt"))

    told = [line.split()[0] for line in notes.split("SUNK ")[0].splitlines() if line.startswith("    ")]
    assert told == ["kubectl", "helm"]
    assert "job/sunk-nats-growth-1 " in notes
    assert "To give up instead, upgrade with nats.replicas=1" in notes
