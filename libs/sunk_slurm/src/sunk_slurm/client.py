"""SlurmClient: what the services ask of slurmrestd, one method a call, without any decision.

Every write but a submission and a signal is idempotent; whoever writes reads back, because an error does
not mean that nothing was done. Each call ends within its time; callers may set shorter deadlines.

Source: slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), measured.
"""

from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from sunk_slurm import hostlist
from sunk_slurm.diag import Diag, DiagAnswer
from sunk_slurm.errors import (
    ALREADY_DONE,
    INVALID_JOB_ID,
    INVALID_NODE_NAME,
    JOB_FINISHED,
    SLURM_ERROR,
    NotServedError,
    SlurmConflictError,
    SlurmRejectedError,
    SlurmUnavailableError,
)
from sunk_slurm.reservations import Reservation, ReservationsAnswer
from sunk_slurm.rest import Rest
from sunk_slurm.server import Call, Transport
from sunk_slurm.states import JobState
from sunk_slurm.submission import JobChange, JobDescription, NodeChange
from sunk_slurm.tokens import Tokens
from sunk_slurm.wire import (
    Answer,
    Job,
    JobsAnswer,
    JobStatesAnswer,
    Node,
    NodesAnswer,
    Partition,
    PartitionsAnswer,
    SubmitAnswer,
)

T = TypeVar("T", bound=Answer)

UNDRAINED: Final = "undrained"
"""What stands in place of the reason where it cannot be empty."""
REQUEUE_VERSION: Final = "v0.0.45"
"""The first API version that can requeue; 24.11 has none."""
LIST_TIMEOUT_S: Final = 30.0
"""10,000 nodes take 1.5 s."""
_NODE_FLAGS: Final = (("flags", "ALL"), ("flags", "DETAIL"))
"""All but MIXED, which is a default: slurmctld derives it from counts that it does not make anew for a
look at one node, so that a node whose job has ended goes on being MIXED for as long as nobody lists all
nodes (24.11 and 26.05). Without it the state is slurmctld's own; `Node.state_now` tells MIXED."""
_JOB_FLAGS: Final = (("flags", "ALL"), ("flags", "DETAIL"), ("flags", "LOCAL"))
"""The defaults and LOCAL: without it slurmrestd asks for the federation before it asks for the job."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """All nodes, and the time to ask with for what changed since."""

    nodes: tuple[Node, ...]
    last_update: int


@dataclass(frozen=True, slots=True)
class NotModified:
    """Nothing about nodes changed since the time that was asked with."""


@dataclass(frozen=True, slots=True)
class KnownJob:
    """One record of slurmctld's job table, as ``jobs/state`` lists it."""

    state: JobState
    tasks: int = 1
    """How many tasks of an array the record stands for."""


@lru_cache(maxsize=1024)
def _one_task(words: tuple[str, ...]) -> KnownJob:
    """Return the record of one job, the same object for the same *words*: 10,000 jobs are in few states."""
    return KnownJob(JobState.of(words))


class _Submission(msgspec.Struct, frozen=True):
    job: JobDescription
    script: str


class SlurmClient:
    """slurmrestd of one Slurm cluster. Use it as a context."""

    def __init__(
        self, url: str, tokens: Tokens, *, timeout_s: float = 5.0, transport: Transport | None = None
    ) -> None:
        """Describe a cluster's slurmrestd.

        Args:
            url: One address, or several with commas between, tried in turn.
            tokens: Who we are.
            timeout_s: Of a call about one node or job; lists may take `LIST_TIMEOUT_S`.
            transport: For tests.
        """
        self._rest = Rest(url, tokens, transport=transport)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        await self._rest.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._rest.__aexit__(kind, error, traceback)

    @property
    def version(self) -> str:
        """The API version in use; empty before the first call."""
        return self._rest.version

    def recoveries(self) -> AsyncGenerator[None]:
        """Yield each time that Slurm answers again after an outage: whoever backs off may try now."""
        return self._rest.recoveries()

    async def nodes(self, update_time: int = 0) -> NodeList | NotModified:
        """Return every node, unless nothing changed since *update_time* (0: return them anyway).

        Args:
            update_time: `NodeList.last_update` of an earlier answer; changes of that second are told again.
        """
        params = (*_NODE_FLAGS, ("update_time", str(update_time))) if update_time else _NODE_FLAGS
        try:
            answer = await self._list("nodes", NodesAnswer, "nodes/", params)
        except SlurmUnavailableError as error:
            if not update_time or error.number != SLURM_ERROR:
                raise
            # 24.11.5 answers 500 "Unable to query partitions" whenever nodes changed and partitions did not
            # (fixed in 26.05.3, commit ef88eadf88); remove this with the last Slurm that does.
            answer = await self._list("nodes", NodesAnswer, "nodes/", _NODE_FLAGS)
        if answer is None and update_time:
            return NotModified()
        if answer is None:
            raise SlurmUnavailableError("list nodes: not modified, although everything was asked for")
        return NodeList(answer.nodes, answer.last_update.value or 0)

    async def node(self, name: str) -> Node | None:
        """Return one node; None where Slurm has no such node (it answers 200 without a list then).

        What is allocated on it is as old as the last list of all nodes: slurmctld counts anew for those only.
        """
        try:
            answer = await self._one(
                "node", f"look at node {name}", NodesAnswer, _node_path(name), _NODE_FLAGS
            )
        except SlurmRejectedError as error:
            if error.number == INVALID_NODE_NAME:
                return None
            raise
        return next((node for node in answer.nodes if node.name == name), None) if answer else None

    async def drain(self, name: str, reason: str) -> None:
        """Set DRAIN on *name* with *reason*; where it is set already, this changes the reason.

        Args:
            name: A Slurm NodeName.
            reason: Shown by ``sinfo -R``. Begin it with ``k8s:``: a drain without it is another's.
        """
        await self._change_node(f"drain node {name}", name, NodeChange(state=("DRAIN",), reason=reason))

    async def drain_several(self, names: Collection[str], reason: str) -> None:
        """Set DRAIN on every node of *names* with *reason*, in one call.

        Raises:
            SlurmRejectedError: one of them is refused; the others may be drained all the same.
        """
        folded = hostlist.compress(names)
        change = NodeChange(name=(folded,), state=("DRAIN",), reason=reason)
        await self._write("nodes_update", f"drain nodes {folded[:200]}", "POST", "nodes/", change)

    async def undrain(self, name: str) -> None:
        """Take the DRAIN flag away, also from a DOWN node, which stays DOWN; it not being set is success.

        The reason goes too: 24.11 would keep it, and a later drain without a reason would inherit it and
        look like ours.

        Raises:
            SlurmRejectedError: also right after a reconfigure, while the node's state is not known.
        """
        change = NodeChange(state=("UNDRAIN",), reason=UNDRAINED)
        await self._change_node(f"undrain node {name}", name, change)

    async def set_down(self, name: str, reason: str | None = None) -> None:
        """Set *name* DOWN, which requeues its jobs; its DRAIN flag stays, without *reason* its reason too."""
        await self._change_node(f"set node {name} down", name, NodeChange(state=("DOWN",), reason=reason))

    async def set_extra(self, name: str, text: str) -> None:
        """Replace the node's Extra; state and reason stay as they are."""
        await self._change_node(f"set extra of node {name}", name, NodeChange(extra=text))

    async def describe_node(
        self, name: str, *, extra: str | None = None, features: tuple[str, ...] | None = None
    ) -> None:
        """Replace the node's Extra, or its features, or both; None stays as it is."""
        words = None if features is None else features or ("",)
        change = NodeChange(extra=extra, features=words, features_act=words)
        await self._change_node(f"describe node {name}", name, change)

    async def delete_node(self, name: str) -> None:
        """Delete a dynamic node's record; it being gone is success. Refused while it has jobs."""
        try:
            await self._write("node_delete", f"delete node {name}", "DELETE", _node_path(name))
        except SlurmRejectedError as error:
            if error.number != INVALID_NODE_NAME:
                raise

    async def _change_node(self, doing: str, name: str, change: NodeChange) -> None:
        await self._write("node_update", doing, "POST", _node_path(name), change)

    async def job(self, job: int) -> Job | None:
        """Return one job; None where slurmctld does not know it (any more)."""
        try:
            answer = await self._one("job", f"look at job {job}", JobsAnswer, f"job/{job}", _JOB_FLAGS)
        except SlurmRejectedError as error:
            if error.number == INVALID_JOB_ID:
                return None
            raise
        return next((found for found in answer.jobs if found.job_id == job), None) if answer else None

    async def job_states(self) -> dict[int, KnownJob]:
        """Return the state of every job record that slurmctld has, by its id. Cheap also for 10,000."""
        answer = await self._list("job_states", JobStatesAnswer, "jobs/state/")
        known: dict[int, KnownJob] = {}
        for row in answer.jobs if answer else ():
            job = row.number
            if job is None:
                raise SlurmUnavailableError(f"list job states: {row.job_id[:40]!r} is no job id")
            one = _one_task(row.state)
            known[job] = KnownJob(one.state, known[job].tasks + 1) if job in known else one
        return known

    async def submit_job(self, description: JobDescription) -> int:
        """Submit a batch job and return its id.

        Raises:
            SlurmUnavailableError: it may have been submitted all the same: look for your mark.
            SlurmRejectedError: it is not acceptable as it is.
        """
        doing = f"submit job {description.name}"
        call = Call(
            name="job_submit",
            doing=doing,
            method="POST",
            path="job/submit",
            body=msgspec.json.encode(_Submission(description, description.script)),
            timeout_s=self._timeout_s,
            may_repeat=False,
        )
        answer = await self._rest.call(call, SubmitAnswer)
        if answer is None or answer.job_id <= 0:
            raise SlurmUnavailableError(f"{doing}: the answer names no job")
        return answer.job_id

    async def update_job(self, job: int, change: JobChange) -> None:
        """Change what *change* names, such as ``JobChange(hold=False)`` to release it."""
        await self._write("job_update", f"update job {job}", "POST", f"job/{job}", change)

    async def cancel_job(self, job: int, *, signal: str | None = None, flags: Iterable[str] = ()) -> None:
        """Cancel *job*, or only send it *signal*; it being over or unknown is success.

        Args:
            job: Its id.
            signal: Such as ``USR1``. None ends the job: TERM at once, KILL after KillWait.
            flags: Such as ``BATCH_JOB`` (only the script) or ``FULL_JOB``.
        """
        params = [("flags", flag) for flag in flags]
        if signal is not None:
            params.append(("signal", signal))
        call = Call(
            name="job_cancel",
            doing=f"cancel job {job}",
            method="DELETE",
            path=f"job/{job}",
            params=tuple(params),
            timeout_s=self._timeout_s,
            may_repeat=signal is None,  # A second signal is another one.
        )
        try:
            await self._rest.call(call, Answer)
        except SlurmConflictError as error:
            if error.number not in {ALREADY_DONE, JOB_FINISHED}:
                raise
        except SlurmRejectedError as error:
            if error.number != INVALID_JOB_ID:
                raise

    async def requeue_job(self, job: int) -> bool:
        """Put a running job back into the queue; return False where slurmrestd has no call for that.

        It being unknown or over is success.

        Raises:
            SlurmRejectedError: it may not be requeued (`REQUEUE_DISABLED`), or Slurm refuses otherwise.
        """
        call = Call(
            name="job_requeue",
            doing=f"requeue job {job}",
            path=f"job/{job}/requeue",
            timeout_s=self._timeout_s,
            may_repeat=False,  # By then it may run again.
            version=REQUEUE_VERSION,
        )
        try:
            await self._rest.call(call, Answer)
        except SlurmConflictError:
            return True  # Pending or over: it is not in the way.
        except NotServedError:
            return False
        except SlurmRejectedError as error:
            if error.number != INVALID_JOB_ID:
                raise
        return True

    async def reconfigure(self) -> None:
        """Have slurmctld and every slurmd read their configuration again."""
        call = Call(name="reconfigure", doing="reconfigure", path="reconfigure/", timeout_s=LIST_TIMEOUT_S)
        await self._rest.call(call, Answer)

    async def partitions(self) -> tuple[Partition, ...]:
        """Return every partition."""
        answer = await self._list("partitions", PartitionsAnswer, "partitions/")
        return answer.partitions if answer else ()

    async def reservations(self) -> tuple[Reservation, ...]:
        """Return every reservation."""
        answer = await self._list("reservations", ReservationsAnswer, "reservations/")
        return answer.reservations if answer else ()

    async def diag(self) -> Diag:
        """Return what ``sdiag`` shows."""
        answer = await self._one("diag", "read statistics", DiagAnswer, "diag/")
        return answer.statistics if answer else Diag()

    async def _list(
        self, name: str, kind: type[T], path: str, params: tuple[tuple[str, str], ...] = ()
    ) -> T | None:
        doing = f"list {name.replace('_', ' ')}"
        call = Call(name=name, doing=doing, path=path, params=params, timeout_s=LIST_TIMEOUT_S)
        return await self._rest.call(call, kind)

    async def _one(
        self, name: str, doing: str, kind: type[T], path: str, params: tuple[tuple[str, str], ...] = ()
    ) -> T | None:
        call = Call(name=name, doing=doing, path=path, params=params, timeout_s=self._timeout_s)
        return await self._rest.call(call, kind)

    async def _write(
        self, name: str, doing: str, method: str, path: str, body: msgspec.Struct | None = None
    ) -> None:
        """Carry out a write that may be repeated."""
        content = None if body is None else msgspec.json.encode(body)
        call = Call(name=name, doing=doing, method=method, path=path, body=content, timeout_s=self._timeout_s)
        await self._rest.call(call, Answer)


def _node_path(name: str) -> str:
    return f"node/{quote(name, safe='')}"
