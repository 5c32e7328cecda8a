"""A binding of several calls, in one of which the process is held up for longer than its lease lasts."""

from typing import Final, cast

import msgspec
import pytest
from msgspec.structs import replace

from sunk_kube.client import KubeClient
from sunk_kube.objects import Node
from sunk_kube.pods import Pod, PodSpec, Toleration
from sunk_kube.reflector import Reflector
from sunk_kube.wellknown import TAINT_LOCK
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.adapters.pod_store import PodStore, with_lock
from sunk_pod_scheduler.testing.builders import KUBE_NODE, manifest
from sunk_runtime.errors import ConflictError, LostLeadershipError

pytestmark = pytest.mark.anyio
EVERY: Final = Toleration(operator="Exists")
LOCK: Final = Toleration(key=TAINT_LOCK, operator="Exists")
FOR_A_WHILE: Final = replace(EVERY, toleration_seconds=300)


class HeldUp:
    """An API server whose answer to a patch comes when another leads: that it is done, or a conflict."""

    def __init__(self, *, is_conflict: bool) -> None:
        self._is_conflict = is_conflict
        self._is_lost = False
        self.bound: list[str] = []

    def check(self) -> None:
        if self._is_lost:
            raise LostLeadershipError("the lease may have ended")

    async def patch(self, *_: object, **__: object) -> Pod:
        self._is_lost = True
        if self._is_conflict:
            raise ConflictError("changed meanwhile")
        return manifest()

    async def find(self, *_: object) -> Pod:
        return manifest(spec=PodSpec(tolerations=(Toleration(operator="Exists"),)))

    async def bind_pod(self, pod: Pod, _node: str) -> None:
        self.bound.append(pod.key)


@pytest.mark.parametrize("is_conflict", [False, True])
async def test_nobody_binds_a_pod_who_lost_its_lease_meanwhile(*, is_conflict: bool) -> None:
    api = HeldUp(is_conflict=is_conflict)
    kube = cast("KubeClient", api)
    nodes = cast("Reflector[Node]", None)  # Whoever binds has chosen.
    pods = PodStore(kube, (), nodes, EventRecorder(kube), (), check=api.check)

    with pytest.raises(LostLeadershipError):
        await pods.bind(manifest(), KUBE_NODE)

    assert not api.bound


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((), (LOCK,), id="none"),
        pytest.param((EVERY,), (), id="of everything, for good"),
        pytest.param(
            (replace(EVERY, toleration_seconds=300),),
            (LOCK, replace(EVERY, toleration_seconds=300)),
            id="for a while",
        ),
        pytest.param((FOR_A_WHILE, LOCK), (LOCK, FOR_A_WHILE, LOCK), id="for a while first"),
        pytest.param((Toleration(key="other"),), (LOCK, Toleration(key="other")), id="of another key"),
    ],
)
def test_a_pod_tolerates_the_lock_for_good_in_front_of_what_it_tolerates_for_a_while(
    given: tuple[Toleration, ...], expected: tuple[Toleration, ...]
) -> None:
    found = with_lock(manifest(spec=PodSpec(tolerations=given)), TAINT_LOCK)

    assert found == [msgspec.to_builtins(one) for one in expected]
