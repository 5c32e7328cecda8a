"""Runs of seeds, each in a process of its own that begins where all others do: none changes another."""

import gc
import math
import os
import resource
import selectors
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from sunk_simulation import busy, cluster, crowd, jobs, looks, nodesets, pace, proof, reached, scenes
from sunk_simulation.reached import Reached
from sunk_simulation.simulation import BreachError, Simulation
from sunk_simulation.steering import Steering

STORIES: Final = {
    "busy": busy.story,
    "cluster": cluster.story,
    "crowd": crowd.story,
    "jobs": jobs.story,
    "looks": looks.story,
    "nodesets": nodesets.story,
    "proof": proof.story,
    "scenes": scenes.story,
}
ANY: Final = "any"
"""The story of each seed is chosen by what the ones before have reached."""
_HOURS: Final = {
    "busy": 0.05,
    "cluster": 0.03,
    "crowd": 0.05,
    "jobs": 0.05,
    "looks": 0.05,
    "nodesets": 0.08,
    "proof": 0.1,
    "scenes": 0.1,
}
"""How long seeds of each are then."""
_LATE: Final = (
    "anyio._core._fileio",
    "certifi",
    "encodings.idna",
    "httpcore",
    "uvicorn.protocols.websockets.auto",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.http.h11_impl",
)
"""What services import late, which each seed would do anew: two seconds."""
LONGEST_S: Final = 1800
"""What a seed may take of a core: one that takes more has failed."""


class Options(msgspec.Struct, frozen=True):
    """How seeds are run."""

    hours: float
    faults: bool = True
    trace: bool = False
    story: str = "proof"
    only: tuple[str, ...] | None = None
    """The items that happen; None: all."""


class Outcome(msgspec.Struct, frozen=True):
    """How one ended."""

    seed: int
    digest: str = ""
    lines: int = 0
    turns: int = 0
    cpu_s: float = 0.0
    said: str = ""
    """What was wrong, in a sentence; empty: nothing."""
    broke: str = ""
    """Which check found it, or the error's type."""
    timeline: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    """What faults and deeds happened."""
    ended_s: float = 0.0
    """The virtual time at the end."""
    options: Options | None = None
    """How it was run."""
    reached: Reached = Reached()


class Done(msgspec.Struct, frozen=True):
    """A line of the file of seeds that are done."""

    commit: str
    story: str
    hours: float
    seed: int
    said: str = ""


def run_all(
    seeds: Iterable[int],
    options: Options,
    *,
    cores: int = 1,
    done: Path | None = None,
    minutes: float | None = None,
) -> int:
    """Run every seed and tell; return 1 if one failed.

    Those that stand in *done* are not run again, and none is begun after so many *minutes*.
    """
    ends = math.inf if minutes is None else time.monotonic() + minutes * 60
    wanted = takewhile(lambda _: time.monotonic() < ends, _left(seeds, options, done))
    here = commit()
    freeze()
    failed: list[str] = []
    steering = Steering(list(STORIES) if options.story == ANY else [options.story])
    count, cpu_s, simulated_s = 0, 0.0, 0.0
    cases = ((seed, _case(options, steering.next())) for seed in wanted)
    for outcome in outcomes(cases, cores=cores):
        case = outcome.options or options
        count, cpu_s = count + 1, cpu_s + outcome.cpu_s
        simulated_s += outcome.ended_s
        new = steering.note(case.story, outcome.reached, outcome.cpu_s)
        again = f"--story {case.story} --hours {case.hours:g} --seed {outcome.seed}"
        if outcome.said:
            failed.append(again)
        _tell(outcome, f", new {new}: {again}" if options.story == ANY else "")
        if done is not None:
            line = Done(here, case.story, case.hours, outcome.seed, outcome.said)
            with done.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
    if count > 1:
        print("\n".join(reached.summary(steering.found)))
    rate = simulated_s / 60 / cpu_s if cpu_s else 0.0
    hours = "" if options.story == ANY else f" of {options.hours:g} h"
    print(f"{count} seeds{hours}, {len(failed)} failed: {rate:.1f} virtual hours in a minute of a core")
    if failed:
        print(f"failed: {'; '.join(sorted(failed))}; one again: {failed[0]} --trace")
    return 1 if failed else 0


def _case(options: Options, story: str) -> Options:
    """Return how a seed is run whose story is *story*."""
    if options.story != ANY:
        return options
    return msgspec.structs.replace(options, story=story, hours=_HOURS[story])


def freeze() -> None:
    """Import all; have what is imported be nothing that a child looks through as garbage, or copies."""
    for name in _LATE:
        import_module(name)
    gc.collect()
    gc.freeze()


def outcomes(cases: Iterable[tuple[int, Options]], *, cores: int = 1) -> Iterator[Outcome]:
    """Run every seed, some at a time, and yield how each ended; in the seeds' order with one core."""
    waiting = iter(cases)
    with selectors.DefaultSelector() as selector:
        running: dict[int, tuple[tuple[int, Options], int, bytearray]] = {}
        while True:
            while len(running) < cores and (case := next(waiting, None)) is not None:
                pid, pipe = _begin(*case)
                running[pipe] = (case, pid, bytearray())
                selector.register(pipe, selectors.EVENT_READ)
            if not running:
                return
            for key, _ in selector.select():
                case, pid, told = running[key.fd]
                if more := os.read(key.fd, 1 << 16):
                    told += more
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                del running[key.fd]
                _, status = os.waitpid(pid, 0)
                yield _outcome(*case, bytes(told), status)


def run_one(seed: int, options: Options) -> Outcome:
    """Run *seed* in this process, which should do nothing afterwards."""
    began = time.process_time()
    said, broke, timeline = "", "", ()
    gc.disable()
    reached.begin()
    pace.of(seed).begin()
    with Simulation(seed, out=sys.stdout if options.trace else None, only=options.only) as sim:
        try:
            sim.run(STORIES[options.story](sim, hours=options.hours, faults=options.faults))
        except BreachError as error:
            said, broke, timeline = str(error), error.name, error.timeline
        except Exception as error:  # noqa: BLE001 - told by who started us
            said, broke = traceback.format_exc(), type(error).__name__
            timeline = tuple(sim.trace.last)
        if not said and sim.loop.errors:
            said, broke = "; ".join(sim.loop.errors), "an error that nobody heard"
        outcome = Outcome(
            seed=seed,
            digest=sim.trace.digest,
            lines=sim.trace.lines,
            turns=sim.loop.turns,
            cpu_s=time.process_time() - began,
            said=said,
            broke=broke,
            timeline=timeline,
            items=tuple(sim.items),
            ended_s=sim.now_s,
            options=options,
            reached=reached.present(),
        )
        sys.stdout.flush()
        return outcome


def tell_failure(outcome: Outcome) -> None:
    """Say what broke, after the last lines of what had happened."""
    for line in outcome.timeline:
        print(line)
    print(f"seed {outcome.seed} failed: {outcome.said}")


def _tell(outcome: Outcome, more: str) -> None:
    if outcome.said:
        tell_failure(outcome)
    said = f"{outcome.lines} lines, {outcome.turns} callbacks, {outcome.cpu_s:.1f} s"
    print(f"seed {outcome.seed}: trace {outcome.digest[:16]}, {said}{more}", flush=True)


def _begin(seed: int, options: Options) -> tuple[int, int]:
    sys.stdout.flush()  # What waits to be written would be written twice.
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    os.close(ours)
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
        outcome = run_one(seed, options)
        with os.fdopen(theirs, "wb") as pipe:
            pipe.write(msgspec.json.encode(outcome))
        code = 0
    finally:
        os._exit(code)


def _outcome(seed: int, options: Options, told: bytes, status: int) -> Outcome:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(told, type=Outcome)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(seed=seed, said=f"its process ended with {code}", broke=f"exit {code}", options=options)


def _left(seeds: Iterable[int], options: Options, done: Path | None) -> list[int]:
    """Return the seeds that are not done yet, and say how many are."""
    wanted = list(seeds)
    if done is None or not done.exists():
        return wanted
    lines = [msgspec.json.decode(line, type=Done) for line in done.read_bytes().splitlines()]
    same = [
        one
        for one in lines
        if options.story in {ANY, one.story} and _case(options, one.story).hours == one.hours
    ]
    known = {one.seed for one in same}
    left = [seed for seed in wanted if seed not in known]
    by_commit: dict[str, int] = {}
    for one in same:
        by_commit[one.commit] = by_commit.get(one.commit, 0) + 1
    said = ", ".join(f"{count} at {commit}" for commit, count in by_commit.items())
    print(f"{len(wanted) - len(left)} of {len(wanted)} seeds are done already ({said})")
    return left


def commit() -> str:
    """Return which code this is; with a + if it is changed."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
