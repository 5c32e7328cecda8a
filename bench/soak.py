"""The chassis alone for a long time: ``python bench soak --minutes 20``.

Facts, states and questions, 200 of each a second, while NATS and one of two writers are killed or ended
orderly in turn, each every two minutes. Prints one JSON line a minute and a verdict: memory, descriptors and
tasks of the processes that were not restarted are flat, and nothing was lost. Ends with 1 if not so.
Result: ``soak``.
"""

import argparse
import json
import logging
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

import anyio
from anyio.to_thread import run_sync

from sunk_trials.flat import growth, rising
from sunk_trials.stage import GoneError, Site
from sunk_trials.trial import Trial, staged
from sunk_trials.verdict import judge
from sunk_trials.words import Report, WorkerSettings

SAMPLE_S: Final = 10.0
FAULT_S: Final = 30.0
RATE: Final = 200.0
KEPT_PER_KEY: Final = 900
"""The stream of facts keeps 1000 a key; more would not be there to be judged."""
STEADY: Final = ("steady", "consumer")

Samples = dict[str, list[Report]]


def cast_of(folder: Path, url: str, minutes: float) -> Iterable[WorkerSettings]:
    """Return a writer that stays, one that comes and goes and answers, and a consumer that asks."""
    keys = max(100, int(RATE / 2 * minutes * 60 / KEPT_PER_KEY) + 1)
    for name in ("steady", "restless", "consumer"):
        yield WorkerSettings(
            role="consumer" if name == "consumer" else "writer",
            name=name,
            url=url,
            journal=str(folder / f"{name}.journal"),
            keys=keys,
            writes_per_s=RATE / 2,
            asks_per_s=RATE if name == "consumer" else 0.0,
            is_answering=name == "restless",
            ack_wait_s=5.0,
        )


async def disturb(trial: Trial) -> None:
    """Kill or end somebody every half minute, in turn."""
    server = trial.site.servers[0]
    while True:
        await anyio.sleep(FAULT_S)
        await run_sync(server.kill)
        await run_sync(server.start)
        for signal in (SIGTERM, SIGKILL):
            await anyio.sleep(FAULT_S)
            actor = await trial.actor("restless")
            actor.signal(signal)
            with anyio.fail_after(FAULT_S):
                await actor.ended()
            await trial.actor("restless")
        await anyio.sleep(FAULT_S)
        await run_sync(server.restart)


async def sample(trial: Trial, samples: Samples) -> None:
    """Ask everybody once how they are; who is being restarted is asked the next time."""
    for name in trial.cast:
        try:
            report = await (await trial.actor(name)).report()
        except GoneError:
            continue
        samples.setdefault(name, []).append(report)


def rss_kib(pid: int | None) -> int:
    """Return the resident memory of *pid*."""
    path = Path(f"/proc/{pid}/statm")
    return int(path.read_text().split()[1]) * resource.getpagesize() // 1024 if path.exists() else 0


def minute(number: int, samples: Samples, lag: int, server_kib: int) -> None:
    """Print one line."""
    last = {name: reports[-1] for name, reports in samples.items()}
    line = {
        "name": "soak",
        "minute": number,
        "rss_kib": {**{name: report.rss_kib for name, report in last.items()}, "nats": server_kib},
        "descriptors": {name: report.descriptors for name, report in last.items()},
        "tasks": {name: report.tasks for name, report in last.items()},
        "errors": {name: report.errors for name, report in last.items()},
        "writes": last["steady"].writes,
        "handled": last["consumer"].seen,
        "answers": last["consumer"].answers,
        "lag": lag,
    }
    print(json.dumps(line), flush=True)


def unsteady(samples: Samples) -> list[str]:
    """Return what rose in the processes that lived through it all."""
    found: list[str] = []
    for name in STEADY:
        reports = samples[name]
        found += rising(f"{name}: memory (KiB)", [one.rss_kib for one in reports], share=0.03, slack=2048)
        found += rising(f"{name}: descriptors", [one.descriptors for one in reports], share=0, slack=2)
        found += rising(f"{name}: tasks", [one.tasks for one in reports], share=0, slack=10)
    return found


async def soak(folder: Path, site: Site, minutes: float) -> bool:
    """Run it and return whether all was well."""
    samples: Samples = {}
    per_minute = int(60 / SAMPLE_S)
    async with staged(site, cast_of(folder, site.url, minutes)) as trial:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(disturb, trial)
            for turn in range(1, int(minutes * per_minute) + 1):
                await anyio.sleep(SAMPLE_S)
                await sample(trial, samples)
                if turn % per_minute == 0:
                    server_kib = rss_kib(trial.site.servers[0].pid)
                    minute(turn // per_minute, samples, await trial.lag(), server_kib)
            tasks.cancel_scope.cancel()
        await trial.complete()
        await trial.settled()
        found = await trial.evidence()
    breaches, rises = judge(found), unsteady(samples)
    memory = {name: growth([one.rss_kib for one in samples[name]]) for name in STEADY}
    verdict = {
        "name": "soak",
        "minutes": minutes,
        "facts": len(found.facts),
        "handled": len(found.seen),
        "asked": samples["consumer"][-1].answers,
        "rss_kib_first_and_last_quarter": memory,
        "rose": rises,
        "breaches": breaches[:20],
        "verdict": "flat" if not rises else "not flat",
        "lost": "nothing" if not breaches else f"{len(breaches)} promises broken",
    }
    print(json.dumps(verdict), flush=True)
    return not rises and not breaches


async def main() -> None:
    """Soak in a folder of its own, which stays if something went wrong."""
    parser = argparse.ArgumentParser(prog="bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    minutes = float(parser.parse_args().minutes)
    logging.disable(logging.WARNING)  # That the connection breaks is the point.
    folder = Path(tempfile.mkdtemp(prefix="sunk-soak-"))
    with Site(folder) as site:
        is_well = await soak(folder, site, minutes)
    if not is_well:
        sys.exit(f"see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    anyio.run(main)
