import json
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.leases import KubeLease
from sunk_kube.objects import Lease, ObjectMeta
from sunk_kube.wellknown import ANNOTATION_SCHEDULES
from sunk_lab.kube.lab import KubeLab
from sunk_pod_scheduler.adapters.peers import claim, peer
from sunk_pod_scheduler.podspec.scopes import ALIAS, SILENT, Peer, PodScope, Share, share
from sunk_pod_scheduler.testing.builders import T0
from sunk_runtime.errors import ConfigError
from sunk_runtime.leases import Leadership, lead
from sunk_runtime.testing import WITHIN_S

DOCUMENT = Path(__file__).parents[4] / "docs/pod-scheduler.md"
EVERYWHERE = PodScope(cluster="a", names=("a-slurm", ALIAS))


def other(*names: str, namespaces: tuple[str, ...] | None = None) -> Peer:
    pod_scope = PodScope(cluster="b", names=names, namespaces=namespaces)
    return Peer(lease="b/sunk", pod_scope=pod_scope, holder="b-0", renewed=T0)


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        pytest.param([], Share(names=("a-slurm", ALIAS)), id="alone"),
        pytest.param([other("b-slurm")], Share(names=("a-slurm", ALIAS)), id="other names"),
        pytest.param([other("b-slurm", ALIAS)], Share(names=("a-slurm",), ceded="b"), id="only the alias"),
        pytest.param(
            [other("a-slurm", namespaces=("web",))],
            Share(
                names=("a-slurm", ALIAS),
                quarrels=("the pod-scheduler of cluster b (Lease b/sunk) serves a-slurm in web too",),
            ),
            id="the same name, in a part of ours",
        ),
    ],
)
def test_no_two_schedulers_serve_one_name_in_one_namespace(peers: list[Peer], expected: Share) -> None:
    assert share(EVERYWHERE, peers, T0) == expected


def test_scopes_that_do_not_meet_may_share_names() -> None:
    ours = PodScope(cluster="a", names=("slurm",), namespaces=("ml",))

    assert share(ours, [other("slurm", namespaces=("web",))], T0).quarrels == ()
    assert share(ours, [other("slurm", namespaces=("web", "ml"))], T0).quarrels != ()


def test_a_scheduler_that_has_only_the_common_name_does_not_begin_beside_another() -> None:
    ours = PodScope(cluster="a", names=(ALIAS,))

    assert share(ours, [other("b-slurm", ALIAS)], T0).quarrels != ()


def test_a_scheduler_that_is_gone_or_dead_claims_nothing() -> None:
    dead = other("a-slurm")
    gone = Peer(lease=dead.lease, pod_scope=dead.pod_scope, renewed=T0)

    assert share(EVERYWHERE, [dead], T0 + SILENT).quarrels == ()
    assert share(EVERYWHERE, [dead], T0 + SILENT - timedelta(seconds=1)).quarrels != ()
    assert share(EVERYWHERE, [gone], T0).quarrels == ()
    assert share(EVERYWHERE, [dead], T0 - SILENT).quarrels == ()  # As it would be for ever.


@pytest.mark.parametrize("text", ["", "no JSON", '{"cluster": 7}', '{"x": ' + "[" * 9000])
def test_a_lease_whose_annotation_anybody_wrote_is_no_scheduler(text: str) -> None:
    metadata = ObjectMeta(name="a", namespace="tenant", annotations={ANNOTATION_SCHEDULES: text})

    assert peer(Lease(metadata=metadata)) is None


@asynccontextmanager
async def leading(kube: KubeClient, namespace: str, pod_scope: PodScope) -> AsyncGenerator[tuple[str, ...]]:
    """Lead, and yield which names are ours."""
    lease = KubeLease(kube, namespace, f"sunk-{pod_scope.cluster}", pod_scope.cluster)
    ours: list[tuple[str, ...]] = []
    is_claimed = anyio.Event()

    async def work(leadership: Leadership) -> None:
        ours.append(await claim(kube, namespace, leadership.name, pod_scope))
        is_claimed.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead, lease, work)
        with anyio.fail_after(WITHIN_S):
            await is_claimed.wait()
        yield ours[0]
        tasks.cancel_scope.cancel()


@pytest.mark.lab
@pytest.mark.anyio
async def test_the_second_scheduler_of_a_name_is_refused_at_start_until_the_first_has_gone(
    kube: KubeClient, namespace: str
) -> None:
    mine = (namespace,)
    first = PodScope(cluster="a", names=(namespace, ALIAS), namespaces=mine)
    cedes = PodScope(cluster="b", names=(f"{namespace}-b", ALIAS), namespaces=mine)
    second = PodScope(cluster="c", names=(namespace,), namespaces=mine)
    async with leading(kube, namespace, first) as names:
        assert names == (namespace, ALIAS)
        async with leading(kube, namespace, cedes) as left:
            assert left == (f"{namespace}-b",)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with leading(kube, namespace, second):
                pass
        refused, _ = caught.value.split(ConfigError)
        assert refused is not None
    async with leading(kube, namespace, second) as names:
        assert names == (namespace,)


@pytest.mark.lab
@pytest.mark.anyio
async def test_the_documents_kubectl_shows_which_names_are_served(
    kube: KubeClient, namespace: str, kube_lab: KubeLab
) -> None:
    (words,) = re.findall(r"^kubectl (get leases .*)$", DOCUMENT.read_text(), re.MULTILINE)
    scope = PodScope(cluster="a", names=(namespace, ALIAS), namespaces=(namespace,))
    async with leading(kube, namespace, scope):
        said = await anyio.to_thread.run_sync(lambda: kube_lab.kubectl(*shlex.split(words)))

    assert [namespace, ALIAS] in [json.loads(line)["names"] for line in said.splitlines()]
