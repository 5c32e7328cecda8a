"""What can be read from slurmrestd, one method a call, without any decision.

Source: slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), measured.
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from sunk_slurm.answers import decoded
from sunk_slurm.call import Call
from sunk_slurm.connections import Transport
from sunk_slurm.diag import Diag, DiagAnswer
from sunk_slurm.errors import (
    INVALID_JOB_ID,
    INVALID_NODE_NAME,
    SLURM_ERROR,
    SlurmRejectedError,
    SlurmUnavailableError,
)
from sunk_slurm.partitions import Partition, PartitionsAnswer
from sunk_slurm.reservations import Reservation, ReservationsAnswer
from sunk_slurm.rest import Rest, RestClient
from sunk_slurm.states import JobState
from sunk_slurm.tokens import Tokens
from sunk_slurm.trust import Trust
from sunk_slurm.wire import Answer, Job, JobRecordsAnswer, JobStatesAnswer, Node, NodesAnswer

T = TypeVar("T", bound=Answer)

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


class SlurmReads(RestClient):
    """slurmrestd of one Slurm cluster, to read. Use it as a context."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        timeout_s: float = 5.0,
        trust: Trust | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Describe a cluster's slurmrestd.

        Args:
            url: One address, or several with commas between, tried in turn.
            tokens: Who we are.
            timeout_s: Of a call about one node or job; lists may take `LIST_TIMEOUT_S`.
            trust: The certificate authorities of slurmrestd, where the address says https.
            transport: For tests.
        """
        super().__init__(Rest(url, tokens, trust=trust, transport=transport))
        self._timeout_s = timeout_s

    @property
    def version(self) -> str:
        """The API version in use; empty before the first call."""
        return self._rest.version

    def recoveries(self) -> AsyncGenerator[None]:
        """Yield each time that Slurm answers again after an outage: loops that back off may try now."""
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
            raise SlurmUnavailableError("list nodes: not modified, although everything was requested")
        return NodeList(answer.nodes, answer.last_update.value or 0)

    async def node(self, name: str) -> Node | None:
        """Return one node; None where Slurm has no such node (it answers 200 without a list then).

        What is allocated on it is as old as the last list of all nodes: slurmctld counts anew for those only.
        """
        try:
            answer = await self._one(
                "node", f"look at node {name}", NodesAnswer, node_path(name), _NODE_FLAGS
            )
        except SlurmRejectedError as error:
            if error.number == INVALID_NODE_NAME:
                return None
            raise
        return next((node for node in answer.nodes if node.name == name), None) if answer else None

    async def job(self, job: int) -> Job | None:
        """Return one job; None where slurmctld does not know it (any more).

        It says so by an error, never by leaving it out; but of an array, or of a heterogeneous job, the first
        may be gone while others are there, which are told then.

        All tasks of an array are told where its own number is asked for, thousands if its user likes: only
        the one that is wanted is read (of 10,000 in 57 MB, 55 ms in place of 240).
        """
        doing = f"look at job {job}"
        try:
            answer = await self._one("job", doing, JobRecordsAnswer, f"job/{job}", _JOB_FLAGS)
        except SlurmRejectedError as error:
            if error.number == INVALID_JOB_ID:
                return None
            raise
        records = answer.jobs if answer else ()
        # A quotation mark in a text has a backslash before it, so no text looks like this.
        is_wanted = re.compile(rb'"job_id":\s*%d\b' % job).search
        wanted = (_job(record, doing) for record in records if is_wanted(record))
        found = next((one for one in wanted if one.job_id == job), None)
        jobs = (_job(record, doing) for record in records)
        if found is None and not any(job in {one.array_job_id.value, one.het_job_id.value} for one in jobs):
            raise SlurmUnavailableError(f"{doing}: the answer has neither the job nor an error")
        return found

    async def job_states(self) -> dict[int, KnownJob]:
        """Return the state of every job record that slurmctld has, by its id. Cheap also for 10,000."""
        answer = await self._list("job_states", JobStatesAnswer, "jobs/state/")
        known: dict[int, KnownJob] = {}
        for row in answer.jobs if answer else ():
            job = row.number
            if job is None:
                raise SlurmUnavailableError(f"list job states: {row.job_id[:40]!r} is not a job id")
            one = _one_task(row.state)
            known[job] = KnownJob(one.state, known[job].tasks + 1) if job in known else one
        return known

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


def _job(record: msgspec.Raw, doing: str) -> Job:
    try:
        return decoded(bytes(record), Job)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmUnavailableError(f"{doing}: {error}") from error


def node_path(name: str) -> str:
    """Return the path of one node, whatever its name: in a URL ``..`` means another place."""
    quoted = quote(name, safe="")
    return f"node/{quoted if quoted.strip('.') else quoted.replace('.', '%2E')}"
