"""SlurmClient: what the services ask of slurmrestd, one method a call, without any decision.

What only reads is in `sunk_slurm.reads`.

Every write but a submission and a signal is idempotent; the caller reads back after a write, because an error
does not mean that nothing was done. Each call ends within its time; callers may set shorter deadlines.

Source: slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), measured.
"""

import copy
import math
from collections.abc import Collection, Iterable
from typing import Final, Self

import msgspec

from sunk_slurm import hostlist
from sunk_slurm.call import Call
from sunk_slurm.down_reasons import UNDRAINED
from sunk_slurm.errors import (
    ALREADY_DONE,
    AUTH_NOBODY,
    INVALID_JOB_ID,
    INVALID_NODE_NAME,
    JOB_FINISHED,
    MADE_NO_JOB,
    NotServedError,
    SlurmConflictError,
    SlurmRejectedError,
    SlurmUnavailableError,
)
from sunk_slurm.reads import LIST_TIMEOUT_S, SlurmReads, node_path
from sunk_slurm.submission import JobChange, JobDescription, NodeChange
from sunk_slurm.tokens import Tokens
from sunk_slurm.wire import Answer, Features, SubmitAnswer

REQUEUE_VERSION: Final = "v0.0.45"
"""The first API version that can requeue; 24.11 has none."""


class _Submission(msgspec.Struct, frozen=True):
    job: JobDescription
    script: str


class SlurmClient(SlurmReads):
    """slurmrestd of one Slurm cluster, to read and to write. Use it as a context."""

    _send_until: float = math.inf

    def sending_until(self, moment: float) -> Self:
        """Return the same client for writes upon what was read: they are not sent after *moment*.

        Args:
            moment: In monotonic time. A write with a later turn raises `TooLateError`; nothing is done then.
        """
        bound = copy.copy(self)
        bound._send_until = moment  # noqa: SLF001 - its own class's
        return bound

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

    async def resume(self, name: str) -> None:
        """Take *name* out of DOWN and DRAIN, whatever ReturnToService says.

        Raises:
            SlurmRejectedError: also where it is in neither.
        """
        await self._change_node(f"resume node {name}", name, NodeChange(state=("RESUME",)))

    async def set_extra(self, name: str, text: str) -> None:
        """Replace the node's Extra; state and reason stay as they are."""
        await self._change_node(f"set extra of node {name}", name, NodeChange(extra=text))

    async def describe_node(
        self, name: str, *, extra: str | None = None, features: Features | None = None
    ) -> None:
        """Replace the node's Extra, or its features, or both; None stays as it is."""
        change = NodeChange(extra=extra)
        if features is not None:
            words, active = features.available or ("",), features.active or ("",)
            change = NodeChange(extra=extra, features=words, features_act=active)
        await self._change_node(f"describe node {name}", name, change)

    async def place_node(self, name: str, topology: str) -> None:
        """Set the node's place in the topologies of topology.yaml, without a reconfigure. Not on 24.11.

        Args:
            name: A Slurm NodeName.
            topology: A place in each of them, ``tree:all:leaf1,block:b1``; switches that are not there are
                made below the first, blocks are not.

        Raises:
            SlurmRejectedError: also where slurmctld has not read a topology or a block of that name yet.
        """
        await self._change_node(f"place node {name}", name, NodeChange(topology_str=topology))

    async def delete_node(self, name: str) -> None:
        """Delete a dynamic node's record; it being gone is success. Refused while it has jobs."""
        try:
            await self._write("node_delete", f"delete node {name}", "DELETE", node_path(name))
        except SlurmRejectedError as error:
            if error.number != INVALID_NODE_NAME:
                raise

    async def _change_node(self, doing: str, name: str, change: NodeChange) -> None:
        await self._write("node_update", doing, "POST", node_path(name), change)

    async def submit_job(self, description: JobDescription, tokens: Tokens | None = None) -> int:
        """Submit a batch job and return its id.

        Args:
            description: The job.
            tokens: Of the user that submits; such a user may submit only for itself, in its own group,
            without AdminComment.
                None: as ourselves.

        Raises:
            SlurmUnavailableError: it may have been submitted all the same: look for your mark. Not if
            `is_sent` is False.
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
            tokens=tokens,
        )
        try:
            answer = await self._rest.call(call, SubmitAnswer)
        except SlurmUnavailableError as error:
            if error.number in MADE_NO_JOB:
                raise SlurmUnavailableError(str(error), number=error.number, is_sent=False) from error
            if tokens is None or error.number != AUTH_NOBODY:
                raise
            raise SlurmRejectedError(str(error), number=AUTH_NOBODY) from error
        if answer is None or answer.job_id <= 0:
            raise SlurmUnavailableError(f"{doing}: the answer names no job")
        return answer.job_id

    async def update_job(self, job: int, change: JobChange) -> None:
        """Change what *change* names, such as ``JobChange(hold=False)`` to release it.

        Of the one record with that number, be it also that of an array, or of a heterogeneous job: unlike
        commands and other calls, slurmrestd takes no `Job.name_in_slurm` here (24.11 and 26.05, measured).
        """
        await self._write("job_update", f"update job {job}", "POST", f"job/{job}", change)

    async def cancel_job(self, job: int, *, signal: str | None = None, flags: Iterable[str] = ()) -> None:
        """Cancel *job*, or only send it *signal*; it being over or unknown is success.

        Args:
            job: Its id. That of the last task of an array ends the whole array.
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

    async def requeue_job(self, job: str) -> bool:
        """Put a running job back into the queue; return False where slurmrestd has no call for that.

        It being unknown or over is success.

        Args:
            job: Its `Job.name_in_slurm`.

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

    async def _write(
        self, name: str, doing: str, method: str, path: str, body: msgspec.Struct | None = None
    ) -> None:
        """Carry out a write that may be repeated."""
        content = None if body is None else msgspec.json.encode(body)
        call = Call(
            name=name,
            doing=doing,
            method=method,
            path=path,
            body=content,
            timeout_s=self._timeout_s,
            send_until=self._send_until,
        )
        await self._rest.call(call, Answer)
