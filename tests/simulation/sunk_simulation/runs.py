"""Runs of seeds, each in a process of its own that begins where all others do: none changes another."""

import gc
import os
import sys
import time
import traceback
from collections.abc import Iterable
from typing import Final

import msgspec

from sunk_simulation import nodesets, proof
from sunk_simulation.simulation import BreachError, Simulation

STORIES: Final = {"nodesets": nodesets.story, "proof": proof.story}


class Options(msgspec.Struct, frozen=True):
    """How seeds are run."""

    hours: float
    faults: bool
    trace: bool
    story: str = "proof"


class Outcome(msgspec.Struct, frozen=True):
    """How one ended."""

    seed: int
    digest: str
    lines: int
    turns: int
    cpu_s: float
    said: str = ""
    timeline: tuple[str, ...] = ()


def run_all(seeds: Iterable[int], options: Options) -> int:
    """Run every seed and tell; return 1 if one failed."""
    gc.collect()
    gc.freeze()
    failed = 0
    count, cpu_s = 0, 0.0
    for seed in seeds:
        outcome = _in_child(seed, options)
        count, cpu_s = count + 1, cpu_s + outcome.cpu_s
        failed += bool(outcome.said)
        _tell(outcome)
    rate = count * options.hours / (cpu_s / 60) if cpu_s else 0.0
    said = f"{count} seeds of {options.hours:g} h, {failed} failed"
    print(f"{said}: {rate:.1f} virtual hours in a minute of a core")
    return 1 if failed else 0


def run_one(seed: int, options: Options) -> Outcome:
    """Run *seed* in this process, which should do nothing afterwards."""
    began = time.process_time()
    said, timeline = "", ()
    gc.disable()
    with Simulation(seed, out=sys.stdout if options.trace else None) as sim:
        try:
            sim.run(STORIES[options.story](sim, hours=options.hours, faults=options.faults))
        except BreachError as error:
            said, timeline = str(error), error.timeline
        except Exception:  # noqa: BLE001 - told by who started us
            said, timeline = traceback.format_exc(), tuple(sim.trace.last)
        outcome = Outcome(
            seed=seed,
            digest=sim.trace.digest,
            lines=sim.trace.lines,
            turns=sim.loop.turns,
            cpu_s=time.process_time() - began,
            said=said or "; ".join(sim.loop.errors),
            timeline=timeline,
        )
        sys.stdout.flush()
        return outcome


def _in_child(seed: int, options: Options) -> Outcome:
    sys.stdout.flush()  # What waits to be written would be written twice.
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        code = 1
        try:
            outcome = run_one(seed, options)
            with os.fdopen(theirs, "wb") as pipe:
                pipe.write(msgspec.json.encode(outcome))
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return msgspec.json.decode(told, type=Outcome)


def _tell(outcome: Outcome) -> None:
    for line in outcome.timeline:
        print(line)
    if outcome.said:
        print(f"seed {outcome.seed} failed: {outcome.said}")
    said = f"{outcome.lines} lines, {outcome.turns} callbacks, {outcome.cpu_s:.1f} s"
    print(f"seed {outcome.seed}: trace {outcome.digest[:16]}, {said}")
