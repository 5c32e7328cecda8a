"""The composition root of the view."""

import sys
from functools import partial
from typing import Final

from sunk_events.base import Reply, Request
from sunk_events.permissions import view_permissions
from sunk_events.view_user import VIEW
from sunk_kube.client import connect as connect_kube
from sunk_runtime import jetstream
from sunk_runtime.call_rates import CallRates
from sunk_runtime.http import Health, serve_http
from sunk_runtime.lifecycle import run, serve
from sunk_runtime.requests import ask_until
from sunk_runtime.rights import require_rights
from sunk_runtime.views import following
from sunk_view import page_files, positions
from sunk_view.access import Access
from sunk_view.config import Config, read_config
from sunk_view.events import EventAnswers
from sunk_view.explaining import Explainer
from sunk_view.facts import Facts
from sunk_view.leaders import KubeLeases
from sunk_view.questions import Questions
from sunk_view.serving import Serving
from sunk_view.states import ClusterStates
from sunk_view.trust import Watch, context, read_front_proxy

SERVICE: Final = VIEW
PAUSE_S: Final = 0.2
"""Between two tries of a question."""


async def work() -> None:
    """Serve until told to stop."""
    config = read_config(sys.argv[1:])
    async with (
        jetstream.connect(config.bus, SERVICE) as bus,
        connect_kube(SERVICE, kubeconfig=config.kubeconfig) as kube,
    ):
        await require_rights(bus, view_permissions(config.clusters))
        proxy = await read_front_proxy(kube)
        tls = context(proxy, config.tls_cert_file, config.tls_key_file)
        row_secret = positions.row_secret(config.tls_key_file.read_bytes())
        clusters = [
            ClusterStates(
                bus,
                name,
                silent_s=config.silent_s,
                row_secret=row_secret,
                leases=KubeLeases(kube, places(config, name)),
            )
            for name in config.clusters
        ]
        views = [view for states in clusters for view in states.all]
        access = Access(kube, decisions_s=config.decisions_s)
        rates = CallRates(config.rate_per_s, config.burst)

        async def ask(cluster: str, question: Request, deadline: float) -> Reply:
            return await ask_until(bus, cluster, question, deadline=deadline, pause_s=PAUSE_S)

        questions = Questions(ask, answer_s=config.answer_s)
        events = EventAnswers(access, Facts(bus), clusters)
        explainer = Explainer(questions, clusters)
        serving = Serving(proxy, access, rates, clusters, explainer, more=events.routes())
        health = Health()
        for view in views:
            health.require(view.bucket, lambda view=view: view.is_complete)
        async with following(*views):
            await serve(
                partial(serve_http, config.http_host, config.http_port, health),
                partial(
                    serve_http,
                    config.http_host,
                    config.tls_port,
                    health,
                    [*serving.routes(), *page_files.routes(proxy)],
                    tls=tls,
                    has_metrics=False,
                ),
                Watch(kube, proxy, config.tls_cert_file, config.tls_key_file).run,
                *(states.run for states in clusters),
            )


def places(config: Config, cluster: str) -> dict[str, tuple[str, str]]:
    """Return namespace and name of the Lease of each service of *cluster* that leads by Kubernetes."""
    found = {"nodeset-controller": (config.namespace, "sunk-nodeset-controller")}
    namespaces = dict(zip(config.clusters, config.namespaces, strict=False))
    if cluster in namespaces:
        found["pod-scheduler"] = namespaces[cluster], f"sunk-pod-scheduler-{cluster}"
    return found


def main() -> None:
    """Run the service."""
    run(SERVICE, work)
