"""slurmd of one node: its steps and hooks are processes of their own, which outlive it.

What must stay true: whoever is told twice does it once; a slurmd that died heard nothing of how its children
ended, and a step tells slurmctld of its own end itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sunk_simulation.loop import Main, Process
from sunk_simulation.slurm.records import JobRecord

if TYPE_CHECKING:
    from sunk_simulation.slurm.model import ModelSlurm
    from sunk_simulation.slurm.slurmctld import Slurmctld

TERM: Final = 15
SIGNALS: Final = {"TERM": TERM, "KILL": 9, "USR1": 10, "USR2": 12, "INT": 2, "HUP": 1}
RETRY_S: Final = 1.0
"""How long who could not tell slurmctld waits before it tries again."""
REMEMBERED: Final = 200
"""Lives of jobs."""

Key = tuple[int, int]
"""A job's number, and which of its lives."""


@dataclass(frozen=True)
class Registration:
    """What a slurmd says of its node."""

    name: str
    cpus: int
    real_memory: int
    gpus: int
    features: tuple[str, ...]
    address: str
    boot_time: int
    slurmd_start_time: int
    is_dynamic: bool
    steps: tuple[Key, ...]
    """Those that run there."""


@dataclass
class NodeConf:
    """A node as it describes itself."""

    name: str
    cpus: int = 4
    real_memory: int = 16000
    gpus: int = 0
    features: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    is_dynamic: bool = False
    has_slurmd: bool = True


@dataclass
class Step:
    """The batch script of a job."""

    process: Process
    waits: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


class Slurmd:
    """A node with its slurmd, which may be started, killed, paused."""

    def __init__(self, slurm: "ModelSlurm", conf: NodeConf) -> None:
        self.slurm: Final = slurm
        self.conf: Final = conf
        self.process: Process | None = None
        self.steps: Final[dict[Key, Step]] = {}
        self.prologs: Final[dict[Key, Process]] = {}
        self._epilogs: Final[dict[Key, Process]] = {}
        self._over: Final[dict[Key, None]] = {}
        """Lives of jobs whose epilog has ended here: slurmd remembers them in their credentials."""
        self._waits: dict[Key, list[Callable[[], None]]] = {}
        self._children: Final[dict[Process, None]] = {}
        self._started = 0
        self._was_registered = False
        self.boot_time = slurm.now()

    @property
    def host(self) -> str:
        """The machine that it is on."""
        return self.slurm.host_of(self.conf.name)

    @property
    def is_running(self) -> bool:
        """Whether there is one."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Start it; it running is success."""
        if self.is_running:
            return
        self.slurm.loop.network.revive_host(self.host)
        self.process = self.slurm.loop.process(f"slurmd-{self.conf.name}", host=self.host)
        self.slurm.trace.write(f"slurmd-{self.conf.name}", "starts")
        self._started, self._was_registered = self.slurm.now(), False
        self.prologs.clear()  # It knows of its steps; hooks of an earlier slurmd are nobody's.
        self._epilogs.clear()
        self._over.clear()
        self._waits.clear()
        self.slurm.loop.at(self.process, self.slurm.random.uniform(0.05, 0.2), self.register)

    def kill(self) -> None:
        """End it; its steps and hooks live on."""
        if self.process is not None:
            self.slurm.trace.write(f"slurmd-{self.conf.name}", "is killed")
            self.process.kill()

    def fail(self) -> None:
        """Let the whole machine go, as a node that is deleted or loses its power."""
        self.end_all()
        self.boot_time = self.slurm.now() + 1

    def end_all(self) -> None:
        """End it and all that it has started, as a container ends: the machine goes on."""
        self.kill()
        for child in list(self._children):
            child.at_end.clear()
            child.kill()
        self._children.clear()
        self.steps.clear()

    def register(self) -> None:
        """Tell slurmctld of the node."""
        told = self.told()
        self._was_registered = True
        self._tell(self.process, lambda ctld: ctld.nodes.register(told))

    def told(self) -> Registration:
        """Return what it says of the node."""
        conf = self.conf
        return Registration(
            name=conf.name,
            cpus=conf.cpus,
            real_memory=conf.real_memory,
            gpus=conf.gpus,
            features=conf.features,
            address=conf.address,
            boot_time=self.boot_time,
            slurmd_start_time=self._started,
            is_dynamic=conf.is_dynamic and not self._was_registered,
            steps=tuple(self.steps),
        )

    def reconfigure(self) -> None:
        """Start anew in place, as soon as no prolog runs."""
        if not self.is_running:
            return
        assert self.process is not None
        if self.prologs:
            self.slurm.loop.at(self.process, RETRY_S, self.reconfigure)
        else:
            self._started = self.slurm.now()
            self.register()

    def ping(self) -> None:
        """Answer, which is all that is asked."""

    def prolog(self, job: JobRecord) -> None:
        """Run the prolog of *job*, and say when it has ended."""
        key = (job.job_id, job.life)
        if key in self.prologs or self._is_ending(key):
            return
        self.prologs[key] = self._run_hook("prolog", self.slurm.scripts.prolog(job, self.conf.name))
        slurmd = self.process

        def ended(process: Process) -> None:
            self.prologs.pop(key, None)
            if slurmd is not None and slurmd.is_alive and slurmd is self.process:
                if process.code:
                    self._tell(slurmd, lambda ctld: ctld.jobs.launch_failed(*key, self.conf.name))
                self._tell(slurmd, lambda ctld: ctld.jobs.prolog_complete(*key, self.conf.name))
                for wait in self._waits.pop(key, []):
                    wait()

        self.prologs[key].at_end.append(ended)

    def launch(self, job: JobRecord) -> None:
        """Run the batch script of *job*."""
        key = (job.job_id, job.life)
        if key in self.steps or self._is_ending(key):
            return
        main = self.slurm.scripts.batch(job, self.conf.name)
        environment = {name: value for name, _, value in (word.partition("=") for word in job.environment)}
        process = self._run(f"job-{job.job_id}", main, environment)
        self.steps[key] = Step(process)
        self.slurm.changed()

        def ended(process: Process) -> None:
            step = self.steps.pop(key, None)
            code = process.code or 0
            result = (code, 0) if code >= 0 else (0, -code)
            self._tell(None, lambda ctld: ctld.jobs.batch_complete(*key, *result))
            for wait in step.waits if step else ():
                wait()

        process.at_end.append(ended)

    def signal(self, job_id: int, life: int, name: str) -> None:
        """Send a signal to a script."""
        step = self.steps.get((job_id, life))
        if step is not None:
            step.process.signal(SIGNALS[name.upper().removeprefix("SIG")])

    def suspend(self, job_id: int, life: int) -> None:
        """Stop a script."""
        if (step := self.steps.get((job_id, life))) is not None:
            step.process.pause()

    def resume(self, job_id: int, life: int) -> None:
        """Let it go on."""
        if (step := self.steps.get((job_id, life))) is not None:
            step.process.resume()

    def terminate(self, job_id: int, life: int) -> None:
        """End what there is of a job, run its epilog, and say when that has ended."""
        key = (job_id, life)
        if key in self._over:
            self._tell(self.process, lambda ctld: ctld.jobs.epilog_complete(*key, self.conf.name))
            return
        if key in self._epilogs:
            return
        if key in self.prologs:
            if key not in self._waits:
                self._waits[key] = [lambda: self.terminate(*key)]
            return
        step = self.steps.get(key)
        if step is None:
            self._run_epilog(key)
        elif key not in self._waits:
            self._end(key, step)

    def _is_ending(self, key: Key) -> bool:
        return key in self._epilogs or key in self._over

    def _end(self, key: Key, step: Step) -> None:
        slurmd = self.process
        self._waits[key] = []

        def go_on() -> None:
            if slurmd is not None and slurmd.is_alive:
                self.slurm.loop.soon(slurmd, self._run_epilog, key)

        step.waits.append(go_on)
        step.process.resume()
        step.process.signal(TERM)
        assert slurmd is not None
        self.slurm.loop.at(slurmd, self.slurm.conf.kill_wait_s, step.process.kill)

    def _run_epilog(self, key: Key) -> None:
        if key in self._epilogs or key in self._over:
            return
        self._waits.pop(key, None)
        self._epilogs[key] = self._run_hook("epilog", self.slurm.scripts.epilog(key[0], self.conf.name))
        slurmd = self.process

        def ended(process: Process) -> None:
            self._epilogs.pop(key, None)
            self._over[key] = None
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]
            if slurmd is not None and slurmd.is_alive and slurmd is self.process:
                if process.code:
                    self._tell(slurmd, lambda ctld: ctld.nodes.drain_named(self.conf.name, "Epilog error"))
                self._tell(slurmd, lambda ctld: ctld.jobs.epilog_complete(*key, self.conf.name))

        self._epilogs[key].at_end.append(ended)

    def _run_hook(self, name: str, main: Main) -> Process:
        """Run a hook, for as long as Slurm lets it."""
        process = self._run(name, main)
        self.slurm.loop.at(process, self.slurm.conf.prolog_epilog_timeout_s, process.kill)
        return process

    def _run(self, name: str, main: Main, environment: dict[str, str] | None = None) -> Process:
        env = {"SLURMD_NODENAME": self.conf.name, **(environment or {})}
        process = self.slurm.loop.process(f"{name}@{self.conf.name}", host=self.host, env=env)
        self._children[process] = None
        process.at_end.append(lambda one: self._children.pop(one, None))
        return process.start(main)

    def _tell(self, process: Process | None, tell: "Callable[[Slurmctld], object]") -> None:
        """Tell slurmctld, again and again while it is not there; whoever tells may die meanwhile."""
        loop = self.slurm.loop
        teller = process or loop.outside

        def again() -> None:
            ctld = self.slurm.ctld
            if ctld is None or not self.slurm.hears(self.conf.name, from_node=True):
                loop.at(teller, RETRY_S, again)
                return
            loop.at(ctld.process, self.slurm.random.uniform(0.001, 0.02), tell, ctld)

        again()
