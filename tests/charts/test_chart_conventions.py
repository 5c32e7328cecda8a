"""What people expect of any chart of Helm's, of both of ours."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import Objects, render

HELM: Final = Path(__file__).parents[2] / "helm"
CHARTS: Final = ("slurm", "sunk")
CI_FILES: Final = sorted(HELM.glob("*/ci/*-values.yaml"))
EVERYTHING: Final = "everything"
WORKLOADS: Final = ("Deployment", "StatefulSet", "Job", "NodeSet")
TEAM: Final = ("example.com/team", "hpc")


def values_of(name: str, file: str) -> dict[str, Any]:
    return yaml.safe_load((HELM / name / f"ci/{file}-values.yaml").read_text())


def made(name: str, values: dict[str, Any]) -> Objects:
    return render(helm.Chart.load(HELM / name), values, name="prod", namespace="slurm")


@pytest.fixture(scope="module", params=CHARTS)
def everything(request: pytest.FixtureRequest) -> Objects:
    """What a chart makes if all of it is turned on."""
    return made(request.param, values_of(request.param, EVERYTHING))


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield each Pod, or template of one: what makes it, its metadata, its spec."""
    for (kind, name), found in objects.items():
        if kind in WORKLOADS:
            pod = found["spec"]["template"]
            yield f"{kind} {name}", pod["metadata"], pod["spec"]
        elif kind == "Pod":
            yield f"Pod {name}", found["metadata"], found["spec"]


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    return {name: found for (what, name), found in objects.items() if what == kind}


def selectors(level: object) -> Iterator[object]:
    """Yield each thing that chooses by labels."""
    if isinstance(level, dict):
        for key, below in cast("dict[str, object]", level).items():
            if key.lower().endswith("selector"):
                yield below
            else:
                yield from selectors(below)
    elif isinstance(level, list):
        for below in cast("list[object]", level):
            yield from selectors(below)


@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_every_file_of_ci_values_passes_the_lint_of_helm(file: Path) -> None:
    report = helm.lint(file.parents[1], yaml.safe_load(file.read_text()), strict=True)

    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("name", CHARTS)
def test_ci_values_turn_on_whatever_can_be(name: str) -> None:
    """A template that none of them reaches would be linted by none."""
    chart = helm.Chart.load(HELM / name)
    reached: set[str] = set()
    for file in (HELM / name / "ci").glob("*-values.yaml"):
        found = chart.render(yaml.safe_load(file.read_text()), name="prod", namespace="slurm")
        manifests = {path: text for path, text in found.items() if path.endswith(".yaml")}
        reached |= {path for path, text in manifests.items() if any(yaml.safe_load_all(text))}

    templates = {f"{name}/{one['name']}" for one in chart.templates if one["name"].endswith(".yaml")}
    assert templates - reached == {f"{name}/templates/{path}" for path in NOT_IN_CI[name]}


NOT_IN_CI: Final[dict[str, set[str]]] = {
    "slurm": {"checks.yaml", "config/directory.yaml", "secrets/nats-ca.yaml"},
    "sunk": {"nats/growth.yaml", "nodeset-controller/rolebinding-upgrade.yaml"},
}
"""What renders nothing, excludes another part, or needs a cluster that is there."""


@pytest.mark.parametrize("name", CHARTS)
def test_two_renderings_differ_in_the_secrets_that_they_make_and_in_nothing_else(name: str) -> None:
    one, other = (made(name, values_of(name, "default")) for _ in range(2))

    assert one.keys() == other.keys()
    assert {key for key in one if one[key] != other[key]} <= {key for key in one if key[0] == "Secret"}


@pytest.mark.parametrize("name", CHARTS)
def test_two_renderings_are_the_same_if_every_secret_is_named(name: str) -> None:
    chart = helm.Chart.load(HELM / name)
    values = values_of(name, "existing-secrets")

    one, other = (chart.render(values, name="prod", namespace="slurm") for _ in range(2))

    assert one == other
    assert of_kind(made(name, values), "Secret") == {}


def test_common_labels_are_on_every_object_and_every_pod(everything: Objects) -> None:
    mine = {"mine", "prod-mine"}
    labels = {key: found["metadata"].get("labels", {}) for key, found in everything.items()}
    of_pods = {name: metadata["labels"] for name, metadata, _ in pods(everything)}

    assert {key[1] for key, found in labels.items() if TEAM not in found.items()} == mine
    assert {name for name, found in of_pods.items() if TEAM not in found.items()} == set()
    assert len(of_pods) > 4


def test_nothing_selects_by_common_labels(everything: Objects) -> None:
    chosen = list(selectors([found for (kind, _), found in everything.items() if kind != "ConfigMap"]))

    assert [one for one in chosen if TEAM[0] in str(one)] == []
    assert any("app.kubernetes.io/name" in str(one) for one in chosen)


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("label", ["app.kubernetes.io/name", "sunk.coreweave.com/cluster"])
def test_a_common_label_that_the_chart_sets_itself_is_refused(name: str, label: str) -> None:
    with pytest.raises(helm.HelmError, match=f"commonLabels: the chart sets {label} itself"):
        made(name, values_of(name, "default") | {"commonLabels": {label: "x"}})


@pytest.mark.parametrize("name", CHARTS)
def test_a_common_label_that_would_widen_roles_of_kubernetes_is_refused(name: str) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-view"
    with pytest.raises(helm.HelmError, match=f"commonLabels: {label} would add the chart's roles"):
        made(name, values_of(name, "default") | {"commonLabels": {label: "true"}})


def test_accounts_of_pods_in_which_users_work_have_no_annotation_of_the_services() -> None:
    """A cloud gives each process of such a Pod the role that the annotation names."""

    def without(**more: object) -> set[str]:
        values = values_of("slurm", "default") | {"podDefaults": annotated} | more
        accounts = of_kind(made("slurm", values), "ServiceAccount").items()
        return {name for name, found in accounts if "annotations" not in found["metadata"]}

    annotated = {"serviceAccount": {"annotations": {"cloud/role": "a"}}}

    assert without() == {"prod-slurm", "prod-compute"}
    assert without(compute=annotated) == {"prod-slurm"}


def test_a_components_own_label_goes_before_the_common_one() -> None:
    values = values_of("slurm", "default") | {"commonLabels": {"team": "all"}}
    own: dict[str, Any] = {"syncer": {"podLabels": {"team": "own"}}}
    monitors: dict[str, Any] = {"podMonitor": {"enabled": True, "labels": {"team": "metrics"}}}

    objects = made("slurm", values | own | monitors)

    labels = {name: metadata["labels"]["team"] for name, metadata, _ in pods(objects)}
    assert {name for name, label in labels.items() if label == "own"} == {
        "Deployment prod-syncer",
        "Job prod-uninstall",  # It is the syncer's image, and runs where that does.
    }
    assert set(labels.values()) == {"own", "all"}
    assert objects["Deployment", "prod-syncer"]["metadata"]["labels"]["team"] == "all"
    assert objects["PodMonitor", "prod-syncer"]["metadata"]["labels"]["team"] == "metrics"


def test_further_objects_are_as_they_were_given_and_text_is_a_template(everything: Objects) -> None:
    assert everything["ConfigMap", "mine"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine"},
        "data": {"text": "{{ as it is }}"},
    }
    assert ("ConfigMap", "prod-mine") in everything


def test_every_pod_pulls_its_images_with_the_secrets(everything: Objects) -> None:
    found = {name: spec.get("imagePullSecrets") for name, _, spec in pods(everything)}

    assert {name for name, one in found.items() if one != [{"name": "pull"}, {"name": "pull-too"}]} == set()


def test_every_pod_is_placed_as_the_values_say(everything: Objects) -> None:
    wanted = ("nodeSelector", "tolerations", "affinity", "priorityClassName")

    for name, _, spec in pods(everything):
        assert [key for key in wanted if not spec.get(key)] == [], name
        is_compute = name.startswith("NodeSet")
        role = "compute" if is_compute else "control"
        assert spec["nodeSelector"] == {"example.com/role": role}, name
        assert f"example.com/{role}" in [one.get("key") for one in spec["tolerations"]], name
        assert spec["priorityClassName"] == ("compute" if is_compute else "system-cluster-critical"), name


def test_a_spread_that_selects_no_pods_counts_those_of_its_component(everything: Objects) -> None:
    """A NodeSet has none: it chooses the Node of each Pod itself."""
    for name, metadata, spec in pods(everything):
        if name.startswith("NodeSet"):
            assert "topologySpreadConstraints" not in spec
            continue
        (constraint,) = spec["topologySpreadConstraints"]
        chosen = constraint["labelSelector"]["matchLabels"]
        assert chosen, name
        assert chosen.items() <= metadata["labels"].items(), name


def test_a_spread_with_a_selector_keeps_it() -> None:
    given = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    }
    spread = {"topologySpreadConstraints": [given]}

    sunk = made("sunk", values_of("sunk", "default") | {"nodesetController": spread})
    slurm = made("slurm", values_of("slurm", "default") | {"rest": spread})

    found = {name: spec.get("topologySpreadConstraints") for name, _, spec in pods(sunk | slurm)}
    assert found["Deployment sunk-nodeset-controller"] == [given]
    assert found["Deployment prod-rest"] == [given]
    assert found["Deployment prod-syncer"] is None


def test_every_account_has_the_annotations_of_its_component_or_those_of_all(everything: Objects) -> None:
    accounts = of_kind(everything, "ServiceAccount")
    own = {
        name: found["metadata"].get("annotations", {}).get("example.com/identity")
        for name, found in accounts.items()
        if name != "prod-slurm"  # Login Pods have it too.
    }

    assert None not in own.values()
    named = {name for name, identity in own.items() if identity != "all"}
    assert named in ({"prod-controller", "prod-compute", "prod-syncer"}, {"sunk-view"})
    assert all(own[name] in name for name in named)


def test_every_service_that_others_call_has_its_annotations(everything: Objects) -> None:
    silent = {
        name
        for name, found in of_kind(everything, "Service").items()
        if found["metadata"].get("annotations") != {"example.com/note": "service"}
    }
    metrics = {f"prod-metrics-{name}" for name in ("syncer", "scheduler", "hook-gateway", "exporter")}

    assert silent in (metrics | {"prod-login-0"}, {"sunk-nats-headless"})


def test_a_service_monitor_selects_one_service_whose_port_is_the_pods(everything: Objects) -> None:
    monitors, services = of_kind(everything, "ServiceMonitor"), of_kind(everything, "Service")
    labels_of = {name: metadata["labels"] for name, metadata, _ in pods(everything)}
    ports_of = {
        name: {port["name"] for one in spec["containers"] for port in one.get("ports", [])}
        for name, _, spec in pods(everything)
    }

    assert monitors
    for monitor in monitors.values():
        chosen = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = (one for one in services.values() if chosen <= one["metadata"]["labels"].items())
        (endpoint,) = monitor["spec"]["endpoints"]
        (port,) = (one for one in service["spec"]["ports"] if one["name"] == endpoint["port"])
        (pod,) = (
            name for name in labels_of if service["spec"]["selector"].items() <= labels_of[name].items()
        )
        assert port["targetPort"] in ports_of[pod]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("slurm", {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}),
        (
            "sunk",
            {"nodesetController": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
        ),
    ],
)
def test_two_monitors_of_the_same_pods_are_refused(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(helm.HelmError, match=r"serviceMonitor\.enabled: podMonitor scrapes the same Pods"):
        made(name, values_of(name, "default") | values)


def test_there_is_no_monitor_by_default() -> None:
    for name in CHARTS:
        kinds = {kind for kind, _ in made(name, values_of(name, "default"))}
        assert kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule"} == set()


def test_every_name_of_an_object_fits_the_longest_release() -> None:
    """A Service and a label's value have 63 letters at most."""
    values = values_of("slurm", EVERYTHING) | {"fullnameOverride": "a" * 40}

    names = {name: len(name) for name in of_kind(made("slurm", values), "Service")}

    assert max(names.values()) <= 63


def test_alerts_are_the_rules_of_the_file_and_differ_by_the_values_alone() -> None:
    file = yaml.safe_load((HELM / "sunk/files/alerts.yaml").read_text())
    values = values_of("sunk", "default")

    plain = made("sunk", values | {"alerts": {"enabled": True}})["PrometheusRule", "sunk-alerts"]["spec"]
    own = {
        "enabled": True,
        "runbookUrl": "https://docs.example.com/<alert>",
        "thresholds": {"SunkFactsNotRead": 2000000, "SunkCertificateEnds": 0.25},
    }
    changed = made("sunk", values | {"alerts": own})["PrometheusRule", "sunk-alerts"]["spec"]

    def rules(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}

    assert plain == file
    for name, rule in rules(changed).items():
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.com/{name}"
    exprs = {
        name: rule["expr"]
        for name, rule in rules(changed).items()
        if rule["expr"] != rules(file)[name]["expr"]
    }
    assert {name: float(expr.split()[-1]) for name, expr in exprs.items()} == {
        "SunkFactsNotRead": 2000000,
        "SunkCertificateEnds": 0.25,
    }


def test_each_threshold_is_the_one_number_that_its_rule_compares_with() -> None:
    """The chart replaces each number behind a comparison: there must be one, and the value is its default."""
    thresholds = helm.Chart.load(HELM / "sunk").values["alerts"]["thresholds"]
    file = yaml.safe_load((HELM / "sunk/files/alerts.yaml").read_text())
    numbers = {
        rule["alert"]: [float(one) for one in re.findall(r"[<>] ([0-9.]+)", rule["expr"])]
        for group in file["groups"]
        for rule in group["rules"]
    }

    assert {name: found for name, found in numbers.items() if any(found)} == {
        name: [number] for name, number in thresholds.items()
    }


def test_dashboards_are_those_of_the_files_with_labels_and_folder() -> None:
    own = {"enabled": True, "labels": {"show": "yes"}, "annotations": {"folder": "SUNK"}}
    objects = of_kind(made("sunk", values_of("sunk", "default") | {"dashboards": own}), "ConfigMap")

    found = {name: one for name, one in objects.items() if name.startswith("sunk-dashboard-")}
    shown = {file: text for one in found.values() for file, text in one["data"].items()}
    files = {path.name: path.read_text() for path in (HELM / "sunk/files/dashboards").glob("*.json")}
    assert {file: json.loads(text) for file, text in shown.items()} == {
        file: json.loads(text) for file, text in files.items()
    }
    assert len(files) == len(found) > 1
    for one in found.values():
        assert one["metadata"]["annotations"] == {"folder": "SUNK"}
        assert one["metadata"]["labels"]["show"] == "yes"


@pytest.mark.parametrize("part", ["alerts", "dashboards"])
def test_a_slurm_cluster_with_alerts_of_its_own_is_told_where_they_are_now(part: str) -> None:
    """They were in helm/slurm, and fired once for each release. Old values have them, turned off."""
    values = values_of("slurm", "default")

    assert made("slurm", values | {part: {"enabled": False, "labels": {"a": "b"}}})
    with pytest.raises(
        helm.HelmError, match=rf"{part}\.enabled: .* in the sunk release now: set {part}\.enabled"
    ):
        made("slurm", values | {part: {"enabled": True}})


@pytest.mark.parametrize("name", CHARTS)
def test_every_key_of_the_schema_says_what_it_means(name: str) -> None:
    def silent(level: object, path: str) -> Iterator[str]:
        if isinstance(level, list):
            for part in cast("list[object]", level):
                yield from silent(part, path)
        elif isinstance(level, dict):
            node = cast("dict[str, Any]", level)
            for key, below in node.get("properties", {}).items():
                if not below.get("description"):
                    yield f"{path}.{key}"
            for key, below in node.items():
                yield from silent(below, f"{path}.{key}")

    schema = json.loads((HELM / name / "values.schema.json").read_text())
    assert list(silent(schema, name)) == []
    registry = schema["properties"]["global"]["properties"]["imageRegistry"]
    assert registry["description"].startswith("Registry of every image.")


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_the_first_of_slurmctlds_scripts_that_fails_ends_the_others_with_its_status(
    kind: str, tmp_path: Path
) -> None:
    text = (HELM / f"slurm/files/scripts/{kind}-slurmctld").read_text()
    folder = tmp_path / f"{kind}-slurmctld.d"
    folder.mkdir()
    for name, status in (("10-b", 3), ("10-a", 0), ("9-c", 0)):
        (folder / name).write_text(f"#!/bin/bash\necho {name}\nexit {status}\n")
        (folder / name).chmod(0o755)

    done = subprocess.run(
        ["bash", "-c", text.replace("/etc/sunk/", f"{tmp_path}/")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout.split(), done.returncode) == (["10-a", "10-b"], 3)


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_slurmctld_without_a_folder_of_scripts_goes_on(kind: str, tmp_path: Path) -> None:
    """A Pod that is older than its slurm.conf has none, and Slurm ends jobs whose prolog fails."""
    text = (HELM / f"slurm/files/scripts/{kind}-slurmctld").read_text()

    done = subprocess.run(["bash", "-c", text.replace("/etc/sunk/", f"{tmp_path}/")], check=False)

    assert done.returncode == 0


def test_files_of_slurm_are_where_its_daemons_read_them_and_the_syncer_looks_for_changes() -> None:
    files = {"mpi.conf": 'A="1" <b>\n', "oci.conf": "  x: {{ y }}\n", "0x10": "a", "true": "b", "1e3": "c"}
    objects = made("slurm", values_of("slurm", "default") | {"slurmConfig": {"files": files}})

    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]
    assert {name: conf[name] for name in files} == files
    readers = {
        name
        for name, _, spec in pods(objects)
        for volume in spec.get("volumes", [])
        if {"configMap": {"name": "prod-slurm-conf"}} in volume.get("projected", {}).get("sources", [])
    }
    assert {"StatefulSet prod-controller", "StatefulSet prod-login", "Deployment prod-rest"} <= readers
    (syncer,) = objects["Deployment", "prod-syncer"]["spec"]["template"]["spec"]["containers"]
    (watched,) = (one["value"] for one in syncer["env"] if one["name"] == "SUNK_SYNCER_RECONFIGURE_FILES")
    assert {f"/etc/slurm/{name}" for name in files} < set(watched.split(":"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("slurm.conf", "the chart makes slurm.conf itself: set slurmConfig.extraConfig"),
        ("topology.yaml", "the chart makes topology.yaml itself: set slurmConfig.topologyConfigMap"),
        ("slurmdbd.conf", "the chart makes slurmdbd.conf itself: set accounting.extraConfig"),
        ("a/b.conf", '"a/b.conf" is not a file name: write letters'),
        ("..", r'"\.\." is not a file name'),
        ("a:b", '"a:b" is not a file name'),
        ("jwt.key", "jwt.key holds a key, and users of login Pods can read these files"),
        ("slurm.key.old", "slurm.key.old holds a key"),
        ("jwks.json", "jwks.json holds a key"),
        ("id_ed25519", "id_ed25519 holds a key"),
        ("job_submit.lua", "nothing reads job_submit.lua: set JobSubmitPlugins=lua in slurmConfig.extra"),
        ("cli_filter.lua", "nothing reads cli_filter.lua: set CliFilterPlugins=lua in slurmConfig.extra"),
    ],
)
def test_a_file_that_slurm_would_not_get_is_refused(name: str, why: str) -> None:
    values = values_of("slurm", "default") | {"slurmConfig": {"files": {name: "x"}}}

    with pytest.raises(helm.HelmError, match=f"slurmConfig.files: {why}"):
        made("slurm", values)


def test_slurmctlds_hooks_are_scripts_of_its_pod_alone() -> None:
    objects = made("slurm", values_of("slurm", EVERYTHING))
    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]

    for kind in ("Prolog", "Epilog"):
        at = f"/etc/sunk/{kind.lower()}-slurmctld.d"
        assert f"\n{kind}Slurmctld=/etc/sunk/scripts/{kind.lower()}-slurmctld\n" in conf
        mounting = {
            name
            for name, _, spec in pods(objects)
            for one in spec["containers"]
            if at in [mount["mountPath"] for mount in one.get("volumeMounts", [])]
        }
        assert mounting == {"StatefulSet prod-controller", "StatefulSet prod-backup"}
        assert f"{kind.lower()}-slurmctld" in objects["ConfigMap", "prod-scripts"]["data"]
    plain = made("slurm", values_of("slurm", "default"))["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    assert "logSlurmctld=" not in plain


def test_a_hook_of_slurmctld_without_interpreter_is_refused() -> None:
    values = values_of("slurm", "default") | {"hooks": {"prologSlurmctld": {"a": "true"}}}

    with pytest.raises(helm.HelmError, match=r"hooks\.prologSlurmctld\.a: does not begin with #!"):
        made("slurm", values)


NEW: Final[dict[str, dict[str, Any]]] = {
    "slurm": {
        "commonLabels": None,
        "extraObjects": None,
        "serviceMonitor": None,
        "podDefaults": {"topologySpreadConstraints": None, "serviceAccount": None},
        "slurmConfig": {"files": None},
        "hooks": {"prologSlurmctld": None, "epilogSlurmctld": None},
        "controller": {"service": None},
        "compute": {"service": None, "serviceAccount": None},
    },
    "sunk": {
        "commonLabels": None,
        "extraObjects": None,
        "alerts": None,
        "dashboards": None,
        "podDefaults": {"topologySpreadConstraints": None, "serviceAccount": None},
        "nodesetController": {"service": None, "serviceMonitor": None},
        "nats": {"service": None},
    },
}


@pytest.mark.parametrize("name", CHARTS)
def test_values_of_a_release_of_before_make_what_the_defaults_make(name: str) -> None:
    """As `helm upgrade --reuse-values` gives them: without the keys that are new."""
    chart = helm.Chart.load(HELM / name)
    now = values_of(name, "existing-secrets")
    before = {**now, **{key: now.get(key, {}) | new if new else None for key, new in NEW[name].items()}}

    new, old = (chart.render(values, name="prod", namespace="slurm") for values in (now, before))

    assert old == new


def test_a_switch_of_a_release_of_before_has_the_defaults_of_its_part() -> None:
    alerts = {"enabled": True, "runbookUrl": None, "labels": None, "thresholds": None}
    dashboards = {"enabled": True, "labels": None, "annotations": None}
    monitors = {"enabled": True, "labels": None, "interval": None}

    sunk = made("sunk", values_of("sunk", "default") | {"alerts": alerts, "dashboards": dashboards})
    slurm = made("slurm", values_of("slurm", "default") | {"serviceMonitor": monitors})

    rules = sunk["PrometheusRule", "sunk-alerts"]["spec"]["groups"][0]["rules"]
    assert {rule["annotations"]["runbook_url"] for rule in rules} == {
        f"docs/runbooks/{rule['alert']}.md" for rule in rules
    }
    shown = [
        found for name, found in of_kind(sunk, "ConfigMap").items() if name.startswith("sunk-dashboard-")
    ]
    assert {found["metadata"]["labels"]["grafana_dashboard"] for found in shown} == {"1"}
    found = of_kind(slurm, "ServiceMonitor").values()
    assert {end["interval"] for one in found for end in one["spec"]["endpoints"]} == {"15s"}
