"""Slurm's Prolog and Epilog, as the chart has them: scripts end in time, and the node is given back."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SCRIPTS: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts"
ENDED: Final = 124  # What timeout(1) says of what it has ended.


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder that stands for /etc/sunk of a node, with hooks that leave a mark."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/hooks.env").write_text("SUNK_HOOKS_SCRIPTS_S=1\n")
    write(tmp_path / "scripts/end-processes", "#!/bin/bash\n")  # Those who run the tests have processes here.
    task_prolog = (SCRIPTS / "task-prolog").read_text()
    write(tmp_path / "scripts/task-prolog", task_prolog.replace("/local/scratch", f"{tmp_path}/scratch"))
    for kind in ("prolog", "epilog"):
        (tmp_path / f"{kind}.d").mkdir()
        wrapper = (SCRIPTS / kind).read_text().replace("/etc/sunk", str(tmp_path))
        wrapper = wrapper.replace("/local/scratch", f"{tmp_path}/scratch")
        write(tmp_path / f"scripts/{kind}", wrapper)
        write(tmp_path / f"scripts/{kind}.sh", f"#!/bin/bash\ntouch {tmp_path}/called-{kind}\n")
    return tmp_path


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_a_script_that_never_ends_is_ended_and_has_failed(node: Path, kind: str) -> None:
    write(node / f"{kind}.d/50-hangs", "#!/bin/bash\nsleep 600\n")

    ended = subprocess.run(
        [node / "scripts" / kind], check=False, capture_output=True, text=True, timeout=240
    )

    assert ended.returncode == ENDED
    assert f"50-hangs: exit status {ENDED}" in ended.stderr
    assert (node / f"called-{kind}").exists()


def test_scripts_run_in_their_names_order_and_the_first_failure_is_told(node: Path) -> None:
    for name, status in (("20-b", 3), ("10-a", 0), ("30-c", 4)):
        write(node / f"epilog.d/{name}", f"#!/bin/bash\necho {name} >>{node}/ran\nexit {status}\n")

    ended = subprocess.run([node / "scripts/epilog"], check=False, timeout=240)

    assert ended.returncode == 3
    assert (node / "ran").read_text().split() == ["10-a", "20-b", "30-c"]
    assert (node / "called-epilog").exists()


@pytest.mark.parametrize(("locked", "status", "runs"), [(0, 0, True), (3, 0, False), (1, 1, False)])
def test_scripts_of_a_prolog_run_only_where_its_node_is_locked(
    node: Path, locked: int, status: int, *, runs: bool
) -> None:
    write(node / "scripts/prolog.sh", f"#!/bin/bash\n[[ $SUNK_HOOKS_NOT_LOCKED == 3 ]] && exit {locked}\n")
    write(node / "prolog.d/10-a", f"#!/bin/bash\ntouch {node}/ran\n")

    assert subprocess.run([node / "scripts/prolog"], check=False, timeout=240).returncode == status
    assert (node / "ran").exists() == runs


def test_each_job_has_a_folder_of_its_own_until_its_epilog(node: Path) -> None:
    (node / "scratch").mkdir()
    folder = node / "scratch/job-7"
    user = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_GID": str(os.getgid())}

    assert subprocess.run([node / "scripts/prolog"], check=False, timeout=240, env=user).returncode == 0
    (folder / "big").write_text("data")
    mode = folder.stat().st_mode & 0o777
    assert subprocess.run([node / "scripts/epilog"], check=False, timeout=240, env=user).returncode == 0

    (aside,) = (node / "scratch").iterdir()
    assert (mode, aside.name.startswith(".gone-7-")) == (0o700, True)


def user_of(job: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "PATH": "/usr/bin:/bin",
    }


def test_a_job_that_finds_no_room_for_its_folder_runs_without_one_and_says_so(node: Path) -> None:
    (node / "scratch").mkdir()
    prolog = node / "scripts/prolog"
    write(prolog, prolog.read_text().replace("install -d", "false -d"))  # No space left on device.

    ran = subprocess.run([prolog], check=False, timeout=240, env=user_of("7"), capture_output=True, text=True)
    told, others = (
        subprocess.run(
            [node / "scripts/task-prolog"],
            check=True,
            env=user_of("7") | {"SLURM_LOCALID": task},
            capture_output=True,
        )
        for task in ("0", "1")
    )

    assert others.stdout == b""
    assert (ran.returncode, "job-7 cannot be made" in ran.stderr) == (0, True)
    assert told.stdout.startswith(b"print sunk: ")
    assert (node / "called-prolog").exists()


def test_a_job_whose_number_is_given_once_more_has_nothing_of_the_one_before(node: Path) -> None:
    scratch = node / "scratch"
    (scratch / "job-7").mkdir(parents=True)
    (scratch / "job-7/secret").write_text("of another user")
    (scratch / "job-8").symlink_to(node / "scripts")

    for job in ("7", "8"):
        assert subprocess.run([node / "scripts/prolog"], check=False, env=user_of(job)).returncode == 0

    assert {folder.name for folder in scratch.glob("job-*")} == {"job-7", "job-8"}
    assert not any((scratch / "job-8").iterdir())
    assert not (scratch / "job-8").is_symlink()
    assert [file.parent.name[:7] for file in scratch.glob(".gone-*/secret")] == [".gone-7"]
    told = subprocess.run([node / "scripts/task-prolog"], check=True, env=user_of("7"), capture_output=True)
    assert told.stdout.decode() == f"export TMPDIR={scratch}/job-7\n"


def test_what_cannot_be_put_aside_is_not_handed_on_to_the_next_job_of_its_number(node: Path) -> None:
    (node / "scratch/job-7").mkdir(parents=True, mode=0o755)
    (node / "scratch/job-7/secret").write_text("of another user")
    prolog = node / "scripts/prolog"
    write(prolog, prolog.read_text().replace("mv -T", "false -T"))

    ran = subprocess.run([prolog], check=False, timeout=240, env=user_of("7"), capture_output=True, text=True)

    assert (ran.returncode, "job-7 cannot be made" in ran.stderr) == (0, True)
    assert (node / "scratch/job-7").stat().st_mode & 0o777 == 0o755  # Neither its mode nor its owner changed.


def test_a_late_epilog_leaves_the_folder_of_anothers_job_of_its_number(node: Path) -> None:
    (node / "scratch/job-7").mkdir(parents=True)
    late = user_of("7") | {"SLURM_JOB_UID": str(os.getuid() + 1)}

    assert subprocess.run([node / "scripts/epilog"], check=False, timeout=240, env=late).returncode == 0

    assert [folder.name for folder in (node / "scratch").iterdir()] == ["job-7"]


def test_without_a_volume_for_it_no_job_has_a_folder(node: Path) -> None:
    user = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0"}

    for kind in ("prolog", "epilog"):
        assert subprocess.run([node / f"scripts/{kind}"], check=False, timeout=240, env=user).returncode == 0

    assert not (node / "scratch").exists()


LEADERLESS: Final = """
import ctypes, os, threading, time
os.setuid(64100)
threading.Thread(target=time.sleep, args=(600,)).start()
print("here", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""
"""A process whose first thread has ended: it is called a zombie, and goes on."""


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_a_process_that_is_called_a_zombie_is_looked_for_in_its_other_threads() -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "64100", "SLURMD_NODENAME": "gpu-1", "PATH": "/usr/bin:/bin"}
    wait = "until grep -q '^State:.Z' /proc/$!/status; do sleep 0.1; done"
    run = f'{sys.executable} -c "$1" & {wait}; bash {SCRIPTS}/end-processes; echo status $?; kill -KILL $!'

    told = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", run, "run", LEADERLESS],
        check=True,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )

    # No Slurm says here whether the user has another job: so the process stays, and the node is drained.
    assert "slurmctld does not say" in told.stderr
    assert told.stdout.split() == ["here", "status", "1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "COMPLETING"])
def test_a_process_of_a_user_with_another_job_stays_whatever_the_state_of_that_job(
    tmp_path: Path, state: str
) -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "64100", "SLURMD_NODENAME": "gpu-1", "PATH": "/usr/bin:/bin"}
    squeue = tmp_path / "squeue"
    # As the real one, whose filter of states compares the whole word of a job's state.
    by_state = 'for word; do [[ $word != --states=* || ,${word#*=}, == *,"$state",* ]] || exit 0; done'
    squeue.write_text(f"#!/bin/bash\nstate={state}\n{by_state}\necho 64100 $state\n")
    squeue.chmod(0o755)
    run = f"""
mount --bind {tmp_path} /usr/local/sbin
setpriv --reuid=64100 --clear-groups env -i sleep 600 &
until grep -q '^Uid:.64100' /proc/$!/status; do sleep 0.1; done
bash {SCRIPTS}/end-processes >/dev/null 2>&1
echo status $?
kill -0 $! 2>/dev/null && kill -KILL $! && echo stayed
"""

    told = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", run],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )

    stays = [] if state == "COMPLETING" else ["stayed"]
    assert told.stdout.split() == ["status", "0", *stays]


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("down|bad dimm", "; was down: bad dimm"),
        ("down*|bad dimm : Not responding", "; was down: bad dimm : Not responding"),
        ("down|k8s: requeue of job 7", "; was down: k8s: requeue of job 7"),
        ("drained|k8s: pod pending deletion; was down: bad dimm", "; was down: bad dimm"),
        ("down|bad dimm\ndown|bad dimm", "; was down: bad dimm"),
        ("down|none", ""),
        ("drained|k8s: cordon", ""),
        ("mixed|none", ""),
    ],
)
def test_a_node_that_is_down_keeps_why_when_a_process_on_it_does_not_end(
    tmp_path: Path, shown: str, kept: str
) -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "64100", "SLURMD_NODENAME": "gpu-1", "PATH": "/usr/bin:/bin"}
    for name, does in (
        ("squeue", "exit 0"),
        ("sinfo", f"echo {shlex.quote(shown)}"),
        ("scontrol", f'echo "$*" >{tmp_path}/told'),
    ):
        write(tmp_path / name, f"#!/bin/bash\n{does}\n")
    script = (SCRIPTS / "end-processes").read_text()
    impatient = script.replace("kill -KILL", "true").replace("until=$((SECONDS + 5))", "until=$SECONDS")
    write(tmp_path / "end-processes", impatient)
    run = f"""
mount --bind {tmp_path} /usr/local/sbin
setpriv --reuid=64100 --clear-groups env -i sleep 600 &
until grep -q '^Uid:.64100' /proc/$!/status; do sleep 0.1; done
bash {tmp_path}/end-processes
echo status $? process $!
kill -KILL $!
"""

    ran = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", run],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )

    _, status, _, process = ran.stdout.split()
    reason = f"sunk: processes of job 7 (user 64100) do not end: {process}{kept}"
    assert (status, (tmp_path / "told").read_text()) == (
        "1",
        f"update nodename=gpu-1 state=drain reason={reason}\n",
    )
