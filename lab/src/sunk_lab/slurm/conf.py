"""Slurm's configuration, from one frozen description, for the machine and for Pods alike.

The values that a user of the project must have (prolog flags, time-outs, scheduling, selection, preemption)
stand here once; what differs between the two ways of running is an address, a folder and who names the nodes.

Source: slurm.conf(5), gres.conf(5), cgroup.conf(5) of 24.11 and 26.05. Keys are those that both know: 24.11
dies at PrologTimeout and EpilogTimeout.
"""

from dataclasses import dataclass
from typing import Final

RESTD_ENVIRONMENT: Final = {
    "SLURM_JWT": "daemon",  # It speaks to slurmctld with its callers' tokens.
    "SLURMRESTD_JSON": "compact",  # A list of nodes is a third shorter.
    # A list of 2,000 nodes leaves 270 MB behind in the arenas of its threads, and 95 MB so.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}
"""Of slurmrestd; what malloc is told is glibc's, mallopt(3)."""
# With the defaults a job waits three seconds and more for its turn.
_SCHEDULER: Final = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=1,sched_min_interval=0,"
    "default_queue_depth=1000,nohold_on_prolog_fail"
)
_ALWAYS: Final = (
    "SlurmUser=slurm",  # slurmrestd refuses to run as SlurmUser and as root.
    "SlurmdUser=root",
    "AuthType=auth/slurm",  # Needs no munged.
    "CredType=auth/slurm",
    "AuthAltTypes=auth/jwt",
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "JobAcctGatherType=jobacct_gather/none",
    "MpiDefault=none",
    "PropagateResourceLimits=NONE",
    "SlurmdParameters=config_overrides",  # Nodes have the CPUs that they are said to have, not the machine's.
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core_Memory",  # Without _Memory two jobs of 10 GB share a node of 16.
    "PrologFlags=Alloc,DeferBatch",  # Only both words make a batch script wait for all its nodes' prologs.
    _SCHEDULER,
    "ReturnToService=2",
    "InactiveLimit=0",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    "PreemptParameters=send_user_signal",  # Else a batch script hears nothing while its grace time runs.
    "GresTypes=gpu",
    "MaxNodeCount=20000",  # Room for nodes that register themselves.
)


@dataclass(frozen=True, kw_only=True)
class NodeRange:
    """Nodes that slurm.conf names, all on one machine."""

    count: int
    first_port: int
    prefix: str = "node"
    cpus: int = 4
    memory_mib: int = 16000
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    """Types of the GPUs, as many of each; none: they have no type."""
    gpu_folder: str = ""
    """Of their device files, ``0`` and so on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the nodes' names in order."""
        return tuple(f"{self.prefix}{index:0{self._width}d}" for index in range(1, self.count + 1))

    @property
    def names_expression(self) -> str:
        """Return the names as a hostlist expression."""
        return f"{self.prefix}[{1:0{self._width}d}-{self.count:0{self._width}d}]"

    @property
    def ports_expression(self) -> str:
        """Return the ports as a hostlist expression."""
        return f"[{self.first_port}-{self.first_port + self.count - 1}]"

    @property
    def gres(self) -> str:
        """Return the GPUs as slurm.conf has them; empty without any."""
        if not self.gpus:
            return ""
        each = self.gpus // max(len(self.gpu_types), 1)
        return ",".join(f"gpu:{kind}:{each}" for kind in self.gpu_types) or f"gpu:{self.gpus}"

    @property
    def _width(self) -> int:
        return max(2, len(str(self.count)))


@dataclass(frozen=True, kw_only=True)
class SlurmConf:
    """One cluster; durations are in seconds and end in ``_s``."""

    cluster: str = "lab"
    controller: str
    """slurmctld's host name with its address in brackets: ``slurmctld-0(slurmctld)``."""
    controller_port: int = 6817
    slurmd_port: int = 6818
    jwt_key: str
    state_folder: str
    spool_folder: str
    run_folder: str
    """Of pid files; logs go to standard error."""
    is_configless: bool = False
    prolog: str = ""
    """A name without a slash is a script next to slurm.conf, which configless slurmd get with it."""
    epilog: str = ""
    prolog_epilog_timeout_s: int = 90
    """The hooks' own deadline and 30 more: it kills without a word, so it must never come first."""
    kill_wait_s: int = 40
    """The longest grace period of a Pod and 10 more."""
    slurmd_timeout_s: int = 30
    memory_per_cpu_mib: int = 2000
    """What a job that names no memory gets per CPU; without it, all of its node."""
    nodes: NodeRange | None = None
    """None: every node registers itself."""
    records: NodeRange | None = None
    """Nodes without a slurmd, in a partition of their own: a big cluster on a small machine."""
    more: tuple[str, ...] = ()
    """Lines at the end; of a key given twice the last holds."""


def render_slurm_conf(conf: SlurmConf) -> str:
    """Return slurm.conf."""
    lines = (
        f"ClusterName={conf.cluster}",
        f"SlurmctldHost={conf.controller}",
        f"SlurmctldPort={conf.controller_port}",
        f"SlurmdPort={conf.slurmd_port}",
        *_ALWAYS,
        *_paths(conf),
        *_timeouts(conf),
        *(("SlurmctldParameters=enable_configless",) if conf.is_configless else ()),
        *((f"Prolog={conf.prolog}",) if conf.prolog else ()),
        *((f"Epilog={conf.epilog}",) if conf.epilog else ()),
        f"DefMemPerCPU={conf.memory_per_cpu_mib}",
        *conf.more,
        *((_node_line(conf.nodes),) if conf.nodes else ()),
        *_partition_lines(conf),
    )
    return "".join(f"{line}\n" for line in lines)


def render_gres_conf(conf: SlurmConf) -> str:
    """Return gres.conf; empty without GPUs."""
    nodes = conf.nodes
    if nodes is None or not nodes.gpus:
        return ""
    each = nodes.gpus // max(len(nodes.gpu_types), 1)
    return "".join(
        f"NodeName={nodes.names_expression} Name=gpu{kind} "
        f"File={nodes.gpu_folder}/[{at * each}-{at * each + each - 1}]\n"
        for at, kind in enumerate([f" Type={kind}" for kind in nodes.gpu_types] or [""])
    )


def render_cgroup_conf() -> str:
    """Return cgroup.conf: none are used, so slurmd needs no privilege in its Pod."""
    return "CgroupPlugin=disabled\n"


def render_dynamic_node(
    *, cpus: int, memory_mib: int, address: str, features: tuple[str, ...] = (), port: int = 0, gpus: int = 0
) -> str:
    """Return what ``slurmd -Z --conf`` wants: how a node that registers itself describes itself."""
    words = (
        f"CPUs={cpus}",
        f"RealMemory={memory_mib}",
        f"NodeAddr={address}",
        *((f"Port={port}",) if port else ()),
        *((f"Feature={','.join(features)}",) if features else ()),
        *((f"Gres=gpu:{gpus}",) if gpus else ()),
    )
    return " ".join(words)


def _paths(conf: SlurmConf) -> tuple[str, ...]:
    per_node = "/%n" if conf.nodes else ""  # Several slurmd share the folders of one machine.
    return (
        f"AuthAltParameters=jwt_key={conf.jwt_key}",
        f"StateSaveLocation={conf.state_folder}",
        f"SlurmdSpoolDir={conf.spool_folder}{per_node}",
        f"SlurmctldPidFile={conf.run_folder}/slurmctld.pid",
        f"SlurmdPidFile={conf.run_folder}/slurmd{'.%n' if conf.nodes else ''}.pid",
    )


def _timeouts(conf: SlurmConf) -> tuple[str, ...]:
    return (
        f"PrologEpilogTimeout={conf.prolog_epilog_timeout_s}",
        # A batch job that slurmd does not have so long after its start, when it registers, is requeued.
        f"BatchStartTimeout={conf.prolog_epilog_timeout_s + 30}",
        # What starts a job is signed when it is allocated, and has to outlive its prologs.
        f"AuthInfo=ttl={conf.prolog_epilog_timeout_s + 30},cred_expire={conf.prolog_epilog_timeout_s + 30}",
        f"KillWait={conf.kill_wait_s}",
        f"SlurmdTimeout={conf.slurmd_timeout_s}",
    )


def _partition_lines(conf: SlurmConf) -> tuple[str, ...]:
    main = "PartitionName=main Nodes={} Default=YES MaxTime=INFINITE State=UP"
    if conf.records is None:
        return (main.format("ALL"),)
    records = conf.records.names_expression
    return (
        # Neither pinged nor down; a job on it would never start.
        f"NodeName={records} {_size(conf.records)} State=CLOUD",
        main.format(conf.nodes.names_expression if conf.nodes else ""),
        f"PartitionName=records Nodes={records} MaxTime=INFINITE State=UP",
    )


def _node_line(nodes: NodeRange) -> str:
    return (
        f"NodeName={nodes.names_expression} NodeHostname=ctl NodeAddr=127.0.0.1 Port={nodes.ports_expression}"
        f" {_size(nodes)} State=UNKNOWN"
    )


def _size(nodes: NodeRange) -> str:
    gres = f" Gres={nodes.gres}" if nodes.gpus else ""
    return f"CPUs={nodes.cpus} RealMemory={nodes.memory_mib}{gres}"
