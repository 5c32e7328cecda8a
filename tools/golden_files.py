"""Which golden files a type has: one for each version of it that grew."""

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent.parent / "tests/contract/golden"


def written(tag: str) -> list[Path]:
    """Return the golden files of the type *tag*, the oldest first."""
    first = GOLDEN / f"{tag}.json"
    numbered = {path.stem.removeprefix(f"{tag}."): path for path in GOLDEN.glob(f"{tag}.*.json")}
    later = [numbered[number] for number in sorted(filter(str.isdigit, numbered), key=int)]
    return [first, *later] if first.exists() else later


def latest(tag: str) -> Path:
    """Return the newest golden file of the type *tag*, which holds all its fields."""
    if files := written(tag):
        return files[-1]
    raise SystemExit(f"{tag} has no golden file: run ./task gen")
