"""A whole Slurm cluster on the machine: slurmctld, slurmrestd and slurmd in namespaces of its own.

The namespaces (mount, pid, UTS) stand in for a container: end their pid 1 and every daemon, job and mount is
gone. The network is the machine's, so tests reach slurmrestd on 127.0.0.1. The cluster's folder is ``/lab``
inside. Two hundred slurmd are no problem: each takes 5 MB.

Source: Slurm 24.11 and 26.05, tried: slurmrestd refuses root and SlurmUser; Debian's slurmd is built for
several on one machine.
"""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from sunk_lab.debian import need_root
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import Report, unpacked
from sunk_lab.ports import check_free, free_ports, give_back, is_open
from sunk_lab.processes import Processes, run, wait_for
from sunk_lab.slurm import accounting
from sunk_lab.slurm.conf import (
    RESTD_ENVIRONMENT,
    NodeRange,
    SlurmConf,
    render_cgroup_conf,
    render_dynamic_node,
    render_gres_conf,
    render_slurm_conf,
)
from sunk_lab.slurm.releases import Release
from sunk_lab.slurm.roots import INSTANCE, SLURM_UID, root_of
from sunk_lab.slurm.tokens import Keys, new_keys, new_token

_HERE: Final = Path(__file__).parent
_NAMESPACES: Final = "namespaces"
_SLURMCTLD, _SLURMRESTD = "slurmctld", "slurmrestd"
SECOND_SLURMRESTD: Final = "slurmrestd-2"
"""Another slurmrestd, in a cluster that is asked to start it."""
BACKUP: Final = "slurmctld-backup"
"""The daemon that takes over from slurmctld, in a cluster that has one."""
_BACKUP_ADDRESS: Final = "127.0.0.2"
_BACKUP_LINES: Final = (
    f"SlurmctldHost=backup({_BACKUP_ADDRESS})",
    "CommunicationParameters=NoCtldInAddrAny",  # Both listen on the same port, each on its own address.
)
_DAEMON_UID: Final = 1
_FIRST_NODE_PORT: Final = 10
"""Ports before: slurmctld, slurmrestd, (slurmd's default), slurmdbd, another slurmrestd."""
_ENVIRONMENT: Final = (
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    f"SLURM_CONF={INSTANCE}/etc/slurm.conf",
    "LC_ALL=C.UTF-8",
)
_OWN_CLOCK: Final = (
    f"LD_PRELOAD={INSTANCE}/etc/libfaketime.so",
    f"FAKETIME_TIMESTAMP_FILE={INSTANCE}/etc/clock",
    "FAKETIME_NO_CACHE=1",  # A change is seen at once.
    "FAKETIME_DISABLE_SHM=1",
    "DONT_FAKE_MONOTONIC=1",
)
# All slurmd of a machine would bind the same /run/slurm/sack.socket, so each gets a /run/slurm of its own.
_OWN_RUN: Final = (
    "unshare",
    "--mount",
    "--propagation",
    "unchanged",
    "bash",
    "-c",
    'mount -t tmpfs -o size=1M tmpfs /run/slurm && exec "$@"',
    "slurmd",
)


def _own_host(name: str, *folders: str) -> tuple[str, ...]:
    """Return what starts a backup: with a host name, and a pid file and sockets of its own in *folders*."""
    script = f"""hostname {name}
    for folder in {" ".join(folders)}; do
        mount -t tmpfs -o size=1M,mode=755,uid={SLURM_UID} tmpfs $folder
    done
    exec "$@\""""
    return ("unshare", "--mount", "--uts", "--propagation", "unchanged", "bash", "-euc", script, name)


class HostSlurm:
    """One cluster; everything it has is in its folder and in its namespaces."""

    def __init__(
        self,
        release: Release,
        folder: Path,
        *,
        cache: Path,
        report: Report,
        name: str = "lab",
        port: int = 0,
        nodes: NodeRange | int = 2,
        records: NodeRange | int = 0,
        prolog_epilog_timeout_s: int = 90,
        more: tuple[str, ...] = (),
        has_own_clock: bool = False,
        has_accounting: bool = False,
        has_accounting_backup: bool = False,
        has_backup: bool = False,
    ) -> None:
        """Describe a cluster; `start` starts it.

        Args:
            release: Which Slurm.
            folder: Its own; made by `start`, removed by `stop`.
            cache: Where roots are kept.
            report: Called with each step that takes long.
            name: The cluster's name.
            port: The first of its ports; 0: some that are free.
            nodes: What slurm.conf names, or just how many; others may register themselves.
            records: More nodes without a slurmd, or just how many, in the partition ``records``.
            prolog_epilog_timeout_s: After that Slurm ends a prolog or epilog.
            more: Lines for slurm.conf; of a key given twice the last holds.
            has_own_clock: Its clock can be set, see `set_clock_ahead`.
            has_accounting: It has a slurmdbd, with a database of its own: three seconds more.
            has_accounting_backup: A second slurmdbd, which `start_daemon` starts by its name.
            has_backup: slurm.conf names a second slurmctld, which `start_backup` starts.
        """
        self.release: Final = release
        self.name: Final = name
        self._folder: Final = folder.absolute()
        self._cache, self._report = cache, report
        self._port = port
        self._nodes: Final = nodes if isinstance(nodes, NodeRange) else NodeRange(count=nodes, first_port=0)
        more_nodes = (
            records
            if isinstance(records, NodeRange)
            else NodeRange(count=records, first_port=0, prefix="record")
        )
        self._records: Final = more_nodes if more_nodes.count else None
        self._prolog_epilog_timeout_s: Final = prolog_epilog_timeout_s
        self._more: Final = more
        self._has_own_clock: Final = has_own_clock
        self._has_accounting: Final = has_accounting
        self._has_accounting_backup: Final = has_accounting_backup
        self._has_backup: Final = has_backup
        self._processes: Final = Processes(self._folder)
        self._keys: Keys = new_keys()

    @property
    def url(self) -> str:
        """Return slurmrestd's address."""
        return f"http://127.0.0.1:{self._port + 1}"

    @property
    def second_url(self) -> str:
        """Return the address of another slurmrestd, which `start_daemon` starts by its name."""
        return f"http://127.0.0.1:{self._port + 4}"

    @property
    def controller_port(self) -> int:
        """Return slurmctld's port on 127.0.0.1; 26.05 serves metrics there too."""
        return self._port

    @property
    def jwt_key(self) -> Path:
        """Return the file of the key that tokens are made with."""
        return self._folder / "etc/jwt.key"

    @property
    def logs(self) -> Path:
        """Return the folder of the daemons' logs."""
        return self._folder / "log"

    @property
    def state(self) -> Path:
        """Return slurmctld's StateSaveLocation."""
        return self._folder / "state"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the nodes that slurm.conf names."""
        return self._nodes.names if self._nodes.count else ()

    @property
    def record_names(self) -> tuple[str, ...]:
        """Return the nodes that have no slurmd."""
        return self._records.names if self._records else ()

    def pid_of(self, name: str) -> int | None:
        """Return a daemon's process id; None where it does not run."""
        return self._processes.pid_of(name)

    def token(self, user: str = "root", lifespan_s: int = 86400) -> str:
        """Return a token for slurmrestd's header ``X-SLURM-USER-TOKEN``."""
        return new_token(self._keys.jwt, user=user, lifespan_s=lifespan_s)

    def start(self) -> None:
        """Start the cluster from nothing; afterwards its nodes are idle and slurmrestd answers.

        Raises:
            LabError: Not root, a port taken, or a daemon that does not start; names its log.
        """
        need_root("Slurm on this machine")
        root = root_of(self.release, self._cache, self._report, has_accounting=self._has_accounting)
        self.stop()  # What a killed run left.
        self._port = self._port or free_ports(self._port_count)
        check_free(self._port, self._port + 1, self._accounting_port)
        self._write_folder()
        self._processes.spawn(
            _NAMESPACES,
            ["bash", _HERE / "host_root.sh", root, self._folder],
            prefix=[
                "unshare",
                "--mount",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
                "--propagation",
                "private",
            ],
            forks=True,
        )
        wait_for(f"the namespaces, see {self._processes.log_of(_NAMESPACES)}", self._is_inside, pause_s=0.01)
        if self._has_accounting:
            self.start_daemon(accounting.DATABASE)
            self.start_daemon(accounting.SLURMDBD)
        self.start_daemon(_SLURMCTLD)
        self.start_daemon(_SLURMRESTD)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.start_daemon, self.node_names))
        wait_for(f"slurmrestd, see {self.logs}", lambda: is_open(self._port + 1), pause_s=0.02)
        wait_for(f"Slurm's nodes, see {self.logs}", self._are_nodes_up, pause_s=0.05)

    def stop(self) -> None:
        """End the cluster with all that runs in it and remove its folder; it not running is success."""
        if not self._folder.exists():
            return
        for name in self._processes.names():
            self._processes.thaw(name)  # What is frozen is never reaped, and holds its namespace.
        self._processes.kill(_NAMESPACES, signal.SIGKILL)
        for name in self._processes.names():
            wait_for(f"{name} to end", lambda name=name: self._processes.pid_of(name) is None, pause_s=0.01)
            self._processes.forget(name)
        shutil.rmtree(self._folder)
        give_back(self._port, self._port_count)

    def start_daemon(self, name: str) -> None:
        """Start a daemon, or the slurmd of a named node; it running is success."""
        match name:
            case accounting.DATABASE:
                self._spawn(name, *accounting.COMMANDS[name])
                wait_for(f"the database, see {self.logs}", self._is_database_up, pause_s=0.1)
            case accounting.SLURMDBD:
                self._spawn(name, *accounting.COMMANDS[name])
                port = self._accounting_port
                wait_for(f"slurmdbd, see {self.logs}", lambda: is_open(port), pause_s=0.1)
            case accounting.BACKUP:  # It stands by and listens to nothing.
                own = _own_host(accounting.BACKUP_HOST, "/run/slurmdbd")
                self._spawn(name, *own, *accounting.COMMANDS[accounting.SLURMDBD])
            case "slurmctld":
                self._spawn(name, "slurmctld", "-D")
            # It speaks to slurmctld with its callers' tokens; the user only must not be root.
            case "slurmrestd" | "slurmrestd-2":
                address = (self.second_url if name == SECOND_SLURMRESTD else self.url).removeprefix("http://")
                environment = [f"{name}={value}" for name, value in RESTD_ENVIRONMENT.items()]
                serves = "slurmctld,slurmdbd" if self._has_accounting else "slurmctld"
                who = ("-u", "daemon", "-g", "daemon", "-s", serves, "-a", "rest_auth/jwt")
                self._spawn(name, "env", *environment, "slurmrestd", *who, address)
            case _:
                self._spawn(name, *_OWN_RUN, "slurmd", "-D", "-N", name)

    def start_backup(self, prepare: str = "") -> None:
        """Start the slurmctld that takes over from the first; it has begun, and does not stand by yet.

        *prepare* is bash that runs before, in the shell that becomes slurmctld.
        """
        own = _own_host("backup", "/run/slurm", "/run/slurmctld", f"{INSTANCE}/pid")
        self._spawn(BACKUP, *own, "bash", "-euc", f"{prepare}\nexec slurmctld -D")

    def add_node(
        self,
        name: str,
        *,
        cpus: int = 4,
        memory_mib: int = 16000,
        features: tuple[str, ...] = (),
        claimed_gpus: int = 0,
        prepare: str = "",
    ) -> None:
        """Start a slurmd that registers itself as *name*, on a port of its own.

        One that claims GPUs has none: slurmctld refuses its registration (INVALID_REG).

        *prepare* is bash that runs before, with mounts that only this slurmd sees; what it sets ``gres`` to,
        slurmd announces.
        """
        port = free_ports(1)
        described = render_dynamic_node(
            cpus=cpus,
            memory_mib=memory_mib,
            address="127.0.0.1",
            port=port,
            features=features,
            gpus=claimed_gpus,
        )
        start = f'{prepare}\nexec slurmd -D -Z -N "$1" --conf "$2${{gres:+ Gres=$gres}}"'
        self._spawn(name, *_OWN_RUN, "bash", "-euc", start, "slurmd", name, described)

    def kill_daemon(self, name: str, sig: int = signal.SIGKILL) -> None:
        """End one daemon, by default as a dead machine would; jobs of a killed slurmd live on as orphans."""
        # One that is asked to end saves its state first, and a busy machine takes its time for that.
        self._processes.kill(name, sig, patience_s=60.0)

    def freeze_daemon(self, name: str) -> None:
        """Let one daemon hang: it keeps its connections and answers nothing."""
        self._processes.freeze(name)

    def thaw_daemon(self, name: str) -> None:
        """Let a daemon that hangs go on."""
        self._processes.thaw(name)

    def set_clock_ahead(self, by_s: int) -> None:
        """Set the clock of every daemon and command of the cluster, at once; less than 0 is behind."""
        new = self._folder / "etc/clock.new"
        new.write_text(f"{by_s:+d}\n")
        new.rename(self._folder / "etc/clock")

    def exec(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run a command in the cluster as root (``sinfo``, ``sbatch``) and return what it prints.

        Raises:
            LabError: The cluster does not run, or the command failed.
        """
        return run(*self._inside(), *argv, timeout_s=timeout_s)

    def exec_at_backup(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run a command as `exec`, where the backup runs, which then vouches for it and not slurmctld.

        Raises:
            LabError: The backup does not run, or the command failed.
        """
        pid = self._processes.require(BACKUP)
        mounts = ("nsenter", "-t", str(pid), "-m", "-u", "-p", "-r", "-w")
        return run(*mounts, "/usr/bin/env", "-i", *_ENVIRONMENT, *argv, timeout_s=timeout_s)

    def write_file(self, name: str, content: str) -> str:
        """Write an executable file that the cluster can read, such as a prolog; return its path inside."""
        file = self._folder / "etc" / name
        file.write_text(content)
        file.chmod(0o755)
        return f"{INSTANCE}/etc/{name}"

    def _spawn(self, name: str, *argv: str) -> None:
        self._processes.spawn(name, argv, prefix=self._inside(), forks=True)

    def _inside(self) -> tuple[str, ...]:
        pid = self._processes.require(_NAMESPACES)
        environment = (*_ENVIRONMENT, *_OWN_CLOCK) if self._has_own_clock else _ENVIRONMENT
        namespaces = ("nsenter", "-t", str(pid), "-m", "-u", "-p", "-r", "-w")
        return *namespaces, "/usr/bin/env", "-i", *environment

    def _is_inside(self) -> bool:
        pid = self._processes.require(_NAMESPACES)
        return Path(f"/proc/{pid}/comm").read_text().strip() == "tini"

    @property
    def _port_count(self) -> int:
        return _FIRST_NODE_PORT + 1 + self._nodes.count

    @property
    def _accounting_port(self) -> int:
        return self._port + 3

    def _is_database_up(self) -> bool:
        self._processes.require(accounting.DATABASE)
        try:
            return bool(self.exec(*accounting.ASK_DATABASE, timeout_s=10))
        except LabError:
            return False

    def _are_nodes_up(self) -> bool:
        for name in (_SLURMCTLD, _SLURMRESTD, *self.node_names):
            self._processes.require(name)
        states = self.exec("sinfo", "-h", "-N", "-p", "main", "-o", "%T", timeout_s=10).split()
        return len(states) == self._nodes.count and not any(
            state.startswith(("unk", "down")) for state in states
        )

    def _write_folder(self) -> None:
        folder, conf = self._folder, self._conf()
        for name, owner in (("etc", 0), ("spool", 0), ("gpu", 0), ("state", SLURM_UID), ("pid", SLURM_UID)):
            (folder / name).mkdir(parents=True)
            os.chown(folder / name, owner, owner)
        for name, key in (("jwt.key", self._keys.jwt), ("slurm.key", self._keys.slurm)):
            file = folder / "etc" / name
            file.touch(0o600)
            file.write_bytes(key)
            os.chown(file, SLURM_UID, SLURM_UID)
        for index in range(self._nodes.gpus):  # slurmd counts device files, and only those.
            os.mknod(folder / f"gpu/{index}", 0o020666, os.makedev(1, 3))
        if self._has_own_clock:
            package = unpacked("libfaketime", cache=self._cache, report=self._report)
            shutil.copy(next(package.rglob("libfaketimeMT.so.1")), folder / "etc/libfaketime.so")
            self.set_clock_ahead(0)
        if self._has_accounting:
            accounting.write_files(folder, self._accounting_port, has_backup=self._has_accounting_backup)
        hosts = {
            "127.0.0.1": "localhost ctl",
            _BACKUP_ADDRESS: "backup",
            accounting.BACKUP_ADDRESS: accounting.BACKUP_HOST,
        }
        (folder / "etc/hosts").write_text("".join(f"{address} {name}\n" for address, name in hosts.items()))
        (folder / "etc/slurm.conf").write_text(render_slurm_conf(conf))
        (folder / "etc/gres.conf").write_text(render_gres_conf(conf))
        (folder / "etc/cgroup.conf").write_text(render_cgroup_conf())

    def _conf(self) -> SlurmConf:
        nodes = replace(
            self._nodes,
            first_port=self._port + _FIRST_NODE_PORT,
            gpu_folder=f"{INSTANCE}/gpu",
        )
        has_backup = self._has_accounting_backup
        lines = accounting.slurm_conf_lines(self._accounting_port, has_backup=has_backup)
        accounts = lines if self._has_accounting else ()
        return SlurmConf(
            cluster=self.name,
            controller="ctl(127.0.0.1)",
            controller_port=self._port,
            slurmd_port=self._port + 2,
            jwt_key=f"{INSTANCE}/etc/jwt.key",
            state_folder=f"{INSTANCE}/state",
            spool_folder=f"{INSTANCE}/spool",
            run_folder=f"{INSTANCE}/pid",
            prolog_epilog_timeout_s=self._prolog_epilog_timeout_s,
            kill_wait_s=5,
            memory_per_cpu_mib=self._nodes.memory_mib // self._nodes.cpus,
            nodes=nodes if nodes.count else None,
            records=self._records,
            more=(*accounts, *(_BACKUP_LINES if self._has_backup else ()), *self._more),
        )
