"""How compute and login Pods start, by their own scripts with folders of a test in place of the machine's."""

import base64
import hashlib
import hmac
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, SLURM_24_11
from sunk_lab.slurm.roots import INSTANCE
from sunk_lab.slurm.testing import running_slurm

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
    # As a container starts it: no trap of a shell hears a signal that who runs the tests (nohup) has ignored.
    with subprocess.Popen(["env", "--default-signal=HUP", "bash", "-c", script], process_group=0) as process:
        try:
            yield
        finally:
            subprocess.run(["kill", "--", f"-{process.pid}"], check=True)


@pytest.mark.parametrize(
    ("may", "place", "is_there"),
    [
        pytest.param("true", "new/bin", True, id="a folder that is missing"),
        pytest.param("true", "old/bin", True, id="a link that is there already"),
        pytest.param("true", "file/bin", False, id="no folder at all"),
        pytest.param("false", "new/bin", False, id="nobody may ask"),
    ],
)
def test_a_login_node_has_the_program_and_starts_where_it_cannot_have_it(
    machine: Path, may: str, place: str, *, is_there: bool
) -> None:
    (machine / "hooks.env").write_text(f"SUNK_LOGIN_EXPLAIN={may}\n")
    (machine / "sunkctl.py").write_text("#!/bin/sh\n")
    (machine / "file").touch()
    (machine / "old/bin").mkdir(parents=True)
    (machine / "old/bin/sunkctl").symlink_to("/nowhere")
    script = (
        f"set -euo pipefail\nsource {machine}/lib.sh\nadd_sunkctl {machine} {machine}/{place}\necho starts"
    )

    env = {"PATH": "/usr/bin:/bin"}  # Without a sunkctl.
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)

    assert done.stdout == "starts\n"
    assert (machine / place / "sunkctl").exists() == is_there
    assert ("users can call" in done.stderr) == (may == "true" and not is_there)


SSSD: Final = """#!/bin/bash
rm -f {folder}/lasts
echo $$ >{folder}/pid
echo $(cat {folder}/etc/sssd/sssd.conf) >>{folder}/ran
! grep -q bad {folder}/etc/sssd/sssd.conf || exit 4
touch {folder}/lasts
exec sleep 1000
"""
"""One that accepts every configuration but a bad one."""


@pytest.fixture
def sssd(tmp_path: Path) -> Generator[Callable[[], subprocess.Popen[bytes]]]:
    """What starts the container's script, with a folder in place of the machine and without ten seconds."""
    for folder in ("etc/sssd", "etc/sunk/directory", "var/lib/sss", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/sssd").write_text(SSSD.format(folder=tmp_path))
    (tmp_path / "bin/sssd").chmod(0o755)
    script = (SCRIPTS / "start-sssd").read_text().replace("sleep 5 &", "sleep 0.1 &")
    lasts = "((SECONDS - started >= 10))"
    assert lasts in script
    script = script.replace(lasts, f"[[ -e {tmp_path}/lasts ]]")
    for place in ("/etc/", "/var/"):
        script = script.replace(f" {place}", f" {tmp_path}{place}").replace(
            f"={place}", f"={tmp_path}{place}"
        )
    (tmp_path / "start").write_text(script)
    env = {"PATH": f"{tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["bash", tmp_path / "start"], env=env, process_group=0))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(10)


def test_an_sssd_that_refuses_a_changed_configuration_goes_on_with_the_one_of_before(
    tmp_path: Path, sssd: Callable[[], subprocess.Popen[bytes]]
) -> None:
    config, ran = tmp_path / "etc/sunk/directory/sssd.conf", tmp_path / "ran"
    config.write_text("good")
    process = sssd()
    wait_for("an accepted configuration", (tmp_path / "etc/sssd/accepted").exists)

    config.write_text("bad")
    wait_for("the old one", lambda: ran.read_text().split() == ["good", "bad", "good"])
    config.write_text("better")
    wait_for("the next one", lambda: ran.read_text().split() == ["good", "bad", "good", "better"])

    assert process.poll() is None


def test_an_sssd_that_ends_is_started_again_and_one_that_never_ran_ends_its_container(
    tmp_path: Path, sssd: Callable[[], subprocess.Popen[bytes]]
) -> None:
    config, ran = tmp_path / "etc/sunk/directory/sssd.conf", tmp_path / "ran"
    config.write_text("bad")
    assert sssd().wait(240) == 4
    config.write_text("good")
    process = sssd()
    wait_for("an accepted configuration", (tmp_path / "etc/sssd/accepted").exists)

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    wait_for("another", lambda: ran.read_text().split() == ["bad", "good", "good"])
    assert process.poll() is None


def test_a_service_that_ends_well_is_started_again_after_a_moment(machine: Path) -> None:
    ran = machine / "ran"
    (machine / "etc/sunk/services/sssd.longrun").write_text(f"echo >>{ran}\n")
    with calling(machine, "start_services"):
        wait_for("a second start", lambda: ran.exists() and len(ran.read_text()) >= 2, 60, 0.05)
        starts = len(ran.read_text())

    assert starts < 10  # A machine is not kept busy by it.


def test_each_cpu_makes_namespaces_until_one_can_be_kept(machine: Path) -> None:
    kept, made, fakes = machine / "kept", machine / "made-by", machine / "bin"
    fakes.mkdir()
    enough = f"(($(wc -l <{made}-$CPU) >= 6))"
    called = {
        "mount": "exit 0",
        "umount": "exit 0",
        "taskset": 'CPU=$2 exec "${@:3}"',
        "unshare": f"[[ $1 != --mount=* ]] || {{ {enough}; exit; }}; echo >>{made}-$CPU",
    }
    for name, what in called.items():
        (fakes / name).write_text(f"#!/bin/bash\n{what}\n")
        (fakes / name).chmod(0o755)
    library = (machine / "lib.sh").read_text().replace("{1..100}", "{1..4}")
    library = library.replace("/run/sunk-namespaces", str(kept)).replace("/proc/self/", f"{machine}/")
    (machine / "lib.sh").write_text(library)
    (machine / "status").write_text("Cpus_allowed:\tb\nCpus_allowed_list:\t0-1,3\nMems_allowed_list:\t0\n")

    call = f"PATH={fakes}:$PATH; sleep 600 & other=$!; outrun_namespaces; kill $other"
    script = f"set -euo pipefail; source {machine}/lib.sh; {call}"
    subprocess.run(["bash", "-c", script], check=True, timeout=240)

    # One lot was too little, and what else runs in the background was not waited for.
    lots = {file.name: len(file.read_text()) for file in machine.glob("made-by-*")}
    assert lots == {"made-by-0": 8, "made-by-1": 8, "made-by-3": 8}
    assert not kept.exists()


def test_a_token_is_made_anew_as_soon_as_the_key_is_another(tmp_path: Path) -> None:
    key, token, users = (tmp_path / name for name in ("jwt.key", "token", "users.json"))
    key.write_bytes(b"old" * 11)
    script = (SCRIPTS / "token.py").read_text().replace("LOOK_S = 10.0", "LOOK_S = 0.05")
    (tmp_path / "token.py").write_text(script)
    arguments = [sys.executable, tmp_path / "token.py", key, token, "root", "3600", users, "64100", "1001"]
    with subprocess.Popen(arguments) as process:
        try:
            wait_for("a token", token.exists, 60, 0.05)
            first = token.read_bytes()
            key.write_bytes(b"new" * 11)
            wait_for("another token", lambda: token.read_bytes() != first, 60, 0.05)
        finally:
            process.terminate()

    everybody = {"root": token.read_text()} | json.loads(users.read_text())
    assert everybody.keys() == {"root", "64100", "1001"}
    assert users.stat().st_mode & 0o777 == 0o600
    for whose, text in everybody.items():
        head, body, signature = text.encode().split(b".")
        made = hmac.new(b"new" * 11, head + b"." + body, hashlib.sha256).digest()
        assert base64.urlsafe_b64decode(signature + b"=") == made
        claims = json.loads(base64.urlsafe_b64decode(body + b"=="))
        assert (claims["sun"], claims["exp"] - claims["iat"]) == (whose, 3600)


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


@pytest.mark.parametrize("before", ["one set", None])
def test_a_daemon_reads_another_set_of_keys_and_none_that_is_empty(machine: Path, before: str | None) -> None:
    keys, said, looks = machine / "slurm.jwks", machine / "said", machine / "looks"
    if before is not None:
        keys.write_text(before)
    said.touch()
    looks.touch()
    sleep = f"sleep() {{ echo >>{looks}; command sleep 0.02; }}"
    daemon = f"trap 'echo \"read $(cat {keys})\" >>{said}' HUP; while :; do command sleep 0.02; done"
    with calling(machine, f"{sleep}; SLURM_SACK_JWKS={keys}; follow_keys 0; {daemon}"):
        wait_for("a look", lambda: len(looks.read_text()) > 0, 60, 0.01)
        for content in ("", "another set", "", "a third set"):
            seen = len(looks.read_text())
            new = machine / "new"
            new.write_text(content)
            new.replace(keys)
            wait_for("looks", lambda seen=seen: len(looks.read_text()) > seen + 2, 60, 0.01)
            wait_for(content, lambda text=content: text in said.read_text(), 60, 0.01)

    assert said.read_text() == "read another set\nread a third set\n"


MUNGED: Final = """#!/bin/bash
# Stands for munged, which the machine of a test need not have: says when it started, with which key.
for word; do [[ $word != --key-file=* ]] || echo "$EPOCHSECONDS $(<"${word#*=}")" >>"$SAID"; done
exec sleep 600
"""


def test_munged_starts_again_with_the_next_key_at_its_moment_and_not_before(tmp_path: Path) -> None:
    secret, own, run, programs = (tmp_path / name for name in ("secret", "own", "run", "bin"))
    for folder in (secret, own, run, programs):
        folder.mkdir()
    (programs / "munged").write_text(MUNGED)
    (programs / "munged").chmod(0o755)
    (secret / "munge.key").write_text("first")
    said = tmp_path / "said"
    env = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin", "SAID": str(said)}
    with subprocess.Popen(["bash", SCRIPTS / "start-munged", secret, own, run], env=env) as starting:
        try:
            wait_for("its start", said.is_file, 60, 0.01)
            at = int(time.time()) + 3
            (secret / "munge.next").write_text("second")
            (secret / "munge.at").write_text(str(at))
            wait_for("the next key", lambda: "second" in said.read_text(), 60, 0.01)
            assert (own / "key").stat().st_mode & 0o777 == 0o600
        finally:
            starting.terminate()
        assert starting.wait(60) == 0

    (_, first), (moment, second) = (line.split() for line in said.read_text().splitlines())
    assert (first, second) == ("first", "second")
    assert int(moment) >= at


def run_in(machine: Path, call: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run *call* of the library to its end."""
    script = f"set -euo pipefail\nsource {machine}/lib.sh\n{call}"
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env}
    return subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)


def add_program(machine: Path, name: str, does: str) -> None:
    """Have the program *name* do what the bash of *does* says."""
    (machine / name).write_text(f"#!/bin/bash\n{does}\n")
    (machine / name).chmod(0o755)


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


STUBS: Final = """
for name in install_key {add,follow}_users set_limits start_services {own,empty}_scratch follow_keys; do
    eval "$name() { :; }"
done
with_sackd() { "$@"; }
settle() { gres='' topology=''; }
conf_servers() { echo slurmctld; }
slurmd() { printf '%s\\n' "$@"; }
exec() { "$@"; }
"""
"""What start-slurmd does besides adding up the size of its node."""


@pytest.mark.parametrize(
    ("folder", "given"),
    [("scratch", ""), ("none", ""), ("scratch", "TmpDisk=7")],
    ids=["own", "none", "given"],
)
def test_slurm_knows_the_size_of_scratch(machine: Path, folder: str, given: str) -> None:
    scratch = machine / "scratch"
    scratch.mkdir()
    library = machine / "lib.sh"
    library.write_text(f"{library.read_text()}{STUBS}\nscratch={machine / folder}\n")
    script = machine / "start-slurmd"
    script.write_text((SCRIPTS / script.name).read_text().replace("/etc/sunk/scripts/", f"{machine}/"))
    (machine / "check.sh").write_text("")
    env = {"SUNK_MEMORY_MIB": "8000", "SUNK_RESERVED_MIB": "0", "SUNK_CPUS": "4", "SUNK_FEATURES": "cpu"}
    env |= {"POD_NAME": "self", "POD_IP": "192.0.2.1", "SUNK_NODE_CONF": given, "PATH": "/usr/bin:/bin"}

    ran = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=True)

    disk = os.statvfs(scratch)
    size_mib = -(-disk.f_blocks * disk.f_frsize // 2**20)  # Rounded up, as df does.
    wanted = given or f"TmpDisk={size_mib if folder == 'scratch' else 0}"
    assert [word for word in ran.stdout.split() if word.startswith("TmpDisk=")] == [wanted]


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
    sinfo = machine / "sinfo"
    sinfo.write_text("#!/bin/bash\necho none\n")
    sinfo.chmod(0o755)

    ran = run_in(machine, f"PATH={machine}:$PATH; forget_another_size self 4 8000 '{now}'")

    assert ran.stdout == ("deleted\n" if is_forgotten else "")


@pytest.mark.parametrize(
    ("state", "reason", "returns", "is_forgotten"),
    [
        ("IDLE+DRAIN", "bad dimm", 1, False),
        ("DOWN", "bad dimm", 0, False),
        ("DOWN", "bad dimm", 1, False),
        ("DOWN", "bad dimm : Not responding", 1, False),
        ("DOWN+DRAIN", "k8s: pod pending deletion; was down: bad dimm", 1, False),
        # Slurm has it up as soon as its slurmd registers, whoever set it down.
        ("DOWN", "bad dimm", 2, True),
        ("DOWN+DRAIN", "k8s: pod pending deletion; was down: bad dimm", 2, True),
        ("DOWN+DRAIN", "bad dimm", 2, False),
        # No person set these down.
        ("DOWN", "Not responding", 1, True),
        ("DOWN+DRAIN", "k8s: pod pending deletion; was down: Not responding", 1, True),
        ("DOWN+DRAIN", "k8s: pod terminated", 1, True),
        ("DOWN", "k8s: requeue 7", 1, True),
        ("DOWN+DRAIN", "k8s: cordon; was down: k8s: requeue 7", 1, True),
        ("DOWN", "none", 1, True),
        # What is over, and what only sounds so.
        ("IDLE+DRAIN", "k8s: pod not ready; was down: bad dimm", 1, True),
        ("IDLE+POWERED_DOWN", "bad dimm", 1, True),
    ],
)
def test_a_node_that_somebody_set_down_keeps_its_record_until_slurm_has_it_up(
    machine: Path, state: str, reason: str, returns: int, *, is_forgotten: bool
) -> None:
    told = f"NodeName=self CPUAlloc=0 CPUTot=4 Gres=(null) RealMemory=8000 TmpDisk=0 State={state} Reason=x"
    conf = machine / "slurm.conf"
    conf.write_text(f"ReturnToService={returns}\n")
    for name, what in (
        ("scontrol", f'[[ $1 == delete ]] && echo deleted || echo "{told}"'),
        ("sinfo", f'echo "{reason}"'),
    ):
        (machine / name).write_text(f"#!/bin/bash\n{what}\n")
        (machine / name).chmod(0o755)

    call = f"PATH={machine}:$PATH; forget_another_size self 3 4000"
    ran = run_in(machine, call, SLURM_CONF=str(conf))

    assert ran.stdout == ("deleted\n" if is_forgotten else "")
    assert ("keeps the former size" in ran.stderr) != is_forgotten


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
def test_a_drain_outlives_a_change_of_size_whatever_the_nodes_comment_says(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    slurm_lab.exec("scontrol", "update", "nodename=self", "state=drain", "reason=bad dimm")
    slurm_lab.exec("scontrol", "update", "nodename=self", "comment=x State=IDLE Reason=k8s: pod not ready")
    node.end()
    node.start(3, 4000)

    assert node.size() == (4, 8000)
    shown = slurm_lab.exec("sinfo", "-h", "-N", "-n", "self", "-O", "StateComplete:60,Reason:60")
    assert ("drain" in shown[:60], shown[60:].split("\n")[0].strip()) == (True, "bad dimm")


@pytest.mark.lab
def test_a_node_with_a_job_keeps_its_record(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    slurm_lab.exec("sbatch", "-w", "self", "-o", "/dev/null", "--wrap", "sleep 600")
    wait_for("the job", lambda: node.words()["CPUAlloc"] != "0", 60, 0.1)

    slurm_lab.exec("bash", "-euc", f"source {node.library}; forget_another_size self 3 4000")

    assert node.size() == (4, 8000)


def lose_container(slurm: HostSlurm, node: str) -> None:
    """End the slurmd of *node*, and every process of its jobs, as the end of its container does."""
    slurm.kill_daemon(node)
    wait_for("slurmd's end", lambda: slurm.pid_of(node) is None, 60, 0.05)
    steps = "sed -sn '/^slurmstepd/F' /proc/[0-9]*/comm 2>/dev/null | tr -dc '0-9\\n' | xargs -r kill -9"
    slurm.exec("bash", "-c", f"{steps} || true")  # One may end by itself meanwhile.


def settle(slurm: HostSlurm) -> None:
    """Do what the next Pod of the node does before its slurmd starts."""
    script = slurm.write_file("lib.sh", (SCRIPTS / "lib.sh").read_text())
    slurm.exec("bash", "-euc", f"source {script}; settle self 4 8000")


def job_words(slurm: HostSlurm, job: str) -> dict[str, str]:
    """Return what Slurm says of *job*."""
    shown = slurm.exec("scontrol", "--oneliner", "show", "job", job)
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


@pytest.mark.lab
def test_jobs_that_went_with_a_pod_whose_end_nobody_saw_are_requeued_before_the_next_slurmd_starts(
    slurm_lab: HostSlurm,
) -> None:
    """Neither the Pod's own script nor the syncer has set the node down: Slurm has the jobs running.

    Only a node that is set down has a job end as NODE_FAIL at once. It may be up again when it is looked at:
    with ReturnToService=2 slurmctld brings it back by an answer that slurmd gave before its end.
    """
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    batch = (
        "sbatch",
        "--parsable",
        "-n1",
        "--mem=100",
        "-w",
        "self",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 600",
    )
    again, once = (slurm_lab.exec(*batch, option).strip() for option in ("--requeue", "--no-requeue"))
    for job in (again, once):
        wait_for("the job", lambda job=job: job_words(slurm_lab, job)["JobState"] == "RUNNING", 60, 0.1)
    lose_container(slurm_lab, "self")
    before = [job_words(slurm_lab, job)["JobState"] for job in (again, once)]

    settle(slurm_lab)
    after = [job_words(slurm_lab, job)["JobState"] for job in (again, once)]
    restarts = job_words(slurm_lab, again)["Restarts"]
    node.start(4, 8000)

    assert before == ["RUNNING", "RUNNING"]
    assert (after, restarts) == (["PENDING", "NODE_FAIL"], "1")


@pytest.mark.lab
@pytest.mark.parametrize("reason", ["bad dimm", "k8s: pod not ready"])
def test_a_drain_keeps_its_reason_when_lost_jobs_are_ended(slurm_lab: HostSlurm, reason: str) -> None:
    node = Restarting(slurm_lab)
    node.start(4, 8000)
    job = slurm_lab.exec(
        "sbatch", "--parsable", "-w", "self", "-o", "/dev/null", "--wrap", "sleep 600"
    ).strip()
    wait_for("the job", lambda: job_words(slurm_lab, job)["JobState"] == "RUNNING", 60, 0.1)
    slurm_lab.exec("scontrol", "update", "nodename=self", "state=drain", f"reason={reason}")
    lose_container(slurm_lab, "self")

    settle(slurm_lab)
    told = slurm_lab.exec("sinfo", "-h", "-N", "-n", "self", "-o", "%E").split("\n")[0]

    assert (job_words(slurm_lab, job)["JobState"], told) == ("PENDING", reason)
    assert "DRAIN" in node.words()["State"]


def test_a_node_that_somebody_sets_down_meanwhile_keeps_its_reason_as_its_slurmd_starts(
    machine: Path,
) -> None:
    add_program(machine, "squeue", "echo RUNNING")
    add_program(
        machine, "scontrol", f'[[ $1 != update ]] || echo "$*" >>{machine}/updates; echo "a State=DOWN b"'
    )
    add_program(machine, "sinfo", "echo bad dimm")

    ran = run_in(machine, f"PATH={machine}:$PATH; end_lost_jobs self")

    assert ran.returncode == 0
    assert not (machine / "updates").exists()


@pytest.mark.lab
def test_a_node_without_jobs_is_not_set_down_as_its_slurmd_starts(slurm_lab: HostSlurm) -> None:
    node = Restarting(slurm_lab)
    settle(slurm_lab)  # Slurm does not know it.
    node.start(4, 8000)
    node.end()

    settle(slurm_lab)

    assert "DOWN" not in node.words()["State"]


class Rotating:
    """A Slurm whose daemons read a set of keys, one after the other."""

    def __init__(self, slurm: HostSlurm) -> None:
        self.slurm = slurm
        self.folder = slurm.jwt_key.parent
        self.first = base64.b64encode((self.folder / "slurm.key").read_bytes()).decode()
        self.keys = {"1": self.first, "2": base64.b64encode(os.urandom(64)).decode()}

    def put(self, *ids: str) -> None:
        """Let the set be of *ids*, of which the first signs."""
        keys = [{"kid": name, "k": self.keys[name], "kty": "oct", "alg": "HS256"} for name in ids]
        keys[0]["use"] = "default"
        new = self.folder / "slurm.jwks.new"
        new.write_text(json.dumps({"keys": keys}))
        shutil.copystat(self.folder / "slurm.key", new)
        shutil.chown(new, (self.folder / "slurm.key").stat().st_uid)
        new.replace(self.folder / "slurm.jwks")

    def read(self, daemon: str) -> None:
        """Have *daemon* read it, as a Pod's script has it, and return when it answers again."""
        pid = self.slurm.pid_of(daemon)
        assert pid is not None  # 0 would be all of us.
        os.kill(pid, signal.SIGHUP)
        wait_for(f"{daemon} to answer", lambda: "UP" in self.slurm.exec("scontrol", "ping"), 60)

    def runs(self) -> bool:
        """Return whether a job runs on both nodes."""
        return len(self.slurm.exec("timeout", "30", "srun", "-N2", "hostname").split()) == 2


@pytest.mark.lab
@pytest.mark.timeout(900)
def test_a_key_is_rotated_under_a_job_that_runs_and_jobs_that_come(slurm_lab: HostSlurm) -> None:
    slurm = Rotating(slurm_lab)
    script = "srun bash -c 'until [[ -e /lab/etc/over ]]; do sleep 0.2; done'; srun true"
    job = slurm_lab.exec("sbatch", "--parsable", "-n1", "-w", "node01", "-o", "/dev/null", "--wrap", script)
    job = job.strip()

    def words() -> dict[str, str]:
        shown = slurm_lab.exec("scontrol", "--oneliner", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    wait_for("the job", lambda: words()["JobState"] == "RUNNING")
    for ids in (("1",), ("1", "2"), ("2", "1"), ("2",)):
        slurm.put(*ids)
        for daemon in ("node01", "slurmctld", "node02"):
            slurm.read(daemon)
            wait_for(f"a job with {ids}, read by {daemon}", slurm.runs)
            assert words()["JobState"] == "RUNNING"
    (slurm.folder / "over").touch()
    wait_for("the job's end", lambda: words()["JobState"] != "RUNNING")

    assert (words()["JobState"], words()["Restarts"], words()["ExitCode"]) == ("COMPLETED", "0", "0:0")
    assert "could not find kid" not in "".join(log.read_text() for log in slurm_lab.logs.iterdir())


PROLOG: Final = f"#!/bin/bash\nwhile [[ -e {INSTANCE}/etc/block.$SLURMD_NODENAME ]]; do sleep 0.1; done\n"


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def with_prolog(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A cluster whose prologs wait as long as they are told to."""
    with running_slurm(request.param, more=(f"Prolog={INSTANCE}/etc/prolog",)) as slurm:
        slurm.write_file("prolog", PROLOG)
        yield slurm


@pytest.mark.lab
def test_slurmctld_reads_another_set_of_keys_when_no_job_is_in_its_prolog(with_prolog: HostSlurm) -> None:
    """A job that waits for its lock just then was RUNNING without its script until its time limit."""
    slurm = Rotating(with_prolog)
    library = with_prolog.write_file("lib.sh", (SCRIPTS / "lib.sh").read_text())
    blocked = slurm.folder / "block.node01"
    blocked.touch()
    job = with_prolog.exec("sbatch", "--parsable", "-wnode01", "-o", "/dev/null", "--wrap", "true").strip()

    def words() -> dict[str, str]:
        shown = with_prolog.exec("scontrol", "--oneliner", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    wait_for("the prolog", lambda: (words()["JobState"], words()["Reason"]) == ("RUNNING", "Prolog"))
    daemon = with_prolog.pid_of("slurmctld")
    looks = f"{INSTANCE}/log/looks"
    script = f"""set -euo pipefail
        source {library}
        SLURM_SACK_JWKS={INSTANCE}/etc/slurm.jwks
        sleep() {{ command sleep 0.1; echo >>{looks}; }}
        kill() {{ [[ $* == "-HUP $$" ]] && exit 0; }}
        follow_keys 0 let_prologs_end
        wait $!"""
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(with_prolog.exec, "bash", "-c", script, timeout_s=120)
        log = with_prolog.logs / "looks"
        wait_for("a look", lambda: log.exists() and len(log.read_text()) > 2)
        slurm.put("1", "2")
        seen = len(log.read_text())
        wait_for("more looks", lambda: len(log.read_text()) > seen + 8)
        assert not read.done()
        blocked.unlink()
        read.result()
    assert daemon is not None
    os.kill(daemon, signal.SIGHUP)

    wait_for("the job's end", lambda: words()["JobState"] == "COMPLETED")
    assert words()["Restarts"] == "0"


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def patient(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A cluster that gives jobs the time to tell what they hear, however busy the machine is."""
    with running_slurm(request.param, more=("KillWait=120",)) as slurm:
        yield slurm


class Leaving:
    """A node whose Pod goes, with jobs that tell what they hear."""

    def __init__(self, slurm: HostSlurm) -> None:
        self.slurm = slurm
        self.heard = slurm.logs / "heard"
        self.heard.touch()
        self.script = slurm.write_file("stop-slurmd", (SCRIPTS / "stop-slurmd").read_text())
        told = "echo $SLURM_JOB_NAME >>/lab/log/heard"
        # slurmstepd sends SIGTERM to one process after the other: the script outlives its sleep.
        sleeping = "while :; do sleep 600 & wait; done"
        self.listening = f"trap '{told}; exit 3' TERM; echo run >>/lab/log/$SLURM_JOB_NAME; {sleeping}"

    def submit(self, name: str, *options: str) -> str:
        """Submit a job of one CPU that tells of SIGTERM and then ends; return its number when it runs."""
        told = ("-J", name, "-n1", "-o", "/dev/null", "--mem=100", *options, "--wrap", self.listening)
        job = self.slurm.exec("sbatch", "--parsable", *told).strip()
        wait_for(f"{name} to run", (self.slurm.logs / name).exists)
        return job

    def stop(self, timeout_s: float = 240.0) -> None:
        """Do what the Pod of node01 does before its slurmd ends."""
        self.slurm.exec("env", "POD_NAME=node01", "bash", self.script, timeout_s=timeout_s)

    def job(self, job: str) -> dict[str, str]:
        """Return what Slurm says of *job*."""
        shown = self.slurm.exec("scontrol", "--oneliner", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def node(self) -> tuple[set[str], str]:
        """Return the states and the reason of node01."""
        shown = self.slurm.exec(
            "sinfo", "-h", "-N", "-p", "main", "-n", "node01", "-O", "StateComplete:60,Reason:60"
        )
        return set(shown[:60].strip().upper().split("+")), shown[60:].strip()


@pytest.mark.lab
def test_jobs_of_a_pod_that_goes_are_told_and_requeued_as_their_settings_say(patient: HostSlurm) -> None:
    pod = Leaving(patient)
    again = pod.submit("again", "-w", "node01", "--requeue")
    once = pod.submit("once", "-w", "node01", "--no-requeue")
    both = pod.submit("both", "-N2", "-n2", "--requeue", "-w", "node[01-02]")
    at_terminal = f"srun -J terminal -n1 --mem=100 -w node01 bash -c {shlex.quote(pod.listening)}"
    patient.exec("bash", "-c", f"{at_terminal} >/dev/null 2>&1 &")
    wait_for("the one at a terminal", (patient.logs / "terminal").exists)

    pod.stop()

    assert set(pod.heard.read_text().split()) == {"again", "once", "both", "terminal"}
    for job in (again, both):  # Another node may still be completing it.
        wait_for("it to be requeued", lambda job=job: pod.job(job)["JobState"] == "PENDING")
        assert pod.job(job)["Restarts"] == "1"
    assert pod.job(once)["JobState"] == "NODE_FAIL"
    states, reason = pod.node()
    assert ("DRAIN" in states, reason) == (True, "k8s: pod terminated")


@pytest.mark.lab
def test_a_job_that_ignores_sigterm_ends_with_killwait_and_the_pod_waits_for_that(
    slurm_lab: HostSlurm,
) -> None:
    pod = Leaving(slurm_lab)
    pod.listening = "trap '' TERM; echo run >>/lab/log/$SLURM_JOB_NAME; while :; do sleep 0.1; done"
    job = pod.submit("deaf", "-w", "node01")

    pod.stop()

    assert (pod.job(job)["JobState"], pod.job(job)["Restarts"]) == ("PENDING", "1")
    assert (
        slurm_lab.exec("bash", "-c", "grep -sx slurmstepd /proc/[0-9]*/comm || echo none").strip() == "none"
    )


@pytest.mark.lab
def test_a_stopped_job_is_requeued_when_its_pod_goes(slurm_lab: HostSlurm) -> None:
    pod = Leaving(slurm_lab)
    job = pod.submit("stopped", "-w", "node01", "--requeue")
    slurm_lab.exec("scancel", "--signal=STOP", job)
    shown = ("squeue", "-h", "-j", job, "-o", "%T")
    wait_for("the job to be stopped", lambda: slurm_lab.exec(*shown).strip() == "STOPPED")

    pod.stop()

    assert (pod.job(job)["JobState"], pod.job(job)["Restarts"]) == ("PENDING", "1")


@pytest.mark.lab
def test_a_pod_without_jobs_goes_at_once_and_its_node_is_drained_and_not_down(slurm_lab: HostSlurm) -> None:
    pod = Leaving(slurm_lab)

    pod.stop()

    assert pod.node() == ({"IDLE", "DRAIN"}, "k8s: pod terminated")


@pytest.mark.lab
def test_a_node_whose_comment_says_that_it_is_drained_is_drained_when_its_pod_goes(
    slurm_lab: HostSlurm,
) -> None:
    pod = Leaving(slurm_lab)
    slurm_lab.exec("scontrol", "update", "nodename=node01", "comment=x State=IDLE+DRAIN Reason=mine")

    pod.stop()

    assert pod.node() == ({"IDLE", "DRAIN"}, "k8s: pod terminated")


@pytest.mark.lab
@pytest.mark.parametrize("reason", ["bad dimm", "k8s: pod pending deletion"])
def test_a_drain_that_is_there_keeps_its_reason_when_the_pod_goes(patient: HostSlurm, reason: str) -> None:
    pod = Leaving(patient)
    job = pod.submit("again", "-w", "node01")
    patient.exec("scontrol", "update", "nodename=node01", "state=drain", f"reason={reason}")

    pod.stop()

    states, told = pod.node()
    assert ("DRAIN" in states, told) == (True, reason)
    assert pod.job(job)["JobState"] == "PENDING"
    assert pod.heard.read_text() == "again\n"


def stop_with(machine: Path, *states: str, reason: str) -> list[str]:
    """Run stop-slurmd while a job runs, with *states* of the node one after the other; return its updates."""
    step = machine / "proc/7"
    step.mkdir(parents=True)
    (step / "comm").write_text("slurmstepd\n")
    (machine / "states").write_text("".join(f"{state}\n" for state in states))
    words = "NodeName=node01 Arch=x86_64 State=$state ThreadsPerCore=1 Comment=x State=IDLE"
    ends = f"rm -rf {step}"  # The job has ended by the last look, or what was done about it.
    look = f'{{ read -r state; rest=$(cat); }} <{machine}/states; echo "$rest" >{machine}/states'
    update = f'[[ $1 != update ]] || {{ echo "${{*:3}}" >>{machine}/updates; {ends}; exit; }}'
    add_program(machine, "scontrol", f'{update}\n{look}\n[[ -n $rest ]] || {ends}\necho "{words}"')
    add_program(machine, "sinfo", f'echo "{reason}"')
    add_program(machine, "squeue", "echo COMPLETING")
    script = (SCRIPTS / "stop-slurmd").read_text()
    assert "/proc/[0-9]" in script
    variables = {"PATH": f"{machine}:/usr/bin:/bin", "POD_NAME": "node01"}
    run = ["bash", "-c", script.replace("/proc/[0-9]", f"{machine}/proc/[0-9]")]
    subprocess.run(run, env=variables, check=True, timeout=240)
    updates = machine / "updates"
    return updates.read_text().splitlines() if updates.exists() else []


@pytest.mark.parametrize("state", ["DOWN+DYNAMIC_NORM", "DOWN*+DYNAMIC_NORM", "DOWN+NOT_RESPONDING", "DOWN"])
def test_a_node_that_somebody_set_down_keeps_its_reason_when_its_pod_goes(machine: Path, state: str) -> None:
    assert stop_with(machine, state, state, reason="bad dimm") == []


def test_a_node_that_comes_back_while_its_pod_goes_is_drained_then(machine: Path) -> None:
    updates = stop_with(machine, "DOWN", "DOWN", "IDLE+DYNAMIC_NORM", reason="none")

    assert updates == ["state=drain reason=k8s: pod terminated"]


@pytest.mark.parametrize("state", ["IDLE+POWERED_DOWN", "MIXED+DYNAMIC_NORM"])
def test_a_node_that_is_not_down_is_drained_when_its_pod_goes(machine: Path, state: str) -> None:
    assert stop_with(machine, state, reason="none") == ["state=drain reason=k8s: pod terminated"]


@pytest.mark.lab
@pytest.mark.parametrize(
    "lie",
    [
        "x State=IDLE+DRAIN Reason=mine",
        "x\nNodeName=node01 State=DOWN+DRAIN Reason=mine\nslurm_load_jobs error",
        "\"$(touch /lab/log/pwned)`touch /lab/log/pwned`';touch /lab/log/pwned;\\",
    ],
    ids=["a state", "lines", "code"],
)
def test_what_jobs_and_their_processes_are_called_changes_nothing_when_a_pod_goes(
    patient: HostSlurm, lie: str
) -> None:
    pod = Leaving(patient)
    words = (f"--comment={lie}", f"--extra={lie}", f"--wckey={lie}", "-w", "node01")
    job = pod.submit("again", *words)
    patient.exec("scontrol", "update", f"jobid={job}", f"name={lie}")
    patient.exec("scontrol", "update", "nodename=node01", f"comment={lie}", f"extra={lie}")

    pod.stop()

    states, reason = pod.node()
    assert ("DRAIN" in states, reason) == (True, "k8s: pod terminated")
    assert patient.exec("squeue", "-h", "-t", "all", "-j", job, "-o", "%T %r").split()[0] == "PENDING"
    assert pod.heard.read_text() == "again\n"
    assert not (patient.logs / "pwned").exists()


@pytest.mark.lab
def test_a_pod_goes_without_slurmctld_too_and_waits_for_its_jobs_until_somebody_ends_them(
    slurm_lab: HostSlurm,
) -> None:
    pod = Leaving(slurm_lab)
    slurm_lab.kill_daemon("slurmctld")
    pod.stop()
    slurm_lab.start_daemon("slurmctld")
    wait_for("slurmctld", lambda: "UP" in slurm_lab.exec("scontrol", "ping"))
    job = pod.submit("again", "-w", "node01")
    slurm_lab.freeze_daemon("slurmctld")
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(pod.stop, 120)
        wait_for(
            "a try in vain", lambda: bool(slurm_lab.exec("bash", "-c", "pgrep -x scontrol || true").strip())
        )
        slurm_lab.thaw_daemon("slurmctld")
        stopped.result()

    assert (pod.job(job)["JobState"], pod.job(job)["Restarts"]) == ("PENDING", "1")


def follow_database(state: Path, database: str) -> None:
    """Run what comes before slurmctld, where nobody can be asked."""
    command = ["/bin/bash", SCRIPTS / "follow-database", state, database]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"}, timeout=240)


def test_slurmctld_keeps_its_number_while_the_database_is_the_same(tmp_path: Path) -> None:
    follow_database(tmp_path, "StorageHost=a\nStoragePort=3306")  # The first start: there is no number yet.
    (tmp_path / "clustername").write_text("prod|635")

    follow_database(tmp_path, "StorageHost=a\nStoragePort=3306")

    assert (tmp_path / "clustername").read_text() == "prod|635"


def is_ready(listener: socket.socket) -> str:
    """Return what the probe says of a slurmd that listens there, and is a child of this process."""
    words = str(listener.getsockname()[1]), str(os.getpid()), str(os.getuid())
    command = ("bash", SCRIPTS.parent / "slurmd-ready.sh", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
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
            assert is_ready(listener) == f"slurmd does not accept connections to port {port}\n"
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
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    slurm_lab.freeze_daemon("self")
    wait_for("it to be stopped", lambda: ") T " in Path(f"/proc/{process}/stat").read_text(), pause_s=0.01)
    frozen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
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
            wait_for("it to begin", lambda: (about / "comm").read_text() == "slurmd\n", pause_s=0.01)
            job.send_signal(signal.SIGSTOP)
            wait_for("it to be stopped", lambda: ") T " in (about / "stat").read_text(), pause_s=0.01)
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
            wait_for("it to be stopped", lambda: state() == "T", pause_s=0.01)
            assert is_ready(listener) == "slurmd is stopped: its process is in state T\n"
            process.send_signal(signal.SIGCONT)
            wait_for("it to go on", lambda: state() == "S", pause_s=0.01)
            assert is_ready(listener) == ""
        finally:
            process.kill()


@contextmanager
def adding_accounts(slurm: HostSlurm) -> Generator[None]:
    """Have four people add accounts, one after the other, meanwhile."""
    add = "n=0; while sacctmgr -i add account a{}x$((n++)); do :; done"
    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(slurm.exec, "timeout", "900", "bash", "-c", add.format(number), timeout_s=910)
        try:
            yield
        finally:
            slurm.exec("bash", "-c", "kill $(pidof timeout) || true")


@pytest.mark.timeout(1500)
def test_a_slurmctld_and_a_slurmdbd_that_wait_for_each_other_are_found_and_a_new_slurmctld_ends_it() -> None:
    """slurmctld reads its configuration again while accounts are added: seen with 24.11.5, not with 26.05."""
    with running_slurm(SLURM_24_11, nodes=1, has_accounting=True) as slurm:
        check, started = (
            slurm.write_file(name, (SCRIPTS / name).read_text())
            for name in ("check-slurmctld", "has-slurmctld-started")
        )

        def is_up() -> bool:
            return "is UP" in slurm.exec("bash", "-c", "timeout 10 scontrol ping || true")

        def is_stuck() -> bool:
            slurm.exec("bash", "-c", "timeout 10 scontrol reconfigure || true")
            is_called_so = "stuck" in slurm.exec("bash", "-c", f"{check} 5 || echo stuck")
            return is_called_so and not is_up()  # It may be done by now.

        with adding_accounts(slurm):
            wait_for("both to wait for each other", is_stuck, 840, 1)
        assert "must start it again" in slurm.exec("bash", "-c", f"{check} || true")
        # The startup probe lets the liveness probe begin, which ends it.
        slurm.exec(started)

        slurm.kill_daemon("slurmctld")
        wait_for("it to be gone", lambda: slurm.pid_of("slurmctld") is None)
        assert "not yet" in slurm.exec("bash", "-c", f"{started} || echo not yet")
        slurm.start_daemon("slurmctld")
        wait_for("a new one to answer", is_up)
        assert not slurm.exec(check)
        slurm.exec(started)


THREADS: Final = """
import ctypes, pathlib, sys, threading, time

def run(name):
    ctypes.CDLL(None).prctl(15, name.encode())
    time.sleep(600)

for name in [*sys.argv[2:], *["srvcn"] * 100]:
    threading.Thread(target=run, args=[name], daemon=True).start()
time.sleep(0.5)
pathlib.Path(sys.argv[1]).write_text("started")
time.sleep(600)
"""
"""A process whose threads are called like a slurmctld's."""


@contextmanager
def checking(
    folder: Path, *threads: str, env: Collection[str] = (), lines: Collection[str] = ()
) -> Generator[Callable[[], int]]:
    """Yield the probe of what stands for a slurmctld, with *threads* besides those that serve calls.

    *lines* are more of slurm.conf.
    """
    started, pid, conf = folder / "started", folder / "pid", folder / "slurm.conf"
    conf.write_text("".join(f"{line}\n" for line in (f"SlurmctldPidFile={pid}", *lines)))
    probe = ["env", f"SLURM_CONF={conf}", str(SCRIPTS / "check-slurmctld"), "0.05"]
    command = [sys.executable, "-c", THREADS, str(started), *threads]
    with subprocess.Popen(["env", *env, *command]) as process:  # `env` becomes it.
        pid.write_text(f"{process.pid}\n")
        try:
            wait_for("its threads", started.exists, 30, 0.05)
            yield lambda: subprocess.run(probe, capture_output=True, check=False).returncode
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("threads", "env", "is_ended"),
    [
        ([], ["SLURMCTLD_RECONF=1"], True),
        (["sstate"], ["SLURMCTLD_RECONF=1"], False),  # Idle, long after it has read its configuration.
        ([], [], False),
    ],
    ids=["waits", "is idle", "has read no configuration again"],
)
def test_a_slurmctld_that_has_started_is_never_ended_however_many_threads_it_has(
    tmp_path: Path, threads: list[str], env: list[str], *, is_ended: bool
) -> None:
    with checking(tmp_path, *threads, env=env) as probe:
        assert {probe() for _ in range(20)} == {int(is_ended)}


OTHER: Final = "SlurmctldHost=other-0(other)"
OURS: Final = f"SlurmctldHost={socket.gethostname()}(us)"


@pytest.mark.parametrize(
    ("hosts", "leader", "age_s", "threads", "is_ended"),
    [
        ([OURS, OTHER], 1, 1, ["sstate"], True),
        ([OTHER, OURS], 0, 1, ["sstate"], True),
        ([OURS, OTHER], 0, 1, ["sstate"], False),
        ([OURS, OTHER], 1, 1, [], False),
        ([OURS, OTHER], 1, 3600, ["sstate"], False),
        ([OURS], 1, 1, ["sstate"], False),
        ([OURS, OTHER], None, 0, ["sstate"], False),
    ],
    ids=[
        "the backup leads",
        "the first one leads",
        "it leads itself",
        "it stands by, or starts",
        "the heartbeat stands still",
        "it has no backup any more",
        "there is no heartbeat",
    ],
)
def test_a_slurmctld_is_ended_where_the_other_one_leads(
    tmp_path: Path, hosts: list[str], leader: int | None, age_s: int, threads: list[str], *, is_ended: bool
) -> None:
    if leader is not None:
        (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", int(time.time()) - age_s, leader))
    lines = (*hosts, f"StateSaveLocation={tmp_path}", "SlurmctldTimeout=60")
    with checking(tmp_path, *threads, lines=lines) as probe:
        assert probe() == int(is_ended)
