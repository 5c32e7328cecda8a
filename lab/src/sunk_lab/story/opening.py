"""The demo's first minutes on a machine that has built nothing yet: what needs no Kubernetes, meanwhile.

Kubernetes takes minutes to compile. A Slurm on the machine, NATS, the syncer and the metrics-exporter are
there after one: they show the half of the story that is Slurm's, and are gone before the whole stack starts.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.nats import EVERYTHING, NatsServer
from sunk_lab.ports import free_ports
from sunk_lab.processes import Processes
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import Release
from sunk_lab.stack.http import Http
from sunk_lab.stack.raw import Object, dig_text
from sunk_lab.stack.services import Services, Surroundings
from sunk_lab.story.observe import StoryError, until
from sunk_lab.story.scrape import Series
from sunk_lab.story.steps import STEPS as STEPS_OF_ALL
from sunk_lab.story.steps import Timing
from sunk_lab.story.tail import Tail
from sunk_lab.story.telling import HOW_TO_READ, Narrator, Told, told_of

CLUSTER: Final = "first"
"""The name of that Slurm: its facts are on a bus of its own."""
SERVICES: Final = ("syncer", "metrics-exporter")
REASON: Final = "by hand: fan"
TITLES: Final = {
    "job": "The syncer publishes when a Slurm job is submitted, starts and ends",
    "drained": "The syncer publishes that an administrator drained a node in Slurm, and why",
    "scrape": "Prometheus metrics show that drain. A scrape does not call Slurm",
}
BEGINS: Final = """
This machine has no Kubernetes programs. The demo compiles them from source, once, with the versions that its
tests run on. Lines that begin with "compiling" say how far that is.
Meanwhile the demo shows what needs no Kubernetes: a real Slurm with two nodes, NATS, the syncer and the
metrics-exporter."""
WAITS: Final = """
These steps are done, and their servers have ended. Go still compiles Kubernetes: the lines below say how far
it is. After that the demo starts all servers and shows the other steps, which takes about two minutes."""


class FirstSlurm:
    """A Slurm on the machine with the two services that need nothing else."""

    def __init__(self, release: Release, folder: Path, *, cache: Path, report: Callable[[str], None]) -> None:
        self.folder: Final = folder
        self.slurm: Final = HostSlurm(release, folder / "slurm", cache=cache, report=report, name=CLUSTER)
        self._processes: Final = Processes(folder / "services")
        self._nats: Final = NatsServer(folder / "nats", self._processes)
        self._facts: Final[list[tuple[str, Object]]] = []

    @property
    def nats_url(self) -> str:
        """Return where NATS is."""
        return self._nats.url

    def up(self) -> None:
        """Start all of it.

        Raises:
            LabError: something does not start; names its log.
        """
        self.down()  # What a killed run left.
        self.folder.mkdir(parents=True)
        self.slurm.start()
        self._nats.start()
        for service in SERVICES:
            self._services.start(service)
        for service in SERVICES:
            self._services.await_ready(service)

    def down(self) -> None:
        """End and remove all of it, however much of it there is."""
        for service in SERVICES:
            self._processes.kill(service)
        self._nats.stop()
        self.slurm.stop()
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for folder in (self.folder, self.folder.parent):
            with suppress(OSError):  # Not there, or the stack is in it.
                folder.rmdir()

    def saw(self, subject: str, event: Object) -> None:
        """Note a fact that came by."""
        self._facts.append((subject, event))

    def fact(self, rest: str) -> Object | None:
        """Return the first fact whose subject ends so, behind the name of the cluster."""
        wanted = f"{EVERYTHING.removesuffix('>')}{CLUSTER}.{rest}"
        return next((event for subject, event in list(self._facts) if subject == wanted), None)

    def await_fact(self, rest: str) -> float:
        """Wait for that fact and return the seconds that it took."""
        return until(f"the fact {rest}", lambda: self.fact(rest) is not None, self._subjects)

    def scrape(self) -> Series:
        """Return what the exporter says."""
        with Http(timeout=30, trust_env=False) as http:
            return Series(http.ask("GET", self._around.metrics_url).text)

    def _subjects(self) -> list[str]:
        return [subject for subject, _ in list(self._facts)]

    @cached_property
    def _services(self) -> Services:
        return Services(self._processes, self._around)

    @cached_property
    def _around(self) -> Surroundings:
        token = self.folder / "slurm.token"
        token.touch(mode=0o600)
        token.write_text(self.slurm.token())
        first = free_ports(len(SERVICES))
        return Surroundings(
            cluster=CLUSTER,
            slurm_namespace="",
            host="127.0.0.1",
            nats_url=self.nats_url,
            slurmrestd_url=self.slurm.url,
            slurm_token_file=token,
            user_tokens_file=token,
            placement_key_file=token,
            kubeconfig_by_service={},
            kill_wait_s=0,
            ports={service: first + number for number, service in enumerate(SERVICES)},
        )


Show = Callable[[str, str], None]
"""Tells what happened, and what one of Slurm's commands prints of it."""
OpeningStep = Callable[[FirstSlurm, Show], list[Timing]]


def job(first: FirstSlurm, show: Show) -> list[Timing]:
    """A job's three facts come by."""
    slurm = first.slurm
    sent = slurm.exec("sbatch", "--parsable", "--output=/dev/null", "--job-name=train", "--wrap", "sleep 3")
    number, began = sent.strip(), time.monotonic()
    first.await_fact(f"slurm.job.{number}.started")
    to_start = time.monotonic() - began
    show(f"Job {number} runs", slurm.exec("squeue", "-h", "-o", "%i %j %T %N"))
    first.await_fact(f"slurm.job.{number}.ended")
    show(f"Job {number} has ended", "")
    return [Timing("sbatch → event on NATS: the job has started", to_start)]


def drained(first: FirstSlurm, show: Show) -> list[Timing]:
    """A drain by hand is a fact with its reason; it stays for the next step."""
    slurm, node = first.slurm, first.slurm.node_names[0]
    slurm.exec("scontrol", "update", f"nodename={node}", "state=drain", f"reason={REASON}")
    took = first.await_fact(f"slurm.node.{node}.drained")
    reason = dig_text(first.fact(f"slurm.node.{node}.drained"), "data", "reason")
    if reason != REASON:
        raise StoryError(f"{node}: Slurm drains it for {REASON!r}, the event on NATS says {reason!r}")
    show(
        f"{node} is drained in Slurm. With Kubernetes, its Pod and its Node would show it too",
        slurm.exec("sinfo", "-h", "-N", "-o", "%N %T %E"),
    )
    return [Timing("drain in Slurm → event on NATS", took)]


def scrape(first: FirstSlurm, show: Show) -> list[Timing]:
    """The exporter shows the drain by the documented name."""
    node = first.slurm.node_names[0]

    def states() -> list[str]:
        return first.scrape().labels("slurm_node_state", "state", node=node)

    took = until(f"{node} drained in /metrics", lambda: any("drain" in one for one in states()), states)
    show(f'slurm_node_state{{node="{node}"}} has the state {" ".join(states())}', "")
    return [Timing("that event → the drain in /metrics", took)]


STEPS: Final[Mapping[str, OpeningStep]] = {"job": job, "drained": drained, "scrape": scrape}


def tell_opening(first: FirstSlurm, narrator: Narrator, is_in_vain: Callable[[], bool]) -> list[Told]:
    """Tell what needs no Kubernetes and return how it went; *is_in_vain*: the rest cannot follow any more."""
    results: list[Told] = []

    def saw(subject: str, event: Object) -> None:
        first.saw(subject, event)
        narrator.fact(subject, event)

    def show(text: str, printed: str) -> None:
        narrator.say(f"  → {text}")
        for line in printed.splitlines():
            narrator.say(f"      slurm    {line}")

    narrator.say(BEGINS)
    try:
        first.up()
        narrator.say(HOW_TO_READ)
        with Tail(first.nats_url, saw):
            for number, (name, step) in enumerate(STEPS.items(), 1):
                if is_in_vain():
                    break
                narrator.say(f"\n{number} of {len(STEPS) + len(STEPS_OF_ALL)}  {TITLES[name]}")
                results.append(told_of(name, lambda step=step: step(first, show), narrator))
    except LabError as error:
        narrator.say(f"  ✗ {error}")
        results.append(Told("opening", 0.0, (), str(error)))
    finally:
        first.down()
    return results


def meanwhile(
    prepare: Callable[[], None], opening: Callable[[Callable[[], bool]], list[Told]], narrator: Narrator
) -> list[Told]:
    """Run *prepare* in the background and tell meanwhile; return how that went, once both are done.

    *opening* can ask whether *prepare* has failed.

    Raises:
        LabError: *prepare* failed.
    """
    with ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(prepare)
        results = opening(lambda: prepared.done() and prepared.exception() is not None)
        if not prepared.done():
            narrator.say(WAITS)
        prepared.result()
    return results
