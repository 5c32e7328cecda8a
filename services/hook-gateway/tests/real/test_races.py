"""Races of our prolog with a real Slurm, in rounds: what matters is who comes first."""

from random import Random

import pytest

from sunk_hook_gateway.testing.cluster import Cluster, until
from sunk_hook_gateway.testing.scripted import ScriptedAnswer, ScriptedGateway, refusal
from sunk_lab.config import from_environment

pytestmark = [pytest.mark.lab, pytest.mark.faults]

OVER: ScriptedAnswer = (200, {"locked": False, "state": "CANCELLED"})
REASON = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"


ROUNDS = from_environment().seeds
"""Of each race; SUNK_LAB_SEEDS=20 tells more."""


def test_a_job_cancelled_while_its_prolog_blocks_stays_cancelled_and_no_node_is_drained(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    for number in range(ROUNDS):
        gateway.answers = [refusal(drain=True, hold=False) if number % 2 == 0 else OVER]
        gateway.may_answer.clear()
        gateway.sent.clear()
        job = cluster.submit("-w", cluster.first)
        until(lambda: bool(gateway.sent))

        cluster.slurm.exec("scancel", job)
        gateway.may_answer.set()
        cluster.until_idle()

        assert cluster.job(job, "JobState") == "CANCELLED"
        assert cluster.node(cluster.first) == (False, "")
        assert not cluster.has_run(job)


def test_a_job_whose_slurmd_is_killed_while_its_prolog_blocks_never_starts_once_it_is_refused(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    for _ in range(ROUNDS):
        gateway.answers = [refusal(drain=True, hold=False)]
        gateway.may_answer.clear()
        gateway.sent.clear()
        job = cluster.submit("-w", cluster.first)
        until(lambda: bool(gateway.sent))

        cluster.slurm.kill_daemon(cluster.first)
        cluster.slurm.start_daemon(cluster.first)
        gateway.may_answer.set()
        until(lambda job=job: cluster.job(job, "JobState") == "PENDING")
        cluster.until_idle()

        assert not cluster.has_run(job)
        assert cluster.node(cluster.first) == (True, REASON)
        gateway.accept_all()
        cluster.tidy()


def test_a_job_refused_on_one_node_while_the_others_say_yes_never_starts(
    cluster: Cluster, gateway: ScriptedGateway
) -> None:
    chance = Random(1)  # noqa: S311 - no secret
    for _ in range(ROUNDS):
        refused, late = f"/v1/nodes/{cluster.third}/prehook", f"/v1/nodes/{cluster.first}/prehook"
        gateway.by_path[refused] = refusal(drain=True, hold=False)
        gateway.delays = {late: chance.random() * 2, refused: chance.random() * 2}
        job = cluster.submit("-N3")
        until(lambda: cluster.node(cluster.third) == (True, REASON))
        until(lambda job=job: cluster.job(job, "JobState") == "PENDING")
        cluster.until_idle()

        assert not cluster.has_run(job)
        assert [cluster.node(node) for node in (cluster.first, cluster.second)] == [(False, "")] * 2
        gateway.accept_all()
        cluster.tidy()
