"""Slurm's own metrics (26.05) and the exporter's, of the same real cluster: a part of ``exporter``."""

import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio
import httpx
from figures import emit, percentiles, require
from syncer_stage import fill_queue
from waiting import until

from sunk_lab.config import from_environment
from sunk_lab.nats import NatsServer
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.testing.process import SyncerProcess

CLUSTER: Final = "lab"
PATHS: Final = ("nodes", "jobs", "partitions", "jobs-users-accts", "scheduler")
WITHIN_S: Final = 600.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Sizes(Protocol):
    """How much is measured."""

    nodes: int
    jobs: int
    scrapes: int


class Target(Protocol):
    """An exporter that is scraped."""

    async def jobs(self) -> int:
        """Return how many jobs it tells of."""
        ...

    async def scrape(self, headers: dict[str, str]) -> float:
        """Return how long one scrape took, in milliseconds."""
        ...


Exporter = Callable[[Path, str, str], AbstractAsyncContextManager[Target]]
"""Runs one with its log in a folder, on the bus at an address, for a cluster."""


@dataclass(frozen=True)
class Stage:
    """A real cluster and what tells the bus of it."""

    slurm: HostSlurm
    client: SlurmClient
    syncer: SyncerProcess


async def bench_native(sizes: Sizes, exporter: Exporter, headers: dict[str, str]) -> None:
    """Scrape both."""
    with tempfile.TemporaryDirectory() as name, NatsServer(Path(name) / "nats") as nats:
        folder = Path(name)
        slurm = HostSlurm(
            SLURM_26_05,
            folder / "slurm",
            cache=from_environment().cache,
            report=lambda _line: None,
            nodes=1,
            records=sizes.nodes - 1,
            more=("MetricsType=metrics/openmetrics", f"MaxJobCount={sizes.jobs + 50_000}"),
        )
        try:
            slurm.start()
            where = {"slurm_url": slurm.url, "nats_url": nats.url, "slurm_key_file": str(slurm.jwt_key)}
            syncer = SyncerProcess(folder, cluster=CLUSTER, **where)
            async with SlurmClient(slurm.url, KeyTokens(slurm.jwt_key), timeout_s=60.0) as client:
                await fill_queue(client, sizes.jobs)
                syncer.start()
                try:
                    async with exporter(folder, nats.url, CLUSTER) as target:
                        await _bench_exporter(sizes, Stage(slurm, client, syncer), target, headers)
                        await _bench_slurm(sizes, slurm)
                finally:
                    syncer.close()
        finally:
            slurm.stop()


async def _bench_exporter(sizes: Sizes, stage: Stage, target: Target, headers: dict[str, str]) -> None:
    async def is_full() -> bool:
        return await target.jobs() == sizes.jobs

    await until(is_full, within_s=WITHIN_S)
    stage.syncer.kill(signal.SIGTERM)  # Now nobody but a scrape could ask Slurm for anything.
    calls, spent_s = await _calls_at_rest(stage.client), _cpu_s(stage.slurm)
    took = [await target.scrape(headers) for _ in range(sizes.scrapes)]
    spent_ms = (_cpu_s(stage.slurm) - spent_s) * 1000 / sizes.scrapes
    require(holds=await _calls(stage.client) == calls, claim="a scrape asks Slurm nothing")
    emit("exporter.of_slurm", sizes.scrapes, percentiles(took), {"slurm_cpu_ms": round(spent_ms, 1)})


async def _bench_slurm(sizes: Sizes, slurm: HostSlurm) -> None:
    url = f"http://127.0.0.1:{slurm.controller_port}/metrics"
    spent_s, took, size = _cpu_s(slurm), list[float](), 0
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for _ in range(sizes.scrapes):
            began = time.perf_counter()
            answers = [await http.get(f"{url}/{path}") for path in PATHS]
            took.append((time.perf_counter() - began) * 1000)
            require(holds=all(answer.is_success for answer in answers), claim="Slurm tells its metrics")
            size = sum(len(answer.content) for answer in answers)
    spent_ms = (_cpu_s(slurm) - spent_s) * 1000 / sizes.scrapes
    cost = {"slurm_cpu_ms": round(spent_ms, 1), "mb": round(size / 1e6, 2)}
    emit("exporter.native", sizes.scrapes, percentiles(took), cost)


async def _calls_at_rest(client: SlurmClient) -> dict[str, int]:
    """Return `_calls` once two looks see the same: slurmrestd may still have a call of the syncer in hand."""
    seen = [await _calls(client)]

    async def is_at_rest() -> bool:
        await anyio.sleep(1)
        seen.append(await _calls(client))
        return seen[-1] == seen[-2]

    await until(is_at_rest, within_s=WITHIN_S)
    return seen[-1]


async def _calls(client: SlurmClient) -> dict[str, int]:
    """Return how often slurmctld was asked for what, this question left out."""
    counts = {rpc.message_type: rpc.count for rpc in (await client.diag()).rpcs_by_message_type}
    return {
        kind: count
        for kind, count in counts.items()
        if kind.startswith("REQUEST_") and kind != "REQUEST_STATS_INFO"
    }


def _cpu_s(slurm: HostSlurm) -> float:
    """Return the processor time that slurmctld and slurmrestd have used."""
    spent = 0
    for daemon in ("slurmctld", "slurmrestd"):
        fields = Path(f"/proc/{slurm.pid_of(daemon)}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / _TICKS
