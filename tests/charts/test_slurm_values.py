"""What the chart that each Slurm cluster has refuses, how it says so, and that every value is described."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import Objects, render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
REQUEUE_BY_QOS: Final = {"enabled": True, "method": "qos"}
OLD: Final = {"image": {"tag": "24.11"}}
NEW: Final = {"image": {"tag": "26.05.2-local"}}
SET: Final[dict[str, Any]] = {"nodes": {"gpu": {}}}
ADA: Final[dict[str, Any]] = {"name": "ada", "uid": 2000}
SLURMS_OWN: Final = {"MinJobAge": "300"}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def made(chart: helm.Chart, values: dict[str, Any]) -> Objects:
    return render(chart, VALUES | values, name="prod", namespace="slurm")


@pytest.mark.parametrize(
    ("values", "where", "why"),
    [
        ({"clusterNmae": "prod"}, "''", "'clusterNmae' not allowed"),
        ({"clusterName": "Prod"}, "'/clusterName'", "does not match pattern"),
        ({"syncer": {"config": {"syncer": {"slurmNodeCleanup": True}}}}, "/config/syncer'", "not allowed"),
        (
            {"syncer": {"config": {"syncer": {"slurmNodeCleanUp": "yes"}}}},
            "'/syncer/config/syncer/slurmNodeCleanUp'",
            "want boolean",
        ),
        ({"scheduler": {"scope": {"type": "pods"}}}, "'/scheduler/scope/type'", "'cluster', 'namespace'"),
        ({"compute": {"nodes": {"GPU": {}}}}, "''", "invalid propertyName 'GPU'"),
        ({"compute": {"nodes": {"gpu": {"gresGPU": "x"}}}}, "'/compute/nodes/gpu'", "'gresGPU' not allowed"),
        ({"compute": {"nodes": {"gpu": {"replicas": -1}}}}, "/gpu/replicas'", "minimum"),
        (
            {"compute": {"nodes": {"gpu": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "2"}}}}}},
            "/rollingUpdate/maxUnavailable'",
            "does not match pattern",
        ),
        ({"scheduler": {"scope": {"namespaces": "a b"}}}, "'/scheduler/scope/namespaces'", "does not match"),
        (
            {"scheduler": {"config": {"scheduler": {"gpuTypes": {"NVIDIA H100": "h100"}}}}},
            "''",
            "invalid propertyName 'NVIDIA H100'",
        ),
        ({"controller": {"resources": {"limit": {}}}}, "'/controller/resources'", "'limit' not allowed"),
        ({"podDefaults": {"tolerations": [{"keys": "x"}]}}, "'/podDefaults/tolerations/0'", "'keys' not"),
        ({"nats": {"replicas": 2}}, "'/nats/replicas'", "must be one of 1, 3"),
        ({"slurmConfig": {"killWait": 5}}, "'/slurmConfig/killWait'", "minimum: got 5, want 10"),
        (
            {"slurmConfig": {"hookDeadline": 3601}},
            "'/slurmConfig/hookDeadline'",
            "maximum: got 3,601, want 3,600",
        ),
        ({"slurmConfig": {"hookDeadline": 9}}, "'/slurmConfig/hookDeadline'", "minimum: got 9, want 10"),
        ({"slurmConfig": {"preemption": "gang"}}, "'/slurmConfig/preemption'", "must be one of"),
        ({"syncer": {"settings": {"POL_S": "1"}}}, "'/syncer/settings'", "'POL_S' not allowed"),
        ({"scheduler": {"settings": {"LOST_JOBS": "keep"}}}, "/settings/LOST_JOBS'", "'adopt', 'delete'"),
        ({"syncer": {"settings": {"POLL_S": "soon"}}}, "'/syncer/settings/POLL_S'", "does not match pattern"),
        ({"users": [{"name": "ada"}]}, "'/users/0'", "missing property 'uid'"),
    ],
    ids=[
        "a typo at the top",
        "a name in capitals",
        "a typo in a documented name",
        "a word for true",
        "an unknown scope",
        "a set in capitals",
        "a typo in a set",
        "fewer than no nodes",
        "a share without its sign",
        "blanks between names",
        "a GPU model with a blank",
        "a typo in resources",
        "a typo in a list",
        "two NATS servers",
        "no time to end",
        "longer for a lock than credentials may live",
        "no time for a lock",
        "an unknown way to preempt",
        "a typo in a setting",
        "an unknown word for a setting",
        "a word for seconds",
        "a user without id",
    ],
)
def test_a_wrong_value_is_refused_with_its_path(
    chart: helm.Chart, values: dict[str, Any], where: str, why: str
) -> None:
    with pytest.raises(helm.HelmValuesError) as refused:
        chart.validate_schema(VALUES | values)

    assert where in refused.value.detail
    assert why in refused.value.detail


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"clusterName": ""}, "clusterName: is missing"),
        ({"slurmConfig": {"extraConfig": "killwait = 3"}}, "has killwait, .*: set slurmConfig.killWait"),
        ({"slurmConfig": {"extraConfig": "x=1\n PrologFlags=Contain"}}, "has PrologFlags, which"),
        (
            {"slurmConfig": {"extraConfig": "SlurmdParameters=l3cache_as_socket"}},
            "has SlurmdParameters, .*: set slurmConfig.slurmdParameters",
        ),
        ({"slurmConfig": {"extraConfig": "MinJobAge=2"}}, "has MinJobAge, which the services"),
        (
            {"slurmConfig": {"extraConfig": "AuthInfo=ttl=9"}},
            "has AuthInfo, .*: set slurmConfig.hookDeadline",
        ),
        (
            {"slurmConfig": {"jobContainerConfig": "BasePath=/x", "extraConfig": "#JobContainerType=none"}},
            "slurmConfig.jobContainerConfig: nothing reads it: set JobContainerType=",
        ),
        ({"slurmConfig": {"extraConfig": "include other.conf"}}, "has include, which the services"),
        (
            {"podDefaults": {"extraEnv": [{"name": "SUNK_SYNCER_POLL_S", "value": "1"}]}},
            "podDefaults.extraEnv: SUNK_SYNCER_POLL_S is a setting of one service",
        ),
        (
            {"slurmImage": {"tag": "26.05"}, "accounting": OLD},
            "accounting.image.tag: slurmdbd would be older",
        ),
        (
            {"controller": OLD, "accounting": NEW, "rest": NEW},
            "rest.image.tag: would be newer than slurmctld",
        ),
        (
            {"compute": {"nodes": {"gpu": NEW}}},
            "compute.nodes.gpu.image.tag: would be newer than slurmctld",
        ),
        ({"slurmConfig": {"selectTypeParameters": "CR_Core"}}, "does not count memory.*: set CR_Core_Memory"),
        (
            {"slurmConfig": {"preemption": "qos"}, "accounting": {"enabled": False}},
            "slurmConfig.preemption: qos needs accounting",
        ),
        (
            {"slurmConfig": {"preemption": "qos"}, "accounting": {"enforce": "associations"}},
            "accounting.enforce: without `qos` in it any user may name any QoS",
        ),
        (
            {"slurmConfig": {"messageTimeout": 60}},
            "unkillableStepTimeout: 180 is less than five times .*: set 300 or more",
        ),
        ({"compute": {"partitions": "SlurmdPort=7"}}, 'compute.partitions: "SlurmdPort=7" is not a line'),
        ({"compute": SET | {"partitions": "PartitionName=gpu Nodes=ALL"}}, "has a partition gpu, and auto"),
        (
            {"compute": SET | {"partitions": "PartitionName=a Nodes=gpu,cpu\n"}},
            'there is no set cpu in compute.nodes for "PartitionName=a Nodes=gpu,cpu": add it there',
        ),
        (
            {"compute": {"nodes": {"a": {}, "b": {"podNamePrefix": "a"}}}},
            'compute.nodes.b.podNamePrefix: compute.nodes.a has "a" too',
        ),
        ({"compute": {"nodes": {"default": {}}}}, "compute.nodes.default: is a reserved word"),
        ({"compute": {"nodes": {"a": {"definitions": ["c"]}}}}, "a.definitions: there is no compute.nodes.c"),
        ({"compute": {"nodes": {"a": {"gresGpu": "h100"}}}}, 'a.gresGpu: "h100" is not TYPE:COUNT'),
        ({"users": [ADA, ADA | {"uid": 2001}]}, r"users\[1\]: ada belongs to users\[0\] too"),
        ({"users": [ADA, ADA | {"name": "bob"}]}, r"users\[1\]: uid 2000 belongs to users\[0\] too"),
        (
            {"hooks": {"epilog": {"10-clean": "rm -rf /tmp/x"}}},
            "hooks.epilog.10-clean: does not begin with #!",
        ),
        (
            {"global": {"volumeMounts": [{"name": "home", "mountPath": "/home"}]}},
            r"global.volumeMounts\[0\].name: there is no volume home",
        ),
        ({"users": [{"name": "ada", "uid": 5}]}, r"users\[0\].uid: 5 belongs to the system"),
        (
            {"directory": {"sssdConfig": "services = nss", "existingSecret": "ldap"}},
            "directory.sssdConfig: has no effect with directory.existingSecret",
        ),
        ({"directory": {"sssdConfig": "services = pam"}}, "directory.sssdConfig: does not run nss"),
        ({"scheduler": {"userId": 0}}, "scheduler.userId: Pods through Slurm never run as root"),
        ({"scheduler": {"scope": {"namespaces": ["a"]}}}, "scheduler.scope.namespaces: has no effect"),
        ({"accounting": {"external": {"host": "db"}}}, "accounting.external.existingSecret: is missing"),
        (
            {"accounting": {"enabled": False, "enforce": "limits"}},
            "accounting.enforce: there are no associations",
        ),
        (
            {"syncer": {"extraEnv": [{"name": "SUNK_SYNCER_POLL_S", "value": "1"}]}},
            "syncer.extraEnv: SUNK_SYNCER_POLL_S is a setting: put it into syncer.settings",
        ),
        (
            {"syncer": {"config": {"syncer": {"nodesetUpdateJobPreemption": REQUEUE_BY_QOS}}}},
            "nodesetUpdateJobPreemption.qos: is missing",
        ),
    ],
)
def test_values_that_would_break_a_promise_are_refused_with_key_and_fix(
    chart: helm.Chart, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(helm.HelmRenderError, match=why):
        made(chart, values)


@pytest.mark.parametrize(
    "values",
    [
        {"accounting": NEW},
        {"slurmImage": {"tag": "26.05"}, "compute": {"nodes": {"gpu": OLD}}},
        {"slurmImage": {"tag": "sha256:00"}, "accounting": OLD},
    ],
    ids=["slurmdbd first", "nodes last", "by digest"],
)
def test_each_step_of_an_upgrade_of_slurm_is_taken(chart: helm.Chart, values: dict[str, Any]) -> None:
    assert made(chart, values)


def test_every_value_is_described_and_the_readme_says_the_same() -> None:
    text = (CHART / "values.yaml").read_text()
    readme = (CHART / "README.md").read_text()

    def leaves(level: object, path: str) -> Iterator[str]:
        if isinstance(level, dict) and level:
            for key, below in cast("dict[str, object]", level).items():
                yield from leaves(below, f"{path}.{key}".lstrip("."))
        else:
            yield path

    rows = {line.split("`")[1] for line in readme.splitlines() if line.startswith("| `")}
    untold = [
        leaf
        for leaf in leaves(yaml.safe_load(text), "")
        if not any(leaf == row or leaf.startswith(f"{row}.") for row in rows)
    ]
    assert untold == []


def test_the_readmes_table_of_sizes_has_what_slurm_conf_says_without_values(chart: helm.Chart) -> None:
    text = (CHART / "README.md").read_text()
    section = text.partition("## Sizes and time-outs\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in section.splitlines() if "|" in line]
    told = {key: default.removesuffix(" s").replace(",", "") for key, _value, default in rows[2:]}
    conf = made(chart, {})["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    words = dict(line.split("=", 1) for line in conf.splitlines() if "=" in line)

    assert told == {key: words.get(key, SLURMS_OWN.get(key)) for key in told}
    named = {"MaxJobCount", "MaxArraySize", "MinJobAge", "MaxDBDMsgs", "MessageTimeout", "SlurmdTimeout"}
    assert named | {"UnkillableStepTimeout"} <= told.keys()


def test_every_level_of_the_schema_refuses_what_it_does_not_know() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def open_levels(level: object, path: str) -> Iterator[str]:
        if isinstance(level, dict):
            named = cast("dict[str, object]", level)
            if "properties" in named and named.get("additionalProperties") is not False:
                yield path
            for key, below in named.items():
                yield from open_levels(below, f"{path}/{key}")

    # A volume has one of dozens of sources, a sidecar all that a container has: Kubernetes checks those.
    assert list(open_levels(schema, "")) == [
        "/$defs/volume",
        "/$defs/set/properties/sidecars/items",
    ]


def test_the_chart_is_well_formed_by_helms_own_lint() -> None:
    found = helm.lint(CHART, VALUES, strict=True)

    assert [message for message in found["messages"] if message["severity"] > 1] == []
