"""A Slurm cluster of a simulation: its daemons as processes, what they keep, and its faults.

    slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), SlurmConf(), nodes=[NodeConf("n1")])
    slurm.changed = sim.changed
    slurm.start()

Clients find slurmrestd at ``http://slurmrestd:6820``; commands are `exec`. A checker looks at `state`.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from sunk_simulation.loop import EPOCH_NS, Process
from sunk_simulation.network import NetworkLoop
from sunk_simulation.slurm import commands
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.records import AccountedJob, JobRecord, State
from sunk_simulation.slurm.scripts import Scripts
from sunk_simulation.slurm.slurmctld import Slurmctld
from sunk_simulation.slurm.slurmd import NodeConf, Slurmd
from sunk_simulation.slurm.slurmrestd import Slurmrestd
from sunk_simulation.trace import Trace

PORT: Final = 6820
CONTROLLER: Final = "slurmctld"


class ModelSlurm:
    """All of it."""

    def __init__(
        self,
        loop: NetworkLoop,
        trace: Trace,
        random: Random,
        conf: SlurmConf,
        nodes: Iterable[NodeConf] = (),
        *,
        restd_host: str = "slurmrestd",
        port: int = PORT,
        one_host: str = "",
    ) -> None:
        """Describe it.

        Args:
            loop: Where it lives.
            trace: What happens is written there.
            random: Its lots.
            conf: Its slurm.conf.
            nodes: Those that slurm.conf names; others register themselves, see `add_node`.
            restd_host: Where slurmrestd listens.
            port: And on which port.
            one_host: The machine that all nodes are on; empty: each has its own.
        """
        self.loop: Final = loop
        self.trace: Final = trace
        self.random: Final = random
        self.conf: Final = conf
        self.one_host: Final = one_host
        self.static_nodes: Final = tuple(nodes)
        self.saved = State()
        """What is in StateSaveLocation."""
        self.accounting: Final[dict[tuple[int, int], AccountedJob]] = {}
        """What slurmdbd has, by the number of a job and when it was submitted."""
        self.ctld: Slurmctld | None = None
        self.slurmds: Final[dict[str, Slurmd]] = {}
        self.scripts: Final = Scripts(self)
        self.restd: Final = Slurmrestd(self, restd_host, port)
        self.changed: Callable[[], None] = lambda: None
        """Called after each change of its state: `Simulation.changed`."""
        self.on_job_touched: Callable[[JobRecord, str, str], None] = lambda _job, _how, _user: None
        """Told of who changes, requeues or cancels a job, before it is done."""
        self.on_node_touched: Callable[[str, list[str], str, str], None] = (
            lambda _node, _states, _user, _why: None
        )
        """Told of who has set which states of a node, and of the reason that it has since."""
        self.on_node_deleted: Callable[[str, str], None] = lambda _node, _user: None
        """Told of who deletes the record of a node, before it is done."""
        self.on_submitted: Callable[[JobRecord, str], None] = lambda _job, _user: None
        """Told of each job that was taken."""
        self.is_launch_lost: Callable[[JobRecord], bool] = lambda _job: False
        """Asked whether the launch of a job's script is lost on its way to its node."""
        for conf_of_node in self.static_nodes:
            self.slurmds[conf_of_node.name] = Slurmd(self, conf_of_node)

    @property
    def state(self) -> State:
        """What slurmctld has; while it is away, what it has saved."""
        return self.ctld.state if self.ctld is not None else self.saved

    @property
    def is_running(self) -> bool:
        """Whether slurmctld does."""
        return self.ctld is not None

    def now(self) -> int:
        """Return the time, in seconds since 1970, as clocks have it that nobody sets."""
        return (EPOCH_NS + self.loop.now_ns) // 1_000_000_000

    def start(self) -> None:
        """Start all that does not run."""
        self.start_ctld()
        self.restd.start()
        for conf in self.static_nodes:
            if conf.has_slurmd:
                self.slurmds[conf.name].start()

    def settle(self) -> None:
        """Have all nodes be known and idle at once."""
        if self.ctld is not None:
            for conf in self.static_nodes:
                if conf.has_slurmd:
                    self.ctld.nodes.register(self.slurmds[conf.name].told())
            self.ctld.save()

    def start_ctld(self) -> None:
        """Start slurmctld with what was saved; it running is success."""
        if self.ctld is not None:
            return
        self.loop.network.revive_host(CONTROLLER)
        process = self.loop.process("slurmctld", host=CONTROLLER)
        self.trace.write("slurmctld", "starts", jobs=len(self.saved.jobs), last=self.saved.last_job_id)
        self.ctld = Slurmctld(self, self.saved, process)
        process.run(self.ctld.boot)
        self.changed()

    def kill_ctld(self) -> None:
        """End slurmctld between two lines: what it has not saved is gone."""
        self._end_ctld("is killed")

    def stop_ctld(self) -> None:
        """End slurmctld in order: it saves all."""
        if self.ctld is not None:
            self.ctld.save()
        self._end_ctld("ends")

    def lose_jobs(self) -> None:
        """End slurmctld, and lose ``job_state``: numbers begin with 1 again, nodes stay as they are."""
        self.kill_ctld()
        self.trace.write("slurmctld", "loses its jobs")
        self.saved.jobs, self.saved.last_job_id = {}, 0
        self.changed()

    def lose_state(self) -> None:
        """End slurmctld, and lose all that it has saved."""
        self.kill_ctld()
        self.trace.write("slurmctld", "loses its state")
        self.saved = State()
        self._note_lost_jobs()
        self.changed()

    def _note_lost_jobs(self) -> None:
        """Have slurmdbd hear of it: 24.11 notes jobs that were not over as cancelled, 26.05 none."""
        if self.conf.is_24_11:
            for job in self.accounting.values():
                if job.state in {"PENDING", "RUNNING", "SUSPENDED"}:
                    job.state, job.end_time = "CANCELLED", self.now()

    def add_node(self, conf: NodeConf) -> Slurmd:
        """Start a slurmd that registers itself."""
        slurmd = self.slurmds.get(conf.name)
        if slurmd is None or slurmd.conf != conf:
            slurmd = self.slurmds[conf.name] = Slurmd(self, conf)
        slurmd.start()
        return slurmd

    def exec(self, *argv: str) -> str:
        """Run a command of Slurm as root and return what it prints.

        Raises:
            commands.CommandError: it failed.
        """
        return commands.run(self, argv)

    def reconfigure(self) -> None:
        """Have slurmctld read its configuration again: nodes are not known until they have registered."""
        if self.ctld is not None:
            self.trace.write("slurmctld", "reconfigures")
            self.ctld.nodes.recover()
            for slurmd in self.slurmds.values():
                slurmd.reconfigure()
            self.changed()

    def host_of(self, node: str) -> str:
        """Return the machine of a node."""
        return self.one_host or f"node-{node}"

    def hears(self, node: str, *, from_node: bool = False) -> bool:
        """Whether a node's slurmd and slurmctld hear each other now; *from_node*: whether a step is heard."""
        slurmd, ctld = self.slurmds.get(node), self.ctld
        if slurmd is None or ctld is None or ctld.process.is_paused:
            return False
        if not from_node and (not slurmd.is_running or (slurmd.process and slurmd.process.is_paused)):
            return False
        network = self.loop.network
        return not any(link.is_cut for link in network.between(slurmd.host, CONTROLLER))

    def job_submitted(self, job: JobRecord, user: str) -> None:
        """Tell that a job was taken."""
        self.on_submitted(job, user)

    def job_touched(self, job: JobRecord, how: str, user: str) -> None:
        """Tell that *user* changes a job."""
        self.on_job_touched(job, how, user)
        self.changed()

    def nodes_touched(self, node: str, states: list[str], user: str, reason: str) -> None:
        """Tell that *user* has changed a node."""
        self.on_node_touched(node, states, user, reason)
        self.changed()

    def _end_ctld(self, how: str) -> None:
        if self.ctld is not None:
            self.trace.write("slurmctld", how)
            process: Process = self.ctld.process
            self.ctld = None
            process.kill()
