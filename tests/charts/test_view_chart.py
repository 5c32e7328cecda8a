"""What helm/sunk makes of `view`: nothing by default, and no more rights than needed."""

import re
import shutil
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml
from cryptography import x509

from sunk_events.permissions import as_nats, view_permissions
from sunk_events.view import GROUP, ROLE, VERSION
from sunk_lab import charts
from sunk_lab.charts import Objects, env_of, rights
from sunk_lab.kube.policies import reaches
from sunk_runtime.config import load
from sunk_view.config import PREFIX, Config
from sunk_view.discovery import RESOURCES_OBJECT

CHART = Path(__file__).parents[2] / "helm/sunk"
CLUSTERS = [{"name": "prod", "namespace": "slurm"}, {"name": "stage-2", "namespace": "slurm"}]


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def render(chart: helm.Chart, **view: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    values = {"clusters": CLUSTERS, "view": {"enabled": True, **view}}
    return charts.render(chart, values, name="sunk", namespace="sunk-system")


def test_by_default_there_is_nothing_of_it_not_even_a_user_of_the_bus(chart: helm.Chart) -> None:
    made = charts.render(chart, {"clusters": CLUSTERS}, name="sunk", namespace="sunk-system")

    assert [name for _, name in made if "sunk-view" in name or GROUP in name] == []
    assert "view" not in made["Secret", "sunk-nats-users"]["data"]
    assert '"view"' not in str(made["ConfigMap", "sunk-nats"]["data"])


def test_a_release_of_before_the_value_is_upgraded_with_reused_values(chart: helm.Chart) -> None:
    values: dict[str, Any] = {"clusters": CLUSTERS, "view": None}

    assert charts.render(chart, values, name="sunk", namespace="sunk-system")


def test_reused_values_of_before_the_value_say_how_to_upgrade(chart: helm.Chart) -> None:
    """As with ``--reuse-values --set view.enabled=true``: the chart's own values of the view are missing."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["view"]

    with pytest.raises(Exception, match="--reset-then-reuse-values"):
        render(chart, **dict.fromkeys(defaults.keys() - {"enabled"}))


def test_a_secret_of_the_users_own_needs_the_password_of_the_view(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "sunk")
    checks = tmp_path / "sunk/templates/_checks.tpl"
    there = '(dict "data" (dict "syncer-prod" "c2VjcmV0"))'
    asked = re.compile(r'lookup "v1" "Secret" \$\.Release\.Namespace \.')
    checks.write_text(asked.sub(lambda _: there, checks.read_text()))
    own = {"clusters": CLUSTERS, "nats": {"existingSecret": "mine"}}
    chart = helm.Chart.load(tmp_path / "sunk")

    assert charts.render(chart, own, name="sunk", namespace="sunk-system")
    with pytest.raises(Exception, match="the Secret mine has no password view"):
        charts.render(chart, {**own, "view": {"enabled": True}}, name="sunk", namespace="sunk-system")


def test_the_process_may_ask_the_api_server_read_one_lease_and_nothing_else(
    chart: helm.Chart,
) -> None:
    made = render(chart)
    bound = {
        (kind, one["roleRef"]["name"])
        for (kind, _), one in made.items()
        if kind.endswith("RoleBinding") or kind == "RoleBinding"
        if any(subject["name"] == "sunk-view" for subject in one["subjects"])
    }

    assert bound == {
        ("ClusterRoleBinding", "sunk-view-server"),
        ("RoleBinding", "extension-apiserver-authentication-reader"),
        ("RoleBinding", "sunk-view-lease"),
    }
    assert made["RoleBinding", "sunk-view-server"]["metadata"]["namespace"] == "kube-system"
    assert rights(made["ClusterRole", "sunk-view-server"]["rules"]) == {
        ("authorization.k8s.io", "subjectaccessreviews", "create")
    }
    assert made["Role", "sunk-view-lease"]["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["sunk-nodeset-controller"],
            "verbs": ["get"],
        }
    ]


def test_what_every_user_may_ask_is_nothing_of_the_whole_cluster(chart: helm.Chart) -> None:
    made = render(chart)
    of_all = {resource for _, resource, _ in rights(made["ClusterRole", f"{ROLE}-ask"]["rules"])}
    of_some = {
        resource for group, resource, _ in rights(made["ClusterRole", ROLE]["rules"]) if group == GROUP
    }

    of_pods = {"pods", "pods/explain", "pods/events", "gangs/explain"}
    assert of_all == {"nodes", "nodes/explain", "nodes/events", "changes", "page"} | of_pods
    assert of_some == {"status", "events", "jobs", "jobs/explain", "jobs/events", "locks", "placements"}
    assert {one["name"] for one in RESOURCES_OBJECT["resources"]} <= of_all | of_some
    assert made["ClusterRoleBinding", f"{ROLE}-ask"]["subjects"] == [
        {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
    ]
    assert ("ClusterRoleBinding", f"{ROLE}-ask") not in render(chart, groups=[])


def test_no_role_writes(chart: helm.Chart) -> None:
    made = render(chart)
    verbs = {
        verb for name in (ROLE, f"{ROLE}-ask") for _, _, verb in rights(made["ClusterRole", name]["rules"])
    }

    assert verbs == {"get", "list"}


def test_the_api_server_knows_the_certificate_that_the_process_shows(
    chart: helm.Chart, tmp_path: Path
) -> None:
    made = render(chart)
    spec = made["APIService", f"{VERSION}.{GROUP}"]["spec"]
    secret = {name: b64decode(value) for name, value in made["Secret", "sunk-view-tls"]["data"].items()}
    certificate = x509.load_pem_x509_certificate(secret["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["sunk-view.sunk-system.svc"]
    assert b64decode(spec["caBundle"]) == secret["ca.crt"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(secret["ca.crt"]))
    for name, text in secret.items():
        (tmp_path / name).write_bytes(text)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert spec["service"] == {"name": "sunk-view", "namespace": "sunk-system", "port": 443}
    assert "insecureSkipTLSVerify" not in spec


def test_a_certificate_of_the_users_own_needs_its_authority(chart: helm.Chart) -> None:
    with pytest.raises(Exception, match=r"view\.tls\.caBundle"):
        render(chart, tls={"existingSecret": "mine"})

    made = render(chart, tls={"existingSecret": "mine", "caBundle": "PEM"})

    assert ("Secret", "sunk-view-tls") not in made
    assert b64decode(made["APIService", f"{VERSION}.{GROUP}"]["spec"]["caBundle"]) == b"PEM"
    volumes = made["Deployment", "sunk-view"]["spec"]["template"]["spec"]["volumes"]
    assert {volume["secret"]["secretName"] for volume in volumes} == {"mine", "sunk-nats-users"}


def test_the_process_starts_with_the_settings_of_the_chart(chart: helm.Chart) -> None:
    spec = render(chart, ratePerSecond=2.5)["Deployment", "sunk-view"]["spec"]["template"]["spec"]
    config = load(Config, env_of(spec), PREFIX)

    assert config.clusters == ("prod", "stage-2")
    assert (config.tls_port, config.http_port, config.rate_per_s) == (8443, 8080, 2.5)
    assert config.nats_user == "view"


def test_each_container_that_connects_to_a_bus_with_tls_knows_its_authority(chart: helm.Chart) -> None:
    values = {
        "clusters": CLUSTERS,
        "view": {"enabled": True},
        "nats": {"tls": {"existingSecret": "nats-tls"}},
    }
    made = charts.render(chart, values, name="sunk", namespace="sunk-system")
    without: list[str] = []
    for name, spec in charts.pod_specs(made).items():
        volumes = {volume["name"]: volume.get("secret", {}) for volume in spec.get("volumes", [])}
        for container in spec["containers"]:
            env = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
            mounts = container.get("volumeMounts", [])
            of = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in mounts}
            for url in (found for found in env if found.endswith("_NATS_URL")):
                file = Path(env.get(url.replace("_NATS_URL", "_NATS_CA_FILE"), ""))
                if of.get(str(file.parent), {}).get("secretName") != "nats-tls":
                    without.append(f"{name}: {url}")

    assert without == []


def test_its_user_of_the_bus_has_the_permissions_of_the_code(chart: helm.Chart) -> None:
    (conf,) = render(chart)["ConfigMap", "sunk-nats"]["data"].values()
    wanted = as_nats(view_permissions(["prod", "stage-2"]))

    own = conf[conf.index('user: "view"') :]
    assert "$PASSWORD_VIEW" in own
    for subject in wanted["publish"]["allow"]:
        assert subject in own


def test_only_the_api_servers_that_are_named_connect(chart: helm.Chart) -> None:
    made = render(chart, apiServerCIDRs=["10.0.0.1/32"])
    policy = made["NetworkPolicy", "sunk-view"]
    ports = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}

    assert ports == {8443: [{"ipBlock": {"cidr": "10.0.0.1/32"}}], 8080: None}
    assert {
        rule["ports"][0]["port"] for rule in render(chart)["NetworkPolicy", "sunk-view"]["spec"]["ingress"]
    } == {
        8443,
        8080,
    }


def test_it_reaches_the_bus(chart: helm.Chart) -> None:
    made = render(chart)
    policies = [one for (kind, _), one in made.items() if kind == "NetworkPolicy"]
    namespaces = [
        {"metadata": {"name": "sunk-system", "labels": {"kubernetes.io/metadata.name": "sunk-system"}}}
    ]

    def pod(kind: str, name: str) -> dict[str, Any]:
        template = made[kind, name]["spec"]["template"]
        metadata = {"namespace": "sunk-system", "name": name, "labels": template["metadata"]["labels"]}
        return {"metadata": metadata, "spec": template["spec"]}

    assert reaches(
        policies, namespaces, pod("Deployment", "sunk-view"), pod("StatefulSet", "sunk-nats"), "nats"
    )
