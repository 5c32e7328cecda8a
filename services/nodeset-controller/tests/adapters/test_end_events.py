"""Events on users' Pods that have to leave: before the eviction, once for each Pod, and never in its way."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import pytest
from msgspec.structs import replace

from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeBusyError, KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import KubeObject, OwnerReference
from sunk_kube.owners import TEXT_MAX
from sunk_kube.pods import Pod
from sunk_kube.resources import Resource
from sunk_kube.testing import T0, pod
from sunk_nodeset_controller.adapters import end_events
from sunk_nodeset_controller.adapters.daemonset_view import Daemons, DaemonSetView
from sunk_nodeset_controller.adapters.end_events import QUIET_S, EndEvents
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.lock_controller import evictor
from sunk_nodeset_controller.lock_controller.evictor import Evictor, Turn
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.eviction import PodEviction
from sunk_nodeset_controller.locks.eviction_events import eviction_event
from sunk_nodeset_controller.locks.model import Clearing, Holder, LockTaint, NodeLock, Rules, Seen
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodeset_controller.placed_pod_evictor import PlacedPodEvictor
from sunk_nodeset_controller.nodesets.model import EvictPlacedPod
from sunk_nodeset_controller.reasons import EvictionReason
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import WITHIN_S

pytestmark = pytest.mark.anyio

LEADERSHIP: Final = Leadership("test", 1, float("inf"))
OWNER: Final = OwnerReference(
    api_version="apps/v1", kind="ReplicaSet", name="web-1", uid="uid-rs", controller=True
)
WEB: Final = pod("web", namespace="team", owners=(OWNER,))
LOCKED: Final = "Node node1 is locked for Slurm job 7: Pod team/web"
GUEST: Final = EvictPlacedPod("team", "web", "uid-web", "gpu-1", 12)
FOR_SLURM, DELETING = EvictionReason.EVICTING_FOR_SLURM, EvictionReason.DELETING_FOR_SLURM


class Api:
    """An API server with one Pod that a disruption budget protects; it does with Events what *mood* says."""

    def __init__(self, found: Pod | None = WEB, mood: str = "takes") -> None:
        self.found = found
        self.mood = mood
        self.calls: list[tuple[str, str]] = []
        """What was asked for, and of what kind of object."""
        self.notes: list[str] = []

    async def list_all(self, *_: object, **__: object) -> list[Pod]:
        return [] if self.found is None else [self.found]

    async def find(self, *_: object) -> Pod | None:
        return self.found

    async def record(self, resource: Resource[Any], _about: KubeObject, text: EventText) -> None:
        self.calls.append((text.reason, resource.kind))
        self.notes.append(text.note)
        match self.mood:
            case "hangs":
                await anyio.sleep_forever()
            case "refuses":
                raise KubeRejectedError("no Events here", status=403)
            case "is away":
                raise KubeUnavailableError("no time")
            case _:
                pass

    async def evict(self, _: Pod, **__: object) -> None:
        self.calls.append(("evict", "Pod"))
        raise KubeBusyError("Cannot evict pod as it would violate the pod's disruption budget.")

    async def delete(self, *_: object, **__: object) -> None:
        self.calls.append(("delete", "Pod"))


class Lock:
    """A Node that is locked for job 7, and looked at again and again."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch, clearing: Clearing | None = None) -> None:
        self._at = T0
        monkeypatch.setattr(evictor, "now", self._now)
        measure = EvictionPolicy(LockTaint(effect="NoSchedule"), clearing or Clearing())
        self._turn = Turn("gpu-1", "node1", LockRequests(), ())
        self._seen = Seen(
            lock=NodeLock(
                value="pending", holders=(Holder(job=7, level="normal", requested_at=T0),), is_tainted=True
            ),
            now=T0,
        )
        self._evictor = Evictor(
            cast("LockSnapshotter", SimpleNamespace(job_by_uid=no_jobs, successor=no_successor)),
            NodeLockStore(cast("KubeClient", api), LEADERSHIP, measure),
            Rules(),
            confirm=unasked,
            daemonsets=cast("DaemonSetView", SimpleNamespace(judge=no_daemons)),
        )

    def _now(self) -> datetime:
        return self._at

    async def look(self, *, times: int = 1) -> None:
        """Look, each time a minute later."""
        for _ in range(times):
            await self._evictor.look(self._turn, self._seen)
            self._at += timedelta(seconds=60)


def no_jobs(_: object) -> dict[str, int | None]:
    return {}


def no_successor(_node: str, _kube_node: str) -> str:
    return ""


async def unasked(*_: object) -> frozenset[int]:
    raise AssertionError


async def no_daemons(_: object) -> Daemons:
    return Daemons()


async def test_a_refused_eviction_is_tried_again_without_another_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Api()
    await Lock(api, monkeypatch).look(times=4)

    assert api.calls == [(FOR_SLURM, "Pod"), (FOR_SLURM, "ReplicaSet"), *[("evict", "Pod")] * 4]
    assert set(api.notes) == {f"{LOCKED} is evicted, because no toleration lets it stay there"}


async def test_a_deletion_after_refused_evictions_has_an_event_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Api()
    await Lock(api, monkeypatch, Clearing(delete_after_s=90.0)).look(times=3)

    assert api.calls[2:] == [
        *[("evict", "Pod")] * 2,
        (DELETING, "Pod"),
        (DELETING, "ReplicaSet"),
        ("delete", "Pod"),
    ]
    assert api.notes[-1] == f"{LOCKED} is deleted, because Kubernetes refused its eviction for 90 s"


@pytest.mark.parametrize(
    ("mood", "tries"),
    [
        pytest.param("refuses", 2, id="no Event is allowed, of Pod and controller"),
        pytest.param("is away", 3, id="tried again with each eviction"),
        pytest.param("hangs", 1, id="given up in time, and left alone for a while"),
    ],
)
async def test_an_event_that_cannot_be_recorded_keeps_no_pod(
    mood: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_events, "LAST_WORDS_S", 1.0 if mood == "hangs" else WITHIN_S)
    monkeypatch.setattr(end_events, "LAST_WORDS_MAX_S", WITHIN_S)
    api = Api(mood=mood)
    with anyio.fail_after(WITHIN_S):
        await Lock(api, monkeypatch).look(times=3)

    assert [call for call, _ in api.calls].count("evict") == 3
    assert len(api.notes) == tries


async def test_after_events_that_were_not_taken_in_time_others_follow_only_after_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment, text = [100.0], EventText(reason=FOR_SLURM, action="Evicting", note="why")
    monkeypatch.setattr(end_events, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    monkeypatch.setattr(end_events, "LAST_WORDS_S", 1.0)
    api = Api(mood="hangs")
    ends = EndEvents(cast("KubeClient", api))

    assert await ends.record([(WEB, text)]) == frozenset()
    api.mood = ""
    for name in ("LAST_WORDS_S", "LAST_WORDS_MAX_S"):
        monkeypatch.setattr(end_events, name, WITHIN_S)
    moment[0] += QUIET_S - 1
    assert await ends.record([(WEB, text)]) == frozenset()
    assert len(api.notes) == 1
    moment[0] += 1
    assert await ends.record([(WEB, text)]) == {WEB.metadata.uid}


async def test_a_dry_run_records_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    await Lock(api, monkeypatch, Clearing(is_dry_run=True)).look(times=2)

    assert api.calls == [("evict", "Pod")] * 2


@pytest.mark.parametrize(
    ("jobs", "words"),
    [((), "Slurm"), ((9, 3), "Slurm jobs 3, 9"), (range(1, 9), "Slurm jobs 1, 2, 3, 4, 5 and 3 more")],
)
def test_an_event_names_a_few_of_the_jobs(jobs: range | tuple[int, ...], words: str) -> None:
    holders = [Holder(job=job, level="normal", requested_at=T0) for job in jobs]
    note = eviction_event(PodEviction("evict", WEB), "node1", holders, Clearing()).note

    assert note.startswith(f"Node node1 is locked for {words}: Pod team/web is evicted")


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(replace(OWNER, controller=False), id="refers to it only"),
        pytest.param(replace(OWNER, name="x" * (TEXT_MAX + 1)), id="a long name"),
        pytest.param(replace(OWNER, kind="\x1b[31m"), id="a kind that is not printable"),
        pytest.param(replace(OWNER, uid=""), id="no uid"),
        pytest.param(replace(OWNER, api_version="v1", kind="Node"), id="a Node, which makes no Pods"),
    ],
)
async def test_of_a_reference_that_no_controller_writes_nothing_is_sent(owner: OwnerReference) -> None:
    api, made = Api(), pod("web", owners=(owner,))
    text = EventText(reason=FOR_SLURM, action="Evicting", note="why")

    assert await EndEvents(cast("KubeClient", api)).record([(made, text)]) == {"uid-web"}
    assert api.calls == [(FOR_SLURM, "Pod")]


def placed_pods(api: Api) -> PlacedPodEvictor:
    return PlacedPodEvictor(FencedKube(cast("KubeClient", api), LEADERSHIP))


async def test_a_pod_that_an_update_cannot_evict_has_one_event_until_it_is_to_go_no_more() -> None:
    api, reason = Api(), EvictionReason.EVICTING_FOR_UPDATE
    evictions = placed_pods(api)
    for _ in range(3):
        evictions.begin("slurm/gpu", [GUEST])
        assert "disruption budget" in await evictions.evict("slurm/gpu", GUEST)
    once = list(api.calls)
    evictions.begin("slurm/gpu", [])
    await evictions.evict("slurm/gpu", GUEST)
    evictions.forget("slurm/gpu")
    await evictions.evict("slurm/gpu", GUEST)

    assert once == [(reason, "Pod"), (reason, "ReplicaSet"), *[("evict", "Pod")] * 3]
    assert api.calls.count((reason, "Pod")) == 3
    emptied = "an update of NodeSet slurm/gpu empties Slurm node gpu-1"
    assert set(api.notes) == {f"{emptied}: Pod team/web, of Slurm job 12, is evicted"}


@pytest.mark.parametrize("mood", ["refuses", "is away", "hangs"])
async def test_an_event_that_cannot_be_recorded_keeps_no_pod_from_an_update(
    mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_events, "LAST_WORDS_S", 0.05)
    api = Api(mood=mood)
    with anyio.fail_after(10):
        await placed_pods(api).evict("slurm/gpu", GUEST)

    assert api.calls[-1] == ("evict", "Pod")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(None, id="gone"),
        pytest.param(pod("web", namespace="team", uid="later"), id="another of its name"),
        pytest.param(pod("web", namespace="team", deleted=T0), id="on its way"),
    ],
)
async def test_of_a_pod_that_goes_already_no_event_says_that_it_is_about_to(found: Pod | None) -> None:
    api = Api(found)
    await placed_pods(api).evict("slurm/gpu", GUEST)

    assert api.calls == [("evict", "Pod")]
