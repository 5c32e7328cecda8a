"""What ``scheduler.packing`` means in Slurm, with placeholders as we submit them: CR_LLN off, or on."""

import anyio
import pytest
from msgspec.structs import replace

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.testing import running_slurm
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import KEY, manifest
from sunk_runtime.testing import WITHIN_S
from sunk_slurm.client import SlurmClient
from sunk_slurm.tokens import KeyTokens

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CPUS = 4
FILL, SPREAD = "CR_Core_Memory", "CR_Core_Memory,CR_LLN"
MADE = Placeholder(script="#!/bin/bash\nsleep 600\n", hooks_url="http://hooks", key=KEY)


async def place(client: SlurmClient, number: int) -> str:
    """Submit a placeholder of one CPU, and return the node that Slurm has chosen."""
    pod = manifest(uid=f"uid-{number}", name=f"pod-{number}", requests={"cpu": "1", "memory": "1Mi"})
    wanted = validate(pod, Rules())
    assert isinstance(wanted, ValidatedPod)
    description = describe(pod, wanted, NodeChoice(), 0, MADE)
    job = await client.submit_job(replace(description, hold=False, user_id="0", group_id="0"))
    with anyio.fail_after(WITHIN_S):
        while (found := await client.job(job)) is None or not found.nodes:  # noqa: ASYNC110 - nobody tells us
            await anyio.sleep(0.05)
    return found.nodes


async def placed(slurm: HostSlurm, pods: int) -> list[str]:
    async with SlurmClient(slurm.url, KeyTokens(slurm.jwt_key)) as client:
        return [await place(client, number) for number in range(pods)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"slurm {release.version}")
async def test_fill_opens_another_node_only_when_the_used_ones_are_full(release: Release) -> None:
    with running_slurm(release, nodes=3, more=(f"SelectTypeParameters={FILL}",)) as slurm:
        assert len({*await placed(slurm, CPUS)}) == 1


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"slurm {release.version}")
async def test_spread_takes_the_least_loaded_node(release: Release) -> None:
    with running_slurm(release, nodes=3, more=(f"SelectTypeParameters={SPREAD}",)) as slurm:
        assert len({*await placed(slurm, 3)}) == 3
