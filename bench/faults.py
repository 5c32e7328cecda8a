"""Many seeded trials of the bus: ``python bench faults --seeds 200``. A failing seed fails alone, too.

Prints one line a trial: name, seed, servers, counts, breaches. After the seeds the network is cut and reset.
Ends with 1 if any promise was broken.
Results: ``faults.bus``. A trial's folder stays if it failed.
"""

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from sunk_trials.network import cut_trial, reset_trial
from sunk_trials.trial import run_trial


async def main() -> None:
    """Run the seeds one after the other."""
    parser = argparse.ArgumentParser(prog="bench faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--faults", type=int, default=3, help="how many each")
    parser.add_argument(
        "--cut-s", type=float, default=30.0, help="how long the network is cut; 0: not at all"
    )
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # That the connection breaks is the point.
    failed: list[int] = []
    totals = {"facts": 0, "states": 0, "handled": 0, "again": 0}
    began = time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix="sunk-trial-"))
        outcome = await run_trial(folder, seed, faults=given.faults, servers=given.servers)
        counts = {name: getattr(outcome, name) for name in totals}
        totals = {name: total + counts[name] for name, total in totals.items()}
        line = {"name": "faults.bus", "seed": seed, "servers": given.servers, **counts}
        print(json.dumps({**line, "breaches": outcome.breaches[:20]}), flush=True)
        if outcome.breaches:
            failed.append(seed)
            print(f"seed {seed} failed; see {folder}; faults: {outcome.faults}", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(folder)
    if given.cut_s:
        for name, trial in (("cut", partial(cut_trial, cut_s=given.cut_s)), ("reset", reset_trial)):
            folder = Path(tempfile.mkdtemp(prefix="sunk-trial-"))
            outcome = await trial(folder)
            line = {"name": f"faults.bus.{name}", "facts": outcome.facts, "again": outcome.again}
            print(json.dumps({**line, "breaches": outcome.breaches[:20]}), flush=True)
            failed += [-1] if outcome.breaches else []
            shutil.rmtree(folder)
    took_s = round(time.monotonic() - began, 1)
    summary = {"name": "faults.bus", "seeds": given.seeds, "servers": given.servers, **totals}
    print(json.dumps({**summary, "took_s": took_s, "failed_seeds": failed}), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    anyio.run(main)
