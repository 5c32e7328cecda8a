"""What changes nodes and jobs, on both real releases."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import SLURM_24_11
from sunk_runtime.testing import until
from sunk_slurm.client import SlurmClient
from sunk_slurm.down_reasons import UNDRAINED
from sunk_slurm.errors import INVALID_NODE_NAME, REQUEUE_DISABLED, SlurmRejectedError
from sunk_slurm.submission import JobDescription
from sunk_slurm.tokens import KeyTokens
from sunk_slurm.wire import Features, Node

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1, N2 = "node01", "node02"


@pytest.fixture
async def client(cluster: HostSlurm) -> AsyncIterator[SlurmClient]:
    async with SlurmClient(cluster.url, KeyTokens(cluster.jwt_key)) as client:
        yield client
        for name in (N1, N2):
            await until(partial(is_undrained, client, name))
            await client.describe_node(name, extra="", features=Features((), ()))


async def is_undrained(client: SlurmClient, name: str) -> bool:
    """Undrain *name*; right after a reconfigure slurmctld refuses that for a moment."""
    try:
        await client.undrain(name)
    except SlurmRejectedError:
        return False
    return True


async def look(client: SlurmClient, name: str) -> Node:
    node = await client.node(name)
    assert node is not None
    return node


async def test_several_nodes_are_drained_in_one_call(client: SlurmClient) -> None:
    await client.drain_several([N2, N1], "k8s: cordon")

    assert [(await look(client, name)).reason for name in (N1, N2)] == ["k8s: cordon"] * 2


async def test_of_several_nodes_one_is_refused_and_the_others_are_drained(client: SlurmClient) -> None:
    with pytest.raises(SlurmRejectedError) as refused:
        await client.drain_several([N1, "nosuch", N2], "k8s: cordon")

    assert refused.value.number == INVALID_NODE_NAME
    assert [(await look(client, name)).state_now.is_drain for name in (N1, N2)] == [True, True]


async def test_features_are_replaced_and_taken_away_and_extra_stays(client: SlurmClient) -> None:
    words = ("h100", "zone-a")
    await client.describe_node(N1, extra='{"team": "a"}', features=Features(words, words))
    both = await look(client, N1)
    await client.describe_node(N1, features=Features(words, ("h100",)))
    one = await look(client, N1)
    await client.describe_node(N1, features=Features(words, ()))
    asleep = await look(client, N1)
    await client.describe_node(N1, features=Features(("h200",), ("h200",)))
    other = await look(client, N1)
    await client.describe_node(N1, features=Features((), ()))
    none = await look(client, N1)

    assert (sorted(both.features), sorted(both.active_features)) == (["h100", "zone-a"],) * 2
    assert (sorted(one.features), one.active_features) == (["h100", "zone-a"], ("h100",))
    assert (sorted(asleep.features), asleep.active_features) == (["h100", "zone-a"], ())
    assert (other.features, other.active_features, other.extra) == (("h200",), ("h200",), '{"team": "a"}')
    assert (none.features, none.active_features) == ((), ())


@pytest.mark.parametrize("may_requeue", [True, False])
async def test_a_job_is_requeued_where_slurmrestd_can_and_the_job_may(
    client: SlurmClient, cluster: HostSlurm, *, may_requeue: bool
) -> None:
    job = await client.submit_job(
        JobDescription(
            script="#!/bin/bash\nsleep 300\n",
            environment=("PATH=/usr/bin:/bin",),
            current_working_directory="/",
            standard_output="/dev/null",
            standard_error="/dev/null",
            requeue=may_requeue,
        )
    )

    async def is_running() -> bool:
        return (found := await client.job(job)) is not None and found.state_now.is_running

    await until(is_running)
    try:
        if cluster.release == SLURM_24_11:
            assert not await client.requeue_job(str(job))
        elif may_requeue:
            assert await client.requeue_job(str(job))
            assert not await is_running()
        else:
            with pytest.raises(SlurmRejectedError) as refused:
                await client.requeue_job(str(job))
            assert refused.value.number == REQUEUE_DISABLED
    finally:
        await client.cancel_job(job)


async def test_requeuing_a_job_that_is_over_or_unknown_is_success(
    client: SlurmClient, cluster: HostSlurm
) -> None:
    assert await client.requeue_job("999999") is (cluster.release != SLURM_24_11)


async def test_a_reconfigure_keeps_what_was_changed_of_a_node(client: SlurmClient) -> None:
    await client.drain(N1, "by hand")
    await client.describe_node(N1, extra='{"team": "a"}')
    await client.reconfigure()

    async def is_known() -> bool:  # Before that an undrain is refused.
        return (await look(client, N1)).state_now.base == "IDLE"

    await until(is_known)
    node = await look(client, N1)

    assert (node.state_now.is_drain, node.reason, node.extra) == (True, "by hand", '{"team": "a"}')


async def test_an_undrained_node_keeps_no_reason_that_a_later_drain_could_inherit(
    client: SlurmClient, cluster: HostSlurm
) -> None:
    """A drain without a reason takes over the one that stands there, and 24.11 keeps it otherwise."""
    await client.drain(N1, "k8s: cordon")
    await client.undrain(N1)
    node = await look(client, N1)

    assert node.reason == (UNDRAINED if cluster.release == SLURM_24_11 else "")
