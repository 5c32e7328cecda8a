"""Who has the common name: over failovers, starts at the same moment, and schedulers that are gone."""

from collections.abc import Coroutine, Generator
from datetime import timedelta
from itertools import combinations
from typing import Any, cast

import anyio
import msgspec
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.objects import Lease, LeaseSpec, ObjectMeta
from sunk_kube.wellknown import ANNOTATION_SCHEDULES
from sunk_pod_scheduler.adapters.peers import claim, when_alias_is_free
from sunk_pod_scheduler.podspec.scopes import ALIAS, ALIAS_KEPT, SILENT, PodScope
from sunk_runtime.clock import now
from sunk_runtime.errors import ConfigError
from sunk_runtime.testing import WITHIN_S

A = PodScope(cluster="a", names=("a-slurm", ALIAS))
B = PodScope(cluster="b", names=("b-slurm", ALIAS))
CALLS = 4
"""Of a claim, at most: look, say, look, and say what is left."""


class Turn:
    """Lets another process have its turn."""

    def __await__(self) -> Generator[None]:
        yield


class Leases:
    """The Leases of schedulers, which are held unless a test says otherwise."""

    def __init__(self) -> None:
        self.annotations: dict[str, dict[str, str]] = {}
        self.silent: dict[str, timedelta] = {}
        """Since when those that were not just renewed are silent."""
        self.released: set[str] = set()

    async def patch(self, _resource: object, name: str, body: Any, _namespace: str) -> None:  # noqa: ANN401
        await Turn()
        self.annotations[name] = body["metadata"]["annotations"]

    async def list_all(self, _resource: object, labels: str) -> list[Lease]:
        assert labels
        await Turn()
        return [
            Lease(
                metadata=ObjectMeta(name=name, namespace="slurm", annotations=annotations),
                spec=LeaseSpec(
                    holder_identity="" if name in self.released else f"{name}-0",
                    renew_time=now() - self.silent.get(name, timedelta()),
                ),
            )
            for name, annotations in self.annotations.items()
        ]

    def claim(self, scope: PodScope) -> Coroutine[Any, Any, tuple[str, ...]]:
        return claim(cast("KubeClient", self), "slurm", scope.cluster, scope)

    def serves(self, cluster: str) -> tuple[str, ...]:
        return msgspec.json.decode(self.annotations[cluster][ANNOTATION_SCHEDULES], type=PodScope).names


@pytest.mark.anyio
async def test_the_common_name_stays_with_its_scheduler_over_failovers_of_both() -> None:
    leases = Leases()
    assert await leases.claim(A) == A.names
    assert await leases.claim(B) == ("b-slurm",)
    assert (leases.serves("a"), leases.serves("b")) == (A.names, ("b-slurm",))

    for silent in (timedelta(), SILENT * 2):  # At once, and after an API server that was away for minutes.
        leases.silent = dict.fromkeys("ab", silent)
        assert await leases.claim(B) == ("b-slurm",)
        assert await leases.claim(A) == A.names
    leases.silent, leases.released = {}, {"a"}  # Between two replicas of it.
    assert await leases.claim(B) == ("b-slurm",)


@pytest.mark.anyio
async def test_a_scheduler_that_may_not_begin_takes_nothing_from_those_that_run() -> None:
    leases = Leases()
    assert await leases.claim(A) == A.names

    with pytest.raises(ConfigError):
        await leases.claim(PodScope(cluster="c", names=("a-slurm", ALIAS)))
    assert await leases.claim(A) == A.names


def test_of_two_that_begin_at_once_no_two_have_the_common_name() -> None:
    steps = CALLS + 1
    for turns in combinations(range(2 * steps), steps):
        leases = Leases()
        processes = {"a": leases.claim(A), "b": leases.claim(B)}
        names: dict[str, tuple[str, ...]] = {}
        for turn in range(2 * steps):
            cluster = "a" if turn in turns else "b"
            if cluster not in names:
                try:
                    processes[cluster].send(None)
                except StopIteration as ended:
                    names[cluster] = ended.value

        assert [ALIAS in served for served in names.values()].count(True) < 2, turns
        assert names == {cluster: leases.serves(cluster) for cluster in "ab"}


@pytest.mark.anyio
async def test_the_common_name_is_free_once_its_scheduler_is_gone_and_not_before() -> None:
    leases = Leases()
    await leases.claim(A)
    await leases.claim(B)
    is_free = anyio.Event()

    async with anyio.create_task_group() as tasks:
        own = cast("KubeClient", leases), "slurm", "b", B
        tasks.start_soon(when_alias_is_free, *own, is_free.set, 0.001)
        for silent, released in ((SILENT * 2, set[str]()), (SILENT / 2, {"a"})):
            leases.silent, leases.released = {"a": silent}, released
            await anyio.sleep(0.05)
            assert not is_free.is_set()
        leases.silent, leases.released = {"a": ALIAS_KEPT * 2}, set()
        with anyio.fail_after(WITHIN_S):
            await is_free.wait()
    assert await leases.claim(B) == B.names
