"""Placeholder jobs in Slurm: each call with its deadline, and looks that know what they do not know."""

import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.adapters.job_history import Accounts, JobHistory
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, JobUnknown, job_seen
from sunk_pod_scheduler.placement.ownership import Owner, is_whose, own
from sunk_runtime.errors import TransientError
from sunk_runtime.views import StateView
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.submission import JobChange, JobDescription
from sunk_slurm.tokens import Tokens, UserTokens
from sunk_slurm.wire import Number

LIST_TIMEOUT_S: Final = 30.0
LIST_LASTS_S: Final = 60.0
"""For who looks for a job that was submitted before the list was asked for."""
SURE_S: Final = 2.0
"""So long after Slurm has said it, a number is still its owner's: slurmctld takes longer to come back."""


class PlaceholderJobs:
    """The placeholder jobs of one Slurm cluster."""

    def __init__(
        self,
        slurm: SlurmClient,
        known: StateView[SlurmJobState],
        key: bytes,
        *,
        timeout_s: float,
        accounting: Accounts | None = None,
        user_tokens: UserTokens | None = None,
        group_id: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write placeholders.

        Args:
            slurm: Us, who are an administrator of it.
            known: What the bus says of jobs.
            key: Of our marks.
            timeout_s: Of a call.
            accounting: Who remembers jobs.
            user_tokens: Of those whose jobs they are, who submit them; None: we do.
            group_id: Of jobs that name none, where we submit them.
            check: Raises once we may no longer lead; called right before each write, as we may be held up in
                each look before it.
        """
        self._slurm = slurm
        self._known = known
        self._key = key
        self._timeout_s = timeout_s
        self._user_tokens = user_tokens
        self._group_id = group_id
        self._check = check
        self._unsure: dict[tuple[str, int], float] = {}
        """Submissions that may have reached Slurm; until when, in monotonic time, they were waited for."""
        self._listed = -math.inf
        """When the last list of all jobs was asked for, in monotonic time."""
        self._marked: dict[tuple[str, int], list[int]] = {}
        """Whose jobs were in it: by uid and attempt."""
        self._listing = anyio.Lock()
        self._confirmed_at: OrderedDict[tuple[int, str, int], float] = OrderedDict()
        """When Slurm last said, within some seconds, that a job has a uid and attempt; the oldest first."""
        self._history = JobHistory(slurm, accounting, key)

    async def see(self, job: int) -> AnyJob:
        """Return a job, whatever its owner, from a fresh look; unknown where Slurm does not answer."""
        try:
            async with _within(self._timeout_s, f"look at job {job}"):
                found = await self._slurm.job(job)
        except TransientError:
            return JobUnknown()
        return JobGone() if found is None else job_seen(found, self._key)

    async def look(self, job: int, owner: Owner) -> AnyJob:
        """Return the job of *owner* from a fresh look; unknown where Slurm does not answer."""
        seen = await self.see(job)
        if isinstance(seen, JobSeen):
            found = own(seen, owner)
            if _is_to_be_written(found):
                self._note(job, owner.uid, owner.attempt)
            return found
        if isinstance(seen, JobUnknown):
            return seen
        known = self._known.get(str(job))
        if known is None or not known.is_over:
            return JobGone()
        return JobGone(has_ended=is_whose(self._mark(known), owner, known.user_id))

    async def outcome_of(self, gone: JobGone, job: int, owner: Owner, ran: datetime | None) -> JobGone:
        """Return what became of the *job* of *owner* that slurmctld does not know, and that ran at *ran*."""
        return await self._history.of(gone, job, owner, ran)

    async def who_cancelled(self, job: AnyJob, owner: Owner) -> str:
        """Return the Slurm user who cancelled the job, where accounting says so."""
        return await self._history.who_cancelled(job, owner)

    def _mark(self, state: SlurmJobState) -> marks.Mark | None:
        return marks.read_extra(self._key, state.extra, state.user_id)

    async def submit(self, description: JobDescription) -> int:
        """Submit a job, as its own user where that can be, and return its id.

        Raises:
            SlurmUnavailableError: it may have been submitted all the same: `find_marked`.
            SlurmRejectedError: Slurm does not take it.
        """
        description, tokens = self._submitter(description)
        self._check()
        mark = marks.read_extra(self._key, description.extra, int(description.user_id or 0))
        whose = ("", 0) if mark is None else (mark.uid, mark.attempt)
        self._unsure[whose] = math.inf
        try:
            async with _within(self._timeout_s, f"submit job {description.name}"):
                job = await self._slurm.submit_job(description, tokens)
        except SlurmUnavailableError as error:
            if not error.is_sent:
                self._unsure.pop(whose, None)
            raise
        except SlurmRejectedError:
            self._unsure.pop(whose, None)
            raise
        else:
            self._unsure.pop(whose, None)
            self._note(job, *whose)
            return job
        finally:
            if whose in self._unsure:
                self._unsure[whose] = time.monotonic()

    def _submitter(self, description: JobDescription) -> tuple[JobDescription, Tokens | None]:
        """Return the job as its user may submit it, and his tokens; None: as we do.

        So Slurm itself judges what the user may have. Only administrators give a job another group than its
        user's, and an AdminComment: the release writes that.
        """
        if self._user_tokens is None or description.group_id:
            return replace(description, group_id=description.group_id or str(self._group_id)), None
        return replace(description, admin_comment=""), self._user_tokens.of(int(description.user_id))

    def not_stored(self, uid: str, attempt: int) -> None:
        """Note that a job was submitted whose number could not be stored: no list from before tells of it."""
        self._unsure[uid, attempt] = time.monotonic()

    async def find_marked(self, owner: Owner) -> int | None:
        """Return the job that carries our mark for *owner* and is not over; from all that Slurm has.

        One list serves all whose submission had ended, or was never sent, when it was asked for: after an
        outage thousands ask. What was found is looked at once more, as the bus may tell of an earlier job of
        its number.

        Raises:
            SlurmUnavailableError: Slurm does not say; or two jobs carry the mark, so nobody can say which.
        """
        uid, attempt = owner.uid, owner.attempt
        async with self._listing:
            requested_at = time.monotonic()
            ended = self._unsure.get((uid, attempt), -math.inf)
            if ended >= self._listed or requested_at - self._listed > LIST_LASTS_S:
                self._marked = await self._list()
                self._listed = requested_at
                self._unsure = {
                    whose: ended for whose, ended in self._unsure.items() if ended >= requested_at
                }
        ours: list[int] = []
        for job in self._marked.get((uid, attempt), ()):
            seen = await self.look(job, owner)
            if isinstance(seen, JobUnknown):
                raise SlurmUnavailableError(f"look at job {job}: no answer")
            if isinstance(seen, JobSeen) and seen.is_marked and not seen.is_over:
                ours.append(job)
        if len(ours) > 1:
            metrics.DOUBLED.inc()
            named = " and ".join(str(job) for job in ours)
            raise SlurmUnavailableError(
                f"Slurm jobs {named} have the mark of {owner.name}: cancel the wrong one"
            )
        self._unsure.pop((uid, attempt), None)
        return ours[0] if ours else None

    async def _list(self) -> dict[tuple[str, int], list[int]]:
        """Return all jobs that carry our mark and are not over, by uid and attempt.

        The bus may lag behind Slurm, so what Slurm lists and the bus does not know is looked at singly.
        """
        self._known.require_complete()
        async with _within(LIST_TIMEOUT_S, "list job states"):
            listed = await self._slurm.job_states()
        found: dict[tuple[str, int], list[int]] = {}
        for job in sorted(job for job, row in listed.items() if not row.state.is_over):
            state = self._known.get(str(job))
            mark = self._mark(state) if state is not None else await self._mark_now(job)
            if mark is not None:
                found.setdefault((mark.uid, mark.attempt), []).append(job)
            await checkpoint()  # There may be very many.
        return found

    async def _mark_now(self, job: int) -> marks.Mark | None:
        async with _within(self._timeout_s, f"look at job {job}"):
            found = await self._slurm.job(job)
        return None if found is None else marks.read_extra(self._key, found.extra, found.user_id)

    def _note(self, job: int, uid: str, attempt: int) -> None:
        """Note that Slurm has just said whose *job* is."""
        moment = time.monotonic()
        self._confirmed_at[job, uid, attempt] = moment
        self._confirmed_at.move_to_end((job, uid, attempt))
        while next(iter(self._confirmed_at.values())) < moment - SURE_S:
            self._confirmed_at.popitem(last=False)

    async def _require(self, job: int, owner: Owner, doing: str, lasts_s: float = SURE_S) -> None:
        """Return if Slurm says that *job* is *owner*'s, or has said so in the last *lasts_s* seconds.

        Its number may be another's by now, who would then have what we write.
        """
        confirmed_at = self._confirmed_at.get((job, owner.uid, owner.attempt), -math.inf)
        if time.monotonic() - confirmed_at < lasts_s:
            return
        if not _is_to_be_written(await self.look(job, owner)):
            raise SlurmUnavailableError(f"{doing}: it is not seen to be {owner.name}'s")

    async def release(
        self, job: int, priority: int | None, admin_comment: str, owner: Owner, *, has_lost: bool = False
    ) -> None:
        """Let Slurm start the job of *owner*; a priority can only be set then: a held job is refused one.

        It has its AdminComment before it has that. *has_lost*: slurmctld has lost the job before this one,
        and may lose its state again: a fresh look has to show that the job is *owner*'s.
        """
        doing = f"release job {job}"
        await self._require(job, owner, doing, 0.0 if has_lost else SURE_S)
        await self._update(job, JobChange(hold=False, admin_comment=admin_comment), doing)
        if priority is None:
            return
        await self._require(job, owner, doing)
        await self._update(job, JobChange(priority=Number.of(priority)), doing)

    async def exclude(self, job: int, excluded: str, owner: Owner) -> None:
        """Tell Slurm which nodes the job of *owner*, which waits, must not get; empty: it may have any."""
        doing = f"exclude nodes of job {job}"
        await self._require(job, owner, doing)
        await self._update(job, JobChange(excluded_nodes=(excluded,)), doing)

    async def mark_started(self, job: int, extra: str, admin_comment: str, owner: Owner) -> None:
        """Say on a job that its script has announced itself, if a fresh look shows that it is *owner*'s.

        Its user may have released it before we did: its AdminComment comes with this at the latest. One that
        was requeued since has to announce itself anew.
        """
        doing = f"set extra of job {job}"
        found = await self.look(job, owner)
        if not _is_to_be_written(found) or not isinstance(found, JobSeen) or found.is_requeued:
            raise SlurmUnavailableError(f"{doing}: it is not seen to be {owner.name}'s, and to run since")
        await self._update(job, JobChange(extra=marks.started(extra), admin_comment=admin_comment), doing)

    async def _update(self, job: int, change: JobChange, doing: str) -> None:
        self._check()
        async with _within(self._timeout_s, doing):
            await self._slurm.update_job(job, change)

    async def cancel(self, job: int, owner: Owner) -> None:
        """End the job of *owner*, if a fresh look shows that it is his; it being over is success."""
        found = await self.look(job, owner)
        if isinstance(found, JobUnknown):
            raise SlurmUnavailableError(f"cancel job {job}: Slurm does not say whose it is")
        if not isinstance(found, JobSeen) or not found.is_the_pods or found.is_over:
            return
        self._check()
        async with _within(self._timeout_s, f"cancel job {job}"):
            await self._slurm.cancel_job(job)


def _is_to_be_written(job: AnyJob) -> bool:
    """Whether a look shows that something may be written to the job."""
    return isinstance(job, JobSeen) and job.is_marked and not job.is_over


@asynccontextmanager
async def _within(timeout_s: float, doing: str) -> AsyncGenerator[None]:
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise SlurmUnavailableError(f"{doing}: no answer in {timeout_s:g} s") from error
