"""A real Slurm for conformance tests, in each version that the project supports."""

from collections.abc import Iterator

import pytest

from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    with running_slurm(request.param, nodes=NodeRange(count=2, first_port=0, gpus=8)) as slurm:
        yield slurm
