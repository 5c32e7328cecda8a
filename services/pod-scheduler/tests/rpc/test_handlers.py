"""What scripts and epilogs are told where placements are lost, with a real NATS and Pods in memory."""

from collections.abc import AsyncGenerator, Generator

import pytest
from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember, PlacementState
from sunk_events.requests import Later, PlacementReleased, ReleasePlacement
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_lab.nats import NatsServer
from sunk_pod_scheduler.controller.mailbox import Announcement, Mailbox
from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.gang_membership import LABEL_POD_GROUP, membership
from sunk_pod_scheduler.rpc import handlers
from sunk_pod_scheduler.rpc.handlers import Handlers
from sunk_pod_scheduler.testing.builders import JOB, KEY, KUBE_NODE, SLURM_NODE, UID, manifest, placement
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
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
    enqueued: list[str] = []
    mailbox = Mailbox()
    answerer = Handlers(placements, MemoryPods(bound()), mailbox, KEY, enqueued.append)

    assert isinstance(await answerer.released(ReleasePlacement(job=JOB)), Later)
    assert isinstance(await answerer.released(ReleasePlacement(job=JOB, token=TOKEN)), Later)
    assert enqueued == [UID, UID]
    assert mailbox.is_release_requested(UID, JOB)


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(placement("bound", job=JOB - 1, node=SLURM_NODE, attempt=1), id="of its job before"),
        pytest.param(placement("submitted", job=None, attempt=2, digest=""), id="of before its intent"),
        pytest.param(placement("submitted", job=None, attempt=2), id="of before its number"),
        pytest.param(
            replace(placement("submitted", job=None, attempt=2), lost=manifest().metadata.creation_timestamp),
            id="of the intent to replace a lost one",
        ),
    ],
)
async def test_a_pod_that_runs_is_not_gone_where_the_bus_went_back_to_before_its_job(
    placements: StateView[PlacementState], stored: PlacementState
) -> None:
    placements.apply_own(UID, stored, 1 << 40)
    mailbox = Mailbox()
    answerer = Handlers(placements, MemoryPods(bound()), mailbox, KEY, lambda _uid: None)

    assert isinstance(await answerer.released(ReleasePlacement(job=JOB)), Later)
    assert isinstance(await answerer.released(ReleasePlacement(job=JOB, token=TOKEN)), Later)
    assert mailbox.is_release_requested(UID, JOB)


async def test_the_pod_of_a_gang_whose_placement_is_lost_is_not_gone(
    placements: StateView[PlacementState],
) -> None:
    pod = replace(bound(), metadata=replace(manifest().metadata, labels={LABEL_POD_GROUP: "ring"}))
    gang = membership(pod)
    assert gang is not None
    claimed = {ANNOTATION_JOB: marks.claim(KEY, gang.id, 2, JOB)}
    pod = replace(pod, metadata=replace(pod.metadata, annotations=claimed))
    mailbox = Mailbox()
    answerer = Handlers(placements, MemoryPods(pod), mailbox, KEY, lambda _uid: None)

    assert isinstance(await answerer.released(ReleasePlacement(job=JOB)), Later)
    assert mailbox.is_release_requested(gang.id, JOB)


async def test_a_guessed_token_ends_no_pod_whose_placement_is_lost(
    placements: StateView[PlacementState],
) -> None:
    mailbox = Mailbox()
    answerer = Handlers(placements, MemoryPods(bound()), mailbox, KEY, lambda _uid: None)
    told = await answerer.released(ReleasePlacement(job=JOB, token="guessed"))  # noqa: S106 - nobody's

    assert getattr(told, "code", "") == "forbidden"
    assert not mailbox.is_release_requested(UID, JOB)


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
    answerer = Handlers(placements, MemoryPods(pod), Mailbox(), KEY, lambda _uid: None)

    assert await answerer.released(ReleasePlacement(job=JOB)) == GONE


OTHER = "gpu-000-099"
GANG_NODES = ("n0", "n1")
RUNS = bound()
WAITS = manifest()


def gang(*nodes: str) -> Gang:
    members = tuple(
        GangMember(uid=f"u{i}", pod=f"p{i}", index=str(i), node=node) for i, node in enumerate(nodes)
    )
    return Gang(kind="Job", members=members, cpus=1, memory_mib=1)


def member(kube_node: str) -> Pod:
    found = manifest(uid="u0", name="p0")
    return replace(found, spec=replace(found.spec, node_name=kube_node))


@pytest.mark.parametrize(
    ("stored", "pod", "node", "is_heard"),
    [
        pytest.param(placement("released"), WAITS, OTHER, False, id="its Pod waits"),
        pytest.param(placement("bound", node=SLURM_NODE), RUNS, OTHER, False, id="it runs elsewhere"),
        pytest.param(placement("bound", node=SLURM_NODE), RUNS, SLURM_NODE, True, id="it runs there"),
        pytest.param(placement("bound", node=SLURM_NODE), RUNS, None, True, id="an older gateway asks"),
        pytest.param(placement("released"), WAITS, "announced", True, id="its script is there"),
        pytest.param(placement("submitted"), RUNS, SLURM_NODE, True, id="taken over, and its Pod is there"),
        pytest.param(placement("submitted"), RUNS, "unknown", True, id="taken over, and who knows the Node"),
        pytest.param(placement("submitted"), RUNS, OTHER, False, id="taken over, and its Pod is elsewhere"),
        pytest.param(
            replace(placement("bound"), roster=gang(*GANG_NODES)),
            WAITS,
            OTHER,
            False,
            id="a gang runs elsewhere",
        ),
        pytest.param(
            replace(placement("bound"), roster=gang(*GANG_NODES)), WAITS, "n1", True, id="a gang runs there"
        ),
        pytest.param(
            replace(placement("released"), roster=gang("", "")), WAITS, OTHER, False, id="a gang waits"
        ),
        pytest.param(
            replace(placement("submitted"), roster=gang("", "")),
            member(KUBE_NODE),
            SLURM_NODE,
            True,
            id="a gang was taken over, and one is there",
        ),
        pytest.param(
            replace(placement("submitted"), roster=gang("", "")),
            member(KUBE_NODE),
            OTHER,
            False,
            id="a gang was taken over, and nobody is there",
        ),
    ],
)
async def test_an_epilog_is_that_of_a_placeholder_only_on_its_node_for_numbers_may_be_given_anew(
    placements: StateView[PlacementState],
    monkeypatch: pytest.MonkeyPatch,
    stored: PlacementState,
    pod: Pod,
    node: str | None,
    *,
    is_heard: bool,
) -> None:
    monkeypatch.setattr(handlers, "WAIT_S", 0.05)
    placements.apply_own(stored.uid, stored, 1 << 40)
    enqueued: list[str] = []
    mailbox = Mailbox()
    mailbox.announce(UID, Announcement(JOB, "announced"))
    kube_nodes = {SLURM_NODE: KUBE_NODE, OTHER: "node99", "n0": "k0", "n1": "k1", "announced": "k7"}
    answerer = Handlers(
        placements,
        MemoryPods(pod),
        mailbox,
        KEY,
        enqueued.append,
        kube_node=lambda name: kube_nodes.get(name, ""),
    )

    told = await answerer.released(ReleasePlacement(job=JOB, node=node))

    assert mailbox.is_release_requested(UID, JOB) == is_heard
    assert (told == GONE) == (not is_heard)
    assert bool(enqueued) == is_heard


async def test_of_two_placements_with_one_number_that_of_the_token_or_of_the_node_is_meant(
    placements: StateView[PlacementState], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "WAIT_S", 0.05)
    old = replace(placement("bound", node=OTHER), uid="old", lost=placement("bound").changed)
    new = placement("bound", node=SLURM_NODE, attempt=2)
    for revision, stored in enumerate((old, new)):
        placements.apply_own(stored.uid, stored, (1 << 40) + revision)
    mailbox = Mailbox()
    answerer = Handlers(placements, MemoryPods(), mailbox, KEY, lambda _uid: None)

    await answerer.released(ReleasePlacement(job=JOB, token=TOKEN))
    assert (mailbox.is_release_requested("old", JOB), mailbox.is_release_requested(UID, JOB)) == (False, True)
    await answerer.released(ReleasePlacement(job=JOB, node=OTHER))
    assert mailbox.is_release_requested("old", JOB)
    wrong = await answerer.released(ReleasePlacement(job=JOB, token="guessed"))  # noqa: S106 - nobody's
    assert getattr(wrong, "code", "") == "forbidden"


async def test_an_epilog_of_another_node_does_not_ask_for_a_pod_whose_placement_is_lost(
    placements: StateView[PlacementState],
) -> None:
    mailbox = Mailbox()
    answerer = Handlers(
        placements,
        MemoryPods(bound()),
        mailbox,
        KEY,
        lambda _uid: None,
        kube_node={SLURM_NODE: KUBE_NODE, OTHER: "node99"}.__getitem__,
    )

    assert await answerer.released(ReleasePlacement(job=JOB, node=OTHER)) == GONE
    assert not mailbox.is_release_requested(UID, JOB)
    assert isinstance(await answerer.released(ReleasePlacement(job=JOB, node=SLURM_NODE)), Later)
    assert mailbox.is_release_requested(UID, JOB)
