"""Jobs that failed locks have held go on by themselves, on a real Slurm; nobody else's hold is touched."""

from functools import partial

import pytest

from sunk_runtime.testing import until
from sunk_slurm.failed_locks import REASON_PREFIX
from sunk_syncer.testing.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1, N2 = "node01", "node02"
LAST = 20
"""Of the tasks of an array. The last one has the array's number."""
MARK = f"admincomment=sunk: held: {REASON_PREFIX}: ns/web"


async def requeued_and_held(stage: Stage, *, is_marked: bool = True) -> str:
    """Have a job run, and put it back and hold it as a refused prolog does."""
    words = ("--requeue", "-D/", "-o/dev/null", "--wrap=sleep 300")
    job = stage.slurm.exec("sbatch", "--parsable", *words).strip()
    await until(lambda: "JobStarted" in stage.published(job))
    stage.slurm.exec("scontrol", "requeuehold", job)
    if is_marked:
        stage.slurm.exec("scontrol", "update", f"jobid={job}", MARK)
    await until(partial(is_held, stage, job))
    return job


def is_held(stage: Stage, job: str) -> bool:
    return (state := stage.jobs.get(job)) is not None and state.is_held


async def test_held_jobs_go_on_when_failed_locks_may_drain_again(stage: Stage) -> None:
    theirs = await requeued_and_held(stage, is_marked=False)
    kept = await requeued_and_held(stage)
    stage.slurm.exec("scontrol", "hold", kept)  # An administrator wants it to stay.
    held = await requeued_and_held(stage)
    for name in (N1, N2):
        stage.slurm.exec(
            "scontrol", "update", f"node={name}", "state=drain", f"reason={REASON_PREFIX}: ns/web"
        )
    await until(
        lambda: all((node := stage.nodes.get(name)) is not None and node.is_drain for name in (N1, N2)),
    )
    await stage.stop_syncer()
    stage.syncer.start(held_release_s="0.5")
    await until(lambda: stage.syncer.has_logged("job stays held"))
    was_held = is_held(stage, held)
    stage.slurm.exec("scontrol", "update", f"node={N1}", "state=undrain")
    await until(lambda: "JobReleased" in stage.published(held))

    assert was_held
    await until(lambda: released(stage) == [int(held)])
    shown = {job: stage.slurm.exec("scontrol", "show", "job", job) for job in (theirs, kept, held)}
    assert "AdminComment=sunk: released: k8s: prolog" in shown[held]
    assert ["Priority=0 " in shown[job] for job in (theirs, kept, held)] == [True, True, False]


def released(stage: Stage) -> list[int]:
    """The jobs that the syncer says to have released."""
    return [line["job"] for line in stage.syncer.log if line["message"] == "job released"]


def tasks(stage: Stage, array: str) -> dict[str, str]:
    """What Slurm shows of each task that is not over."""
    line = "%K %T %r"
    shown = stage.slurm.exec("squeue", "--noheader", "--array", f"--jobs={array}", f"--format={line}")
    return {words[0]: " ".join(words[1:]) for row in shown.splitlines() if (words := row.split())}


async def test_the_last_task_of_an_array_is_released_and_no_other_task_changes(stage: Stage) -> None:
    await stage.stop_syncer()
    stage.syncer.start(held_release_s="0.5", job_refresh_s="1")  # A mark is seen when a job is looked at.
    script = f"[ $SLURM_ARRAY_TASK_ID -le {LAST - 6} ] || sleep 600"
    words = ("--requeue", f"--array=1-{LAST}", "-n1", "-c1", "--mem=10", "-D/", "-o/dev/null")
    array = stage.slurm.exec("sbatch", "--parsable", *words, f"--wrap={script}").strip()
    await until(lambda: list(tasks(stage, array).values()) == ["RUNNING None"] * 6)
    theirs, ours = f"{array}_{LAST - 1}", f"{array}_{LAST}"
    for task in (theirs, ours):
        stage.slurm.exec("scontrol", "requeuehold", task)
    held = "PENDING job requeued in held state"
    await until(lambda: [tasks(stage, array).get(str(task)) for task in (LAST - 1, LAST)] == [held] * 2)
    others = {task: told for task, told in tasks(stage, array).items() if int(task) < LAST - 1}

    stage.slurm.exec("scontrol", "update", f"jobid={ours}", MARK)

    await until(lambda: "JobReleased" in stage.published(array))
    now = tasks(stage, array)
    assert {task: now[task] for task in others} == others == dict.fromkeys(others, "RUNNING None")
    assert now[str(LAST - 1)] == held
    shown = stage.slurm.exec("scontrol", "show", "job", array)
    assert shown.count("AdminComment=sunk: released: k8s: prolog") == 1
    await until(lambda: released(stage) == [int(array)])


async def test_a_heterogeneous_job_is_released_with_all_its_components(stage: Stage) -> None:
    await stage.stop_syncer()
    stage.syncer.start(held_release_s="0.5", job_refresh_s="1")
    words = ("--requeue", "-D/", "-o/dev/null", "--wrap=sleep 600", "-n1", "--mem=10", ":", "-n1", "--mem=10")
    leader = stage.slurm.exec("sbatch", "--parsable", *words).strip()
    jobs = (leader, str(int(leader) + 1))
    await until(lambda: all("JobStarted" in stage.published(job) for job in jobs))
    stage.slurm.exec("scontrol", "requeuehold", leader)
    await until(lambda: all(is_held(stage, job) for job in jobs))

    stage.slurm.exec("scontrol", "update", f"jobid={leader}", MARK)  # As a prolog does.

    await until(lambda: all("JobReleased" in stage.published(job) for job in jobs))
    shown = stage.slurm.exec("scontrol", "show", "job", leader)
    assert shown.count("AdminComment=sunk: released: k8s: prolog") == len(jobs)
    assert "Priority=0 " not in shown
