"""What every test of the project shares: the event loop, the real servers of the lab, its group.

A group of tests runs in one process and has its servers to itself. Groups that wait for servers take long and
begin first. A Kubernetes takes a tenth of a core while it does nothing, so there are two of it, however many
processes a run has.
"""

from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["sunk_lab.kube.testing", "sunk_lab.nats_testing", "sunk_lab.slurm.testing"]

# A loaded machine is no failure: no test asserts on time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def anyio_backend() -> str:
    """nats-py and kubernetes_asyncio are asyncio-only."""
    return "asyncio"


RELEASES: Final = ("24.11", "26.05")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into its group, and what is long first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_rank)


def _group(item: pytest.Item) -> str:
    """Return what the tests have in common that one process runs: Kubernetes, else a file and its Slurm."""
    path, _, test = item.nodeid.partition("::")
    if _needs_kubernetes(item):
        return "kubernetes of services" if path.startswith(("libs/", "services/")) else "kubernetes of stacks"
    return " ".join([path, *(release for release in RELEASES if release in test)])


def _rank(item: pytest.Item) -> int:
    if _needs_kubernetes(item):
        return 0
    return 1 if any(item.get_closest_marker(name) for name in ("timeout", "lab")) else 2


def _needs_kubernetes(item: pytest.Item) -> bool:
    names: Iterable[str] = getattr(item, "fixturenames", ())
    return "kube_lab" in names
