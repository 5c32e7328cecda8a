"""The model of Kubernetes passes the very tests that a real API server and real kubelets pass.

Where the two differ the model is wrong.
"""

import pytest

from sunk_simulation import contract

pytestmark = pytest.mark.timeout(3600)  # Each is a whole file of tests.
CONTRACT = (
    *(f"libs/sunk_kube/tests/test_{name}.py" for name in ("conformance", "contract", "leases", "reflector")),
    *(
        f"services/pod-scheduler/tests/real/test_{name}.py"
        for name in ("peers", "pod_store", "workload_client")
    ),
    *(f"services/nodeset-controller/tests/real/test_{name}.py" for name in ("locks", "reboots")),
)
STORIES = tuple(
    f"services/nodeset-controller/tests/real/test_{name}.py" for name in ("controller", "updates")
)
NOT_OF_THE_MODEL = (
    "costs_no_call",  # Counters of test and service are the same ones in one interpreter.
    "finalizer_that_is_refused",  # By a policy; there are none.
    "a_right_or_a_rule_of_the_api_server",  # Nor are there rights.
    "the_documents_kubectl",  # A program of Kubernetes'.
    "daemonset_is_there",  # Kubernetes' DaemonSet controller makes their Pods; the model has none.
    "known_by_its_daemonset",
    "daemonsets_cannot_be_read",
    "and_its_replica_set",  # Nor Kubernetes' ReplicaSet controller.
)


@pytest.mark.parametrize("file", CONTRACT)
def test_the_model_passes_the_tests_of_kubernetes(file: str) -> None:
    contract.run(file, "bus", "kubernetes", but=NOT_OF_THE_MODEL)


@pytest.mark.parametrize("file", STORIES)
def test_nodeset_controller_passes_its_stories_on_the_model(file: str) -> None:
    contract.run(file, "bus", "kubernetes", "nodeset-controller", but=NOT_OF_THE_MODEL)
