"""The model of Kubernetes passes the very tests that a real API server and real kubelets pass.

Where the two differ the model is wrong.
"""

import pytest

from sunk_simulation import contract

CONTRACT = (
    *(f"libs/sunk_kube/tests/test_{name}.py" for name in ("conformance", "contract", "leases", "reflector")),
    *(f"services/pod-scheduler/tests/test_{name}.py" for name in ("pods", "realms", "workloads")),
    *(f"services/nodeset-controller/tests/test_{name}.py" for name in ("locks_story", "reboots")),
)


@pytest.mark.parametrize("file", CONTRACT)
def test_the_model_passes_the_tests_of_kubernetes(file: str) -> None:
    contract.run(file, "bus", "kubernetes")
