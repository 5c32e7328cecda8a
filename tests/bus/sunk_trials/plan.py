"""What happens in a trial, from its seed alone. Pure."""

import random
from typing import Literal

import msgspec

from sunk_trials.words import CONSUMER_STEPS, WRITER_STEPS, Step

Victim = Literal["itself", "facts' leader", "states' leader", "any server", "all servers"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One process is at a step, and somebody dies."""

    actor: Literal["writer", "consumer"]
    step: Step
    after: int
    """How often the step is passed before."""
    victim: Victim
    delay_s: float
    """How long after the step; only where the step is that something was sent."""
    down_s: float
    """How long the victim stays away."""
    pick: int
    """Which server, where any will do."""


def plan(seed: int, *, faults: int, size: int) -> tuple[Fault, ...]:
    """Return *faults* faults for a NATS of *size* servers: the same for the same arguments."""
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return tuple(_fault(chance, size) for _ in range(faults))


def _fault(chance: random.Random, size: int) -> Fault:
    actor: Literal["writer", "consumer"] = chance.choice(("writer", "writer", "writer", "consumer"))
    steps = WRITER_STEPS if actor == "writer" else CONSUMER_STEPS
    victims: tuple[Victim, ...] = ("itself", "any server")
    if size > 1:
        victims = ("itself", "facts' leader", "states' leader", "any server", "all servers")
    return Fault(
        actor=actor,
        step=chance.choice(steps),
        after=chance.randrange(2, 150),
        victim=chance.choice(victims),
        delay_s=chance.choice((0.0, chance.uniform(0, 0.002))),
        down_s=chance.choice((0.0, chance.uniform(0, 0.4))),
        pick=chance.randrange(size),
    )
