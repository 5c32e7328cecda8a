"""Runs one benchmark: ``python bench NAME [options]``; prints one JSON object a line and result."""

import runpy
import signal
import sys
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
IS_PROGRAM = 'if __name__ == "__main__":'
"""What a benchmark has, and a module that benchmarks share has not."""


def _end(signum: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def main() -> None:
    """Hand over to the file of that name."""
    names = sorted(path.stem for path in HERE.glob("[!_]*.py") if IS_PROGRAM in path.read_text())
    if len(sys.argv) < 2 or sys.argv[1] not in names:  # noqa: PLR2004 - the name is the first argument
        sys.exit(f"bench: name one of: {', '.join(names)}")
    # Whoever ends us has what we started ended too.
    signal.signal(signal.SIGTERM, _end)
    name = sys.argv.pop(1)
    runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")


if __name__ == "__main__":
    main()
