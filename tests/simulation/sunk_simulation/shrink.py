"""Makes a run that fails small: leaves out faults and deeds for as long as the same check still breaks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sunk_simulation.runs import Options, Outcome, outcomes

TRIES: Final = 60
"""At most so many runs, each at most as long as the one that failed."""
FOUND: Final = Path(__file__).parents[1] / "found"

Run = Callable[[Options], Outcome]


def shrink(
    seed: int, options: Options, failed: Outcome, *, run: Run | None = None
) -> tuple[Options, Outcome]:
    """Return how the same still fails with few items, and how that ended."""
    again: Run = run or (lambda one: next(outcomes([(seed, one)])))
    best, items, tries = failed, list(failed.items), 0
    parts = 2
    while items and tries < TRIES:
        size = -(-len(items) // parts)
        for start in range(0, len(items), size):
            left = [*items[:start], *items[start + size :]]
            tries += 1
            outcome = again(_with(options, left))
            if outcome.broke == failed.broke:
                kept = set(outcome.items)
                best, items = outcome, [item for item in left if item in kept]
                parts = max(2, parts - 1)
                break
            if tries >= TRIES:
                break
        else:
            if size == 1:
                break
            parts = min(len(items), parts * 2)
    return _with(options, items), best


def _with(options: Options, items: Sequence[str]) -> Options:
    return msgspec.structs.replace(options, only=tuple(items), trace=False)


def save(seed: int, options: Options, outcome: Outcome, commit: str) -> Path:
    """Write the case as a test that fails until it is mended; return its file."""
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"test_{options.story}_{seed}.py"
    said = " ".join(outcome.said.split())[:80].replace('"', "'").replace("\\", "/")
    only = ", ".join(json.dumps(item) for item in options.only or ())
    path.write_text(
        f'"""Found at {commit} by seed {seed}: {said}"""\n\n'
        "from sunk_simulation.kept import Case, holds\n\n\n"
        "def test_it_holds() -> None:\n"
        f'    holds(Case(story="{options.story}", seed={seed}, hours={options.hours:g}, only=({only},)))\n'
    )
    return path
