"""The demo: starts the servers, shows the story step by step, ends with a table of reaction times.

Where Kubernetes has to be compiled first, what needs none is shown meanwhile (`opening`).
"""

import time
from functools import partial
from typing import Final

from sunk_lab.stack.stack import Stack
from sunk_lab.stack.users import OTHER_TEAMS
from sunk_lab.story.observe import ComputeNode
from sunk_lab.story.opening import STEPS as OPENING
from sunk_lab.story.opening import FirstSlurm, meanwhile, tell_opening
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS
from sunk_lab.story.tail import Tail
from sunk_lab.story.telling import HOW_TO_READ, Narrator, Told, told_of

TITLES: Final = {
    "cordon": "A cordon in Kubernetes drains the node in Slurm, and an uncordon undrains it",
    "drain": "A drain in Slurm is a condition of the Pod and of the Node",
    "lock": "A Slurm job starts on a Node only after other Pods have left it",
    "train": "The ranks of a job on two nodes meet at a node's name",
    "place": "A Pod gets a Slurm job and runs where Slurm decides",
    "metrics": "Prometheus metrics show the same states, under the documented names",
}
NEXT: Final = """
What to try next:
  ./task demo -- --keep              shows it again, and leaves all servers running for you to look around
  docs/tutorials/shared-pool.md      guides you through the same on a Slurm that the charts install
  docs/install.md                    installs the charts on your own cluster"""
LAST_FACTS_S: Final = 0.3
"""Facts about a step still arrive when it is over."""


class DemoStage(Stage):
    """A stage with an audience."""

    def __init__(self, stack: Stack, narrator: Narrator) -> None:
        super().__init__(stack)
        self._narrator = narrator

    def show(self, text: str, *nodes: ComputeNode) -> None:
        """Tell it, with what ``sinfo`` and ``kubectl`` print."""
        time.sleep(LAST_FACTS_S)
        self._narrator.say(f"  → {text}")
        for line in self.both_sides(*nodes):
            self._narrator.say(f"      {line}")


def tell(stack: Stack, narrator: Narrator, before: int) -> list[Told]:
    """Show every step, also after one that failed, and return how they went; *before*: number shown."""
    stage = DemoStage(stack, narrator)
    results: list[Told] = []
    if not before:
        narrator.say(HOW_TO_READ)
    with Tail(stack.nats_url_of(OTHER_TEAMS), narrator.fact):
        for number, (name, step) in enumerate(STEPS.items(), before + 1):
            narrator.say(f"\n{number} of {before + len(STEPS)}  {TITLES[name]}")
            results.append(told_of(name, partial(step, stage), narrator))
    return results


def table(results: list[Told]) -> list[str]:
    """Return the timings as lines, aligned."""
    rows = [
        (step.name if first else "", timing.what, f"{timing.seconds * 1000:9.0f} ms")
        for step in results
        for first, timing in [(index == 0, timing) for index, timing in enumerate(step.timings)]
    ]
    width = max((len(what) for _, what, _ in rows), default=0)
    lines = [f"{name:<9}{what:<{width}}{took}" for name, what, took in rows]
    return lines + [f"{step.name:<9}failed: {step.problem}" for step in results if step.problem]


def demo(stack: Stack, first: FirstSlurm, narrator: Narrator, *, keep: bool) -> int:
    """Bring up, tell, and take down unless *keep*; return 0 if every step held.

    *first*: what is shown while the stack is built, if it has to be.
    """
    began, results = time.monotonic(), list[Told]()
    try:
        first.down()  # What a demo that was killed has left.
        if not stack.is_built():
            results += meanwhile(stack.prepare, partial(tell_opening, first, narrator), narrator)
        stack.up()
        narrator.say(f"NATS, Kubernetes, Slurm and the services run ({time.monotonic() - began:.0f} s).")
        on_all = tell(stack, narrator, sum(step.name in OPENING for step in results))
        failed_before = [step for step in results if step.problem]
        results += on_all
        narrator.say("\nHow long each reaction took:")
        for line in table([*failed_before, *on_all]):  # Without the first ones, the end fits on one screen.
            narrator.say(f"  {line}")
        failed = [step.name for step in results if step.problem]
        if failed:
            narrator.say(f"These steps failed: {', '.join(failed)}. The logs are in {stack.logs}.")
        else:
            narrator.say(f"All {len(results)} steps worked. The demo took {time.monotonic() - began:.0f} s.")
        if not keep:
            narrator.say(NEXT)
        else:
            narrator.say("\nAll servers still run. Commands to look around:")
            for line in stack.how_to_look_around():
                narrator.say(f"  {line}")
        return 1 if failed else 0
    finally:
        if not keep:
            narrator.say("The demo now ends its servers.")
            stack.down()
