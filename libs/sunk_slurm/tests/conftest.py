"""A real Slurm for conformance tests, in each version that the project supports."""

from collections.abc import Iterator

import pytest

from sunk_lab.config import from_environment
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSlurm]:
    release: Release = request.param
    slurm = HostSlurm(
        release,
        tmp_path_factory.mktemp("slurm") / "cluster",
        cache=from_environment().cache,
        say=print,
        nodes=NodeRange(count=2, first_port=0, gpus=8),
    )
    slurm.start()
    yield slurm
    slurm.stop()
