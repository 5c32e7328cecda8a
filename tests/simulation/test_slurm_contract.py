"""The model of Slurm passes the very tests that both real releases pass, and does what only a model can.

Where the two differ the model is wrong.
"""

import pytest

from sunk_simulation import contract

CONTRACT = tuple(f"libs/sunk_slurm/tests/test_{name}.py" for name in ("changes", "conformance", "quirks"))


@pytest.mark.parametrize("file", CONTRACT)
def test_the_model_passes_the_tests_of_real_slurm(file: str) -> None:
    contract.run(file, "bus", "slurm")
