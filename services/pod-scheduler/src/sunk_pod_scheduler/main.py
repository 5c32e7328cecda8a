"""The pod-scheduler's composition root: connects, and has one of its replicas lead."""

import sys
from functools import partial
from typing import Final

from sunk_events.permissions import permissions
from sunk_kube.client import connect as connect_kube
from sunk_kube.leases import KubeLease
from sunk_pod_scheduler.config import PREFIX, Config, read_config
from sunk_pod_scheduler.leader import Runtime
from sunk_runtime import lifecycle
from sunk_runtime.http import Health, serve_http
from sunk_runtime.jetstream import connect
from sunk_runtime.leases import lead
from sunk_runtime.rights import require_rights
from sunk_runtime.tracing import tracing
from sunk_runtime.views import following
from sunk_slurm.accounting import SlurmAccounting
from sunk_slurm.client import SlurmClient

SERVICE: Final = "pod-scheduler"


async def serve(config: Config) -> None:
    """Connect, follow, and lead when it is our turn, until told to stop."""
    tokens = config.tokens(PREFIX)
    async with (
        tracing(SERVICE, config.traces),
        connect(config.bus, SERVICE) as bus,
        connect_kube(SERVICE, kubeconfig=config.kubeconfig) as kube,
        SlurmClient(config.slurm_url, tokens, trust=config.trust) as slurm,
        SlurmAccounting(config.slurm_url, tokens, trust=config.trust) as accounting,
    ):
        await require_rights(bus, permissions(SERVICE, (config.cluster,)))
        await bus.provision(config.cluster, config.bus)
        parts = Runtime(config, bus, kube, slurm, accounting)
        health = Health()
        for view in parts.bus_views:
            health.require(f"state {view.bucket} is read", partial(getattr, view, "is_complete"))
        health.require("space on the bus", lambda: bus.has_space)
        health.require("pods and nodes are read", lambda: parts.pods.is_complete)
        lease = KubeLease(
            kube,
            config.namespace,
            f"sunk-{SERVICE}-{config.cluster}",
            lifecycle.identity(SERVICE),
            ttl_s=config.lease_ttl_s,
        )
        async with following(*parts.bus_views):
            await lifecycle.serve(
                partial(serve_http, config.http_host, config.http_port, health),
                *(view.run for view in (*parts.watched, parts.nodes)),
                parts.recorder.run,
                partial(lead, lease, parts.work),
            )


def main() -> None:
    """Run the service."""
    lifecycle.run(SERVICE, lambda: serve(read_config(sys.argv[1:])))
