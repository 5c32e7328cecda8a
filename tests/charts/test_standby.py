"""Two slurmctlds on a real Slurm: what the one that stands by knows, and what ends one that hung."""

import base64
import json
import os
import re
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from sunk_lab.processes import wait_for
from sunk_lab.slurm.host import BACKUP, HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.roots import INSTANCE
from sunk_lab.slurm.testing import running_slurm

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
SCRIPTS: Final = Path(__file__).parents[2] / "helm/slurm/files/scripts"
KEYS: Final = {name: base64.b64encode(os.urandom(64)).decode() for name in ("old", "new")}


class Doubled:
    """A cluster whose backup starts as in its Pod, but asks five times a second for other keys."""

    def __init__(self, slurm: HostSlurm) -> None:
        self.slurm = slurm
        self.folder = slurm.jwt_key.parent
        library = slurm.write_file("lib.sh", (SCRIPTS / "lib.sh").read_text())
        self.start = f"""source {library}
            SLURM_SACK_JWKS={INSTANCE}/etc/slurm.jwks
            sleep() {{ command sleep 0.2; }}
            follow_keys 0 end_standby let_prologs_end
            unset -f sleep"""

    def put(self, *ids: str) -> None:
        """Let the set of keys be of *ids*, of which the first signs."""
        keys = [{"kid": name, "k": KEYS[name], "kty": "oct", "alg": "HS256"} for name in ids]
        keys[0]["use"] = "default"
        new = self.folder / "slurm.jwks.new"
        new.write_text(json.dumps({"keys": keys}))
        shutil.copystat(self.folder / "slurm.key", new)
        shutil.chown(new, (self.folder / "slurm.key").stat().st_uid)
        new.replace(self.folder / "slurm.jwks")

    def begin(self, *daemons: str) -> None:
        """Start *daemons* again, with the keys of now."""
        for daemon in daemons:
            self.slurm.kill_daemon(daemon, signal.SIGTERM)
            wait_for(f"{daemon} to end", lambda daemon=daemon: self.slurm.pid_of(daemon) is None)
            self.slurm.start_daemon(daemon)

    def is_up(self) -> bool:
        """Return whether the backup answers."""
        return "at backup is UP" in self.slurm.exec_at_backup("bash", "-c", "scontrol ping || true")

    def reads(self) -> int:
        """Return how often the backup was told to read its configuration, since its log began."""
        return (self.slurm.logs / f"{BACKUP}.log").read_text().count("SIGHUP")

    def leads(self) -> bool:
        """Return whether the backup says what it has."""
        return bool(self.slurm.exec_at_backup("sinfo", "--noheader").split())

    def start_backup(self) -> None:
        """Start the backup as a kubelet does, again and again; it stands by afterwards."""
        self.slurm.start_backup(self.start)
        wait_for("the backup", self.is_up)


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def doubled(request: pytest.FixtureRequest) -> Generator[Doubled]:
    """A cluster with a backup, which takes over after six seconds."""
    with running_slurm(request.param, more=("SlurmctldTimeout=6",), has_backup=True) as slurm:
        made = Doubled(slurm)
        made.put("old")
        made.begin("slurmctld", *slurm.node_names)
        made.start_backup()
        yield made


def test_a_backup_takes_over_with_the_keys_and_the_slurm_conf_of_now(doubled: Doubled) -> None:
    slurm = doubled.slurm
    for ids in (("old", "new"), ("new", "old"), ("new",)):
        doubled.put(*ids)
        doubled.begin("slurmctld", *slurm.node_names)
        wait_for("the backup to end", lambda: slurm.pid_of(BACKUP) is None)
        doubled.start_backup()
    conf = doubled.folder / "slurm.conf"
    conf.write_text(conf.read_text().replace("KillWait=5", "KillWait=77"))

    slurm.kill_daemon("slurmctld")

    wait_for("the backup to lead", doubled.leads, 120)
    assert re.search(
        r"^KillWait += 77 sec$", slurm.exec_at_backup("scontrol", "show", "config"), re.MULTILINE
    )
    wait_for(
        "a job on both nodes",
        lambda: len(slurm.exec_at_backup("timeout", "30", "srun", "-N2", "hostname").split()) == 2,
        120,
    )


def test_a_backup_that_leads_reads_keys_as_any_slurmctld(doubled: Doubled) -> None:
    slurm = doubled.slurm
    slurm.kill_daemon("slurmctld")
    wait_for("the backup to lead", doubled.leads, 120)
    daemon = slurm.pid_of(BACKUP)

    doubled.put("old", "new")

    wait_for("the backup to read them", lambda: doubled.reads() == 1)
    wait_for("the backup's answer", doubled.leads, 120)
    assert slurm.pid_of(BACKUP) == daemon


def test_a_slurmctld_that_hung_while_the_backup_took_over_is_ended_without_a_word(doubled: Doubled) -> None:
    """It would hold up every call, and write its state of before when it goes on."""
    slurm = doubled.slurm
    check = slurm.write_file("check-slurmctld", (SCRIPTS / "check-slurmctld").read_text())
    probe = ("bash", "-c", f"HOSTNAME=$(hostname); {check} 0.1 && echo fine || true")
    wait_for("both to be fine", lambda: slurm.exec(*probe) == slurm.exec_at_backup(*probe) == "fine\n")

    slurm.freeze_daemon("slurmctld")
    log = slurm.logs / f"{BACKUP}.log"
    wait_for("the backup to lead", lambda: "Running as primary controller" in log.read_text(), 120)
    heartbeat = slurm.state / "heartbeat"
    wait_for("the heartbeat of the backup", lambda: heartbeat.read_bytes()[15] == 1)
    job_state = slurm.state / "job_state"
    before = job_state.stat().st_mtime_ns if job_state.exists() else 0

    assert slurm.exec_at_backup(*probe) == "fine\n"
    assert "another slurmctld leads" in slurm.exec(*probe)

    slurm.thaw_daemon("slurmctld")
    wait_for("its end", lambda: slurm.pid_of("slurmctld") is None)
    assert (job_state.stat().st_mtime_ns if job_state.exists() else 0) == before
    slurm.start_daemon("slurmctld")
    wait_for("the first one to lead", lambda: heartbeat.read_bytes()[15] == 0, 120)
    wait_for("a job", lambda: bool(slurm.exec("timeout", "30", "srun", "-N2", "hostname")), 120)
    assert slurm.exec(*probe) == slurm.exec_at_backup(*probe) == "fine\n"
