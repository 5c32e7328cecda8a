"""A real Slurm on the machine whose slurmd start our prolog and epilog."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.testing import WITHIN_S

FILES: Final = Path(__file__).parents[5] / "helm/slurm/files"
SCRIPTS: Final = ("Prolog=/lab/etc/prolog", "Epilog=/lab/etc/epilog")
WRAPPED: Final = ("TaskProlog=/lab/etc/task-prolog", "RebootProgram=/lab/etc/reboot")
HOOKS: Final = (*SCRIPTS, "PrologEpilogTimeout=50")


class Cluster:
    """Three nodes whose jobs start and end with our scripts."""

    def __init__(self, slurm: HostSlurm, url: str) -> None:
        self.slurm = slurm
        self._url = url
        self.first, self.second, self.third = slurm.node_names
        slurm.write_file("token", "node-token\n")
        self.configure()
        for name in ("prolog.sh", "epilog.sh", "gateway.sh", "check.sh", "reboot.sh"):
            slurm.write_file(name, (FILES / name).read_text())
        slurm.write_file("task-prolog", "#!/bin/bash\n")
        for name in ("prolog", "epilog"):
            slurm.write_file(
                name,
                f"#!/bin/bash\nexport SUNK_HOOKS_ENV=/lab/etc/hooks.env\nexec /lab/etc/{name}.sh\n",
            )

    def configure(self, more: str = "") -> None:
        """Give the scripts their settings; *more* comes last and wins."""
        self.slurm.write_file(
            "hooks.env",
            f"SUNK_HOOKS_URL={self._url}\nSUNK_HOOKS_TOKEN_FILE=/lab/etc/token\n"
            f"SUNK_HOOKS_DEADLINE_S=20\nSUNK_HOOKS_SCRIPTS_S=20\n{more}",
        )

    def add_own_prolog(self) -> None:
        """Have the cluster's own script run after ours, as the chart does; it leaves a trace."""
        wrapper = (FILES / "scripts/prolog").read_text()
        self.slurm.write_file("own", "#!/bin/bash\ntouch /lab/spool/prepared-$SLURM_JOB_ID\n")
        wrapper = wrapper.replace("/etc/sunk/scripts/", "/lab/etc/").replace(
            "/etc/sunk/prolog.d/*", "/lab/etc/own"
        )
        self.slurm.write_file("prolog", wrapper)

    def add_wrappers(self) -> None:
        """Have slurmd start what the chart has it start: a folder for each job, and the cluster's scripts."""
        self.slurm.exec("mkdir", "-p", "/lab/etc/prolog.d", "/lab/etc/epilog.d", "/lab/spool/scratch")
        for name in ("prolog", "epilog", "end-processes", "task-prolog", "reboot"):
            text = (FILES / "scripts" / name).read_text()
            for there, here in (("/etc/sunk/scripts/", "/lab/etc/"), ("/etc/sunk/", "/lab/etc/")):
                text = text.replace(there, here)
            self.slurm.write_file(name, text.replace("/local/scratch", "/lab/spool/scratch"))
        for kind in ("prolog", "epilog"):
            traced = f"#!/bin/bash\ntouch /lab/spool/{kind}-$SLURM_JOB_ID\n"
            self.slurm.write_file(f"{kind}.d/50-traced", traced)

    def has_prepared(self, job: str) -> bool:
        """Whether the cluster's own prolog ran for the job."""
        return f"prepared-{job}" in self.slurm.exec("ls", "/lab/spool").split()

    def submit(self, *options: str) -> str:
        """Submit a job that leaves a trace if its script ever starts, and return its id."""
        command = "touch /lab/spool/ran-$SLURM_JOB_ID"
        return self.slurm.exec("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", command).strip()

    def submit_components(self, *nodes: str) -> str:
        """As `submit`, of a heterogeneous job with a component on each of *nodes*."""
        components = "\n#SBATCH hetjob\n".join(f"#SBATCH -N1 -w {node}" for node in nodes)
        self.slurm.write_file(
            "components.sh", f"#!/bin/bash\n{components}\ntouch /lab/spool/ran-$SLURM_JOB_ID\n"
        )
        return self.slurm.exec("sbatch", "--parsable", "-o", "/dev/null", "/lab/etc/components.sh").strip()

    def has_run(self, job: str) -> bool:
        """Whether the job's script ever started."""
        return f"ran-{job}" in self.slurm.exec("ls", "/lab/spool").split()

    def job(self, job: str, field: str) -> str:
        """Return what scontrol shows of a job."""
        return _field(self.slurm.exec("scontrol", "-o", "show", "job", job), field)

    def node(self, node: str) -> tuple[bool, str]:
        """Return whether the node is drained or draining, and the reason."""
        shown = self.slurm.exec("scontrol", "-o", "show", "node", node)
        found = re.search(r"Reason=(.*?) \[", shown)
        return "DRAIN" in _field(shown, "State"), found[1] if found else ""

    def until_idle(self) -> None:
        """Return when no node has a prolog, a job or an epilog any more."""
        until(lambda: set(self.slurm.exec("sinfo", "-h", "-N", "-o", "%T").split()) <= {"idle", "drained"})

    def tidy(self) -> None:
        """Leave no job and no drain."""
        self.configure()
        self.slurm.exec("scancel", "--user=root")
        self.until_idle()
        for node in self.slurm.node_names:
            if self.node(node)[0]:
                self.slurm.exec("scontrol", "update", f"nodename={node}", "state=undrain")


def _field(shown: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S*)", shown)
    return found[1] if found else ""


def until(condition: Callable[[], bool]) -> None:
    """Return when *condition* holds."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {WITHIN_S:.0f} s")
        time.sleep(0.1)
