"""``./task simulate``: runs seeds and says how fast; a seed that fails is shown with its last lines."""

import argparse
import os
import sys
from pathlib import Path

from sunk_simulation import reached
from sunk_simulation.ambient import install

install()  # Before any service is imported: what it takes for itself then is ours.


def main() -> int:
    """Run; return the exit status."""
    if (
        os.environ.get("PYTHONHASHSEED") != "0"
    ):  # The order of sets of words is the same in each process then.
        os.execve(sys.executable, [sys.executable, "-m", "sunk_simulation", *sys.argv[1:]], _fixed())  # noqa: S606 - itself
    parser = _parser()
    given = parser.parse_args()
    if given.seeds > 1 and not (given.first or given.shrink or given.save):
        reached.install()
    from sunk_simulation import runs, shrink  # noqa: PLC0415 - after what stands above

    if given.story not in {*runs.STORIES, runs.ANY}:
        parser.error(f"--story is one of {', '.join((*runs.STORIES, runs.ANY))}")
    only = tuple(given.only.split(",")) if given.only is not None else None
    options = runs.Options(given.hours, not given.no_faults, given.trace, given.story, only)
    seeds = range(given.seed, given.seed + given.seeds)
    if not (given.first or given.shrink or given.save):
        cores = 1 if given.trace else given.cores
        return runs.run_all(seeds, options, cores=cores, done=given.done, minutes=given.minutes)
    if given.story == runs.ANY:
        parser.error("--story any is for many seeds; a seed that failed says its story")
    runs.freeze()
    cases = ((seed, options) for seed in seeds)
    failed = next((one for one in runs.outcomes(cases, cores=given.cores) if one.said), None)
    if failed is None:
        print("no seed failed")
        return 0
    if not (given.shrink or given.save):
        runs.tell_failure(failed)
        return 1
    print(f"seed {failed.seed} failed after {len(failed.items)} items: {failed.said}")
    options, outcome = shrink.shrink(failed.seed, options, failed)
    runs.tell_failure(outcome)
    print(
        f"with {len(options.only or ())} of {len(failed.items)} items: --only {','.join(options.only or ())}"
    )
    if given.save:
        print(f"saved as {shrink.save(failed.seed, options, outcome, runs.commit())}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./task simulate --", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=1, help="how many; says what they have reached")
    parser.add_argument(
        "--minutes", type=float, help="begin no further seed after so many, of the wall clock"
    )
    parser.add_argument("--hours", type=float, default=1.0, help="of virtual time, each")
    parser.add_argument(
        "--story", default="proof", help="which is told; any: whichever reaches what is new the fastest"
    )
    parser.add_argument("--cores", type=int, default=2, help="so many seeds at a time")
    parser.add_argument("--done", type=Path, help="a file of seeds that are done: these are not run again")
    parser.add_argument("--trace", action="store_true", help="show every line")
    parser.add_argument("--no-faults", action="store_true", help="let nothing go wrong")
    parser.add_argument("--only", help="the items that happen, with commas between; all others are left out")
    parser.add_argument("--first", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--shrink", action="store_true", help="make the first seed that fails small")
    parser.add_argument("--save", action="store_true", help="the same, and keep it as a test")
    return parser


def _fixed() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    sys.exit(main())
