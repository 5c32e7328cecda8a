"""Slurm's Kubernetes objects, as values."""

from dataclasses import replace
from typing import Any

from sunk_lab.slurm.pods import (
    PodSlurm,
    SlurmdShape,
    cluster_manifests,
    conf_of,
    render_hooks_env,
    slurmd_pod_template,
)
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_lab.slurm.tokens import Keys

SLURM = PodSlurm(
    release=SLURM_24_11,
    keys=Keys(slurm=b"s", jwt=b"j"),
    hooks_url="http://10.200.0.1:8080",
    prolog="#!/bin/sh\n",
)


def found(slurm: PodSlurm, kind: str, name: str) -> dict[str, Any]:
    (manifest,) = (
        entry
        for entry in cluster_manifests(slurm)
        if (entry["kind"], entry["metadata"]["name"]) == (kind, name)
    )
    return manifest


def pod_specs(slurm: PodSlurm) -> list[dict[str, Any]]:
    return [
        entry["spec"]["template"]["spec"]
        for entry in cluster_manifests(slurm)
        if "template" in entry.get("spec", {})
    ]


def test_what_must_answer_while_a_node_is_locked_tolerates_the_lock_and_keeps_off_the_nodeset() -> None:
    assert [(spec["tolerations"], spec["nodeSelector"]) for spec in pod_specs(SLURM)] == [
        ([{"key": "sunk.coreweave.com/lock", "operator": "Exists"}], {"kubernetes.io/hostname": "node1"})
    ] * 2


def test_nothing_is_privileged_and_nobody_gets_a_token_for_the_api_server() -> None:
    specs = [*pod_specs(SLURM), slurmd_pod_template(SLURM)["spec"]]

    assert [spec["automountServiceAccountToken"] for spec in specs] == [False] * 3
    assert all("securityContext" not in container for spec in specs for container in spec["containers"])


def test_hooks_stand_in_slurm_conf_by_name_only_where_there_is_a_script() -> None:
    files = found(SLURM, "ConfigMap", "slurm")["data"]

    assert sorted(files) == ["cgroup.conf", "prolog.sh", "slurm.conf"]
    assert (conf_of(SLURM).prolog, conf_of(SLURM).epilog) == ("prolog.sh", "")


def test_slurm_never_ends_a_hook_before_the_hook_gives_up() -> None:
    slurm = replace(SLURM, hooks_deadline_s=200)

    assert conf_of(slurm).prolog_epilog_timeout_s == 230
    assert "SUNK_HOOKS_DEADLINE_S=200\n" in render_hooks_env(slurm)


def test_a_slurmd_pod_gets_the_clusters_key_but_not_the_one_that_tokens_are_made_with() -> None:
    (keys,) = (volume for volume in slurmd_pod_template(SLURM)["spec"]["volumes"] if volume["name"] == "keys")

    assert keys["secret"]["items"] == [{"key": "slurm.key", "path": "slurm.key"}]


def test_a_slurmd_registers_under_its_pods_name_at_its_pods_address() -> None:
    template = slurmd_pod_template(SLURM, SlurmdShape(cpus=2, memory_mib=1000, features=("gb200",)))

    (container,) = template["spec"]["containers"]
    assert container["args"][3:] == [
        *("-Z", "-N", "$(POD_NAME)", "--conf-server", "slurmctld:6817", "--conf"),
        "CPUs=2 RealMemory=1000 NodeAddr=$(POD_IP) Feature=gb200",
    ]
    assert container["image"] == "localhost/slurm:24.11"


def test_slurmd_is_ready_when_it_answers_itself() -> None:
    (container,) = slurmd_pod_template(SLURM)["spec"]["containers"]

    assert container["readinessProbe"] == {"tcpSocket": {"port": 6818}, "periodSeconds": 1}


def test_a_changed_setting_and_a_changed_key_make_a_new_slurmctld() -> None:
    def mark(slurm: PodSlurm) -> str:
        template = found(slurm, "StatefulSet", "slurmctld")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    others = replace(SLURM, kill_wait_s=7), replace(SLURM, keys=Keys(slurm=b"t", jwt=b"j"))

    assert mark(SLURM) == mark(replace(SLURM))
    assert len({mark(slurm) for slurm in (SLURM, *others)}) == 3
