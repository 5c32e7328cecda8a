"""What who waits at a terminal for the lock of a node is told, by a real Slurm of both releases."""

import re

import pytest

from sunk_hook_gateway.testing.cluster import Cluster, until
from sunk_hook_gateway.testing.scripted import ScriptedAnswer, ScriptedGateway

pytestmark = pytest.mark.lab

WHY = "3 Pods have to leave node node01, the last by 14:05:10 UTC"
LESS = "1 Pod has to leave node node01, the last by 14:05:10 UTC"
HELD: ScriptedAnswer = (202, {"locked": False})


def said(text: str) -> ScriptedAnswer:
    return 202, {"locked": False, "say": text}


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_who_waits_at_a_terminal_is_told_what_has_to_leave_and_again_when_that_changes(
    cluster: Cluster, gateway: ScriptedGateway, command: str
) -> None:
    gateway.answers = [said(WHY), HELD, HELD, said(LESS), HELD]
    shown = f"/lab/spool/shown-{command}"
    line = f"{command} -w {cluster.first} touch /lab/spool/ran-{command}; echo ended=$?"

    cluster.slurm.exec("touch", shown)
    cluster.slurm.exec("bash", "-c", f"({line}) >{shown} 2>&1 </dev/null &")
    until(lambda: LESS in cluster.slurm.exec("cat", shown))
    has_run = cluster.has_run(command)
    gateway.accept_all()
    until(lambda: "ended=" in cluster.slurm.exec("cat", shown))

    lines = cluster.slurm.exec("cat", shown).splitlines()
    job = gateway.sent[0][2]["job"]
    waits = [line for line in lines if "waits" in line]
    assert waits == [f"{command}: job {job} waits: {text}" for text in (WHY, LESS)]
    assert not has_run
    assert "ended=0" in lines
    calls = [body["said"] for path, _, body in gateway.sent if path.endswith("prehook")]
    assert calls[:5] == ["", WHY, WHY, WHY, LESS]


def test_a_batch_job_has_nobody_to_tell(cluster: Cluster, gateway: ScriptedGateway) -> None:
    gateway.answers = [said(WHY), HELD, HELD, (200, {"locked": True})]

    job = cluster.submit("-w", cluster.first)

    until(lambda: cluster.has_run(job))
    calls = [body.get("said") for path, _, body in gateway.sent if path.endswith("prehook")]
    assert calls[:3] == ["", None, None]
    assert not re.search(r"notify", (cluster.slurm.logs / "slurmctld.log").read_text(), re.IGNORECASE)
