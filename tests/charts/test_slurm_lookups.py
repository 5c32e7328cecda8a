"""What the chart that each Slurm cluster has refuses because of what the cluster says, without a cluster."""

import base64
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
PROBE: Final = """
{{- range $check, $arguments := .Files.Get "found.json" | fromJson }}
{{- include $check (set $arguments "root" $) }}
{{- end }}
"""
"""A template that asks checks of the chart about what a cluster would have answered."""
KEY_SET: Final = """
kind: ConfigMap
metadata: {name: key-set}
data:
  found: {{ include "slurm.keySet" (dict "root" . "old" (.Files.Get "secret.json" | fromJson)) | quote }}
"""
"""A template that says what Secret of auth/slurm follows the one that is there."""
MUNGE_KEYS: Final = """
kind: ConfigMap
metadata: {name: munge-keys}
data:
  found: {{ include "slurm.mungeKeys" (dict "root" . "old" (.Files.Get "secret.json" | fromJson)) | quote }}
"""
"""The same of MUNGE."""
TOPOLOGY: Final = """
kind: ConfigMap
metadata: {name: topology-of}
data:
  {{- $before := .Files.Get "before.json" | fromJson }}
  found: {{ include "slurm.topologyFor" (dict "root" . "kind" (.Files.Get "kind") "before" $before) | quote }}
"""
"""A template that says which topology slurmctld reads where the sunk release generates `kind`."""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chart = tmp_path_factory.mktemp("charts") / "slurm"
    shutil.copytree(CHART, chart)
    (chart / "templates/probe.yaml").write_text(PROBE)
    (chart / "templates/key-set.yaml").write_text(KEY_SET)
    (chart / "templates/munge-keys.yaml").write_text(MUNGE_KEYS)
    (chart / "templates/topology-of.yaml").write_text(TOPOLOGY)
    (chart / "kind").write_text("")
    for found in ("found.json", "secret.json", "before.json"):
        (chart / found).write_text("{}")
    return chart


def ask(probed: Path, check: str, found: dict[str, Any], **values: Any) -> None:  # noqa: ANN401 - free-form.
    """Have *check* judge *values*, where the cluster has *found*."""
    (probed / "found.json").write_text(json.dumps({check: found}))
    render(helm.Chart.load(probed), VALUES | values, name="prod", namespace="slurm")


@pytest.mark.parametrize(
    ("said", "values", "why"),
    [
        ({"NATS_REPLICAS": "3"}, {}, "nats.replicas: the sunk release keeps streams on 3 servers"),
        ({"NATS_URL": "nats://bus:4222"}, {}, "nats.url: is empty, .*: set nats://bus:4222"),
        ({"NATS_CA_FILE": "/ca.crt"}, {}, "nats.tls.caSecret: is empty, and the NATS .* uses TLS"),
        ({"LOCK_KEY": "example.com/lock"}, {}, "sunk.lockKey: the sunk release locks Nodes .*example.com"),
        (
            {"TOPOLOGY": "block"},
            {"slurmConfig": {"topologyPlugin": "topology/tree"}},
            "slurmConfig.topologyPlugin: topology/tree reads a topology.conf, .* of kind block",
        ),
        (
            {"NODE_PERMISSIONS": "stage"},
            {"syncer": {"nodePermissions": {"enabled": True}}},
            "syncer.nodePermissions.enabled: the sunk release does not allow prod",
        ),
        (
            {"NODE_PERMISSIONS": "prod", "REBOOT_REASON": "other"},
            {"syncer": {"nodePermissions": {"enabled": True}}},
            "syncer.hooksAPI.nodeRebootReason: .* writes other: set the same in both",
        ),
        (
            {"NODE_PERMISSIONS": "prod", "REBOOT_CONDITIONS": "prod=example.com/Phase"},
            {"syncer": {"nodePermissions": {"enabled": True}}},
            "syncer.hooksAPI.nodeRebootCondition: .* writes example.com/Phase: set the same in both",
        ),
    ],
    ids=[
        "three servers",
        "another bus",
        "no authority",
        "another lock",
        "another topology",
        "no reboots",
        "another reason to reboot",
        "a condition of its own",
    ],
)
def test_what_the_sunk_release_says_otherwise_is_refused_with_key_and_fix(
    probed: Path, said: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(helm.HelmRenderError, match=why):
        ask(probed, "slurm.checkSaid", {"said": said}, **values)


def test_a_cluster_in_another_namespace_than_the_sunk_release_says_is_refused(probed: Path) -> None:
    with pytest.raises(helm.HelmRenderError, match="clusterName: the sunk release has prod in namespace hpc"):
        ask(probed, "slurm.checkSaid", {"said": {}, "namespace": "hpc"})
    ask(probed, "slurm.checkSaid", {"said": {}, "namespace": "slurm"})


def test_what_both_releases_say_alike_is_taken(probed: Path) -> None:
    ask(
        probed,
        "slurm.checkSaid",
        {
            "said": {
                "LOCK_KEY": "a/b",
                "NATS_REPLICAS": "1",
                "NODE_PERMISSIONS": "stage,prod",
                "REBOOT_REASON": "other",
                "REBOOT_REASONS": "stage=off,prod=on",
            }
        },
        sunk={"lockKey": "a/b"},
        syncer={"nodePermissions": {"enabled": True}, "hooksAPI": {"nodeRebootReason": "on"}},
    )
    ask(probed, "slurm.checkSaid", {"said": {}})


def stateful_set(chart: Path, kind: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - free-form.
    """Return the StatefulSet of *kind* that a release with *values* has."""
    found = render(helm.Chart.load(chart), VALUES | values, name="prod", namespace="slurm")
    return found["StatefulSet", f"prod-{kind}"]


@pytest.mark.parametrize(
    ("before", "values", "why"),
    [
        (
            {},
            {"controller": {"stateVolume": {"size": "20Gi"}}},
            "controller.stateVolume.size: the volume has 10Gi, .* to 20Gi: .*statefulset prod-controller",
        ),
        (
            {"controller": {"stateVolume": {"storageClassName": "fast"}}},
            {},
            'controller.stateVolume.storageClassName: the volume has class "fast"',
        ),
        (
            {},
            {"controller": {"stateVolume": {"accessModes": ["ReadWriteMany"]}}},
            "controller.stateVolume.accessModes: the volume has ReadWriteOnce, .* to ReadWriteMany",
        ),
        ({}, {"mariadb": {"size": "1Ti"}}, "mariadb.size: the volume has 20Gi, .*statefulset prod-mariadb"),
        ({}, {"clusterName": "test"}, "clusterName: this release is prod .*: set this name"),
        ({}, {"fullnameOverride": "other"}, "fullnameOverride: this release has prod-controller, .*set prod"),
        (
            {},
            {"compute": {"nodes": {"gpu": {"podNamePrefix": "g"}}}},
            "compute.nodes.gpu.podNamePrefix: the names of its Slurm nodes begin with gpu",
        ),
    ],
    ids=["size", "class", "modes", "database", "cluster", "name", "prefix"],
)
def test_an_upgrade_that_cannot_work_is_refused_before_half_of_it_is_done(
    probed: Path, before: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    there = {
        "slurmctld": stateful_set(CHART, "controller", **before),
        "mariadb": stateful_set(CHART, "mariadb", **before),
        "sets": {"prod-gpu": {"podNamePrefix": "gpu"}},
    }

    with pytest.raises(helm.HelmRenderError, match=why):
        ask(probed, "slurm.checkStays", there, **values)


def test_a_volume_of_the_same_size_in_other_words_is_taken(probed: Path) -> None:
    there = {"slurmctld": stateful_set(CHART, "controller"), "sets": {}}

    ask(probed, "slurm.checkStays", there, controller={"stateVolume": {"size": "10240Mi"}})
    ask(probed, "slurm.checkStays", {"sets": {}}, controller={"stateVolume": {"size": "20Gi"}})


def key_set(probed: Path, there: dict[str, Any], *ids: str) -> dict[str, Any]:
    """Return the Secret that follows *there* when the values name *ids*."""
    (probed / "found.json").write_text("{}")
    (probed / "secret.json").write_text(json.dumps(there))
    values = VALUES | {"keys": {"slurmKeyIds": list(ids)}}
    rendered = render(helm.Chart.load(probed), values, name="prod", namespace="slurm")
    found = json.loads(rendered["ConfigMap", "key-set"]["data"]["found"])
    data = {"slurm.jwks": encoded(found["jwks"]), "slurm.key": found["first"]}
    return {
        "metadata": {"annotations": {"sunk.coreweave.com/slurm-keys-since": found["since"]}},
        "data": data,
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def keys_of(secret: dict[str, Any]) -> list[dict[str, str]]:
    return json.loads(base64.b64decode(secret["data"]["slurm.jwks"]))["keys"]


def test_a_key_of_slurm_is_made_once_and_the_first_signs(probed: Path) -> None:
    one = key_set(probed, {}, "1")
    two = key_set(probed, one, "1", "2")
    turned = key_set(probed, two, "2", "1")
    last = key_set(probed, turned, "2")

    by_id = {key["kid"]: key["k"] for key in keys_of(two)}
    assert by_id.keys() == {"1", "2"}
    assert len({len(base64.b64decode(key)) for key in by_id.values()} | {64}) == 1
    for secret, ids in ((one, "1"), (two, "12"), (turned, "21"), (last, "2")):
        assert [(key["kid"], key["k"]) for key in keys_of(secret)] == [(kid, by_id[kid]) for kid in ids]
        assert [key["kid"] for key in keys_of(secret) if key.get("use") == "default"] == [ids[0]]
        assert secret["data"]["slurm.key"] == by_id[ids[0]]
        assert {(key["alg"], key["kty"]) for key in keys_of(secret)} == {("HS256", "oct")}


def test_the_one_key_of_an_earlier_version_becomes_the_first_of_the_set(probed: Path) -> None:
    found = key_set(probed, {"data": {"slurm.key": encoded("k" * 64)}}, "1")

    assert [key["k"] for key in keys_of(found)] == [encoded("k" * 64)]
    assert key_set(probed, found, "1") == found


SINCE: Final = "sunk.coreweave.com/slurm-keys-since"


def with_keys(*ids: str, since: int = 0) -> dict[str, Any]:
    """Return a Secret of auth/slurm with *ids* since that moment."""
    keys = [{"kid": name, "k": "eA==", "kty": "oct", "alg": "HS256"} for name in ids]
    data = {"slurm.jwks": encoded(json.dumps({"keys": keys}))}
    return {"metadata": {"annotations": {SINCE: str(since)}}, "data": data}


def compute_pod(*names: str) -> dict[str, Any]:
    """Return a Pod of slurmd with variables of those *names*."""
    metadata = {"name": "cpu-000-001", "labels": {"app.kubernetes.io/instance": "prod"}}
    container = {"name": "slurmd", "env": [{"name": name, "value": "x"} for name in names]}
    return {"metadata": metadata, "spec": {"containers": [container]}}


NEW_POD: Final = compute_pod("SLURM_SACK_JWKS", "SLURM_SACK_KEY")


@pytest.mark.parametrize(
    ("before", "ids", "why"),
    [
        (("1",), ["2", "1"], r'2 is new, .*first add it at the end, as \["1","2"\]'),
        (("1",), ["2"], "2 is new"),
        (("1", "2"), ["2"], "1 is the key that signs now: first put another key before it"),
    ],
    ids=["signs at once", "in its place", "goes while it signs"],
)
def test_a_step_of_a_rotation_that_would_cost_jobs_is_refused(
    probed: Path, before: tuple[str, ...], ids: list[str], why: str
) -> None:
    there = {"secret": with_keys(*before), "pods": [NEW_POD]}

    with pytest.raises(helm.HelmRenderError, match=f"keys.slurmKeyIds: {why}"):
        ask(probed, "slurm.checkKeys", there, keys={"slurmKeyIds": ids})


def test_a_step_of_a_rotation_waits_until_the_one_before_is_everywhere(probed: Path) -> None:
    there = {"secret": with_keys("1", "2", since=int(time.time()) - 60), "pods": [NEW_POD]}

    with pytest.raises(helm.HelmRenderError, match="less than 480 s ago, ") as refused:
        ask(probed, "slurm.checkKeys", there, keys={"slurmKeyIds": ["2", "1"]})
    left_s = re.search(r": try again in (\d+) s", str(refused.value))
    assert left_s is not None
    assert 0 < int(left_s[1]) <= 480 - 60
    ask(probed, "slurm.checkKeys", there, keys={"slurmKeyIds": ["1", "2"]})


def test_a_rotation_waits_for_slurmds_that_know_one_key_only(probed: Path) -> None:
    there = {"secret": with_keys("1"), "pods": [NEW_POD, compute_pod("SLURM_SACK_KEY")]}

    with pytest.raises(helm.HelmRenderError, match="the Pod cpu-000-001 was created by an earlier version"):
        ask(probed, "slurm.checkKeys", there, keys={"slurmKeyIds": ["1", "2"]})


@pytest.mark.parametrize(
    ("before", "ids"),
    [
        ((), ["1", "2"]),
        (("1",), ["1", "2"]),
        (("1", "2"), ["2", "1"]),
        (("2", "1"), ["2"]),
        (("2", "1"), ["2", "3"]),
        (("1", "2"), ["1"]),
    ],
)
def test_the_steps_of_a_rotation_are_taken(probed: Path, before: tuple[str, ...], ids: list[str]) -> None:
    secret = with_keys(*before, since=int(time.time()) - 481) if before else {}

    ask(probed, "slurm.checkKeys", {"secret": secret, "pods": [NEW_POD]}, keys={"slurmKeyIds": ids})


MUNGE_ID: Final = "sunk.coreweave.com/munge-key-id"


def munge_keys(probed: Path, there: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the Secret that follows *there* when the values name the key of MUNGE *name*."""
    (probed / "found.json").write_text("{}")
    (probed / "secret.json").write_text(json.dumps(there))
    values = VALUES | {"auth": {"type": "munge"}, "keys": {"mungeKeyId": name}}
    rendered = render(helm.Chart.load(probed), values, name="prod", namespace="slurm")
    found = json.loads(rendered["ConfigMap", "munge-keys"]["data"]["found"])
    data = {f"munge.{part}": found[part] for part in ("key", "next", "at") if found[part]}
    return {"metadata": {"annotations": {MUNGE_ID: found["id"]}}, "data": data}


def aged(secret: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return *secret* as if its rotation had begun *seconds* earlier."""
    at = int(base64.b64decode(secret["data"]["munge.at"])) - seconds
    return secret | {"data": secret["data"] | {"munge.at": encoded(str(at))}}


def test_a_key_of_munge_is_made_once_and_another_name_makes_the_next_one_for_three_minutes_later(
    probed: Path,
) -> None:
    one = munge_keys(probed, {}, "1")
    under_way = munge_keys(probed, one, "2")
    after = munge_keys(probed, aged(under_way, 361), "2")

    assert len(base64.b64decode(one["data"]["munge.key"])) == 128
    assert munge_keys(probed, one, "1") == one
    assert under_way["data"]["munge.key"] == one["data"]["munge.key"]
    ahead = int(base64.b64decode(under_way["data"]["munge.at"])) - time.time()
    assert 120 < ahead <= 181
    # The same values again change neither the key nor its moment, until long after it.
    assert munge_keys(probed, under_way, "2") == under_way
    assert munge_keys(probed, aged(under_way, 200), "2")["data"].keys() == under_way["data"].keys()
    assert after["data"] == {"munge.key": under_way["data"]["munge.next"]}


def test_a_key_of_munge_that_is_not_everywhere_is_not_rotated_again(probed: Path) -> None:
    under_way = munge_keys(probed, munge_keys(probed, {}, "1"), "2")

    with pytest.raises(
        helm.HelmRenderError, match=r'mungeKeyId: not all Pods have the change to "2" yet: .* s'
    ):
        ask(probed, "slurm.checkMungeKey", {"secret": under_way}, keys={"mungeKeyId": "3"})
    ask(probed, "slurm.checkMungeKey", {"secret": under_way}, keys={"mungeKeyId": "2"})
    ask(probed, "slurm.checkMungeKey", {"secret": aged(under_way, 361)}, keys={"mungeKeyId": "3"})
    assert (
        munge_keys(probed, aged(under_way, 361), "3")["data"]["munge.key"] == under_way["data"]["munge.next"]
    )


def test_the_way_to_authenticate_changes_only_while_no_slurmd_runs(probed: Path) -> None:
    conf = {"data": {"slurm.conf": "ClusterName=prod\nAuthType=auth/slurm\n"}}
    labels = {"app.kubernetes.io/instance": "prod", "app.kubernetes.io/name": "slurmd"}
    pod = {"metadata": {"name": "cpu-0", "labels": labels}}
    other = {"metadata": {"name": "web"}}

    with pytest.raises(
        helm.HelmRenderError, match=r"auth.type: slurmd of the Pod cpu-0 runs with auth/slurm"
    ):
        ask(probed, "slurm.checkAuthType", {"conf": conf, "pods": [other, pod]}, auth={"type": "munge"})
    ask(probed, "slurm.checkAuthType", {"conf": conf, "pods": [other]}, auth={"type": "munge"})
    ask(probed, "slurm.checkAuthType", {"conf": conf, "pods": [pod]}, auth={"type": "slurm"})
    ask(probed, "slurm.checkAuthType", {"conf": {}, "pods": None}, auth={"type": "munge"})


def test_tls_of_the_hooks_changes_only_while_every_compute_pod_finds_the_gateway(
    probed: Path,
) -> None:
    labels = {"app.kubernetes.io/instance": "prod", "app.kubernetes.io/name": "slurmd"}

    def pod(*volumes: dict[str, Any], **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - Kubernetes' own
        return {"metadata": {"name": "cpu-0", "labels": labels, **metadata}, "spec": {"volumes": [*volumes]}}

    new, old = pod({"name": "hooks-ca", "secret": {"secretName": "hooks-tls"}}), pod({"name": "conf"})
    going = pod(deletionTimestamp="2026-11-30T12:00:00Z")
    other = {"metadata": {"name": "web"}, "spec": {}}

    def check(*pods: dict[str, Any], before: str = "", **tls: Any) -> None:  # noqa: ANN401 - values are free-form.
        scripts = {"data": {"hooks.env": before}} if before else {}
        found = {"pods": [*pods], "scripts": scripts}
        ask(probed, "slurm.checkHooksTls", found, hookGateway={"tls": tls})

    alone = "SUNK_HOOKS_URL=https://gateway:8443\nSUNK_HOOKS_CA_FILE=/ca.crt\n"
    both = f"{alone}SUNK_HOOKS_URL_WITHOUT_TLS=http://gateway:8080\n"
    with pytest.raises(
        helm.HelmRenderError, match=r"hookGateway.tls.required: the Pod cpu-0 was created without the CA"
    ):
        check(other, new, old, existingSecret="hooks-tls")
    check(other, new, old, existingSecret="hooks-tls", required=False)
    check(other, new, going, existingSecret="hooks-tls", before=alone)
    check(other, new, going, existingSecret="hooks-tls", before=alone, required=False)
    check(other, old)
    check(other, old, new, before=both)
    with pytest.raises(
        helm.HelmRenderError,
        match=r"the Pod cpu-0 knows the CA of the Secret hooks-tls, and not that of prod-hooks-tls",
    ):
        check(other, new, generate=True)
    check(other, new, generate=True, required=False, before=both)
    for tls in ({}, {"generate": True, "required": False}):
        with pytest.raises(
            helm.HelmRenderError, match=r"the Pod cpu-0 calls the hook gateway only with TLS, .* hooks-tls,"
        ):
            check(other, new, before=alone, **tls)


@pytest.mark.parametrize(
    ("kind", "tag", "conf", "expected"),
    [
        ("none", "26.05", {}, ("topology.conf", "topology/default")),
        ("both", "26.05", {}, ("topology.yaml", "topology/default")),
        ("both", "25.05.1", {}, ("topology.yaml", "topology/default")),
        ("both", "24.11", {}, ("topology.conf", "topology/tree")),
        ("both", "sha256:0123", {}, ("topology.conf", "topology/tree")),
        ("", "26.05", {"topologyFile": "none"}, ("none", "topology/default")),
        ("", "24.11", {"topologyPlugin": "topology/block"}, ("topology.conf", "topology/block")),
    ],
)
def test_slurmctld_reads_the_topology_that_its_release_knows(
    probed: Path, kind: str, tag: str, conf: dict[str, str], expected: tuple[str, str]
) -> None:
    (probed / "found.json").write_text("{}")
    (probed / "kind").write_text(kind)
    values = VALUES | {"slurmImage": {"tag": tag}, "slurmConfig": conf}

    rendered = render(helm.Chart.load(probed), values, name="prod", namespace="slurm")

    found = json.loads(rendered["ConfigMap", "topology-of"]["data"]["found"])
    assert (found["file"], found["plugin"]) == expected


@pytest.mark.parametrize("tag", ["26.05", "sha256:0123"])
def test_a_slurmctld_that_has_topology_yaml_keeps_it_whatever_the_sunk_release_says(
    probed: Path, tag: str
) -> None:
    before = stateful_set(CHART, "controller", slurmConfig={"topologyFile": "topology.yaml"})
    (probed / "found.json").write_text("{}")
    (probed / "kind").write_text("none")
    (probed / "before.json").write_text(json.dumps(before))
    try:
        rendered = render(
            helm.Chart.load(probed), VALUES | {"slurmImage": {"tag": tag}}, name="prod", namespace="slurm"
        )
    finally:
        (probed / "before.json").write_text("{}")

    found = json.loads(rendered["ConfigMap", "topology-of"]["data"]["found"])
    assert found == {"file": "topology.yaml", "plugin": "topology/default"}
