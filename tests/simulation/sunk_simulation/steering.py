"""Gives each seed the story that reaches what is new the fastest: branches and states, by what they cost.

What must stay true: a seed's run depends on its number, its story and its hours alone, all of which are told.
"""

from collections.abc import Sequence
from typing import Final

from sunk_simulation.reached import Reached

EVERY: Final = 4
"""One seed in so many goes to the next story in turn, whatever it has found."""
_KEEPS: Final = 0.7
"""What is left of what a story's earlier seeds were worth, with each."""


class Steering:
    """Chooses among stories."""

    def __init__(self, stories: Sequence[str], found: Reached | None = None) -> None:
        """Begin with what was *found* by earlier runs."""
        self._stories: Final = tuple(stories)
        self._worth: Final[dict[str, float]] = {}
        """Of each story: new things a second of a core, of late."""
        self._turns = 0
        self.found = found or Reached()
        """All that was reached."""

    def next(self) -> str:
        """Return the story of the next seed."""
        turn, self._turns = self._turns, self._turns + 1
        untried = [story for story in self._stories if story not in self._worth]
        if untried:
            return untried[turn % len(untried)]
        if turn % EVERY == 0:
            return self._stories[turn // EVERY % len(self._stories)]
        return max(self._stories, key=lambda story: (self._worth[story], story))

    def note(self, story: str, reached: Reached, cpu_s: float) -> int:
        """Take in what a seed of *story* has reached; return how much of it is new."""
        new = len(reached.branches - self.found.branches) + len(reached.states - self.found.states)
        self.found = Reached(self.found.branches | reached.branches, self.found.states | reached.states)
        worth = new / max(cpu_s, 0.1)
        before = self._worth.get(story, worth)
        self._worth[story] = _KEEPS * before + (1 - _KEEPS) * worth
        return new
