"""The sign of life: only from a leader that sees Kubernetes and has published what it saw."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sunk_events import subjects
from sunk_events.nodesets import KubeWatchState
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeBusyError, KubeGoneError, KubeUnavailableError
from sunk_kube.resources import Resource
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews, FirstRound, send_heartbeats
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_runtime.errors import ConflictError, PermanentError, SunkError, TransientError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following

pytestmark = pytest.mark.anyio


class Overloaded:
    """An API server that answers one list of each kind, and then refuses all calls."""

    def __init__(self) -> None:
        self.listed: set[str] = set()

    async def list_with_version(
        self, resource: Resource[Any], *_: object, **__: object
    ) -> tuple[list[Any], str]:
        if resource.plural in self.listed:
            raise KubeBusyError("429 too many requests")
        self.listed.add(resource.plural)
        return [], "5"

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncGenerator[None]:
        raise KubeGoneError("410 gone")
        yield


async def test_views_of_an_api_server_that_says_nothing_more_are_complete_and_not_current() -> None:
    views = KubeViews(cast("KubeClient", Overloaded()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(views.run)
        with anyio.fail_after(WITHIN_S):
            await views.complete()
        views.require_current()
        with pytest.raises(KubeUnavailableError, match="no message about nodes"):
            views.require_current(silent_max_s=0)
        tasks.cancel_scope.cancel()
    assert views.is_complete


class Kubernetes:
    """What a leader sees of it."""

    is_silent = True

    async def complete(self) -> None:
        """Be complete."""

    def require_current(self) -> None:
        if self.is_silent:
            raise KubeUnavailableError("no message about nodes for 101 s")


async def test_no_sign_of_life_vouches_for_a_kubernetes_that_is_not_seen_or_not_published_yet(
    tmp_path: Path,
) -> None:
    with NatsServer(tmp_path / "nats") as server:
        settings, kubernetes, published = BusSettings(url=server.url), Kubernetes(), anyio.Event()
        async with connect(settings, "test") as bus:
            await bus.provision("lab", settings)
            reader = StateView(bus, "lab", KubeWatchState)
            cluster = cast("ClusterViews", SimpleNamespace(bus=bus, cluster="lab"))
            leads = Leadership("test", 1, float("inf"))
            async with following(reader), anyio.create_task_group() as tasks:
                await reader.complete()
                tasks.start_soon(
                    send_heartbeats, cast("KubeViews", kubernetes), cluster, leads, published, 0.02
                )
                kubernetes.is_silent = False
                await anyio.sleep(0.3)
                assert reader.get(subjects.LEADER_KEY) is None

                kubernetes.is_silent = True
                published.set()
                await anyio.sleep(0.3)
                assert reader.get(subjects.LEADER_KEY) is None

                kubernetes.is_silent = False
                await until(lambda: reader.get(subjects.LEADER_KEY) is not None)
                tasks.cancel_scope.cancel()


async def test_the_first_round_is_done_when_each_key_was_looked_at_and_a_refused_one_counts() -> None:
    done = anyio.Event()
    errors: dict[str, SunkError] = {
        "later": TransientError(""),
        "stale": ConflictError(),
        "no": PermanentError(),
    }

    async def handle(key: str) -> float | None:
        if (error := errors.pop(key, None)) is not None:
            raise error
        return None

    look = FirstRound(["later", "no", "stale"], done).within(handle)
    for key in ("later", "no", "stale", "later"):
        with suppress(SunkError):
            await look(key)
        assert not done.is_set()
    await look("stale")

    assert done.is_set()


async def test_the_first_round_over_nothing_is_done() -> None:
    done = anyio.Event()
    FirstRound([], done)

    assert done.is_set()
