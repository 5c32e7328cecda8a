"""Reboots of Nodes, from `scontrol reboot` on. The test is the platform: it restarts Nodes that ask for it.

A Slurm cluster has its own condition and reason here. The lab's machines go on, so slurmd is told to say
that its machine was rebooted (`slurmd -b`).
"""

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
CONDITION: Final = "example.com/Phase"
REASON: Final = "power-cycle"
MACHINE: Final = "node3"
ELSEWHERE: Final = {"nodeSelector": {"kubernetes.io/hostname": "node1"}}
"""Where all are but slurmd: a single NATS on the machine would go with it."""
WRAPPER: Final = '#!/bin/sh\nexec /usr/sbin/slurmd -b "$@"\n'


class Rebooting(Installation):
    """A cluster whose administrators may reboot Nodes."""

    def make_namespaces(self) -> None:
        super().make_namespaces()
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "slurmd-b", "namespace": "slurm"},
                "data": {"slurmd": WRAPPER},
            }
        )

    def sunk_values(self) -> dict[str, Any]:
        cluster = {"name": "prod", "namespace": "slurm", "nodePermissions": True}
        own = {"reboot": {"condition": CONDITION, "reason": REASON}}
        return super().sunk_values() | {"clusters": [cluster | own], "podDefaults": ELSEWHERE}

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["compute"]["nodes"]["cpu"] |= {
            "env": [{"name": "PATH", "value": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}],
            "volumes": [{"name": "slurmd-b", "configMap": {"name": "slurmd-b", "defaultMode": 0o755}}],
            "volumeMounts": [
                {"name": "slurmd-b", "mountPath": "/usr/local/sbin/slurmd", "subPath": "slurmd"}
            ],
        }
        values["slurmConfig"] = {"slurmdTimeout": 30}
        values["podDefaults"] = ELSEWHERE
        values["syncer"] = values["syncer"] | {
            "nodePermissions": {"enabled": True},
            "hooksAPI": {"nodeRebootCondition": CONDITION, "nodeRebootReason": REASON},
        }
        return values

    def node(self) -> str:
        """Return the Slurm node on the machine."""
        where = "jsonpath={.items[?(@.spec.nodeName=='" + MACHINE + "')].metadata.name}"
        return self.kubectl("get", "pods", "-l", "app.kubernetes.io/name=slurmd", "-o", where)

    def asked(self) -> list[dict[str, str]]:
        """Return the condition by which a reboot of the machine is asked for, if it stands there."""
        found = json.loads(self.lab.kubectl("get", "node", MACHINE, "-o", "json"))
        return [one for one in found["status"]["conditions"] if one["type"] == CONDITION]

    def state(self, node: str) -> set[str]:
        """Return what Slurm has *node* as: a state and its flags."""
        told = json.loads(self.login(f"scontrol show node {node} --json"))
        return set(told["nodes"][0]["state"])


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Rebooting]:
    """Both charts; what is no slurmd is on another Node than the one that is rebooted."""
    with reserved_lab() as lab:
        made = Rebooting(lab, slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        yield made


def comes_back(cluster: Rebooting, node: str) -> None:
    """Wait until *node* is idle, and show that it runs a job."""
    wait_for(f"{node} idle", lambda: cluster.state(node) <= {"IDLE", "DYNAMIC_NORM"}, 300)
    ran = cluster.login(f"cd /tmp && timeout 100 srun --immediate=90 -w {node} -n1 hostname")
    assert ran.strip() == node


def test_scontrol_reboot_waits_for_the_job_asks_the_platform_and_the_node_serves_again(
    cluster: Rebooting,
) -> None:
    node = cluster.node()
    submit = f"sbatch --parsable -n1 -w {node} --output=/dev/null --wrap='sleep 600'"
    job = cluster.login(submit).strip()
    wait_for("the job", lambda: cluster.login(f"squeue -h -j {job} -o %T").strip() == "RUNNING", 90)

    cluster.login(f"scontrol reboot ASAP nextstate=RESUME reason=firmware {node}")
    wait_for("the drain", lambda: "DRAIN" in cluster.state(node), 60)
    assert cluster.asked() == []

    cluster.login(f"scancel {job}")
    wait_for("the condition on the Node", lambda: bool(cluster.asked()), 120)
    (asked,) = cluster.asked()
    assert (asked["status"], asked["reason"]) == ("True", REASON)
    assert asked["message"] == f"slurm/slurm-controller-0 requested a reboot of {node}"

    cluster.restart_machine(MACHINE, CONDITION)
    comes_back(cluster, node)
    assert cluster.asked() == []


def test_a_node_whose_slurmd_is_dead_is_rebooted_by_an_administrator(cluster: Rebooting) -> None:
    node = cluster.node()
    cluster.lab.kill_node(MACHINE)
    wait_for("Slurm to miss it", lambda: "DOWN" in cluster.state(node), 240)
    assert cluster.asked() == []

    cluster.login(f"scontrol reboot nextstate=RESUME reason=hangs {node}")
    wait_for("the condition on the Node", lambda: bool(cluster.asked()), 120)

    cluster.restart_machine(MACHINE, CONDITION)
    comes_back(cluster, node)


def test_a_user_reboots_no_node(cluster: Rebooting) -> None:
    node = cluster.node()
    tried = "setpriv --reuid=2000 --regid=2000 --clear-groups scontrol reboot"

    told = cluster.login(f"{tried} {node} 2>&1 || true")

    assert "denied" in told
    assert cluster.asked() == []
