"""What every test of the project shares: the event loop, the real servers of the lab, and its place in a run.

A run of several processes deals out groups of tests, those that take long first. A group has its servers to
itself: a file's tests on one Slurm release, or all that share a Kubernetes. A Kubernetes takes a tenth of a
core even while it does nothing, so it ends with its group, and not with the run.
"""

import re
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from sunk_lab.ports import free_port

pytest_plugins = [
    "sunk_lab.run_so_far",
    "sunk_lab.shown_by",
    "sunk_lab.kube.testing",
    "sunk_lab.nats_testing",
    "sunk_lab.slurm.testing",
]

# A loaded machine is no failure: no test asserts on time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

GROUPS: Final = (
    ("a Kubernetes", re.compile(r"services/nodeset-controller/tests/real/(?!test_updates)")),
    (
        "another Kubernetes",
        re.compile(
            r"services/nodeset-controller/tests/real/test_updates|libs/sunk_kube/tests/"
            r"|libs/sunk_ctl/tests/real/|services/hook-gateway/tests/real/test_api_server|lab/tests/test_(kube_lab|slurm_in_pods)"
            r"|services/pod-scheduler/tests/real/test_(admission|peers|pod_store|unserved_pods|workload_client)"
            r"|services/pod-scheduler/tests/real/test_with_slurm.py::test_a_crowd"
            r"|tests/charts/test_(lock_bearers|what_others_may_not_write)"
        ),
    ),
    ("the whole stack", re.compile(r"tests/e2e/")),
)
"""What more than a file's tests share, by their ids."""
FIRST: Final = re.compile(
    r"|".join([r"tests/charts/test_slurm_install", *(ids.pattern for _, ids in GROUPS)])
)
SERVERS: Final = ("kube_lab", "stack")
"""The fixtures of a whole run that end with the group that uses them."""
SEEDS: Final = re.compile(r"tests/simulation/test_seeds\.py::")
"""Each has a core to itself for minutes and shares nothing, so each is a group."""
SECOND: Final = re.compile(r"/real/|tests/simulation/|tests/bench/")
RELEASE: Final = re.compile(r"24\.11|26\.05")


def group_of(nodeid: str) -> str:
    """Return the name of the group that the test *nodeid* is in."""
    for name, ids in GROUPS:
        if ids.match(nodeid):
            return name
    if SEEDS.match(nodeid):
        return nodeid
    path, _, test = nodeid.partition("::")
    release = RELEASE.search(test)
    return f"{path} {release[0]}" if release else path


class Groups(LoadScopeScheduling):
    """Deals out groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:  # noqa: ANN401 - as pytest-xdist has it
    """Return who deals out the tests of a run by scopes."""
    return Groups(config, log) if config.option.dist == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first, and say where a test would have a Kubernetes of its own."""
    for item in items:
        if "kube_lab" in getattr(item, "fixturenames", ()) and not any(
            ids.match(item.nodeid) for _, ids in GROUPS
        ):
            raise pytest.UsageError(f"{item.nodeid} uses kube_lab: name it in GROUPS of conftest.py")
    turns = (FIRST, SEEDS, SECOND)
    groups = [ids for _, ids in GROUPS]
    items.sort(key=lambda item: (_first(turns, item.nodeid), _first(groups, item.nodeid)))


def _first(some: Sequence[re.Pattern[str]], nodeid: str) -> int:
    return next((n for n, ids in enumerate(some) if ids.search(nodeid)), len(some))


_running: list[Callable[[], object]] = []
"""Each ends one of SERVERS, and what needs it; the last started is the last."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
    request: Any,  # noqa: ANN401 - as pytest has it
) -> Generator[None, object, object]:
    """Remember how a server of SERVERS is ended."""
    if fixturedef.argname in SERVERS:
        _running.append(partial(fixturedef.finish, request))
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a group's servers after its last test; a later group that wants one starts it again."""
    if nextitem is not None and group_of(item.nodeid) != group_of(nextitem.nodeid):
        while _running:
            _running.pop()()


@pytest.fixture
def free_tcp_port() -> int:
    """Return a port that no other test gets; with anyio's own fixture of this name another server may."""
    return free_port()


@pytest.fixture
def anyio_backend() -> str:
    """nats-py and kubernetes_asyncio are asyncio-only."""
    return "asyncio"
