"""The chart's slurm.conf, read by a real slurmctld of both releases."""

from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import render
from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.testing import slurm_lab

__all__ = ["slurm_lab"]

pytestmark = pytest.mark.lab
CHART: Final = Path(__file__).parents[2] / "helm/slurm"
EXAMPLES: Final = sorted((CHART / "examples").glob("*.yaml"))


def conf(values: dict[str, Any]) -> str:
    """Return slurm.conf as the chart makes it, for a machine without Pods and without slurmdbd."""
    objects = render(helm.Chart.load(CHART), {"clusterName": "lab"} | values, name="slurm", namespace="slurm")
    return objects["ConfigMap", "slurm-slurm-conf"]["data"]["slurm.conf"]


def at_home(text: str, port: int) -> str:
    """Return *text* with the host, ports and folders of a cluster on the machine."""
    replaced = {
        "SlurmctldHost=": "SlurmctldHost=ctl(127.0.0.1)",
        "SlurmctldPort=": f"SlurmctldPort={port}",
        "SlurmdPort=": f"SlurmdPort={port + 2}",
        "AuthAltParameters=": "AuthAltParameters=jwt_key=/lab/etc/jwt.key",
        "StateSaveLocation=": "StateSaveLocation=/lab/state",
        "SlurmctldPidFile=": "SlurmctldPidFile=/lab/pid/slurmctld.pid",
        "ClusterName=": "ClusterName=lab",  # As the state says that is there.
        "Accounting": "",
    }
    lines = (
        next((new for start, new in replaced.items() if line.startswith(start)), line)
        for line in text.splitlines()
    )
    return "\n".join(lines) + "\n"


def shown(slurm_lab: HostSlurm, values: dict[str, Any]) -> dict[str, str]:
    """Start slurmctld with the slurm.conf of *values*; return what it says of it."""
    text = conf(values)
    slurm_lab.kill_daemon("slurmctld")
    wait_for("slurmctld to end", lambda: slurm_lab.pid_of("slurmctld") is None, 10, 0.02)
    slurm_lab.write_file("slurm.conf", at_home(text, slurm_lab.controller_port))
    for name in ("cgroup.conf", "gres.conf"):
        slurm_lab.write_file(name, "")

    slurm_lab.start_daemon("slurmctld")
    wait_for("slurmctld to answer", lambda: "UP" in slurm_lab.exec("scontrol", "ping"), 20, 0.1)

    lines = slurm_lab.exec("scontrol", "show", "config").splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


LIVES_LONGER_S: Final = 60
"""Than the longest wait for a lock and the cluster's own prolog: what starts a job."""


@pytest.mark.parametrize(("deadline_s", "own_prolog_s"), [(10, 60), (60, 60), (3600, 600)])
def test_credentials_outlive_the_longest_prolog(
    slurm_lab: HostSlurm, deadline_s: int, own_prolog_s: int
) -> None:
    told = shown(
        slurm_lab,
        {"slurmConfig": {"hookDeadline": deadline_s}, "hooks": {"timeoutSeconds": own_prolog_s}},
    )
    life_s = deadline_s + own_prolog_s + LIVES_LONGER_S

    assert told["AuthInfo"] == f"ttl={life_s},cred_expire={life_s}"
    assert int(told["PrologEpilogTimeout"].split()[0]) < life_s
    assert int(told["BatchStartTimeout"].split()[0]) <= life_s


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_slurmctld_takes_the_slurm_conf_of_every_example(slurm_lab: HostSlurm, example: Path) -> None:
    told = shown(slurm_lab, yaml.safe_load(example.read_text()))
    assert told["PrologFlags"] == "Alloc,DeferBatch"
    assert told["PrologEpilogTimeout"].split()[0] == "150"
    assert told["BatchStartTimeout"].split()[0] == "180"
    assert told["MinJobAge"].split()[0] == "300"  # Slurm's own, as the table of sizes says.
    assert told["ReturnToService"] == "2"
    assert told["SelectTypeParameters"] == "CR_CORE_MEMORY"
    assert "enable_configless" in told["SlurmctldParameters"]
    log = (slurm_lab.logs / "slurmctld.log").read_text()
    assert "error: Parse" not in log
    assert "fatal" not in log
