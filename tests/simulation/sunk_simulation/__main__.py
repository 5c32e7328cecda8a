"""``./task simulate``: runs seeds and says how fast; a seed that fails is shown with its last lines."""

import argparse
import os
import sys

from sunk_simulation.ambient import install

install()  # Before any service is imported: what it takes for itself then is ours.


def main() -> int:
    """Run; return the exit status."""
    if (
        os.environ.get("PYTHONHASHSEED") != "0"
    ):  # The order of sets of words is the same in each process then.
        os.execve(sys.executable, [sys.executable, "-m", "sunk_simulation", *sys.argv[1:]], _fixed())  # noqa: S606 - itself
    from sunk_simulation.runs import STORIES, Options, run_all  # noqa: PLC0415 - after what stands above

    parser = argparse.ArgumentParser(prog="./task simulate --", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--hours", type=float, default=1.0, help="of virtual time, each")
    parser.add_argument("--story", choices=sorted(STORIES), default="proof", help="which is told")
    parser.add_argument("--trace", action="store_true", help="show every line")
    parser.add_argument("--no-faults", action="store_true", help="let nothing go wrong")
    given = parser.parse_args()
    options = Options(hours=given.hours, faults=not given.no_faults, trace=given.trace, story=given.story)
    return run_all(range(given.seed, given.seed + given.seeds), options)


def _fixed() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    sys.exit(main())
