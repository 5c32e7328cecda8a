"""A fault that is put back is found by the seed that found it once; without it nothing breaks there."""

import pytest

from sunk_simulation.kept import all_hold
from sunk_simulation.mutants import Mutant, is_found, mutants, put_back

ALL = mutants()
KEPT = [one for one in ALL if one.case is not None and not one.slow]
CASES = list(dict.fromkeys(one.case for one in KEPT if one.case is not None))


@pytest.mark.parametrize("mutant", ALL, ids=lambda one: one.name)
def test_a_mutant_is_of_the_present_code(mutant: Mutant) -> None:
    with put_back(mutant) as paths:
        assert paths


@pytest.mark.parametrize("mutant", KEPT, ids=lambda one: one.name)
def test_a_fault_that_is_put_back_is_found(mutant: Mutant) -> None:
    assert mutant.case is not None
    found, said = is_found(mutant, mutant.case.arguments())
    assert found, said


@pytest.mark.timeout(3600)
def test_without_the_faults_nothing_breaks() -> None:
    all_hold(CASES)
