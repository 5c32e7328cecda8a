"""Processes that live on one loop, in time that jumps."""

import asyncio
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from datetime import UTC, date, datetime

import anyio
import anyio.to_thread
import pytest

from sunk_simulation.loop import DeadlockError, SimLoop, SimulationError
from sunk_simulation.simulation import BreachError, Simulation

PROGRAM = """
from sunk_simulation.ambient import install, strays
install()
import sunk_hook_gateway.main, sunk_metrics_exporter.main, sunk_nodeset_controller.main
import sunk_pod_scheduler.main, sunk_syncer.main
print(*strays(), sep="\\n")
"""


def test_an_hour_passes_at_once_and_every_clock_says_so() -> None:
    async def story() -> tuple[float, float, float, datetime]:
        before = time.time(), time.monotonic(), asyncio.get_running_loop().time(), datetime.now(UTC)
        await anyio.sleep(3600)
        after = time.time(), time.monotonic(), asyncio.get_running_loop().time(), datetime.now(UTC)
        passed = [late - early for early, late in zip(before[:3], after[:3], strict=True)]
        passed.append((after[3] - before[3]).total_seconds())
        assert passed == [pytest.approx(3600, abs=1e-3)] * 4
        return before

    began = time.perf_counter()
    with Simulation() as sim:
        before = sim.run(story())

    assert before[:3] == (
        pytest.approx(1767225600),
        pytest.approx(1000, abs=1e-3),
        pytest.approx(1000, abs=1e-3),
    )
    assert before[3].isoformat(timespec="milliseconds") == "2026-01-01T00:00:00.000+00:00"
    assert time.perf_counter() - began < 3600
    assert date.today() == datetime.now().astimezone().date()  # noqa: DTZ011 - Python's own again


def test_chance_is_the_seed_s() -> None:
    async def drawn() -> list[object]:
        return [random.random(), uuid.uuid4(), secrets.token_bytes(8), os.urandom(4)]  # noqa: S311 - what this is about

    def run(seed: int) -> list[object]:
        with Simulation(seed) as sim:
            return sim.run(drawn())

    assert run(1) == run(1)
    assert not set(run(1)) & set(run(2))
    assert os.urandom(8) != os.urandom(8)


def test_each_process_has_its_own_clock_name_arguments_and_environment() -> None:
    seen: dict[str, list[object]] = {}

    async def main() -> None:
        await anyio.sleep(1)
        seen[sys.argv[0]] = [
            round(time.time() - 1767225600, 3),
            round(time.monotonic(), 3),
            socket.gethostname(),
            os.getpid(),
            sys.argv[1:],
            os.environ["WHO"],  # noqa: TID251 - what this is about
        ]

    async def story(sim: Simulation) -> None:
        one = sim.start("one", main, argv=("--x",), env={"WHO": "first"})
        other = sim.start("other", main, host="node-7", env={"WHO": "second"})
        other.clock.jump(-90)
        await one.ended()
        await other.ended()

    with Simulation() as sim:
        sim.run(story(sim))

    assert seen == {
        "one": [1.0, 1001.0, "one", 101, ["--x"], "first"],
        "other": [-89.0, 1001.0, "node-7", 102, [], "second"],
    }


def test_a_killed_process_does_nothing_any_more_not_even_what_finally_says() -> None:
    done: list[str] = []

    async def main() -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep, 100)
                await anyio.sleep(10)
                done.append("went on")
        finally:
            with anyio.CancelScope(shield=True):
                done.append("finally")
                await anyio.sleep(1)
                done.append("after finally")

    async def story(sim: Simulation) -> list[str]:
        process = sim.start("p", main)
        await sim.sleep(5)
        process.kill()
        await sim.sleep(100)
        assert (process.code, process.is_alive) == (-9, False)
        return done[:]

    with Simulation() as sim:
        assert sim.run(story(sim)) == []


def test_a_paused_process_goes_on_where_it_was_with_timers_that_are_late() -> None:
    ticks: list[float] = []

    async def main() -> None:
        while True:
            await anyio.sleep(1)
            ticks.append(round(asyncio.get_running_loop().time() - 1000, 2))

    async def story(sim: Simulation) -> None:
        process = sim.start("p", main)
        await sim.sleep(2.5)
        process.pause(60)
        await sim.sleep(62)
        process.kill()

    with Simulation() as sim:
        sim.run(story(sim))

    assert ticks == [1.0, 2.0, 62.5, 63.5]


def test_a_runner_that_closes_waits_for_no_process_that_is_paused_for_good() -> None:
    loop = SimLoop()
    process = loop.process("p")

    async def story() -> None:
        process.start(anyio.sleep_forever)
        await asyncio.sleep(1)
        process.pause()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story())

    assert process.code is None


@pytest.mark.parametrize(("turns", "lines"), [(0, 1), (2, 2), (4, 3), (None, 6)])
def test_a_process_is_killed_after_so_many_callbacks(turns: int | None, lines: int) -> None:
    said: list[int] = []

    async def main() -> None:
        said.append(0)
        for number in range(1, 6):
            await anyio.sleep(1)
            said.append(number)

    async def story(sim: Simulation) -> int | None:
        process = sim.start("web", main)
        await sim.sleep(0.5)
        process.kill_after(1)
        process.kill_after(turns)
        await sim.sleep(10)
        return process.code

    with Simulation() as sim:
        code = sim.run(story(sim))

    assert (said, code) == ([*range(lines)], 0 if turns is None else -9)


def test_a_signal_is_handled_or_kills() -> None:
    async def main() -> None:
        told = anyio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await told.wait()

    async def story(sim: Simulation) -> list[int]:
        heeding, deaf = sim.start("heeding", main), sim.start("deaf", anyio.sleep_forever)
        await sim.sleep(1)
        heeding.signal(signal.SIGTERM)
        deaf.signal(signal.SIGTERM)
        return [await heeding.ended(), await deaf.ended()]

    with Simulation() as sim:
        assert sim.run(story(sim)) == [0, -15]


def test_a_process_that_fails_is_started_again_as_a_new_one() -> None:
    pids: list[int] = []

    async def main() -> None:
        pids.append(os.getpid())
        await anyio.sleep(1)
        raise RuntimeError("on purpose")

    async def story(sim: Simulation) -> None:
        sim.keep("p", main, restart_s=1.0)
        await sim.sleep(5)

    with Simulation() as sim:
        sim.run(story(sim))

    assert pids == [101, 102, 103]


def test_threads_are_none() -> None:
    async def story() -> object:
        return await anyio.to_thread.run_sync(asyncio.get_running_loop)

    with Simulation() as sim:
        assert sim.run(story()) is sim.loop


def test_the_order_of_processes_is_the_seed_s_and_within_one_it_is_asyncio_s() -> None:
    def run(seed: int) -> list[str]:
        order: list[str] = []

        async def main() -> None:
            for number in range(3):
                order.append(f"{sys.argv[0]}{number}")
                await asyncio.sleep(0)

        async def story(sim: Simulation) -> None:
            for name in "abc":
                sim.start(name, main)
            await sim.sleep(1)

        with Simulation(seed) as sim:
            sim.run(story(sim))
        return order

    runs = [run(seed) for seed in range(20)]
    assert runs == [run(seed) for seed in range(20)]
    assert len(set(map(tuple, runs))) > 10
    assert all([one for one in order if one[0] == "a"] == ["a0", "a1", "a2"] for order in runs)


def test_who_blocks_waits_for_nothing_or_turns_in_a_circle_is_told() -> None:
    async def blocks() -> None:
        time.sleep(1)  # noqa: ASYNC251 - what this is about

    async def turns() -> None:
        while True:  # noqa: ASYNC110 - what this is about
            await asyncio.sleep(0)

    with Simulation() as sim, pytest.raises(RuntimeError, match="blocks its event loop"):
        sim.run(blocks())
    with Simulation() as sim, pytest.raises(DeadlockError):
        sim.run(anyio.sleep_forever())
    with Simulation() as sim:
        sim.loop.stuck = 1000
        with pytest.raises(SimulationError, match="turns in a circle"):
            sim.run(turns())


def test_what_must_never_happen_ends_the_run_with_its_story() -> None:
    state = {"balance": 3}

    async def story(sim: Simulation) -> None:
        sim.never("debt", lambda: f"balance is {state['balance']}" if state["balance"] < 0 else None)
        for _ in range(10):
            await sim.sleep(1)
            state["balance"] -= 1
            sim.trace.write("bank", "pays", left=state["balance"])
            sim.changed()

    with Simulation(7) as sim, pytest.raises(BreachError, match="seed 7: debt: balance is -1") as caught:
        sim.run(story(sim))

    assert caught.value.timeline[-2:] == (
        "     4.000000 bank                     pays left=-1",
        "     4.000000 checker                  debt: balance is -1",
    )


def test_what_does_not_settle_in_time_is_a_breach() -> None:
    async def story(sim: Simulation) -> None:
        await sim.settles("peace", lambda: "there is war", within_s=60)

    with Simulation() as sim, pytest.raises(BreachError, match="after 60 s: there is war"):
        sim.run(story(sim))


def test_no_service_nor_library_holds_a_clock_or_chance_that_is_not_simulated() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
