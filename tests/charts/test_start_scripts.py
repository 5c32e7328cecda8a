"""How compute and login Pods start, by their own scripts with folders of a test in place of the machine's."""

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm

SCRIPTS: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that stands for the root of a Pod."""
    for folder in ("etc/sunk/users", "etc/sunk/services"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("passwd", "group"):
        (tmp_path / "etc" / file).write_text("root:x:0:0::/root:/bin/bash\n")
        (tmp_path / "etc/sunk/users" / file).write_text("\n")
    library = (SCRIPTS / "lib.sh").read_text().replace("/etc/", f"{tmp_path}/etc/")
    (tmp_path / "lib.sh").write_text(library.replace("/run/sunk-users", f"{tmp_path}/sunk-users"))
    return tmp_path


@contextmanager
def calling(machine: Path, call: str) -> Generator[None]:
    """Have *call* of the library run meanwhile."""
    script = f"set -euo pipefail\nsource {machine}/lib.sh\n{call}\nwait"
    with subprocess.Popen(["bash", "-c", script], process_group=0) as process:
        try:
            yield
        finally:
            subprocess.run(["kill", "--", f"-{process.pid}"], check=True)


def test_a_service_that_ends_well_is_started_again_after_a_moment(machine: Path) -> None:
    ran = machine / "ran"
    (machine / "etc/sunk/services/sssd.longrun").write_text(f"echo >>{ran}\n")
    with calling(machine, "start_services"):
        wait_for("a second start", lambda: ran.exists() and len(ran.read_text()) >= 2, 60, 0.05)
        starts = len(ran.read_text())

    assert starts < 10  # A machine is not kept busy by it.


def test_a_token_is_made_anew_as_soon_as_the_key_is_another(tmp_path: Path) -> None:
    key, token = tmp_path / "jwt.key", tmp_path / "token"
    key.write_bytes(b"old" * 11)
    script = (SCRIPTS / "token.py").read_text().replace("LOOK_S = 10.0", "LOOK_S = 0.05")
    (tmp_path / "token.py").write_text(script)
    arguments = [sys.executable, tmp_path / "token.py", key, token, "root", "3600"]
    with subprocess.Popen(arguments) as process:
        try:
            wait_for("a token", token.exists, 60, 0.05)
            first = token.read_bytes()
            key.write_bytes(b"new" * 11)
            wait_for("another token", lambda: token.read_bytes() != first, 60, 0.05)
        finally:
            process.terminate()

    head, body, signature = token.read_bytes().split(b".")
    made = hmac.new(b"new" * 11, head + b"." + body, hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + b"=") == made


def test_a_user_who_came_later_is_known_on_a_node_that_runs(machine: Path) -> None:
    passwd = machine / "etc/passwd"
    with calling(machine, "add_users; follow_users 0.05 &"):
        (machine / "etc/sunk/users/passwd").write_text(
            "ada:x:2000:2000::/home/ada:/bin/bash\nroot:x:1:1:::\n"
        )
        wait_for("ada", lambda: "ada" in passwd.read_text(), 60, 0.05)

    assert passwd.read_text().splitlines() == [
        "root:x:0:0::/root:/bin/bash",
        "ada:x:2000:2000::/home/ada:/bin/bash",
    ]


def test_who_is_not_in_the_values_any_more_has_no_shell_to_log_in_with_until_he_is_again(
    machine: Path,
) -> None:
    passwd, users = machine / "etc/passwd", machine / "etc/sunk/users/passwd"
    ada, bob = "ada:x:2000:2000::/home/ada:/bin/bash", "bob:x:2001:2001::/home/bob:/bin/bash"
    root = passwd.read_text().strip()
    after: list[list[str]] = []
    for values in ((ada, bob), (bob,), (bob,), (ada, bob)):
        users.write_text("".join(f"{line}\n" for line in values))
        ran = run_in(machine, "add_users; shut_out")
        assert (ran.returncode, ran.stderr) == (0, "")
        after.append(passwd.read_text().splitlines())

    gone = ada.replace("/bin/bash", "/not-in-users")
    assert after == [[root, ada, bob], [root, gone, bob], [root, gone, bob], [root, ada, bob]]
    assert not Path("/not-in-users").exists()


def test_keys_of_the_values_are_those_of_today_and_each_user_has_a_home(machine: Path) -> None:
    keys, homes = machine / "etc/sunk/authorized_keys", machine / "home"
    keys.mkdir()
    (keys / "gone").write_text("ssh-ed25519 OLD\n")
    passwd = f"me:x:{os.getuid()}:{os.getgid()}::{homes}/me:/bin/bash"
    (machine / "etc/sunk/users/me.keys").write_text("ssh-ed25519 NEW\n")
    script = f'getent() {{ echo "{passwd}"; }}\nid() {{ echo {os.getgid()}; }}\n'

    run_in(machine, script + 'install() { command install "${@/#me/$UID}"; }\nlet_users_in\nlet_users_in')

    assert [(file.name, file.read_text()) for file in keys.iterdir()] == [("me", "ssh-ed25519 NEW\n")]
    assert (homes / "me").is_dir()


def run_in(machine: Path, call: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run *call* of the library to its end."""
    script = f"set -euo pipefail\nsource {machine}/lib.sh\n{call}"
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env}
    return subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.getuid() != 0, reason="chown needs root")
def test_nobody_prepares_the_folder_of_anothers_job(machine: Path) -> None:
    scratch, secret = machine / "scratch", machine / "secret"
    for folder in (scratch, secret):
        folder.mkdir()
    scratch.chmod(0o777)
    (scratch / "job-8").symlink_to(secret)
    (scratch / "job-7").mkdir()

    ran = run_in(machine, f"scratch={scratch}; own_scratch; ls {scratch}")

    assert (ran.returncode, ran.stdout) == (0, "")
    assert scratch.stat().st_mode & 0o777 == 0o755
    assert len(list(scratch.iterdir())) == 2  # Put aside, hidden, until they are deleted.
    with calling(machine, f"scratch={scratch}; empty_scratch 0.05"):
        wait_for("them to be gone", lambda: not list(scratch.iterdir()), 60, 0.05)
    assert secret.is_dir()


def test_jobs_have_the_limits_of_the_values(machine: Path) -> None:
    limits = {"SUNK_LIMIT_MEMLOCK": "64", "SUNK_LIMIT_NOFILE": "100", "SUNK_LIMIT_STACK": "4096"}

    ran = run_in(machine, "set_limits; ulimit -l; ulimit -Hn; ulimit -s", **limits)

    assert ran.stdout.split() == ["64", "100", "4096"]
    assert ran.returncode == 0


def test_a_limit_that_the_container_may_not_have_is_said_with_its_value_and_the_way_out(
    machine: Path,
) -> None:
    ran = run_in(machine, "set_limits", SUNK_LIMIT_NOFILE="unlimited")

    assert ran.returncode == 1
    assert "compute.limits.nofile: this container may not have unlimited" in ran.stderr
    assert "SYS_RESOURCE" in ran.stderr


class Restarting:
    """A slurmd that registers itself, and starts again with another size as a compute Pod does."""

    def __init__(self, slurm: HostSlurm) -> None:
        self.slurm = slurm
        self.library = slurm.write_file("lib.sh", (SCRIPTS / "lib.sh").read_text())

    def start(self, cpus: int, memory_mib: int) -> None:
        """Start it, and return when Slurm has it idle."""
        forget = f"source {self.library}; forget_another_size self {cpus} {memory_mib}"
        self.slurm.exec("bash", "-euc", forget)
        self.slurm.add_node("self", cpus=cpus, memory_mib=memory_mib)
        wait_for("the node to be up", lambda: self.words()["State"].startswith("IDLE"), 60, 0.1)

    def end(self) -> None:
        self.slurm.kill_daemon("self")
        wait_for("slurmd's end", lambda: self.slurm.pid_of("self") is None, 60, 0.05)

    def words(self) -> dict[str, str]:
        """Return what Slurm says of it."""
        shown = self.slurm.exec("scontrol", "--oneliner", "show", "node", "self")
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def size(self) -> tuple[int, int]:
        """Return how many CPUs and MiB Slurm gives away."""
        words = self.words()
        return int(words["CPUTot"]), int(words["RealMemory"])


@pytest.mark.lab
def test_a_node_that_starts_with_another_size_gets_a_record_of_that_size(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    sizes: list[tuple[int, int]] = []
    for size in ((4, 8000), (3, 4000), (4, 12000)):
        node.start(*size)
        sizes.append(node.size())
        node.end()

    assert sizes == [(4, 8000), (3, 4000), (4, 12000)]


@pytest.mark.parametrize(
    ("known", "now", "is_forgotten"),
    [
        ("Gres=gpu:h100:8(S:0-1)", "gpu:h100:8", False),
        ("Gres=gpu:h100:8", "gpu:h100:8", False),
        ("Gres=gpu:h100:80", "gpu:h100:8", True),
        ("Gres=(null)", "gpu:h100:8", True),
        ("Gres=gpu:h100:8", "", False),
    ],
)
def test_a_node_with_other_gpus_gets_another_record(
    machine: Path, known: str, now: str, *, is_forgotten: bool
) -> None:
    told = f"NodeName=self CPUAlloc=0 CPUTot=4 {known} RealMemory=8000 TmpDisk=0 State=IDLE+DYNAMIC_NORM "
    scontrol = machine / "scontrol"
    scontrol.write_text(f'#!/bin/bash\n[[ $1 == delete ]] && echo deleted || echo "{told}"\n')
    scontrol.chmod(0o755)

    ran = run_in(machine, f"PATH={machine}:$PATH; forget_another_size self 4 8000 '{now}'")

    assert ran.stdout == ("deleted\n" if is_forgotten else "")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("reason", "size"), [("bad dimm", (4, 8000)), ("k8s: pod pending deletion", (3, 4000))]
)
def test_a_drain_of_somebodys_outlives_a_change_of_size(
    slurm_lab: HostSlurm, reason: str, size: tuple[int, int]
) -> None:
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    slurm_lab.exec("scontrol", "update", "nodename=self", "state=drain", f"reason={reason}")
    node.end()
    node.start(3, 4000)

    assert node.size() == size
    assert ("DRAIN" in node.words()["State"]) == (reason == "bad dimm")


@pytest.mark.lab
def test_a_node_with_a_job_keeps_its_record(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    slurm_lab.exec("sbatch", "-w", "self", "-o", "/dev/null", "--wrap", "sleep 600")
    wait_for("the job", lambda: node.words()["CPUAlloc"] != "0", 60, 0.1)

    slurm_lab.exec("bash", "-euc", f"source {node.library}; forget_another_size self 3 4000")

    assert node.size() == (4, 8000)


def follow_database(state: Path, database: str) -> None:
    """Run what comes before slurmctld, where nobody can be asked."""
    command = ["/bin/bash", SCRIPTS / "follow-database", state, database]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"}, timeout=10)


def test_slurmctld_keeps_its_number_while_the_database_is_the_same(tmp_path: Path) -> None:
    follow_database(tmp_path, "StorageHost=a\nStoragePort=3306")  # The first start: there is no number yet.
    (tmp_path / "clustername").write_text("prod|635")

    follow_database(tmp_path, "StorageHost=a\nStoragePort=3306")

    assert (tmp_path / "clustername").read_text() == "prod|635"


def is_ready(listener: socket.socket) -> str:
    """Return what the probe says of a slurmd that listens there, and is a child of this process."""
    words = str(listener.getsockname()[1]), str(os.getpid()), str(os.getuid())
    command = ("bash", SCRIPTS.parent / "slurmd-ready.sh", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout + done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_slurmd_is_ready_when_it_listens_and_takes_what_connects(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert is_ready(listener) == f"slurmd does not listen on port {port}\n"
        listener.listen()
        assert is_ready(listener) == ""
        with socket.create_connection((address, port)):  # The kernel answers, as it does for a hung slurmd.
            assert is_ready(listener) == f"slurmd does not take what connects to port {port}\n"
            listener.accept()[0].close()
            assert is_ready(listener) == ""


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root runs a process as somebody else")
LISTEN = """
import socket, sys
listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
listener.bind(("::1", int(sys.argv[1])))
listener.listen(1)
connected = socket.create_connection(("::1", int(sys.argv[1])))
print("listens", flush=True)
sys.stdin.read()
"""


@contextmanager
def job_that_listens(port: int) -> Generator[None]:
    """Have a job of nobody's listen on *port* of an address that slurmd leaves free, and take nothing."""
    command = (*NOBODY, "/usr/bin/python3", "-c", LISTEN, str(port))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"listens\n"
        yield
        job.kill()


@only_root
def test_a_job_that_listens_on_slurmds_port_and_takes_nothing_does_not_make_its_node_unready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with job_that_listens(listener.getsockname()[1]):
            said = is_ready(listener)

        assert said == ""


@only_root
def test_a_job_that_listens_where_slurmd_does_not_makes_no_node_ready() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with job_that_listens(port):
            said = is_ready(silent)

        assert said == f"slurmd does not listen on port {port}\n"


@pytest.mark.lab
def test_slurmd_itself_is_ready_whatever_a_job_listens_on(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    node.start(1, 1000)
    port, process = node.words()["Port"], str(slurm_lab.pid_of("self"))
    command = ("bash", SCRIPTS.parent / "slurmd-ready.sh", port, process)

    with job_that_listens(int(port)):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    slurm_lab.freeze_daemon("self")
    frozen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    slurm_lab.thaw_daemon("self")

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (frozen.returncode, frozen.stdout) == (1, "slurmd is stopped: its process is in state T\n")


@only_root
def test_a_jobs_process_that_is_called_slurmd_and_stopped_does_not_make_a_node_unready() -> None:
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        Path(folder).chmod(0o755)
        program = Path(folder) / "slurmd"
        shutil.copy(shutil.which("sleep") or "", program)
        with subprocess.Popen((*NOBODY, program, "600")) as job:
            about = Path(f"/proc/{job.pid}")
            wait_for("it to begin", lambda: (about / "comm").read_text() == "slurmd\n", 10, 0.01)
            job.send_signal(signal.SIGSTOP)
            wait_for("it to be stopped", lambda: ") T " in (about / "stat").read_text(), 10, 0.01)
            said = is_ready(listener)
            job.kill()

        assert said == ""


@pytest.mark.parametrize("name", ["slurmd", "slurmd-wlm"])
def test_a_slurmd_that_is_stopped_is_not_ready(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "", program)

    def state() -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]

    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen([program, "600"]) as process:
        try:
            assert is_ready(listener) == ""
            process.send_signal(signal.SIGSTOP)
            wait_for("it to be stopped", lambda: state() == "T", 10, 0.01)
            assert is_ready(listener) == "slurmd is stopped: its process is in state T\n"
            process.send_signal(signal.SIGCONT)
            wait_for("it to go on", lambda: state() == "S", 10, 0.01)
            assert is_ready(listener) == ""
        finally:
            process.kill()
