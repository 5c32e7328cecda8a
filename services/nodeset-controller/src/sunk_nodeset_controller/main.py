"""nodeset-controller: the composition root."""

import sys
from datetime import UTC, datetime
from functools import partial

from sunk_kube.client import connect
from sunk_kube.leases import KubeLease
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.certificate_lifetime import show_lifetime
from sunk_nodeset_controller.config import read_config
from sunk_nodeset_controller.leader import work
from sunk_nodeset_controller.pod_controller.publisher import SERVICE
from sunk_nodeset_controller.slurm_health import SlurmHealth
from sunk_runtime.http import Health, serve_http
from sunk_runtime.leases import lead
from sunk_runtime.lifecycle import identity, run, serve
from sunk_runtime.tracing import tracing


def main() -> None:
    """Run the service."""
    run(SERVICE, start)


async def start() -> None:
    """Connect everything and serve until told to stop."""
    config = read_config(sys.argv[1:])
    _ = config.generated  # What is not allowed there stops us now, not when we lead.
    async with (
        tracing(SERVICE, config.traces),
        connect(SERVICE, kubeconfig=config.kubeconfig, timeout_s=config.kube_timeout_s) as client,
    ):
        views = KubeViews(client)
        now = datetime.now(UTC)
        healths = {
            name: SlurmHealth(now, stale_s=config.slurm_stale_s, unknown_s=config.slurm_unknown_s)
            for name in config.clusters
        }
        bus = BusConnections(config.bus, healths, SERVICE)
        health = Health()
        health.require("kubernetes", lambda: views.is_complete)
        health.require("bus", lambda: bus.is_complete)
        health.require("space on the bus", lambda: bus.has_space)
        lease = KubeLease(
            client, config.lease_namespace, config.lease_name, identity(SERVICE), ttl_s=config.lease_ttl_s
        )
        certificate = config.nats_certificate_file
        await serve(
            *(() if certificate is None else (partial(show_lifetime, certificate),)),
            views.run,
            bus.run,
            partial(serve_http, config.http_host, config.http_port, health),
            partial(lead, lease, partial(work, config, client, views, bus)),
        )
