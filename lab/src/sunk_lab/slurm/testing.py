"""Real Slurm clusters for tests, in both releases."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sunk_lab.config import from_environment
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES, Release


@pytest.fixture(params=RELEASES, ids=lambda release: f"slurm {release.version}")
def slurm_lab(request: pytest.FixtureRequest) -> Generator[HostSlurm]:
    """A running cluster of two nodes for one test, once per release: 0.2 s."""
    with running_slurm(request.param) as slurm:
        yield slurm


@contextmanager
def running_slurm(
    release: Release,
    *,
    nodes: NodeRange | int = 2,
    records: int = 0,
    prolog_epilog_timeout_s: int = 90,
    more: tuple[str, ...] = (),
    has_own_clock: bool = False,
    has_accounting: bool = False,
    has_accounting_backup: bool = False,
    has_backup: bool = False,
) -> Generator[HostSlurm]:
    """Run a cluster on the machine, gone at the end; skips where we are not root."""
    if os.geteuid() != 0:
        pytest.skip("Slurm on this machine needs root")
    cache = from_environment().cache
    with tempfile.TemporaryDirectory(prefix="sunk-slurm-") as folder:
        slurm = HostSlurm(
            release,
            Path(folder) / "lab",
            cache=cache,
            report=lambda _line: None,
            nodes=nodes,
            records=records,
            prolog_epilog_timeout_s=prolog_epilog_timeout_s,
            more=more,
            has_own_clock=has_own_clock,
            has_accounting=has_accounting,
            has_accounting_backup=has_accounting_backup,
            has_backup=has_backup,
        )
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()
