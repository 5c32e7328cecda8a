"""One trial: a writer counts, a consumer reads, somebody is killed, and the judge looks at what is left."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import msgspec
from anyio.to_thread import run_sync

from sunk_lab.nats import NatsServer
from sunk_runtime.errors import PermanentError, SunkError
from sunk_runtime.jetstream import Bus, connect
from sunk_runtime.testing import until
from sunk_trials import stage
from sunk_trials.plan import Fault, plan
from sunk_trials.stage import Actor, GoneError, Site
from sunk_trials.verdict import Evidence, judge
from sunk_trials.words import Order, WorkerSettings
from sunk_trials.worker import CLUSTER, settings_of

SETTLED_S: Final = 60.0
"""How long everything has to come to rest after the last fault."""
_FAULT_S: Final = 120.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one trial came to."""

    seed: int
    servers: int
    faults: tuple[Fault, ...]
    facts: int
    states: int
    handled: int
    again: int
    """Deliveries of what was handled before."""
    breaches: list[str]


class Trial:
    """The cast of one trial: restarts who is killed."""

    def __init__(self, cast: Iterable[WorkerSettings], site: Site, bus: Bus, stack: AsyncExitStack) -> None:
        self.bus = bus
        self.site = site
        self.cast = {settings.name: settings for settings in cast}
        self._stack = stack
        self._actors: dict[str, Actor] = {}

    async def actor(self, name: str) -> Actor:
        """Return the process *name*, started again if it has ended."""
        found = self._actors.get(name)
        if found is None or not found.is_alive:
            found = await self._stack.enter_async_context(stage.acting(self.cast[name]))
            self._actors[name] = found
        return found

    async def suffer(self, fault: Fault) -> None:
        """Let *fault* happen and end it."""
        actor = await self.actor(fault.actor)
        servers = await self._victims(fault)
        pids = tuple(server.pid or 0 for server in servers)
        order = Order(say="kill", step=fault.step, after=fault.after, pids=pids, delay_s=fault.delay_s)
        try:
            await actor.order(order)
        except GoneError:
            if servers:
                raise
        with anyio.fail_after(_FAULT_S):
            if not servers:
                await actor.ended()
            await until(lambda: not any(server.pid for server in servers), within_s=_FAULT_S)
        await anyio.sleep(fault.down_s)
        await run_sync(self.site.start)
        await self.complete()

    async def complete(self) -> None:
        """Start everybody who does not run."""
        for name in self.cast:
            await self.actor(name)

    async def _victims(self, fault: Fault) -> list[NatsServer]:
        match fault.victim:
            case "itself":
                return []
            case "any server":
                return [self.site.servers[fault.pick]]
            case "all servers":
                return list(self.site.servers)
            case "facts' leader" | "states' leader":
                return [await self._leader(stage.FACTS if fault.victim == "facts' leader" else stage.STATES)]

    async def _leader(self, stream: str) -> NatsServer:
        with anyio.fail_after(_FAULT_S):
            while True:
                try:
                    return await self.site.leader(self.bus, stream)
                except SunkError:
                    await anyio.sleep(0.1)

    async def settled(self) -> None:
        """Let the writers rest, and wait until all is read and everybody believes what the bucket holds."""
        await until(self._rests, within_s=SETTLED_S)
        await until(self._is_read, within_s=SETTLED_S)
        await until(self._is_believed, within_s=SETTLED_S)

    async def _rests(self) -> bool:
        order = Order(say="rest")
        return all([(await (await self.actor(name)).order(order)).is_resting for name in self.cast])

    async def _is_read(self) -> bool:
        try:
            return await self.lag() == 0
        except PermanentError:  # The consumer was killed before it had made its durable.
            return False

    async def _is_believed(self) -> bool:
        held = await stage.bucket(self.bus)
        reports = [await (await self.actor(name)).report() for name in self.cast]
        return all(report.is_complete and report.view == held for report in reports)

    async def lag(self) -> int:
        """Return how many facts are not settled yet, as the stream's own leader counts.

        The consumer's leader counts what its server has, which may be behind that.
        """
        stored = await stage.tried(lambda: self.bus.js.stream_info(stage.FACTS))
        info = await stage.tried(lambda: self.bus.js.consumer_info(stage.FACTS, "trial"))
        return stored.state.last_seq - (info.ack_floor.stream_seq if info.ack_floor else 0)

    async def evidence(self) -> Evidence:
        """Collect all that the judge needs."""
        views = {name: (await (await self.actor(name)).report()).view for name in self.cast}
        journals = {name: Path(settings.journal) for name, settings in self.cast.items()}
        return Evidence(
            facts=await stage.stored_facts(self.bus),
            states=await stage.stored_states(self.bus),
            bucket=await stage.bucket(self.bus),
            written=stage.noted(path for name, path in journals.items() if self.cast[name].role == "writer"),
            seen=stage.noted(path for name, path in journals.items() if self.cast[name].role == "consumer"),
            views=views,
        )


def writer_and_consumer(folder: Path, url: str, replicas: int = 1) -> list[WorkerSettings]:
    """Return the usual cast, which connects to *url*."""
    roles: tuple[Literal["writer", "consumer"], ...] = ("writer", "consumer")
    return [
        WorkerSettings(
            role=role,
            name=role,
            url=url,
            replicas=replicas,
            journal=str(folder / f"{role}.journal"),
            is_answering=role == "consumer",
        )
        for role in roles
    ]


@asynccontextmanager
async def staged(site: Site, cast: Iterable[WorkerSettings]) -> AsyncGenerator[Trial]:
    """Bring the cast up on NATS that runs."""
    settings = settings_of(site.url, site.replicas)
    async with connect(settings, "director") as bus, AsyncExitStack() as stack:
        await bus.provision(CLUSTER, settings)
        await stage.witness(bus, site.replicas)
        trial = Trial(cast, site, bus, stack)
        await trial.complete()
        yield trial


async def run_trial(folder: Path, seed: int, *, faults: int, servers: int) -> Outcome:
    """Run the trial of *seed*; the same seed kills at the same steps."""
    planned = plan(seed, faults=faults, size=servers)

    async def suffer(trial: Trial) -> None:
        for fault in planned:
            await trial.suffer(fault)

    with Site(folder, servers) as site:
        cast = writer_and_consumer(folder, site.url, servers)
        async with staged(site, cast) as trial:
            return await concluded(trial, suffer, seed=seed, faults=planned)


async def concluded(
    trial: Trial, suffer: Callable[[Trial], Awaitable[None]], *, seed: int = 0, faults: tuple[Fault, ...] = ()
) -> Outcome:
    """Let the cast *suffer*, come to rest and be judged."""
    await suffer(trial)
    unsettled: list[str] = []
    try:
        await trial.settled()
    except TimeoutError:
        unsettled = [f"not at rest {SETTLED_S:.0f} s after the last fault"]
    found = await trial.evidence()
    handled = [line.id for line in found.seen]
    return Outcome(
        seed=seed,
        servers=trial.site.replicas,
        faults=faults,
        facts=len(found.facts),
        states=len(found.states),
        handled=len(handled),
        again=len(handled) - len(set(handled)),
        breaches=[*unsettled, *judge(found)],
    )
