"""Runs the whole suite, as CI does; what failed is run once more, by itself.

The suite runs hundreds of real servers beside each other on two cores. A test that fails there and passes
alone is unstable: it is named at the end, for somebody to mend. What fails twice has failed, and so has a run
with more failures than such accidents explain, or one that did not come to its end.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
ACCIDENTS: Final = 6
"""So many failures at most are tried again."""
TESTS_FAILED: Final = 1
"""pytest's exit status for a run that came to its end."""


def suite(root: Path, first: list[str]) -> int:
    """Run pytest in *root*, first with the arguments *first*; return the exit status."""
    status = _pytest(root, "--cache-clear", *first)
    failed: list[str] = sorted(json.loads((root / FAILED).read_text())) if status == TESTS_FAILED else []
    if not 0 < len(failed) <= ACCIDENTS:
        return status
    print(f"once more, by themselves: {', '.join(failed)}", flush=True)
    status = _pytest(root, "--last-failed")
    if status == 0:
        print(f"UNSTABLE, these failed among the others: {', '.join(failed)}", flush=True)
    return status


def _pytest(root: Path, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(suite(ROOT, sys.argv[1:]))
