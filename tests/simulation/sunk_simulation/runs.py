"""Runs of seeds, each in a process of its own that begins where all others do: none changes another."""

import gc
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
from pathlib import Path
from typing import Final

import msgspec

from sunk_simulation import cluster, crowd, looks, nodesets, pace, proof, scenes
from sunk_simulation.simulation import BreachError, Simulation

STORIES: Final = {
    "cluster": cluster.story,
    "crowd": crowd.story,
    "looks": looks.story,
    "nodesets": nodesets.story,
    "proof": proof.story,
    "scenes": scenes.story,
}
_LATE: Final = (
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


class Done(msgspec.Struct, frozen=True):
    """A line of the file of seeds that are done."""

    commit: str
    story: str
    hours: float
    seed: int
    said: str = ""


def run_all(seeds: Iterable[int], options: Options, *, cores: int = 1, done: Path | None = None) -> int:
    """Run every seed and tell; return 1 if one failed. Those that stand in *done* are not run again."""
    wanted = _left(seeds, options, done)
    here = commit()
    freeze()
    failed: list[int] = []
    count, cpu_s = 0, 0.0
    for outcome in outcomes(wanted, options, cores=cores):
        count, cpu_s = count + 1, cpu_s + outcome.cpu_s
        if outcome.said:
            failed.append(outcome.seed)
        _tell(outcome)
        if done is not None:
            line = Done(here, options.story, options.hours, outcome.seed, outcome.said)
            with done.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
    rate = count * options.hours / (cpu_s / 60) if cpu_s else 0.0
    said = f"{count} seeds of {options.hours:g} h, {len(failed)} failed"
    print(f"{said}: {rate:.1f} virtual hours in a minute of a core")
    if failed:
        print(f"failed: {' '.join(map(str, sorted(failed)))}; one again: --seed {failed[0]} --trace")
    return 1 if failed else 0


def freeze() -> None:
    """Import all; have what is imported be nothing that a child looks through as garbage, or copies."""
    for name in _LATE:
        import_module(name)
    gc.collect()
    gc.freeze()


def outcomes(seeds: Iterable[int], options: Options, *, cores: int = 1) -> Iterator[Outcome]:
    """Run every seed, some at a time, and yield how each ended; in the seeds' order with one core."""
    waiting = iter(seeds)
    with selectors.DefaultSelector() as selector:
        running: dict[int, tuple[int, int, bytearray]] = {}
        while True:
            while len(running) < cores and (seed := next(waiting, None)) is not None:
                pid, pipe = _begin(seed, options)
                running[pipe] = (seed, pid, bytearray())
                selector.register(pipe, selectors.EVENT_READ)
            if not running:
                return
            for key, _ in selector.select():
                seed, pid, told = running[key.fd]
                if more := os.read(key.fd, 1 << 16):
                    told += more
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                del running[key.fd]
                _, status = os.waitpid(pid, 0)
                yield _outcome(seed, bytes(told), status)


def run_one(seed: int, options: Options) -> Outcome:
    """Run *seed* in this process, which should do nothing afterwards."""
    began = time.process_time()
    said, broke, timeline = "", "", ()
    gc.disable()
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
        )
        sys.stdout.flush()
        return outcome


def tell_failure(outcome: Outcome) -> None:
    """Say what broke, after the last lines of what had happened."""
    for line in outcome.timeline:
        print(line)
    print(f"seed {outcome.seed} failed: {outcome.said}")


def _tell(outcome: Outcome) -> None:
    if outcome.said:
        tell_failure(outcome)
    said = f"{outcome.lines} lines, {outcome.turns} callbacks, {outcome.cpu_s:.1f} s"
    print(f"seed {outcome.seed}: trace {outcome.digest[:16]}, {said}", flush=True)


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


def _outcome(seed: int, told: bytes, status: int) -> Outcome:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(told, type=Outcome)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(seed=seed, said=f"its process ended with {code}", broke=f"exit {code}")


def _left(seeds: Iterable[int], options: Options, done: Path | None) -> list[int]:
    """Return the seeds that are not done yet, and say how many are."""
    wanted = list(seeds)
    if done is None or not done.exists():
        return wanted
    lines = [msgspec.json.decode(line, type=Done) for line in done.read_bytes().splitlines()]
    same = [one for one in lines if one.story == options.story and one.hours == options.hours]
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
