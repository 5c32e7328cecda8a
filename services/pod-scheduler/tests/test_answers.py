"""What scripts and epilogs are told where placements are lost, with a real NATS and Pods in memory."""

from collections.abc import AsyncGenerator, Generator

import pytest
from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_events.requests import Later, PlacementReleased, ReleasePlacement
from sunk_kube.objects import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_lab.nats import NatsServer
from sunk_pod_scheduler import marks, tokens
from sunk_pod_scheduler.answers import Answerer
from sunk_pod_scheduler.book import Book
from sunk_pod_scheduler.gangs.kin import LABEL_POD_GROUP, kin
from sunk_pod_scheduler.testing import JOB, KEY, KUBE_NODE, UID, MemoryPods, manifest
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.views import StateView, following

pytestmark = pytest.mark.anyio

CLUSTER = "c1"
TOKEN = tokens.token(KEY, UID, 2)
GONE = PlacementReleased(is_pod_gone=True)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def placements(nats: NatsServer) -> AsyncGenerator[StateView[PlacementState]]:
    """No placement at all: the bucket was lost."""
    async with connect(BusSettings(url=nats.url), "pod-scheduler") as bus:
        await bus.provision(CLUSTER, BusSettings(url=nats.url))
        view = StateView(bus, CLUSTER, PlacementState)
        async with following(view):
            await view.complete()
            yield view


def bound(*, owner: str = UID, job: int = JOB, kube_node: str = KUBE_NODE) -> Pod:
    claim = marks.claim(KEY, owner, 2, job)
    pod = manifest(annotations={ANNOTATION_JOB: claim})
    return replace(pod, spec=replace(pod.spec, node_name=kube_node))


async def test_a_pod_whose_placement_is_lost_is_not_gone_and_its_placement_is_made_anew(
    placements: StateView[PlacementState],
) -> None:
    poked: list[str] = []
    book = Book()
    answerer = Answerer(placements, MemoryPods(bound()), book, KEY, poked.append)

    assert isinstance(await answerer.released(ReleasePlacement(job=JOB)), Later)
    assert isinstance(await answerer.released(ReleasePlacement(job=JOB, token=TOKEN)), Later)
    assert poked == [UID, UID]
    assert book.is_release_asked(UID, JOB)


async def test_the_pod_of_a_gang_whose_placement_is_lost_is_not_gone(
    placements: StateView[PlacementState],
) -> None:
    pod = replace(bound(), metadata=replace(manifest().metadata, labels={LABEL_POD_GROUP: "ring"}))
    gang = kin(pod)
    assert gang is not None
    claimed = {ANNOTATION_JOB: marks.claim(KEY, gang.id, 2, JOB)}
    pod = replace(pod, metadata=replace(pod.metadata, annotations=claimed))
    book = Book()
    answerer = Answerer(placements, MemoryPods(pod), book, KEY, lambda _uid: None)

    assert isinstance(await answerer.released(ReleasePlacement(job=JOB)), Later)
    assert book.is_release_asked(gang.id, JOB)


async def test_a_guessed_token_ends_no_pod_whose_placement_is_lost(
    placements: StateView[PlacementState],
) -> None:
    book = Book()
    answerer = Answerer(placements, MemoryPods(bound()), book, KEY, lambda _uid: None)
    told = await answerer.released(ReleasePlacement(job=JOB, token="guessed"))  # noqa: S106 - nobody's

    assert getattr(told, "code", "") == "forbidden"
    assert not book.is_release_asked(UID, JOB)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(bound(job=JOB + 1), id="its job is another"),
        pytest.param(bound(owner="somebody"), id="the annotation is not ours"),
        pytest.param(bound(kube_node=""), id="it is on no Node"),
        pytest.param(replace(bound(), status=replace(bound().status, phase="Succeeded")), id="it is over"),
    ],
)
async def test_a_job_without_a_pod_on_a_node_is_let_go(
    placements: StateView[PlacementState], pod: Pod
) -> None:
    answerer = Answerer(placements, MemoryPods(pod), Book(), KEY, lambda _uid: None)

    assert await answerer.released(ReleasePlacement(job=JOB)) == GONE
