import pytest

from sunk_nodeset_controller.missing_rights import missing_right

ACCOUNT = 'User "system:serviceaccount:sunk:sunk-nodeset-controller"'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            f'pods is forbidden: {ACCOUNT} cannot create resource "pods" in API group "" '
            'in the namespace "slurm"',
            "may not create pods in namespace slurm: install or upgrade the helm/slurm release there, "
            "which gives this right",
            id="in the namespace of a Slurm cluster",
        ),
        pytest.param(
            f'controllerrevisions.apps is forbidden: {ACCOUNT} cannot list resource "controllerrevisions" '
            'in API group "apps" in the namespace "slurm"',
            "may not list controllerrevisions in namespace slurm: install or upgrade the helm/slurm release "
            "there, which gives this right",
            id="what is read there only",
        ),
        pytest.param(
            f'pods "a" is forbidden: {ACCOUNT} cannot create resource "pods/eviction" in API group "" '
            'in the namespace "team"',
            "may not create pods/eviction in namespace team: upgrade the helm/sunk release, "
            "which gives this right everywhere",
            id="in every namespace",
        ),
        pytest.param(
            f'nodes "n" is forbidden: {ACCOUNT} cannot patch resource "nodes" in API group "" '
            "at the cluster scope",
            "may not patch nodes: upgrade the helm/sunk release, which gives this right",
            id="without a namespace",
        ),
        pytest.param('pods "a" is forbidden: exceeded quota: small, requested: pods=1', "", id="a quota"),
        pytest.param('pods "a" is forbidden: violates PodSecurity "restricted"', "", id="Pod security"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_missing_right_is_named_with_the_chart_that_gives_it(answer: str, expected: str) -> None:
    assert missing_right(f"post /api/v1/namespaces/slurm/pods: HTTP 403: {answer}") == expected
