"""What slurmdbd remembers of jobs, asked through slurmrestd: also of those that slurmctld has forgotten.

What must stay true: a slurmdbd that hangs, or that is not there, costs nobody else's calls. These have
connections and a circuit of their own, few at a time, and rest for a while where nobody serves them.

Source: slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.44), OpenAPI documents; without ``-s slurmdbd`` it answers
404 in words.
"""

import time
from typing import Final

import anyio
import msgspec

from sunk_slurm.call import Call
from sunk_slurm.connections import Transport
from sunk_slurm.errors import NotSentError, NotServedError
from sunk_slurm.rest import Rest, RestClient
from sunk_slurm.states import JobState
from sunk_slurm.tokens import Tokens
from sunk_slurm.trust import Trust
from sunk_slurm.wire import Answer, Number

AT_ONCE: Final = 2
NOT_SERVED_REST_S: Final = 300.0


class AccountedState(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, or that it has not."""

    current: tuple[str, ...] = ()


class AccountedTime(msgspec.Struct, frozen=True, kw_only=True):
    """When, in seconds since 1970; 0 is never."""

    submission: int = 0
    end: int = 0


class AccountedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a job. Numbers may be given anew: then there are several of one number."""

    job_id: int = 0
    name: str = ""
    extra: str = ""
    """Kept with ``AccountingStoreFlags=job_extra`` only, and only once the job has ended."""
    kill_request_user: str = ""
    """Who cancelled it; empty also for a user whom slurmrestd's machine does not know (``user`` is null)."""
    state: AccountedState = AccountedState()
    time: AccountedTime = AccountedTime()

    @property
    def state_now(self) -> JobState:
        """Its state when slurmdbd last heard of it."""
        return JobState.of(self.state.current)

    @property
    def submitted(self) -> Number:
        """When it was submitted, or requeued: each run has a record of its own."""
        return Number.of(self.time.submission)


class AccountedJobs(Answer, frozen=True, kw_only=True):
    """GET slurmdb/job/{id}."""

    jobs: tuple[AccountedJob, ...] = ()


class SlurmAccounting(RestClient):
    """slurmdbd behind slurmrestd, to read. Use it as a context."""

    def __init__(
        self, url: str, tokens: Tokens, *, trust: Trust | None = None, transport: Transport | None = None
    ) -> None:
        super().__init__(Rest(url, tokens, trust=trust, transport=transport))
        self._places = anyio.Semaphore(AT_ONCE)
        self._rests_until = 0.0

    async def jobs(self, job: int, *, timeout_s: float) -> tuple[AccountedJob, ...]:
        """Return all records of the number *job*; none is also the answer for one that was never heard of.

        Raises:
            SlurmUnavailableError: no answer within *timeout_s*, or nobody serves this.
        """
        doing = f"ask accounting for job {job}"
        if time.monotonic() < self._rests_until:
            raise NotSentError(f"{doing}: slurmrestd does not serve accounting", is_sent=False)
        call = Call(
            name="accounted_job", doing=doing, path=f"job/{job}", timeout_s=timeout_s, is_accounting=True
        )
        try:
            with anyio.fail_after(timeout_s):
                async with self._places:
                    answer = await self._rest.call(call, AccountedJobs)
        except TimeoutError as error:
            raise NotSentError(f"{doing}: no answer in {timeout_s:g} s") from error
        except NotServedError as error:
            self._rests_until = time.monotonic() + NOT_SERVED_REST_S
            raise NotSentError(str(error), is_sent=False) from error
        return tuple(one for one in answer.jobs if one.job_id == job) if answer else ()
