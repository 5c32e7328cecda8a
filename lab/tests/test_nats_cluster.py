"""Three real servers: what one of them keeps, all three keep."""

# pyright: reportUnknownMemberType=false
# nats-py is partly untyped.

from collections.abc import Generator
from pathlib import Path

import anyio
import nats
import pytest
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig
from nats.js.errors import Error as JetStreamError

from sunk_lab.nats import NatsServer
from sunk_lab.nats_cluster import NatsCluster
from sunk_lab.processes import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[NatsCluster]:
    with NatsCluster(tmp_path / "nats") as cluster:
        yield cluster


def leader(cluster: NatsCluster) -> NatsServer:
    found = cluster.leader()
    assert found is not None
    return found


async def publish(cluster: NatsCluster, text: bytes) -> int:
    """Store *text* with three replicas, trying until the stream has a leader."""
    client = await nats.connect(cluster.url.split(","))
    context = client.jetstream()
    try:
        with anyio.fail_after(120):
            while True:
                try:
                    await context.add_stream(StreamConfig("lab", subjects=["lab"], num_replicas=3))
                    return (await context.publish("lab", text, headers={"Nats-Msg-Id": text.decode()})).seq
                except (NatsError, JetStreamError):
                    await anyio.sleep(0.1)
    finally:
        await client.close()


async def test_a_cluster_keeps_what_it_acknowledged_when_its_leader_is_killed(cluster: NatsCluster) -> None:
    assert await publish(cluster, b"before") == 1
    killed = leader(cluster)

    killed.kill()
    wait_for("another leader", cluster.leader)

    assert leader(cluster) is not killed
    assert await publish(cluster, b"after") == 2
    killed.start()
    assert await publish(cluster, b"whole again") == 3


async def test_a_cluster_that_starts_again_has_its_addresses_and_its_data(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    await publish(cluster, b"kept")
    before = cluster.url

    cluster.stop()
    with NatsCluster(tmp_path / "nats") as again:
        assert again.url == before
        assert await publish(again, b"more") == 2


async def test_a_retiring_member_hands_over_and_ends_by_itself(cluster: NatsCluster) -> None:
    await publish(cluster, b"before")
    retiring = leader(cluster)

    retiring.retire()
    wait_for("its end", lambda: retiring.pid is None)
    wait_for("another leader", cluster.leader)

    assert await publish(cluster, b"after") == 2


def test_one_of_three_alone_has_no_leader(cluster: NatsCluster) -> None:
    for server in cluster.servers[1:]:
        server.kill()

    assert cluster.leader() is None
