"""Waiting in tests: for what must come, never for time to pass. And what every lease must do."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final

import anyio

from sunk_runtime.errors import TransientError
from sunk_runtime.leases import Lease

WITHIN_S: Final = 120.0
"""How long a test waits for what must come; far more than it takes."""


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    *,
    within_s: float = WITHIN_S,
    pause_s: float | None = None,
) -> None:
    """Return when *condition* holds; fail when it does not within *within_s* seconds.

    *pause_s*: Between two looks. None: longer the longer it takes, up to a quarter of a second, because
    looks at a real server cost it more than what is waited for. Who measures a time gives a pause.
    """
    began = anyio.current_time()
    with anyio.fail_after(within_s):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            longer = min(max(0.02, (anyio.current_time() - began) / 10), 0.25)
            await anyio.sleep(longer if pause_s is None else pause_s)


MakeLease = Callable[[str, int], Lease]
"""Makes the lease of a test for a holder, with a TTL in seconds."""


class LeaseConformance:
    """The tests that every `Lease` passes. Subclass it where there is one, with a fixture ``make_lease``."""

    async def test_one_holder_at_a_time(self, make_lease: MakeLease) -> None:
        """A lease that is held is not given to another process, which cannot renew it either."""
        first, second = make_lease("a", 30), make_lease("b", 30)

        assert await first.acquire() is not None
        assert await second.acquire() is None
        assert await second.renew() is None
        assert await first.renew() is not None

    async def test_no_wait_after_a_release(self, make_lease: MakeLease) -> None:
        """What was given up is free at once."""
        first, second = make_lease("a", 30), make_lease("b", 30)
        await first.acquire()
        await first.release()

        assert await second.acquire() is not None
        assert await first.renew() is None

    async def test_releasing_what_is_another_s_takes_nothing_from_it(self, make_lease: MakeLease) -> None:
        """Nor does releasing twice, or before it was ever held."""
        first, second = make_lease("a", 30), make_lease("b", 30)
        await second.release()
        await first.acquire()
        await second.release()

        assert await first.renew() is not None

    async def test_who_comes_back_under_its_name_has_its_lease(self, make_lease: MakeLease) -> None:
        """A process that restarts faster than its lease ends need not wait for it."""
        await make_lease("a", 30).acquire()

        assert await make_lease("a", 30).acquire() is not None

    async def test_who_comes_back_under_its_name_does_not_know_that_no_other_has_it(
        self, make_lease: MakeLease
    ) -> None:
        """It may have taken a lease whose record was lost, and have ended before it had waited."""
        again = make_lease("a", 30)
        await make_lease("a", 30).acquire()
        await again.acquire()

        assert not again.was_given_up
        await again.release()
        await again.acquire()
        assert again.was_given_up

    async def test_the_token_of_a_later_leader_is_larger(self, make_lease: MakeLease) -> None:
        """Renewals may raise it, and nothing lowers it."""
        tokens: list[int] = []
        for holder in ("a", "b", "a", "b"):
            lease = make_lease(holder, 30)
            first, then = await lease.acquire(), await lease.renew()
            assert first is not None
            assert then is not None
            assert then >= first
            assert not tokens or first > tokens[-1]
            tokens.append(then)
            await lease.release()

    async def test_a_holder_that_falls_silent_loses_it_after_its_ttl(self, make_lease: MakeLease) -> None:
        """And not before; then it cannot renew, but may take it again when it is free."""
        silent, other = make_lease("a", 5), make_lease("b", 30)
        await silent.acquire()
        assert await other.acquire() is None

        async def is_taken() -> bool:
            return await other.acquire() is not None

        await until(is_taken)
        assert await silent.renew() is None
        assert await silent.acquire() is None
        await other.release()
        assert await silent.acquire() is not None

    async def test_only_one_of_many_contenders_gets_it(self, make_lease: MakeLease) -> None:
        """However close they come; a server that does not answer for a moment is asked again."""
        tokens: list[int | None] = []

        async def contend(holder: str) -> None:
            lease = make_lease(holder, 30)
            while True:
                try:
                    tokens.append(await lease.acquire())
                except TransientError:
                    await anyio.sleep(0.1)
                else:
                    return

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(contend, f"replica-{number}")

        assert len([token for token in tokens if token is not None]) == 1
