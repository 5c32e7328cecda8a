"""A real Slurm, a real NATS, and a syncer process between them."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from sunk_events import subjects
from sunk_events.codec import decode_event
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, NodeSliceState
from sunk_events.placements import PlacementState
from sunk_lab.errors import LabError
from sunk_lab.nats import NatsServer
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.jetstream import BusSettings, Message, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_syncer.testing.process import SyncerProcess
from sunk_syncer.testing.stage import CLUSTER, Stage


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    with running_slurm(request.param, nodes=NodeRange(count=2, first_port=0, gpus=8)) as slurm:
        yield slurm


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def stage(slurm: HostSlurm, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    syncer = SyncerProcess(
        tmp_path,
        cluster=CLUSTER,
        nats_url=nats.url,
        slurm_url=slurm.url,
        slurm_key_file=str(slurm.jwt_key),
        poll_s="0.3",
        statistics_s="0.5",
        doubt_s="2",
        prehook_pause_s="0.5",
        bucket_doubt_s="0.5",
        clean_up_after_s="0.5",
        clean_up_doubt_s="600",
        refused_again_s="0.5",
        lease_ttl_s="10",  # No pause of this machine ends the leadership.
    )
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        pods = StateWriter(bus, StateView(bus, CLUSTER, KubePodState), fence=None)
        placements = StateWriter(bus, StateView(bus, CLUSTER, PlacementState), fence=None)
        locks = StateWriter(bus, StateView(bus, CLUSTER, LockState), fence=None)
        slices = StateWriter(bus, StateView(bus, CLUSTER, NodeSliceState), fence=None)
        stage = Stage(
            slurm=slurm,
            nats=nats,
            bus=bus,
            syncer=syncer,
            nodes=StateView(bus, CLUSTER, SlurmNodeState),
            jobs=StateView(bus, CLUSTER, SlurmJobState),
            partitions=StateView(bus, CLUSTER, SlurmPartitionState),
            reservations=StateView(bus, CLUSTER, SlurmReservationState),
            statistics=StateView(bus, CLUSTER, SlurmStatisticsState),
            pods=pods,
            placements=placements,
            locks=locks,
            slices=slices,
            facts=[],
        )

        async def note(message: Message) -> None:
            stage.facts.append(decode_event(message.data))

        views = (stage.nodes, stage.jobs, stage.partitions, stage.reservations, stage.statistics)
        async with (
            following(*views, pods.view, placements.view, locks.view, slices.view),
            bus.subscribed(subjects.facts(CLUSTER), note),
        ):
            await pods.view.complete()
            await placements.view.complete()
            await stage.end_lease()  # Where there is no record of any it would wait for a whole one.
            syncer.start()
            try:
                for name in slurm.node_names:
                    await stage.until_node(name, None)
                yield stage
            finally:
                syncer.close()
                await reset(slurm)


async def reset(slurm: HostSlurm) -> None:
    """Leave the nodes as a test wants to find them."""
    slurm.exec("scancel", "--full", "--user=root")
    for name in slurm.node_names:
        node = slurm.exec("scontrol", "show", "node", name)
        if "DRAIN" in node:
            await until(partial(is_undrained, slurm, name))
        if "Extra=" in node:
            slurm.exec("scontrol", "update", f"node={name}", "extra=")
        if "AvailableFeatures=(null)" not in node:
            slurm.exec("scontrol", "update", f"node={name}", "availablefeatures=", "activefeatures=")


def is_undrained(slurm: HostSlurm, name: str) -> bool:
    """Take the drain away; False where slurmctld, just restarted, does not know the node's state yet."""
    try:
        slurm.exec("scontrol", "update", f"node={name}", "state=undrain")
    except LabError:
        return False
    return True
