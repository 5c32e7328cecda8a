"""The composition root of the metrics exporter."""

import sys
from functools import partial
from typing import Final

from sunk_events.permissions import permissions
from sunk_metrics_exporter.adapters.views import Views
from sunk_metrics_exporter.config import read_config
from sunk_metrics_exporter.controllers.counting import LEASE_TTL_S, Counting, count, observe_changes
from sunk_metrics_exporter.controllers.scrapes import Scrapes
from sunk_runtime import jetstream
from sunk_runtime.http import Health, serve_http
from sunk_runtime.leases import BusLease, lead
from sunk_runtime.lifecycle import identity, run, serve
from sunk_runtime.rights import require_rights
from sunk_runtime.settle import FactConsumer
from sunk_runtime.tracing import tracing
from sunk_runtime.views import following

SERVICE: Final = "metrics-exporter"


async def work() -> None:
    """Serve until told to stop."""
    config = read_config(sys.argv[1:])
    async with tracing(SERVICE, config.traces), jetstream.connect(config.bus, SERVICE) as bus:
        await require_rights(bus, permissions(SERVICE, (config.cluster,)))
        await bus.provision(config.cluster, config.bus)
        views = Views(bus, config.cluster)
        scrapes = Scrapes(
            views,
            stale_s=config.stale_s,
            choice=config.job_choice,
            job_series_max=config.job_series_max,
        )
        consumer = FactConsumer(bus, config.cluster, f"{SERVICE}-facts", count)
        counting = Counting(consumer, lambda: observe_changes(views.nodes, views.jobs))
        lease = BusLease(bus, config.cluster, SERVICE, identity(SERVICE), ttl_s=LEASE_TTL_S)
        health = Health()
        for view in views.all():
            health.require(view.bucket, lambda view=view: view.is_complete)
        health.require("facts", lambda: counting.is_well)
        async with following(*views.all()):
            await serve(
                lambda: serve_http(config.http_host, config.http_port, health, [scrapes.route()]),
                partial(lead, lease, counting.run),
            )


def main() -> None:
    """Run the service."""
    run(SERVICE, work)
