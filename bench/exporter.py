"""The metrics exporter on a bus that holds a cluster, and beside Slurm's own metrics.

Results: ``exporter.scrape`` (one after the other, nothing changes), ``exporter.busy`` (jobs change, and
Prometheus scrapes seldom), ``exporter.plain`` (the same series through prometheus-client, here);
and of one real cluster ``exporter.of_slurm`` and ``exporter.native`` (what slurmctld 26.05 tells itself).
A scrape was checked before it counts: every node and every job is in it.
"""

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx
from exporter_native import bench_native
from exporter_states import job, node, others
from figures import emit, percentiles, require
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import encode
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_metrics_exporter.testing.exporter import Process
from sunk_runtime.jetstream import Bus, BusSettings, connect

CLUSTER: Final = "bench"
TICKS: Final = os.sysconf("SC_CLK_TCK")
PROMETHEUS: Final = {"accept": "text/plain;version=0.0.4", "accept-encoding": "gzip"}
IN_FLIGHT: Final = 128
CHANGES_PER_S: Final = 50
EVERY_S: Final = 15.0
WITHIN_S: Final = 600.0


class Sizes(argparse.Namespace):
    """How much is measured."""

    nodes: int
    jobs: int
    scrapes: int
    seconds: float
    without_slurm: bool


async def store(bus: Bus, key: str, state: State) -> None:
    """Put *state* into its bucket."""
    await bus.publish(subjects.key_subject(subjects.bucket(CLUSTER, type(state)), key), encode(state))


async def fill(bus: Bus, sizes: Sizes) -> None:
    """Put a whole cluster on the bus; a third of the jobs run."""
    states: list[tuple[str, State]] = [*others()]
    states += [(f"gpu-{number:05}", node(number)) for number in range(sizes.nodes)]
    states += [
        (str(number), job(number, sizes.nodes, is_running=number % 3 == 0))
        for number in range(1, sizes.jobs + 1)
    ]
    await at_once(states, lambda one: store(bus, *one))


async def at_once(
    things: Iterable[tuple[str, State]], deed: Callable[[tuple[str, State]], Awaitable[object]]
) -> None:
    """Do *deed* for each of *things*, `IN_FLIGHT` at once."""
    left = iter(things)

    async def work() -> None:
        for one in left:
            await deed(one)

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(work)


class Target:
    """The exporter under measurement."""

    def __init__(self, process: Process, http: httpx.AsyncClient, sizes: Sizes) -> None:
        self._process = process
        self._http = http
        self._sizes = sizes
        self.text = ""
        self.wire_bytes = 0

    async def is_full(self) -> bool:
        """Whether it has read the whole bus."""
        try:
            ready = await self._http.get("/readyz")
        except httpx.TransportError:
            return False
        return ready.is_success and f"slurm_nodes_total {self._sizes.nodes}" in await self._plain()

    async def jobs(self) -> int:
        """Return how many jobs it tells of."""
        return (await self._plain()).count("\nslurm_job_state{")

    async def _plain(self) -> str:
        return (await self._http.get("/metrics", headers={"accept-encoding": "identity"})).text

    async def scrape(self, headers: dict[str, str]) -> float:
        """Return how long one scrape took, in milliseconds, until its last byte was here."""
        began = time.perf_counter()
        async with self._http.stream("GET", "/metrics", headers=headers) as answer:
            wire = b"".join([part async for part in answer.aiter_raw()])
        took_ms = (time.perf_counter() - began) * 1000
        require(holds=answer.is_success, claim="each scrape is answered")
        is_gzip = answer.headers.get("content-encoding") == "gzip"
        self.text = (gzip.decompress(wire) if is_gzip else wire).decode()
        self.wire_bytes = len(wire)
        states = self.text.count("\nslurm_job_state{")
        require(holds=states == self._sizes.jobs, claim="each job is in each scrape")
        return took_ms

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self) -> float:
        """Return its resident memory."""
        (line,) = (
            line
            for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
        return int(line.split()[1]) / 1024


@asynccontextmanager
async def exporter(folder: Path, url: str, sizes: Sizes, cluster: str) -> AsyncGenerator[Target]:
    """Run one that has read the whole bus."""
    settings = {"CLUSTER": cluster, "NATS_URL": url, "HTTP_PORT": str(free_port()), "STALE_S": "7200"}
    process = Process(folder, settings)
    try:
        base = f"http://127.0.0.1:{settings['HTTP_PORT']}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:
            target = Target(process, http, sizes)
            await until(target.is_full, within_s=WITHIN_S)
            yield target
    finally:
        process.close()


async def bench_scrape(target: Target, sizes: Sizes) -> None:
    """Scrape one after the other, as Prometheus does, and once more without compression."""
    for headers, prefix in ((PROMETHEUS, ""), ({"accept-encoding": "identity"}, "raw_")):
        await target.scrape(headers)
        began_s = target.cpu_s()
        took = [await target.scrape(headers) for _ in range(sizes.scrapes)]
        cpu_ms = (target.cpu_s() - began_s) * 1000 / sizes.scrapes
        figures = percentiles(took, prefix) | {f"{prefix}cpu_ms": round(cpu_ms, 1)}
        series = sum(not line.startswith("#") for line in target.text.splitlines())
        sizes_mb = {"mb": round(len(target.text) / 1e6, 2), "wire_mb": round(target.wire_bytes / 1e6, 2)}
        more = {"series": series, "resident_mb": round(target.resident_mb())} | sizes_mb
        emit(f"exporter.scrape{'_raw' if prefix else ''}", sizes.scrapes, figures, more)


async def bench_busy(target: Target, bus: Bus, sizes: Sizes) -> None:
    """Change jobs all the time and scrape seldom: what it costs and how long a scrape takes then."""
    took: list[float] = []
    changes = 0

    async def change() -> None:
        nonlocal changes
        began = time.monotonic()
        while True:
            number = changes % sizes.jobs + 1
            await store(bus, str(number), job(number, sizes.nodes, is_running=changes % 2 == 0))
            changes += 1
            await anyio.sleep(max(began + changes / CHANGES_PER_S - time.monotonic(), 0))

    began, began_s = time.monotonic(), target.cpu_s()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change)
        while time.monotonic() - began < sizes.seconds:
            await anyio.sleep(min(EVERY_S, sizes.seconds))
            took.append(await target.scrape(PROMETHEUS))
        tasks.cancel_scope.cancel()
    passed_s = time.monotonic() - began
    cores = (target.cpu_s() - began_s) / passed_s
    figures = {"cores": round(cores, 4), "changes_per_s": round(changes / passed_s, 1)}
    worst = {"max_ms": round(max(took), 1), "resident_mb": round(target.resident_mb())}
    emit("exporter.busy", len(took), figures, worst)


class Fixed:
    """Hands prometheus-client families that are there already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Build each family anew, sample by sample, as any collector does."""
        for family in self._families:
            labels = list(family.samples[0].labels)
            made = GaugeMetricFamily(family.name, family.documentation, labels=labels)
            for sample in family.samples:
                made.add_metric(list(sample.labels.values()), sample.value)
            yield made


def bench_plain(target: Target) -> None:
    """Let prometheus-client tell the same series."""
    families = [family for family in text_string_to_metric_families(target.text) if family.samples]
    families = [family for family in families if family.name.startswith("slurm_")]
    registry = CollectorRegistry()
    registry.register(Fixed(families))  # pyright: ignore[reportArgumentType] - it is a Collector by shape
    took: list[float] = []
    text = b""
    for _ in range(3):
        began = time.perf_counter()
        text = generate_latest(registry)
        took.append((time.perf_counter() - began) * 1000)
    require(holds=len(text) > 0, claim="it tells something")
    series = sum(len(family.samples) for family in families)
    emit("exporter.plain", len(took), {"best_ms": round(min(took), 1), "series": series})


async def run(sizes: Sizes) -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as name, NatsServer(Path(name) / "nats") as server:
        settings = BusSettings(url=server.url)
        async with connect(settings, "bench") as bus:
            await bus.provision(CLUSTER, settings)
            await fill(bus, sizes)
            async with exporter(Path(name), server.url, sizes, CLUSTER) as target:
                await bench_scrape(target, sizes)
                await bench_busy(target, bus, sizes)
                bench_plain(target)
    if not sizes.without_slurm:
        await bench_native(
            sizes, lambda folder, url, cluster: exporter(folder, url, sizes, cluster), PROMETHEUS
        )


def main() -> None:
    """Read the sizes and measure."""
    parser = argparse.ArgumentParser(description="Measure the metrics exporter.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--without-slurm", action="store_true", help="leave out what needs a real Slurm")
    anyio.run(run, parser.parse_args(namespace=Sizes()))


if __name__ == "__main__":
    main()
