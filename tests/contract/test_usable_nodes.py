"""Whether Slurm can use an updated Pod's node, by what the syncer's code makes of a real slurmctld's node."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from sunk_events.nodes import SlurmNodeState
from sunk_kube.objects import ObjectMeta
from sunk_kube.pods import Pod
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_nodeset_controller.nodesets.usable import noted, unusable
from sunk_runtime.testing import until
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.states.nodes import node_state

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"


@pytest.fixture(params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    """A cluster in which a node that is down stays down."""
    with running_slurm(request.param, nodes=1, more=("ReturnToService=0",)) as slurm:
        yield slurm


async def state_of(slurm: HostSlurm, name: str) -> SlurmNodeState | None:
    """Return what the syncer says of a node on the bus."""
    async with SlurmClient(slurm.url, KeyTokens(slurm.jwt_key)) as client:
        found = await client.node(name)
    return node_state(found, datetime.now(UTC)) if found is not None else None


def pod(created: datetime, annotations: Mapping[str, str] | None = None) -> Pod:
    return Pod(metadata=ObjectMeta(name=N1, creation_timestamp=created, annotations=annotations or {}))


def start_of(slurm: SlurmNodeState | None) -> datetime:
    """Return when the node's slurmd started, as the moment in which the API server made its Pod.

    A test on a busy machine may come to its questions long after.
    """
    assert slurm is not None
    assert slurm.slurmd_started is not None
    return slurm.slurmd_started


async def test_a_node_that_is_down_by_hand_holds_an_update_up_unless_it_was_down_before_its_pod(
    slurm: HostSlurm,
) -> None:
    usable = await state_of(slurm, N1)
    made = start_of(usable)
    slurm.exec("scontrol", "update", f"node={N1}", "state=down", "reason=bad dimm")
    down = await state_of(slurm, N1)
    slurm.exec("scontrol", "update", f"node={N1}", "state=resume")

    async def is_back() -> bool:
        return unusable(pod(made), await state_of(slurm, N1)) == ""

    await until(is_back)  # At first its slurmd has not answered yet.

    assert (unusable(pod(made), usable), noted(usable)) == ("", {})
    assert unusable(pod(made), down) == "DOWN: bad dimm"
    assert unusable(pod(made, noted(down)), down) == ""
    assert unusable(pod(made + timedelta(minutes=2)), down) == "its slurmd has not registered"


async def test_a_node_whose_registration_slurmctld_refuses_holds_an_update_up_whenever_its_pod_was_made(
    slurm: HostSlurm,
) -> None:
    slurm.add_node("gpu-1", claimed_gpus=4)

    async def is_refused() -> bool:
        found = await state_of(slurm, "gpu-1")
        return found is not None and "INVALID_REG" in found.flags

    await until(is_refused)
    refused = await state_of(slurm, "gpu-1")
    why = "INVALID_REG: gres/gpu count reported lower than configured (0 < 4)"

    made = start_of(refused)
    assert unusable(pod(made), refused) == why
    assert unusable(pod(made, noted(refused)), refused) == why
    assert unusable(pod(made), await state_of(slurm, "gpu-2")) == "Slurm does not know it"
