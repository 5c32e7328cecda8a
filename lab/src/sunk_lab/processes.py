"""The processes of one lab: started in the background, found again and ended by pid.

A process records itself, pid and start time, before it becomes the program it is to be. So whoever is killed
between any two lines leaves nothing running that the next run does not know, and a pid that was given to
somebody else in the meantime is never taken for ours.

Source: proc(5), /proc/pid/stat, field 22.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from sunk_lab.errors import GivenUpError, LabError

Found = TypeVar("Found")

# The shell writes "pid start-time kind" and becomes the program: neither pid nor start time changes by that.
# The rename makes the record appear whole or not at all.
_RECORD: Final = """
file=$1 kind=$2; shift 2
read -r stat </proc/$$/stat || exit 1
start() { shift 19; echo "$1"; }
echo "$$ $(start ${stat##*) }) $kind" >"$file.new" && mv "$file.new" "$file" && exec "$@"
"""
_TAIL_CHARS: Final = 2000
PATIENCE_S: Final = 240.0
"""For what comes in a second on a machine that does nothing else, and in minutes on a busy one."""


def start_time(pid: int) -> str | None:
    """Return when *pid* started, in clock ticks since boot; None once it has ended, reaped or not.

    Together with the pid this is the identity of a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # The first thread may be dead while others still hold files and ports.
        has_threads = fields[0] not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[19] if has_threads else None


def run(
    *argv: str | Path | int,
    input: str | bytes | None = None,  # noqa: A002 - subprocess.run's own word.
    stdin: BinaryIO | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    cwd: Path | None = None,
) -> str:
    """Run a program to its end and return what it wrote to standard output.

    Args:
        argv: The program and its arguments; never goes through a shell.
        input: Its standard input; nothing if None.
        stdin: Its standard input as an open file, for more than should be held in memory.
        env: Added to this process' own environment.
        timeout_s: The program is killed after that.
        cwd: Where it runs.

    Raises:
        LabError: It could not be started, failed or took too long; holds the command and its last words.
    """
    command = [str(word) for word in argv]
    data = input.encode() if isinstance(input, str) else input
    source = (stdin or subprocess.DEVNULL) if data is None else None
    try:
        done = subprocess.run(
            command,
            input=data,
            stdin=source,
            capture_output=True,
            check=False,
            env=environment(env),
            timeout=timeout_s,
            cwd=cwd,
        )
    except OSError as error:
        raise LabError(f"{shlex.join(command)}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{shlex.join(command)}: not done after {timeout_s:.0f} s") from error
    if done.returncode:
        stderr = done.stderr.decode(errors="replace").strip()[-_TAIL_CHARS:]
        raise LabError(f"{shlex.join(command)}: exit {done.returncode}: {stderr}")
    return done.stdout.decode(errors="replace")


def wait_for(
    what: str, test: Callable[[], Found | None], seconds: float = PATIENCE_S, pause_s: float | None = None
) -> Found:
    """Return the first true value of *test*, asked every *pause_s* seconds.

    None asks less often the longer it takes, from ten times a second down to twice.
    An OSError or LabError of *test* means "not yet" and is quoted if it lasts.

    Raises:
        GivenUpError: *test* raised it, as waiting longer would be in vain.
        LabError: It did not become true within *seconds*.
    """
    began, why = time.monotonic(), ""
    while True:
        try:
            if found := test():
                return found
            why = ""
        except GivenUpError:
            raise
        except (OSError, LabError) as error:
            why = f" (last: {error})"
        if (so_far := time.monotonic() - began) > seconds:
            raise LabError(f"waited {seconds:.0f} s in vain for {what}{why}")
        time.sleep(min(max(0.1, so_far / 10), 0.5) if pause_s is None else pause_s)


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the lab."""

    name: str
    pid: int | None
    """None: it has ended."""
    memory_mib: int
    """Its proportional set size."""


class Processes:
    """The background processes of one lab, by name.

    Its folder holds ``run/NAME.pid`` (who it is) and ``log/NAME.log`` (what it said).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run = folder / "run"
        self._log = folder / "log"

    def log_of(self, name: str) -> Path:
        """Return where *name* writes."""
        return self._log / f"{name}.log"

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path | int],
        *,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str | Path | int] = (),
        forks: bool = False,
    ) -> int:
        """Start a program in a session of its own, unless it runs; return its pid either way.

        Args:
            name: Names its pid file and its log, which is appended to.
            argv: The program and its arguments.
            env: Added to this process' own environment.
            prefix: Put before *argv*: what takes the program somewhere else, such as nsenter or unshare.
            forks: The prefix forks, and the program is its child.

        Raises:
            LabError: It ended at once; names its log.
        """
        if pid := self.pid_of(name):
            return pid
        self._run.mkdir(parents=True, exist_ok=True)
        self._log.mkdir(parents=True, exist_ok=True)
        record = self._file(name)
        record.unlink(missing_ok=True)
        kind = "parent" if forks else "self"
        command = ["sh", "-c", _RECORD, "sh", record, kind, *prefix, *argv]
        with self.log_of(name).open("ab") as log:
            child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=environment(env),
            )
        return self._started(name, child)

    def pid_of(self, name: str) -> int | None:
        """Return the pid of *name* if that very process still runs."""
        try:
            pid, since, kind = self._file(name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        if start_time(int(pid)) != since:
            return None
        return int(pid) if kind == "self" else _only_child(int(pid))

    def require(self, name: str) -> int:
        """Return the pid of *name*.

        Raises:
            GivenUpError: It does not run; names its log.
        """
        if pid := self.pid_of(name):
            return pid
        raise GivenUpError(f"{name} does not run, see {self.log_of(name)}")

    def kill(self, name: str, sig: int = signal.SIGTERM, patience_s: float = 5.0) -> bool:
        """End *name*: *sig*, after *patience_s* SIGKILL; return whether it ran.

        Afterwards it is gone and its pid file too; its log stays.
        """
        pid = self.pid_of(name)
        if pid is not None:
            end = time.monotonic() + patience_s
            outer = self._outer(name)
            self._signal(name, pid, sig)  # Before it goes on: a server that hangs does not answer once more.
            _go_on(pid, outer)
            while self.pid_of(name) == pid and time.monotonic() < end:
                time.sleep(0.01)
            self._signal(name, pid, signal.SIGKILL)
            wait_for(f"{name} to end", lambda: self.pid_of(name) != pid, pause_s=0.01)
        self._reap(name)
        self.forget(name)
        return pid is not None

    def freeze(self, name: str) -> None:
        """Stop *name* where it is, as a machine that hangs does; `thaw` and `kill` undo it."""
        self._signal(name, self.require(name), signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let *name* go on after `freeze`; it being awake, or gone, is success."""
        if (pid := self.pid_of(name)) is not None:
            _go_on(pid, self._outer(name))

    def _outer(self, name: str) -> int:
        """Return the pid that was recorded: of *name*, or of the nsenter it runs in."""
        return int(self._file(name).read_text().split()[0])

    def forget(self, name: str) -> None:
        """Remove the pid file of *name*, which something else has ended."""
        self._file(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return every name with a pid file, sorted, whether it runs or not."""
        return sorted(path.stem for path in self._run.glob("*.pid"))

    def status(self) -> list[ProcessStatus]:
        """Return every process, sorted by name."""
        found = [(name, self.pid_of(name)) for name in self.names()]
        return [ProcessStatus(name, pid, _memory_mib(pid)) for name, pid in found]

    def _file(self, name: str) -> Path:
        return self._run / f"{name}.pid"

    def _signal(self, name: str, pid: int, sig: int) -> None:
        if self.pid_of(name) == pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def _reap(self, name: str) -> None:
        # Usually it is not ours to reap: another run started it.
        with contextlib.suppress(OSError, ValueError):
            os.waitpid(int(self._file(name).read_text().split()[0]), os.WNOHANG)

    def _started(self, name: str, child: "subprocess.Popen[bytes]") -> int:
        def started() -> int | None:
            if child.poll() is not None:
                raise GivenUpError(f"{name} ended at once with {child.returncode}, see {self.log_of(name)}")
            pid, outer = self.pid_of(name), _cmdline(child.pid)
            if pid is None or not outer or _RECORD.encode() in outer:
                return None  # Still the shell that records, or between it and the program.
            return pid if pid == child.pid or _cmdline(pid) not in (b"", outer) else None

        try:
            return wait_for(f"{name} to start, see {self.log_of(name)}", started, pause_s=0.002)
        finally:
            # Nobody waits for it on purpose: it outlives us. Popen would warn about that.
            child.returncode = child.returncode if child.returncode is not None else 0


@contextlib.contextmanager
def stopped(pids: Collection[int]) -> Generator[None]:
    """Have *pids* do nothing meanwhile, as a machine that hangs does.

    Raises:
        LabError: There are none.
    """
    if not pids:
        raise LabError("there is no process to stop")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        _go_on(*pids)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _go_on(*pids: int) -> None:
    """End a SIGSTOP of *pids*; nsenter stops itself when its child is stopped."""
    for pid in set(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _only_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(children[0]) if children else None


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """Return this process' environment with *more* in it, for a program to start with."""
    return {**os.environ, **(more or {})}  # noqa: TID251 - a program inherits ours; no setting is read here.


def _memory_mib(pid: int | None) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(text.split("Pss:")[1].split()[0]) // 1024
