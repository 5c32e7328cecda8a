import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from sunk_runtime import keys
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.keys import BACKOFF_FIRST_S, BLOCKED_S, KeyLoop, LogDeduplicator
from sunk_runtime.recovery import Recovery
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


class Handler:
    """Counts looks at keys, and whether any two were at once."""

    def __init__(self, error: Callable[[str], Exception | None] = lambda _: None) -> None:
        self.looks: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.most_at_once = 0
        self.may_end = anyio.Event()
        self.may_end.set()
        self._error = error

    async def __call__(self, key: str) -> float | None:
        self.busy[key] += 1
        assert self.busy[key] == 1, f"{key} is handled twice at once"
        self.most_at_once = max(self.most_at_once, self.busy.total())
        try:
            await self.may_end.wait()
            self.looks[key] += 1
            if error := self._error(key):
                raise error
        finally:
            self.busy[key] -= 1
        return None

    def hold(self) -> None:
        self.may_end = anyio.Event()


async def keys_of(*keys: str) -> AsyncIterator[str]:
    for key in keys:
        yield key


async def test_every_key_of_every_source_is_handled() -> None:
    handler = Handler()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(KeyLoop("test", handler).run, keys_of("a", "b"), keys_of("c"))
        await until(lambda: handler.looks.keys() == {"a", "b", "c"})
        tasks.cancel_scope.cancel()


async def test_one_key_is_never_handled_twice_at_once_and_poked_meanwhile_it_is_handled_again() -> None:
    handler = Handler()
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        handler.hold()
        loop.enqueue("a")
        await until(lambda: handler.busy["a"] == 1)
        for _ in range(5):
            loop.enqueue("a")
            await anyio.sleep(0.01)
        handler.may_end.set()

        await until(lambda: handler.looks["a"] == 2)
        await anyio.sleep(0.1)
        assert handler.looks == {"a": 2}
        tasks.cancel_scope.cancel()


async def test_no_more_keys_than_allowed_are_handled_at_once_and_all_come_round() -> None:
    handler = Handler()
    loop = KeyLoop("test", handler, concurrency=3)
    names = [f"n{number}" for number in range(20)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, keys_of(*names))
        handler.hold()
        await until(lambda: handler.busy.total() == 3)
        handler.may_end.set()

        await until(lambda: sorted(handler.looks) == sorted(names))
        assert handler.most_at_once == 3
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "error",
    [TransientError("down", retry_after_s=0.01), ConflictError("stale"), KeyError("a bug")],
    ids=["transient", "conflict", "bug"],
)
async def test_a_failing_key_backs_off_alone_and_is_tried_again(error: Exception) -> None:
    names = [f"n{number}" for number in range(50)]
    order: list[str] = []

    async def handle(key: str) -> None:
        order.append(key)
        if key != "bad":
            return
        if len(order) == 1:
            for name in names:  # Their turns are before that of the failing one, but only as it backs off.
                loop.enqueue(name, after_s=BACKOFF_FIRST_S / 2)
        raise error

    loop = KeyLoop("test", handle, concurrency=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("bad")
        await until(lambda: order.count("bad") == 2)
        tasks.cancel_scope.cancel()

    assert order == ["bad", *names, "bad"]


async def test_a_key_that_failed_and_then_did_not_starts_its_back_off_anew() -> None:
    outcomes = iter([TransientError("1", retry_after_s=0), None])
    handler = Handler(lambda _: next(outcomes, None))
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")

        await until(lambda: handler.looks["a"] == 2)
        await anyio.sleep(0.3)
        assert handler.looks["a"] == 2
        tasks.cancel_scope.cancel()


async def test_a_reason_that_defers_many_keys_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler(lambda _: TransientError("Slurm is away"))
    keys = [f"key-{number}" for number in range(50)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(KeyLoop("test", handler).run, keys_of(*keys))
        await until(lambda: len(handler.looks) == len(keys))
        tasks.cancel_scope.cancel()

    assert [line.getMessage() for line in caplog.records] == ["key deferred"]


async def test_a_key_that_is_refused_is_tried_again_later_and_at_once_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Handler(lambda _: PermanentError("no"))
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")
        await until(lambda: handler.looks["a"] == 1)
        await anyio.sleep(0.3)  # Longer than the first back-off of others.
        assert handler.looks["a"] == 1

        loop.enqueue("a")
        await until(lambda: handler.looks["a"] == 2)

        await until(lambda: handler.looks["a"] == 3)  # Though it does not change: a right may be granted.
        tasks.cancel_scope.cancel()

    assert [line.getMessage() for line in caplog.records] == ["key refused"]


async def test_a_resync_brings_every_key_round_also_those_that_were_refused() -> None:
    handler = Handler(lambda _: PermanentError("no"))
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await KeyLoop("test", handler).run(keys=lambda: ["a", "b"], resync_s=0.05)

        tasks.start_soon(run)
        await until(lambda: min(handler.looks["a"], handler.looks["b"]) >= 2)
        tasks.cancel_scope.cancel()


async def test_a_key_is_looked_at_again_when_its_handler_said() -> None:
    looks = 0

    async def handle(_: str) -> float | None:
        nonlocal looks
        looks += 1
        return 0.05 if looks < 3 else None

    loop = KeyLoop("test", handle)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")
        await until(lambda: looks == 3)
        await anyio.sleep(0.2)
        assert looks == 3
        tasks.cancel_scope.cancel()


async def test_an_earlier_poke_wins_over_a_later_one() -> None:
    handler = Handler()
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a", after_s=60)
        loop.enqueue("a", after_s=0.01)
        loop.enqueue("a", after_s=30)

        await until(lambda: handler.looks["a"] == 1)
        tasks.cancel_scope.cancel()


async def test_stopping_cancels_what_is_under_way() -> None:
    handler = Handler()
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        handler.hold()
        loop.enqueue("a")
        await until(lambda: handler.busy["a"] == 1)
        tasks.cancel_scope.cancel()

    assert (handler.busy["a"], handler.looks) == (0, {})


async def test_one_poisoned_key_among_thousands_stops_none_of_them() -> None:
    looks: Counter[str] = Counter()

    async def handle(key: str) -> float | None:
        looks[key] += 1
        if key == "hangs":
            await anyio.sleep_forever()
        if key == "fails":
            raise KeyError("a bug")
        return None

    loop = KeyLoop("test", handle, concurrency=2, backoff_s=0.2, look_s=0.2)
    names = [f"n{number}" for number in range(5000)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, keys_of("hangs", "fails", *names))

        await until(lambda: len(looks) == 5002 and looks["hangs"] >= 3 and looks["fails"] >= 3)
        assert {looks[name] for name in names} == {1}
        tasks.cancel_scope.cancel()


async def test_looks_that_wait_for_nothing_keep_nobody_else_waiting() -> None:
    looks: list[str] = []
    turns = 0

    async def handle(key: str) -> float | None:
        looks.append(key)
        return None

    async def go_on() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    names = [f"n{number}" for number in range(2000)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on)
        tasks.start_soon(KeyLoop("test", handle, concurrency=2).run, keys_of(*names))

        await until(lambda: len(looks) == 2000)
        assert turns >= 500
        tasks.cancel_scope.cancel()
    assert looks == names


async def test_a_turn_in_a_while_is_taken_though_the_key_was_busy_and_another_one_still_is() -> None:
    ended = anyio.Event()
    looks: Counter[str] = Counter()

    async def handle(key: str) -> float | None:
        looks[key] += 1
        if key == "long":
            await ended.wait()
        elif looks[key] == 1:
            loop.enqueue("long")
            loop.enqueue(key, after_s=0.2)
        return None

    loop = KeyLoop("test", handle, concurrency=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("short")

        await until(lambda: looks == {"short": 2, "long": 1})
        ended.set()
        tasks.cancel_scope.cancel()


async def test_a_look_that_hangs_is_cut_off_and_tried_again() -> None:
    was_cancelled = 0

    async def handle(_: str) -> float | None:
        nonlocal was_cancelled
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled += 1

    loop = KeyLoop("test", handle, look_s=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")

        await until(lambda: was_cancelled == 2)
        tasks.cancel_scope.cancel()


async def test_a_handlers_own_time_out_is_a_bug_of_its_key_and_not_a_hang() -> None:
    handler = Handler(lambda _: TimeoutError())
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")

        await until(lambda: handler.looks["a"] == 2)
        tasks.cancel_scope.cancel()


async def test_a_recovery_makes_everything_that_backs_off_due_at_once_and_nothing_else() -> None:
    is_away = True

    def error(key: str) -> Exception | None:
        return TransientError("away", retry_after_s=3600) if is_away and key != "later" else None

    handler = Handler(error)
    recovery = Recovery()
    loop = KeyLoop("test", handler, woken_by=[recovery])
    names = [f"n{number}" for number in range(100)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, keys_of(*names))
        await until(lambda: len(handler.looks) == 100)
        loop.enqueue("later", after_s=3600)
        is_away = False

        recovery.announce()

        await until(lambda: all(handler.looks[name] == 2 for name in names))
        recovery.announce()
        await anyio.sleep(0.1)
        assert set(handler.looks.values()) == {2}  # What works again is not looked at once more.
        assert "later" not in handler.looks
        tasks.cancel_scope.cancel()


async def test_a_loop_that_ended_is_woken_no_more() -> None:
    handler = Handler(lambda _: TransientError("away", retry_after_s=3600))
    recovery = Recovery()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(KeyLoop("test", handler, woken_by=[recovery]).run, keys_of("a"))
        await until(lambda: handler.looks["a"] == 1)
        tasks.cancel_scope.cancel()

    recovery.announce()

    assert handler.looks["a"] == 1


async def test_the_back_off_ends_at_its_cap() -> None:
    looked_at: list[float] = []

    async def handle(_: str) -> float | None:
        looked_at.append(anyio.current_time())
        raise ConflictError("stale")

    loop = KeyLoop("test", handle, backoff_s=0.2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")

        await until(lambda: len(looked_at) == 10)  # Uncapped it would take 100 s.
        tasks.cancel_scope.cancel()


async def test_a_wait_without_end_is_never_taken_from_an_error() -> None:
    handler = Handler(lambda _: TransientError("away", retry_after_s=float("inf")))
    loop = KeyLoop("test", handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("a")

        await until(lambda: handler.looks["a"] == 2)
        tasks.cancel_scope.cancel()


async def test_what_is_weightier_has_its_turn_first_where_many_wait() -> None:
    weights = {"light": 0.0, "heavy": 9.0, "middle": 5.0}
    order: list[str] = []

    async def handle(key: str) -> None:
        order.append(key)

    async with anyio.create_task_group() as tasks:
        loop = KeyLoop("test", handle, concurrency=1, ahead_s=weights.__getitem__)
        tasks.start_soon(loop.run, keys_of(*weights))
        await until(lambda: len(order) == len(weights))
        tasks.cancel_scope.cancel()

    assert order == ["heavy", "middle", "light"]


async def test_a_key_that_blocks_everybody_else_rests_whoever_pokes_it_and_the_others_do_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()

    async def handle(key: str) -> None:
        looks[key] += 1
        await checkpoint()
        began = time.thread_time()
        while key != "quick" and time.thread_time() - began < 1.5 * BLOCKED_S:
            """Keep the processor."""

    async def is_looked_at_and_poked(key: str) -> None:
        loop.enqueue(key)
        await until(lambda: looks[key] == 1 and not loop.awaits(key))
        loop.enqueue(key)

    loop = KeyLoop("test", handle)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        with monkeypatch.context() as longer:
            longer.setattr(keys, "RESTS", 100_000)  # For hours: the turns of the others may take their time.
            await is_looked_at_and_poked("slow")
        for turn in range(1, 20):
            loop.enqueue("quick")
            await until(lambda turn=turn: looks["quick"] == turn)
        assert (looks["slow"], loop.awaits("slow")) == (1, True)
        await is_looked_at_and_poked("slow too")
        await until(lambda: looks["slow too"] == 2)
        tasks.cancel_scope.cancel()

    said = [vars(record) for record in caplog.records if record.message == "key blocked the loop"]
    assert {record["key"] for record in said} == {"slow", "slow too"}


async def test_who_runs_when_the_garbage_is_collected_does_not_rest_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def takes_long(phase: str, _: object) -> None:
        began = time.thread_time()
        while phase == "start" and time.thread_time() - began < 1.5 * BLOCKED_S:
            """Keep the processor, as a full collection of millions of objects does."""

    looks: Counter[str] = Counter()

    async def handle(key: str) -> None:
        looks[key] += 1
        await checkpoint()
        gc.collect(0)

    loop = KeyLoop("test", handle)
    gc.callbacks.append(takes_long)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run)
            for turn in range(1, 4):
                loop.enqueue("any")
                await until(lambda turn=turn: looks["any"] == turn and not loop.awaits("any"))
            tasks.cancel_scope.cancel()
    finally:
        gc.callbacks.remove(takes_long)

    assert "key blocked the loop" not in caplog.messages


async def test_a_look_that_is_timed_is_cancelled_and_fails_as_any_other() -> None:
    handler = Handler(lambda key: TransientError("not now") if key == "fails" else None)
    loop = KeyLoop("test", handler, look_s=0.05, backoff_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        loop.enqueue("fails")
        await until(lambda: handler.looks["fails"] > 2)
        handler.hold()
        loop.enqueue("hangs")
        await until(lambda: handler.busy["hangs"] == 1)
        await until(lambda: handler.busy["hangs"] == 0)
        tasks.cancel_scope.cancel()


def test_what_thousands_say_at_once_is_told_once_and_later_with_how_many_they_were() -> None:
    deduplicator = LogDeduplicator(every_s=10.0)

    assert deduplicator.left_out("Slurm is away", 100.0) == 0
    later = [deduplicator.left_out("Slurm is away", 100.0 + step / 1000) for step in range(3000)]
    assert later == [None] * 3000
    assert deduplicator.left_out("NATS is away", 101.0) == 0
    assert deduplicator.left_out("Slurm is away", 110.0) == 3000
    assert deduplicator.left_out("Slurm is away", 111.0) is None


def test_reasons_that_never_end_take_no_memory_without_end() -> None:
    deduplicator = LogDeduplicator()
    for number in range(10_000):
        deduplicator.left_out(f"reason {number}", 0.0)

    assert deduplicator.left_out("reason 9999", 0.0) is None
    assert deduplicator.left_out("reason 0", 0.0) == 0
