"""Seeded trials on one NATS and on three: a process is killed at a step of publish, state or acknowledge.

A few seeds here; many with ``./task faults -- --seeds 200``. A seed that failed fails alone, too.
"""

from pathlib import Path

import pytest

from sunk_trials.network import cut_trial, reset_trial
from sunk_trials.trial import run_trial

pytestmark = [pytest.mark.faults, pytest.mark.anyio]


async def test_killing_nats_or_a_client_at_any_step_loses_repeats_and_reorders_nothing(
    tmp_path: Path,
) -> None:
    outcome = await run_trial(tmp_path, 8, faults=3, servers=1)

    assert outcome.breaches == []
    assert outcome.facts > 50


async def test_killing_one_of_three_nats_at_any_step_loses_repeats_and_reorders_nothing(
    tmp_path: Path,
) -> None:
    outcome = await run_trial(tmp_path, 1, faults=1, servers=3)

    assert outcome.breaches == []
    assert outcome.facts > 10


async def test_a_network_that_is_cut_and_mended_loses_repeats_and_reorders_nothing(tmp_path: Path) -> None:
    outcome = await cut_trial(tmp_path, cut_s=0)

    assert outcome.breaches == []


async def test_connections_that_are_reset_again_and_again_lose_nothing(tmp_path: Path) -> None:
    outcome = await reset_trial(tmp_path)

    assert outcome.breaches == []
