"""How much memory Slurm's own daemons need: slurmctld, slurmdbd, its database and slurmrestd.

Results, each with the resident memory of every daemon and the most that it had since the result before:
``memory.start`` (nodes, no jobs), ``memory.jobs`` (as many as fit have their nodes, the others wait),
``memory.busy`` (users list all jobs, nodes and the day's accounting without a pause, and jobs come and go),
``memory.restart`` (slurmctld reads its state again), ``memory.history`` (accounting of many jobs that have
ended is asked for in one question), ``memory.backlog`` (slurmdbd is away: what slurmctld keeps for it).

Nodes have no slurmd but for two. Slurm takes them for nodes that are powered up for their jobs, so these have
all that a job has which holds nodes.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from figures import emit, require
from msgspec.structs import replace

from sunk_lab.config import from_environment
from sunk_lab.slurm import accounting
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11, release_of
from sunk_slurm.client import SlurmClient
from sunk_slurm.submission import JobDescription
from sunk_slurm.tokens import KeyTokens
from sunk_slurm.wire import Number

DAEMONS: Final = ("slurmctld", "slurmdbd", accounting.DATABASE, "slurmrestd")
CPUS, GPUS, MEMORY_MIB = 64, 8, 1_000_000
AT_ONCE: Final = 8
"""Submissions, or lists of users, under way at once."""
EVERY: Final = 10
"""Each tenth job wants eight whole nodes, the others one GPU with its share of a node."""
FIRST_OLD: Final = 1_000_000
"""Before the numbers of the history's jobs."""
NUMBERED: Final = ("job_db_inx", "id_job")
"""Columns of the database in which each job has its own number."""
WITHIN_S: Final = 600
SCHEDULER: Final = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=1,sched_min_interval=0,"
    "default_queue_depth=1000,bf_continue,nohold_on_prolog_fail"
)
"""As the chart has it."""
LINES: Final = (
    "ResumeProgram=/bin/true",
    "SuspendProgram=/bin/true",
    "SuspendTime=INFINITE",
    "ResumeTimeout=65000",  # Nodes are powered up for as long as we measure.
    "MaxJobCount=100000",
    "MessageTimeout=100",  # While backfill plans for thousands of nodes, others wait.
    SCHEDULER,
    "MaxDBDMsgs=500000",
    "AccountingStorageTRES=gres/gpu",
)
JOB: Final = JobDescription(
    script="#!/bin/bash\n" + "# As long as scripts are.\n" * 100 + "sleep 3600\n",
    environment=("PATH=/usr/bin:/bin", *(f"VARIABLE_{index}=of a user's shell" for index in range(50))),
    current_working_directory="/",
    standard_output="/dev/null",
    standard_error="/dev/null",
    name="bench",
    time_limit=Number(set=True, number=120),
)
ONE_GPU: Final = replace(
    JOB,
    partition="records",
    tasks=1,
    cpus_per_task=CPUS // GPUS,
    memory_per_node=Number(set=True, number=MEMORY_MIB // GPUS // 2),
    tres_per_node="gres/gpu:h100:1",
)
WHOLE_NODES: Final = replace(
    JOB,
    partition="records",
    minimum_nodes=8,
    maximum_nodes=8,
    tres_per_node=f"gres/gpu:h100:{GPUS}",
    memory_per_node=Number(set=True, number=MEMORY_MIB),
    shared=("none",),
)
HELD: Final = replace(JOB, partition="main", hold=True)
LISTS: Final = (
    ("squeue", "--all", "--noheader"),
    ("scontrol", "--oneliner", "show", "job"),
    ("scontrol", "--oneliner", "show", "node"),
    ("sacct", "--allusers", "--noheader"),
)


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    jobs: int
    history: int
    messages: int
    seconds: float
    plan: float
    slurm: str


@dataclass
class Stage:
    """A cluster with accounting."""

    sizes: Sizes
    slurm: HostSlurm
    client: SlurmClient

    async def exec(self, *command: str) -> str:
        """Run a command in the cluster."""
        return await anyio.to_thread.run_sync(lambda: self.slurm.exec(*command, timeout_s=300))

    async def sql(self, text: str) -> str:
        """Ask the database."""
        return await self.exec(*accounting.ASK_DATABASE[:-1], text, "slurm_acct_db", "--skip-column-names")

    def emit(self, name: str, count: int, **figures: float) -> None:
        """Print a result with the memory of each daemon, and count the most anew."""
        of_daemons: dict[str, float] = {}
        for daemon in DAEMONS:
            if pid := self.slurm.pid_of(daemon):
                of_daemons[f"{daemon}_mb"] = status_mb(pid, "VmRSS")
                of_daemons[f"{daemon}_most_mb"] = status_mb(pid, "VmHWM")
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): VmHWM begins anew.
        of_what: dict[str, float] = {"nodes": self.sizes.nodes, "jobs": self.sizes.jobs}
        emit(name, count, of_what, figures, of_daemons)

    def of(self, daemon: str, field: str = "VmRSS") -> float:
        """Return the resident memory of *daemon* in MB."""
        pid = self.slurm.pid_of(daemon)
        return status_mb(pid, field) if pid else 0.0


def status_mb(pid: int, field: str) -> float:
    """Return a field of ``/proc/PID/status`` that is told in KiB, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return round(int(kib) * 1024 / 1e6)


async def told(stage: Stage, text: str, *command: str) -> None:
    """Wait until *command* prints *text*."""
    for _ in range(WITHIN_S):
        if text in await stage.exec("sh", "-c", f"{' '.join(command)} || true"):
            return
        await anyio.sleep(1)
    require(holds=False, claim=f"{command[0]} says {text!r} within {WITHIN_S} s")


async def settled(stage: Stage) -> None:
    """Wait until slurmdbd has heard of everything."""
    await told(stage, "DBD Agent queue size: 0", "sdiag")


async def start(stage: Stage) -> None:
    """Nodes, no jobs."""
    await settled(stage)
    stage.emit("memory.start", stage.sizes.nodes)


async def jobs(stage: Stage) -> None:
    """Fill the cluster, and its queue."""
    kinds = (WHOLE_NODES if index % EVERY == 0 else ONE_GPU for index in range(stage.sizes.jobs))
    began = time.monotonic()
    await schedule(stage, is_on=False)  # Or it keeps submissions waiting.
    await submit(stage, (replace(kind, hold=True) for kind in kinds))  # Others are tried on every node first.
    took_s = time.monotonic() - began
    names = (await stage.exec("squeue", "--noheader", "-o", "%i")).split()
    for first in range(0, len(names), 500):
        await stage.exec("scontrol", "release", ",".join(names[first : first + 500]))
    await schedule(stage, is_on=True)
    holding, end = -1, time.monotonic() + stage.sizes.plan
    while (now := await count(stage, "-t", "CF,R")) != holding and time.monotonic() < end:
        holding = now
        await anyio.sleep(20)  # Backfill is through its queue once.
    await schedule(stage, is_on=False)
    holding = await count(stage, "-t", "CF,R")
    await settled(stage)
    require(holds=holding > 0, claim="jobs hold nodes")
    stage.emit("memory.jobs", stage.sizes.jobs, holding=holding, submit_s=round(took_s, 1))


async def schedule(stage: Stage, *, is_on: bool) -> None:
    """Let Slurm give nodes to jobs, or not."""
    await stage.exec("scontrol", "update", "partition=records", f"state={'up' if is_on else 'down'}")


async def count(stage: Stage, *which: str) -> int:
    """Return how many jobs there are."""
    return len((await stage.exec("squeue", "--noheader", "-o", "%i", *which)).split())


async def submit(stage: Stage, descriptions: Iterator[JobDescription]) -> None:
    """Submit several at once."""

    async def work() -> None:
        for description in descriptions:
            await stage.client.submit_job(description)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)


async def busy(stage: Stage) -> None:
    """Everybody asks for everything."""
    done = {"lists": 0, "submitted": 0}
    end = time.monotonic() + stage.sizes.seconds

    async def ask(commands: Iterator[tuple[str, ...]]) -> None:
        for command in commands:
            if time.monotonic() > end:
                return
            await stage.exec(*command)
            done["lists"] += 1

    def turns() -> Iterator[int]:
        while time.monotonic() < end:
            done["submitted"] += 1
            yield done["submitted"]

    async with anyio.create_task_group() as tasks:
        for first in range(AT_ONCE):
            tasks.start_soon(ask, itertools.islice(itertools.cycle(LISTS), first, None))
        tasks.start_soon(come_and_go, stage, turns())
    await settled(stage)
    stage.emit("memory.busy", done["lists"], submitted=done["submitted"])


async def restart(stage: Stage) -> None:
    """Let slurmctld read its state."""
    await anyio.to_thread.run_sync(stage.slurm.kill_daemon, "slurmctld")
    began = time.monotonic()
    await anyio.to_thread.run_sync(stage.slurm.start_daemon, "slurmctld")
    await told(stage, "UP", "scontrol", "ping")
    await schedule(stage, is_on=False)  # slurm.conf has it on.
    found = await count(stage)
    require(holds=found >= stage.sizes.jobs, claim="slurmctld has its jobs again")
    stage.emit("memory.restart", found, ready_s=round(time.monotonic() - began, 1))


async def history(stage: Stage) -> None:
    """Ask slurmdbd for many jobs that have ended, each with its steps, in one question."""
    count = stage.sizes.history
    await stage.exec("sbatch", "--wait", "-p", "main", "-o", "/dev/null", "--wrap", "srun true")
    await settled(stage)
    newest = await stage.sql("SELECT MAX(job_db_inx) FROM lab_job_table WHERE state = 3")
    for table in ("lab_job_table", "lab_step_table"):
        await copies(stage, table, int(newest), count)
    before, began = stage.of("slurmdbd"), time.monotonic()
    asked = "sacct --allusers --starttime now-1days --noheader --parsable2 --format jobid | wc -l"
    found = int(await stage.exec("sh", "-c", asked))
    took_s = time.monotonic() - began
    require(holds=found > count, claim="accounting tells of them all, and of their steps")
    kib = (stage.of("slurmdbd", "VmHWM") - before) * 1e6 / 1024 / found
    stage.emit("memory.history", count, lines=found, kib_each=round(kib, 2), s=round(took_s, 1))


async def copies(stage: Stage, table: str, record: int, count: int) -> None:
    """Copy what *table* has of the job with this *record*, as that of *count* more jobs."""
    names = [line.split("\t")[0] for line in (await stage.sql(f"DESCRIBE {table}")).splitlines()]
    values = ", ".join(f"{FIRST_OLD} + s.seq" if name in NUMBERED else f"t.`{name}`" for name in names)
    columns = ", ".join(f"`{name}`" for name in names)
    rows = f"FROM {table} t JOIN seq_1_to_{count} s WHERE t.job_db_inx = {record}"
    await stage.sql(f"INSERT INTO {table} ({columns}) SELECT {values} {rows}")


async def backlog(stage: Stage) -> None:
    """Let slurmctld keep what slurmdbd shall hear of; as many jobs before tell what they take themselves."""
    count, grown = stage.sizes.messages // 2, [0.0, 0.0]
    for turn, is_away in enumerate((False, True)):
        if is_away:
            await anyio.to_thread.run_sync(stage.slurm.kill_daemon, "slurmdbd")
        before = stage.of("slurmctld")
        await come_and_go(stage, iter(range(count)))
        grown[turn] = stage.of("slurmctld") - before
    messages = int((await stage.exec("sdiag")).partition("DBD Agent queue size:")[2].split()[0])
    require(holds=messages >= count, claim="slurmctld keeps messages")
    kib = (grown[1] - grown[0]) * 1e6 / 1024 / messages
    stage.emit("memory.backlog", messages, ended=count, without_mb=grown[0], kib_each=round(kib, 2))


async def come_and_go(stage: Stage, turns: Iterator[int]) -> None:
    """Submit jobs and cancel them, several at once."""

    async def work() -> None:
        for _ in turns:
            await stage.client.cancel_job(await stage.client.submit_job(HELD))

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)


@asynccontextmanager
async def staged(sizes: Sizes, folder: Path) -> AsyncGenerator[Stage]:
    """Start a cluster with accounting; its database has the chart's buffer pool."""
    records = sizes.nodes - 2
    slurm = HostSlurm(
        release_of(sizes.slurm),
        folder / "slurm",
        cache=from_environment().cache,
        report=lambda _line: None,
        nodes=2,
        records=NodeRange(
            count=records,
            first_port=0,
            prefix="record",
            cpus=CPUS,
            memory_mib=MEMORY_MIB,
            gpus=GPUS,
            gpu_types=("h100",),
        ),
        more=LINES,
        has_accounting=True,
    )
    try:
        await anyio.to_thread.run_sync(slurm.start)
        async with SlurmClient(slurm.url, KeyTokens(slurm.jwt_key), timeout_s=120.0) as client:
            stage = Stage(sizes, slurm, client)
            await stage.sql("SET GLOBAL innodb_buffer_pool_size = 512 * 1024 * 1024")
            yield stage
    finally:
        slurm.stop()


async def measure(sizes: Sizes) -> None:
    """Measure it all."""
    with tempfile.TemporaryDirectory(prefix="sunk-bench-") as folder:
        async with staged(sizes, Path(folder)) as stage:
            for part in (start, jobs, busy, restart, history, backlog):
                await part(stage)


def main() -> None:
    """Measure on a cluster of our own."""
    parser = argparse.ArgumentParser(prog="bench memory", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--history", type=int, default=20_000, help="jobs that have ended")
    parser.add_argument("--messages", type=int, default=10_000, help="that slurmctld keeps, about")
    parser.add_argument("--seconds", type=float, default=60.0, help="of being busy")
    parser.add_argument("--plan", type=float, default=300.0, help="seconds that Slurm has to give out nodes")
    parser.add_argument("--slurm", default=SLURM_24_11.version, help="release")
    anyio.run(measure, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
