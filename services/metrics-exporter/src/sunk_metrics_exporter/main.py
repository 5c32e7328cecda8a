"""The composition root of the metrics exporter."""

import sys
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_events.permissions import permissions
from sunk_metrics_exporter import facts
from sunk_metrics_exporter.config import read_config
from sunk_metrics_exporter.scrape import Scrapes
from sunk_runtime import jetstream
from sunk_runtime.http import Health, serve_http
from sunk_runtime.lifecycle import run, serve
from sunk_runtime.rights import require_rights
from sunk_runtime.settle import FactConsumer
from sunk_runtime.tracing import tracing
from sunk_runtime.views import StateView, following

SERVICE: Final = "metrics-exporter"


async def work() -> None:
    """Serve until told to stop."""
    config = read_config(sys.argv[1:])
    async with tracing(SERVICE, config.traces), jetstream.connect(config.bus, SERVICE) as bus:
        await require_rights(bus, permissions(SERVICE, (config.cluster,)))
        await bus.provision(config.cluster, config.bus)
        nodes = StateView(bus, config.cluster, SlurmNodeState)
        jobs = StateView(bus, config.cluster, SlurmJobState)
        partitions = StateView(bus, config.cluster, SlurmPartitionState)
        statistics = StateView(bus, config.cluster, SlurmStatisticsState)
        scrapes = Scrapes(
            nodes, jobs, partitions, statistics, stale_s=config.stale_s, job_series=config.job_series
        )
        consumer = FactConsumer(bus, config.cluster, f"{SERVICE}-facts", facts.count)
        health = Health()
        for view in (nodes, jobs, partitions, statistics):
            health.require(view.bucket, lambda view=view: view.is_complete)
        async with following(nodes, jobs, partitions, statistics):
            await serve(
                lambda: serve_http(config.http_host, config.http_port, health, [scrapes.route()]),
                consumer.run,
            )


def main() -> None:
    """Run the service."""
    run(SERVICE, work)
