"""Two slurmdbds: what helm/slurm makes of `accounting.backup.enabled`, and what they do on a real Slurm."""

import re
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import Objects, pod_specs, render
from sunk_lab.errors import LabError
from sunk_lab.processes import wait_for
from sunk_lab.slurm import accounting
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {
    "clusterName": "prod",
    "nats": {"existingSecret": "passwords"},
    "compute": {"nodes": {"gpu": {}}},
}
BACKUP: Final = {"backup": {"enabled": True}}
FIRST, SECOND = "prod-accounting", "prod-accounting-backup"


def made(**values: Any) -> Objects:  # noqa: ANN401 - values are free-form.
    return render(helm.Chart.load(CHART), VALUES | {"accounting": values}, name="prod", namespace="slurm")


def lines(objects: Objects, name: str, file: str, key: str) -> list[str]:
    conf = objects["ConfigMap", name]["data"][file]
    return re.findall(rf"^{key}=(.*)$", conf, re.MULTILINE)


def test_without_a_backup_nothing_names_one() -> None:
    objects = made()

    assert not [name for _, name in objects if "accounting-backup" in name or "slurmdbd-backup" in name]
    assert "slurmdbd-backup" not in str(objects["NetworkPolicy", "prod-slurmctld"])
    assert not lines(objects, "prod-slurm-conf", "slurm.conf", "AccountingStorageBackupHost")
    assert not lines(objects, "prod-slurmdbd-conf", "slurmdbd.conf", "DbdBackupHost")


def test_clients_know_the_service_and_slurmdbd_the_pod_of_the_backup() -> None:
    objects = made(**BACKUP)

    assert lines(objects, "prod-slurm-conf", "slurm.conf", "AccountingStorageHost") == [FIRST]
    assert lines(objects, "prod-slurm-conf", "slurm.conf", "AccountingStorageBackupHost") == [SECOND]
    # slurmdbd compares these with the name of its host, and so knows which of the two it is.
    assert lines(objects, "prod-slurmdbd-conf", "slurmdbd.conf", "DbdHost") == [f"{FIRST}-0"]
    assert lines(objects, "prod-slurmdbd-conf", "slurmdbd.conf", "DbdBackupHost") == [f"{SECOND}-0"]


def test_the_backup_has_what_the_first_has_and_begins_after_it() -> None:
    specs = pod_specs(made(**BACKUP))
    first, second = specs[FIRST], specs[SECOND]

    (one,), (other,) = first["containers"], second["containers"]
    assert one["volumeMounts"] == other["volumeMounts"]
    assert [volume["name"] for volume in first["volumes"]] == [v["name"] for v in second["volumes"]]
    # One that stands by does not listen: no probe may end it for that, and its end need not wait.
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} & other.keys()
    *_, conf, waits = second["initContainers"]
    assert f"DbdAddr={FIRST}/" in conf["args"][-1]
    assert f"/dev/tcp/{FIRST}/6819" in waits["args"][-1]


def test_each_slurmdbd_has_pods_and_a_service_of_its_own_on_another_node() -> None:
    objects = made(**BACKUP)

    for name, label in ((FIRST, "slurmdbd"), (SECOND, "slurmdbd-backup")):
        selector = {"app.kubernetes.io/name": label, "app.kubernetes.io/instance": "prod"}
        assert objects["Service", name]["spec"]["selector"] == selector
        spec = objects["StatefulSet", name]["spec"]
        assert (spec["serviceName"], spec["selector"]["matchLabels"]) == (name, selector)
        (peers,) = objects["NetworkPolicy", f"prod-{label}"]["spec"]["ingress"]
        allowed = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in peers["from"]}
        assert {"slurmctld", "slurm-login", "slurmrestd", "slurmdbd", "slurmdbd-backup"} <= allowed
    for daemon in ("slurmctld", "mariadb"):
        assert "'slurmdbd-backup'" in str(objects["NetworkPolicy", f"prod-{daemon}"]["spec"]["ingress"])
    apart = pod_specs(objects)[SECOND]["affinity"]["podAntiAffinity"]
    (term,) = apart["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "slurmdbd"


def test_a_backup_replaces_no_compute_pod_and_does_not_restart_slurmctld() -> None:
    without, with_backup = made(), made(**BACKUP)

    assert without["NodeSet", "prod-gpu"] == with_backup["NodeSet", "prod-gpu"]
    assert without["StatefulSet", "prod-controller"] == with_backup["StatefulSet", "prod-controller"]


def test_a_backup_without_accounting_is_refused() -> None:
    with pytest.raises(helm.HelmRenderError, match=r"accounting\.backup\.enabled: there is no slurmdbd"):
        made(enabled=False, **BACKUP)


def accounted(slurm: HostSlurm, job: str) -> str:
    """Return what sacct says of the state of *job*, from the slurmdbd that answers."""
    return slurm.exec("sacct", "--noheader", "--parsable2", "-X", "-j", job, "-o", "state").strip()


def answers(slurm: HostSlurm) -> bool:
    try:
        return "lab" in slurm.exec("sacctmgr", "--noheader", "--parsable2", "show", "cluster")
    except LabError:
        return False


def is_accounted(slurm: HostSlurm, job: str) -> bool:
    try:
        return accounted(slurm, job) == "COMPLETED"
    except LabError:
        return False


def submit(slurm: HostSlurm) -> str:
    return slurm.exec("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip()


@pytest.mark.lab
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"slurm {release.version}")
def test_a_slurmdbd_that_stands_by_takes_over_and_steps_back_each_time(release: Release) -> None:
    with running_slurm(release, has_accounting=True, has_accounting_backup=True) as slurm:
        log = slurm.logs / f"{accounting.BACKUP}.log"

        def said(words: str) -> int:
            return log.read_text().count(words)

        jobs: list[str] = []
        for turn in (1, 2):
            # It may end when it has stepped back; a kubelet starts it again.
            slurm.start_daemon(accounting.BACKUP)
            wait_for("the backup to stand by", lambda: said("running in background mode"))
            wait_for("the first slurmdbd", lambda: answers(slurm))

            slurm.kill_daemon(accounting.SLURMDBD)

            wait_for("the backup to lead", lambda turn=turn: said("Taking Control") == turn)
            wait_for("the backup's answer", lambda: answers(slurm))
            slurm.exec("sacctmgr", "--immediate", "add", "account", f"backup{turn}")
            jobs.append(submit(slurm))
            wait_for("the job in accounting", lambda: is_accounted(slurm, jobs[-1]))

            slurm.start_daemon(accounting.SLURMDBD)

            wait_for("the backup to step back", lambda turn=turn: said("Primary has come back") == turn)
            jobs.append(submit(slurm))
            for job in jobs:
                wait_for(f"job {job} in accounting", lambda job=job: is_accounted(slurm, job))
            accounts = slurm.exec(
                "sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account"
            )
            assert f"backup{turn}" in accounts.split()
            wait_for(
                "the backup to be as before",
                lambda: slurm.pid_of(accounting.BACKUP) is None or said("given up control"),
            )
