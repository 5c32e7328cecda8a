"""What helm/slurm makes of `controller.backup.enabled`, by Helm's own engine."""

import re
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import Objects, pod_specs, render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {
    "clusterName": "prod",
    "nats": {"existingSecret": "passwords"},
    "compute": {"nodes": {"gpu": {}}},
}
SHARED: Final = {"stateVolume": {"accessModes": ["ReadWriteMany"]}}
BACKUP: Final = SHARED | {"backup": {"enabled": True}}
REBOOTS: Final = {"nodePermissions": {"enabled": True}}
SLURMCTLDS: Final = {"prod-controller": "slurmctld", "prod-backup": "slurmctld-backup"}


def made(**controller: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    return render(helm.Chart.load(CHART), VALUES | {"controller": controller}, name="prod", namespace="slurm")


def hosts(objects: Objects) -> list[str]:
    conf = objects["ConfigMap", "prod-slurm-conf"]["data"]["slurm.conf"]
    return re.findall(r"^SlurmctldHost=(.*)$", conf, re.MULTILINE)


def restarts(objects: Objects) -> dict[str, str]:
    """Return the annotation whose change restarts the Pods of a StatefulSet of slurmctld."""
    return {
        name: objects["StatefulSet", name]["spec"]["template"]["metadata"]["annotations"][
            "sunk.coreweave.com/restart"
        ]
        for name in SLURMCTLDS
        if ("StatefulSet", name) in objects
    }


def test_without_a_backup_there_is_one_slurmctld() -> None:
    objects = made()

    assert hosts(objects) == ["prod-controller-0(prod-controller)"]
    assert not [name for _, name in objects if "backup" in name]
    assert "backup" not in str(objects["NetworkPolicy", "prod-slurmctld"])


def test_a_backup_is_second_in_slurm_conf_and_mounts_the_state_of_the_first() -> None:
    objects = made(**BACKUP)

    assert hosts(objects) == ["prod-controller-0(prod-controller)", "prod-backup-0(prod-backup)"]
    first, backup = (objects["StatefulSet", name]["spec"] for name in SLURMCTLDS)
    (claim,) = first["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "volumeClaimTemplates" not in backup
    volumes = {volume["name"]: volume for volume in backup["template"]["spec"]["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": "state-prod-controller-0"}
    (slurmctld,) = backup["template"]["spec"]["containers"]
    assert slurmctld["args"] == ["/etc/sunk/scripts/start-slurmctld", "backup"]
    assert slurmctld["volumeMounts"] == first["template"]["spec"]["containers"][0]["volumeMounts"]


def test_each_slurmctld_has_pods_and_an_address_of_its_own_before_it_is_ready() -> None:
    objects = made(**BACKUP)

    for name, label in SLURMCTLDS.items():
        selector = {"app.kubernetes.io/name": label, "app.kubernetes.io/instance": "prod"}
        service = objects["Service", name]["spec"]
        assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
        assert service["selector"] == selector
        spec = objects["StatefulSet", name]["spec"]
        assert (spec["serviceName"], spec["selector"]["matchLabels"]) == (name, selector)
        assert spec["template"]["metadata"]["labels"].items() >= selector.items()
        (peers,) = objects["NetworkPolicy", f"prod-{label}"]["spec"]["ingress"]
        allowed = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in peers["from"]}
        assert {"slurmctld", "slurmctld-backup", "slurmd", "slurm-login", "slurmrestd", "slurmdbd"} <= allowed


def test_what_slurmctld_calls_lets_the_backup_in_too() -> None:
    objects = made(**BACKUP)

    slurmdbd = objects["NetworkPolicy", "prod-slurmdbd"]["spec"]["ingress"]
    assert "'slurmctld-backup'" in str(slurmdbd)
    hook_gateway = render(
        helm.Chart.load(CHART),
        VALUES | {"controller": BACKUP, "syncer": REBOOTS, "networkPolicy": {"metricsFrom": [{}]}},
        name="prod",
        namespace="slurm",
    )["NetworkPolicy", "prod-sunk-hook-gateway"]["spec"]["ingress"]
    assert "'slurmctld-backup'" in str(hook_gateway)
    # The account that may have Nodes rebooted.
    accounts = {pod_specs(objects)[name]["serviceAccountName"] for name in SLURMCTLDS}
    assert accounts == {"prod-controller"}


NODE_AFFINITY: Final[dict[str, Any]] = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
}
ANYWHERE: Final[dict[str, Any]] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}


@pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": NODE_AFFINITY}], ids=["none", "of Nodes"])
def test_both_are_never_on_one_node(affinity: dict[str, Any]) -> None:
    found = pod_specs(made(**BACKUP, affinity=affinity))["prod-backup"]["affinity"]

    (term,) = found["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "slurmctld"
    assert found.items() >= affinity.items()


def test_a_rule_of_the_values_about_other_pods_is_kept() -> None:
    assert pod_specs(made(**BACKUP, affinity=ANYWHERE))["prod-backup"]["affinity"] == ANYWHERE


def test_a_backup_restarts_slurmctld_and_no_compute_pod() -> None:
    without, with_backup = made(**SHARED), made(**BACKUP)

    assert without["NodeSet", "prod-gpu"] == with_backup["NodeSet", "prod-gpu"]
    assert len(set(restarts(with_backup).values())) == 1
    assert restarts(without)["prod-controller"] != restarts(with_backup)["prod-controller"]
    scripts = [objects["ConfigMap", "prod-scripts"]["data"] for objects in (without, with_backup)]
    assert [data["slurmctlds"] for data in scripts] == [
        "prod-controller:6817",
        "prod-controller:6817,prod-backup:6817",
    ]


@pytest.mark.parametrize("modes", [None, ["ReadWriteOnce"]], ids=["none", "ReadWriteOnce"])
def test_a_volume_that_only_one_node_mounts_is_refused(modes: list[str] | None) -> None:
    volume = {} if modes is None else {"stateVolume": {"accessModes": modes}}

    with pytest.raises(helm.HelmRenderError, match=r"controller\.backup\.enabled: .* add ReadWriteMany to"):
        made(backup={"enabled": True}, **volume)
