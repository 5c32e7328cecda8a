"""What users and administrators do to a Slurm cluster, by the seed: jobs of all kinds, drains by hand."""

from collections.abc import Callable
from typing import Final

from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.model import ModelSlurm

EVERY_S: Final = (4.0, 40.0)
RUNS_S: Final = (5, 240)
"""How long a job runs."""
_KINDS: Final = (
    (),
    ("--nodes=2",),
    ("--exclusive",),
    ("--hold",),
    ("--no-requeue",),
    ("--array=1-4",),
    ("--gres=gpu:2", "--ntasks=2"),
    ("-n1", ":", "-n1"),
)


class Life:
    """Users and administrators."""

    def __init__(
        self, sim: Simulation, slurm: ModelSlurm, lose_slurmd: Callable[[str], None] | None = None
    ) -> None:
        """Describe them.

        Args:
            sim: Where they live.
            slurm: What they use.
            lose_slurmd: Ends the slurmd of a node, which comes back; None: it is started again here.
        """
        self._sim = sim
        self._slurm = slurm
        self._random = sim.random("life")
        self._drains = 0
        self._deeds: tuple[tuple[int, Callable[[], None]], ...] = (
            (10, self._submit),
            (2, self._cancel),
            (2, lambda: self._to_a_job("requeue")),
            (1, lambda: self._to_a_job("requeuehold")),
            (3, lambda: self._to_a_job("release")),
            (1, lambda: self._to_a_job("suspend")),
            (2, lambda: self._to_a_job("resume")),
            (3, lambda: self._to_a_node(self._drain)),
            (4, lambda: self._to_a_node(self._undrain)),
            (2, lambda: self._to_a_node(lose_slurmd or self._lose_slurmd)),
        )

    async def go_on(self) -> None:
        """Let things happen, for ever."""
        weights = [weight for weight, _ in self._deeds]
        pauses = self._sim.random("life")
        while True:
            await self._sim.sleep(pauses.uniform(*EVERY_S))
            lots = self._sim.item("deed")
            if lots is not None:
                self._random = lots
                (deed,) = lots.choices([deed for _, deed in self._deeds], weights)
                deed()

    def end(self) -> None:
        """Leave no job and no drain by hand, and all daemons running."""
        self._slurm.start()
        self._try("scancel", "--user=root")
        for node in sorted(self._slurm.state.nodes):
            if self._is_by_hand(node):
                self._try("scontrol", "update", f"node={node}", "state=undrain")

    def work(self) -> None:
        """Submit a job that does not end by itself."""
        self._try("sbatch", "--parsable", "--wrap=sleep 86400")

    def _submit(self) -> None:
        script = f"sleep {self._random.randint(*RUNS_S)}; exit {int(self._random.random() < 0.2)}"
        self._try("sbatch", "--parsable", *self._random.choice(_KINDS), f"--wrap={script}")

    def _cancel(self) -> None:
        if alive := [job for job in self._slurm.state.jobs.values() if not job.is_over]:
            self._try("scancel", str(self._random.choice(alive).job_id))

    def _to_a_job(self, verb: str) -> None:
        if alive := [job for job in self._slurm.state.jobs.values() if not job.is_over]:
            self._try("scontrol", verb, str(self._random.choice(alive).job_id))

    def _to_a_node(self, deed: Callable[[str], None]) -> None:
        if nodes := sorted(self._slurm.state.nodes):
            deed(self._random.choice(nodes))

    def _drain(self, node: str) -> None:
        self._drains += 1
        self._try("scontrol", "update", f"node={node}", "state=drain", f"reason=ticket {self._drains}")

    def _undrain(self, node: str) -> None:
        if self._is_by_hand(node):
            self._try("scontrol", "update", f"node={node}", "state=undrain")

    def _lose_slurmd(self, node: str) -> None:
        slurmd = self._slurm.slurmds[node]
        slurmd.fail() if self._random.random() < 0.3 else slurmd.kill()
        self._sim.network.later(self._random.uniform(0.5, 90.0), slurmd.start)

    def _is_by_hand(self, node: str) -> bool:
        record = self._slurm.state.nodes[node]
        return "DRAIN" in record.flags and record.reason.startswith("ticket ")

    def _try(self, *words: str) -> None:
        """Do it, if Slurm lets it be done now."""
        try:
            self._slurm.exec(*words)
        except CommandError as error:
            self._sim.trace.write("user", "is refused", error=error)
