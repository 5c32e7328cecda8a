"""The composition root of the hook gateway."""

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.permissions import permissions
from sunk_events.placements import PlacementState
from sunk_hook_gateway.adapters.certificate import Certificate
from sunk_hook_gateway.adapters.keys import PodTokens, StaticToken, from_api_server, from_file
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.adapters.ports import Callers
from sunk_hook_gateway.adapters.user_tokens import UserTokens
from sunk_hook_gateway.adapters.views import Locks, Placements
from sunk_hook_gateway.config import Config, read_config
from sunk_hook_gateway.controller.admission import Admission
from sunk_hook_gateway.controller.calls import Gateway
from sunk_hook_gateway.http.openapi import document
from sunk_hook_gateway.http.serving import Serving
from sunk_kube.client import connect as connect_kube
from sunk_runtime import jetstream
from sunk_runtime.http import Health, serve_http
from sunk_runtime.lifecycle import run, serve
from sunk_runtime.rights import require_rights
from sunk_runtime.tracing import tracing
from sunk_runtime.views import StateView, following
from sunk_slurm.failed_locks import FailedLocks

SERVICE: Final = "hook-gateway"


async def work() -> None:
    """Serve until told to stop."""
    config = read_config(sys.argv[1:])
    async with (
        tracing(SERVICE, config.traces),
        jetstream.connect(config.bus, SERVICE) as bus,
        _callers(config) as callers,
    ):
        await require_rights(bus, permissions(SERVICE, (config.cluster,)))
        await bus.provision(config.cluster, config.bus)
        nodes = StateView(bus, config.cluster, SlurmNodeState)
        pods = StateView(bus, config.cluster, KubePodState)
        lock_view = StateView(bus, config.cluster, LockState)
        placement_view = StateView(bus, config.cluster, PlacementState)
        locks, placements = Locks(lock_view), Placements(placement_view)
        failed = FailedLocks()
        leaves = LeaveCount(bus, config.cluster, failed)
        gateway = Gateway(
            bus, config, nodes=nodes, pods=pods, locks=locks, placements=placements, leaves=leaves
        )
        admission = Admission(
            callers,
            config.namespace,
            pods=pods,
            placements=placements,
            slurmctld_accounts=config.slurmctld_accounts,
            users=UserTokens(config.user_tokens_socket),
        )
        serving = Serving(bus, config, gateway, admission)
        health = Health()
        for view in (nodes, pods, placement_view):
            health.require(view.bucket, lambda view=view: view.is_complete)
        health.require("token keys", lambda: callers.is_ready)
        health.require("not stopping", lambda: not serving.is_stopping)
        hooks = [*serving.routes(), Route("/openapi.json", _openapi)]
        servers = _servers(config, health, hooks)
        async with following(nodes, pods, lock_view, placement_view):
            await serve(
                *servers,
                locks.run,
                placements.run,
                partial(failed.follow, nodes),
                callers.run,
                stopping=serving.stop,
            )


def _servers(
    config: Config, health: Health, hooks: list[BaseRoute]
) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
    """Return what serves the hooks, with TLS if there is a certificate, and what serves the rest.

    Nodes reach the hooks, and who scrapes reaches the rest: a network policy tells them apart by the port.
    """
    serve_hooks = partial(
        serve_http,
        config.http_host,
        health=health,
        more=hooks,
        max_connections=config.max_connections,
        max_connections_per_address=config.max_connections_per_address,
    )
    serve_rest = partial(serve_http, config.http_host, config.http_port, health)
    hooks_without_tls = partial(serve_hooks, config.hooks_port, has_metrics=False)
    if config.tls_cert_file is not None and config.tls_key_file is not None:
        certificate = Certificate(config.tls_cert_file, config.tls_key_file)
        hooks_with_tls = partial(serve_hooks, config.tls_port, tls=certificate.context, has_metrics=False)
        if config.tls_required:
            return serve_rest, hooks_with_tls, certificate.run
        return serve_rest, hooks_with_tls, certificate.run, hooks_without_tls
    if config.hooks_port:
        return serve_rest, hooks_without_tls
    return (partial(serve_hooks, config.http_port),)


@asynccontextmanager
async def _callers(config: Config) -> AsyncGenerator[Callers]:
    """Yield what tells the holder of a token, as the settings say."""
    if config.static_token_file:
        yield StaticToken(config.static_token_file)
    elif config.token_keys_file:
        fetch = from_file(config.token_keys_file, config.token_issuer)
        yield PodTokens(fetch, audience=config.token_audience)
    else:
        async with connect_kube(SERVICE, kubeconfig=config.kubeconfig) as kube:
            fetch = from_api_server(kube, config.token_issuer)
            yield PodTokens(fetch, audience=config.token_audience)


async def _openapi(_: Request) -> Response:
    return JSONResponse(document(version("sunk-hook-gateway")))


def main() -> None:
    """Run the service."""
    run(SERVICE, work)
