"""The model of Slurm passes the very tests that both real releases pass, and does what only a model can.

Where the two differ the model is wrong.
"""

import inspect

import pytest

from sunk_lab.slurm import host
from sunk_simulation import contract
from sunk_simulation.slurm import pytest_plugin

NOT_OF_THE_MODEL = (
    "connections_to_slurmrestd_may_be_reset",  # By a proxy of real sockets; `Network.reset` is ours.
    "answer_that_makes_no_sense",  # By a proxy, too; `Slurmrestd.fail_answers` and its brothers are ours.
    "a_crowd_of_pods",  # On a real API server.
    "what_slurm_refuses",  # Accounts are not modelled.
    "example_of_the_guide",
    "a_priority_class",
    "who_cancelled_it",  # Nor what accounting knows of who did it.
    "fifteen_annotations",
    "submitted_by_its_user",
    "of_its_user_has_an_admin_comment",
    "told_the_place",  # The model starts jobs in the order of their numbers.
    "told_its_place",
    "of_several_required_nodes",  # Nor has it priorities of sbatch.
    "backfill_expects",  # Nor backfill.
)
HOOKS = tuple(f"services/hook-gateway/tests/real/test_{name}.py" for name in ("races", "slurm"))
NOT_OF_THE_HOOKS = (
    "own_prolog",  # Of the shell that they are written in.
    "without_curl",
    "a_check_finds",
    "waits_for_a_refused_node",  # srun and salloc are not modelled.
)
CONTRACT = (
    *(f"libs/sunk_slurm/tests/test_{name}.py" for name in ("changes", "conformance", "quirks", "refusals")),
    *(
        f"services/syncer/tests/real/test_{name}.py"
        for name in ("actions", "fleet", "late_lists", "prologs", "releases", "slurm")
    ),
    "services/pod-scheduler/tests/real/test_with_slurm.py",
)

pytestmark = pytest.mark.timeout(3600)  # Each is a whole file of tests.


def test_the_model_is_described_by_the_same_parameters_as_a_real_slurm() -> None:
    real, model = (inspect.signature(kind.__init__) for kind in (host.HostSlurm, pytest_plugin.HostSlurm))

    assert model.parameters.keys() == real.parameters.keys()


@pytest.mark.parametrize("file", CONTRACT)
def test_the_model_passes_the_tests_of_real_slurm(file: str) -> None:
    contract.run(file, "bus", "slurm", "syncer", but=NOT_OF_THE_MODEL)


@pytest.mark.parametrize("file", HOOKS)
def test_the_models_of_prolog_and_epilog_pass_the_tests_of_the_scripts(file: str) -> None:
    contract.run(file, "bus", "slurm", "hooks", but=NOT_OF_THE_HOOKS)
