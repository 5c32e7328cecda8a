"""Which jobs run, as Slurm says now: what the bus says of a job may be as old as the syncer has been away."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

from sunk_events.base import REASON_MAX, Reply, Request
from sunk_events.requests import ConfirmJobs, ConfirmNode, JobsConfirmed, NodeConfirmed
from sunk_runtime.errors import NoResponderError, TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import ask

log = logging.getLogger(__name__)

CONFIRM_S: Final = 3.0

Confirm = Callable[[str, Mapping[int, datetime | None]], Awaitable[frozenset[int] | None]]
"""Given a node and jobs on it, with the moments of their submission where those are known, returns those that
run by what Slurm said after the call; None: unknown."""


class JobConfirmer:
    """Asks the syncer of one cluster."""

    def __init__(self, bus: Bus, cluster: str) -> None:
        self._bus = bus
        self._cluster = cluster
        self._under_way = 0
        self._is_unheard = False
        """Whether the last question had no answer."""

    async def __call__(self, node: str, jobs: Mapping[int, datetime | None]) -> frozenset[int] | None:
        """Return those of *jobs* that run by what Slurm said after the call; None: unknown."""
        if self._is_unheard and self._under_way:
            return None  # One is enough to hear that somebody answers again: the others hold no lock up.
        self._under_way += 1
        try:
            numbers = sorted(jobs)
            question = ConfirmJobs(
                node=node, jobs=tuple(numbers), submitted=tuple(jobs[number] for number in numbers)
            )
            try:
                found = await self._ask(question)
            except NoResponderError:
                found = await self._by_earlier(question)
        except TransientError as error:
            self._note(str(error))
            return None
        finally:
            self._under_way -= 1
        if not isinstance(found, JobsConfirmed):
            self._note(repr(found)[:REASON_MAX])
            return None
        self._note("")
        return frozenset(found.running)

    async def _ask(self, question: Request) -> Reply:
        return await ask(self._bus, self._cluster, question, timeout_s=CONFIRM_S)

    async def _by_earlier(self, question: ConfirmJobs) -> Reply:
        """Return what a syncer of an earlier version says, which is upgraded after us: the bus has its word.

        One of ours that has just begun to lead listens for both, and for this one first.
        """
        confirmed = await self._ask(ConfirmNode(node=question.node))
        if not isinstance(confirmed, NodeConfirmed):
            return confirmed
        try:
            return await self._ask(question)
        except NoResponderError:
            return JobsConfirmed(running=question.jobs)

    def _note(self, trouble: str) -> None:
        """Note why nobody says anything, which is told once; empty: somebody does."""
        is_unheard = bool(trouble)
        if is_unheard != self._is_unheard:
            if is_unheard:
                log.warning("jobs not confirmed", extra={"cluster": self._cluster, "error": trouble})
            else:
                log.info("jobs confirmed again", extra={"cluster": self._cluster})
        self._is_unheard = is_unheard
