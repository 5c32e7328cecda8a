"""Every benchmark, small: each result comes with its figures, and no claim of the benchmark fails.

Times of so few things say nothing, and no test asks for them.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from sunk_lab.reserved import reserved

RunBench = Callable[..., list[dict[str, Any]]]
ROOT: Final = Path(__file__).parents[2]
FAILOVER: Final = """
bare gateway_kill slurmrestd_kill slurmctld_kill nats_kill nats_term
syncer_kill syncer_term nodeset_controller_kill nodeset_controller_term pod_scheduler_kill pod_scheduler_term
"""
VIEW: Final = """
--nodes 20 --jobs 30 --placements 8 --namespaces 3 --rounds 4 --viewers 2 --seconds 3 --without-page
"""
SMALL: Final[Mapping[str, tuple[str, str]]] = {
    "bus": (
        "--facts 2000 --nodes 50 --keys 500 --requests 100 --views 2",
        "publish consume view request kill_recovery",
    ),
    "exporter": (
        "--nodes 50 --jobs 100 --scrapes 3 --seconds 2",
        "scrape scrape_raw busy plain of_slurm native",
    ),
    "failover": (
        "--rounds 1 --slurmctld-timeout-s 6",
        FAILOVER,
    ),
    "locks": ("--nodes 3 --pods 6 --rounds 2 --seconds 3", "idle one_pod thousand blocked"),
    "memory": (
        "--nodes 8 --jobs 20 --history 50 --messages 20 --seconds 2 --plan 10",
        "start jobs busy restart history backlog",
    ),
    "nodesets": (
        "--nodes 4 --changes 5 --seconds 2",
        "create rest condition condition_all restart",
    ),
    "scheduler": (
        "--nodes 4 --rounds 2 --bursts 4 --release 4 --gangs 1 --jobs 4",
        "single single_busy slurm_alone_4 kube_alone_4 burst_4 release_4 gang",
    ),
    "slurm": ("--calls 50 --lists 2 --nodes 50", "look looks list"),
    "syncer": (
        "--nodes 24 --slurmd 2 --jobs 20 --rounds 2 --seconds 2",
        "bare start rest change_polled change_nudged cordon_one cordon_500 busy restart",
    ),
    "view": (
        VIEW,
        "whole explain rest busy",
    ),
}
"""The arguments of each benchmark, and its results."""
TRIALS: Final[Mapping[str, str]] = {"faults": "--seeds 2 --faults 1", "soak": "--minutes 5"}
"""Of these the exit status tells; their results are of each trial."""
ELSEWHERE: Final = {"cluster", "story"}
"""`cluster` in the list of installs; `story` on the stack of tests/e2e."""


@pytest.mark.lab
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name == "view" else name for name in SMALL]
)
def test_a_benchmark_has_all_its_results_and_its_claims_hold(name: str, run_bench: RunBench) -> None:
    arguments, results = SMALL[name]

    found = run_bench(name, arguments)

    assert {line["name"] for line in found} == {f"{name}.{result}" for result in results.split()}


@pytest.mark.lab
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["faults", pytest.param("soak", marks=pytest.mark.nightly)])
def test_trials_break_no_promise(name: str, run_bench: RunBench) -> None:
    assert run_bench(name, TRIALS[name])


@pytest.mark.lab
@pytest.mark.install
@pytest.mark.timeout(1800)
def test_the_charts_are_measured(run_bench: RunBench) -> None:
    with reserved() as config:
        found = run_bench("cluster", "--starts 1", {"SUNK_LAB_NUMBER": str(config.number)})
    results = {line["name"] for line in found}

    assert results == {"cluster.install", "cluster.upgrade", "images.start", "images.size"}


def test_every_benchmark_is_here() -> None:
    told = subprocess.run([sys.executable, "bench"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert told.returncode == 1
    assert {*told.stderr.strip().removeprefix("bench: name one of: ").split(", ")} == {
        *SMALL,
        *TRIALS,
        *ELSEWHERE,
    }
