"""Heterogeneous jobs: the prolog where the script starts is answered last."""

from datetime import datetime, timedelta

import pytest

from sunk_hook_gateway.hooks.bodies import Component, Prehook
from sunk_hook_gateway.hooks.components import reason_of, since, waited_for
from sunk_hook_gateway.testing.hooks import NOW, lock_of
from sunk_slurm.granted_locks import is_granted


def test_each_node_of_each_other_component_is_waited_for() -> None:
    components = (
        Component(job=7, nodes="a"),
        Component(job=8, nodes="b[1-2],c"),
        Component(job=9, nodes="c"),
    )

    assert waited_for(Prehook(job=7, components=components)) == ((8, "b1"), (8, "b2"), (8, "c"), (9, "c"))


@pytest.mark.parametrize("nodes", ["n[1-150000]", "n[1-6000]"])
def test_components_name_no_more_nodes_than_a_cluster_has(nodes: str) -> None:
    components = tuple(Component(job=job, nodes=nodes) for job in (8, 9))

    with pytest.raises(ValueError, match="more than"):
        waited_for(Prehook(job=7, components=components))


@pytest.mark.parametrize(
    ("job", "granted", "expected"),
    [
        pytest.param(8, NOW, True, id="granted since"),
        pytest.param(8, NOW - timedelta(seconds=59), True, id="by a clock that is behind"),
        pytest.param(8, NOW - timedelta(seconds=61), False, id="to the run before it was requeued"),
        pytest.param(8, None, False, id="not yet"),
        pytest.param(9, NOW, False, id="to another job"),
    ],
)
def test_a_lock_counts_once_it_is_granted_to_this_run(
    job: int, granted: datetime | None, *, expected: bool
) -> None:
    after = since(Prehook(job=7, started=NOW.timestamp()))

    assert is_granted(lock_of("b1", job, granted), 8, after) is expected
    assert is_granted(None, 8, after) is False


def test_a_refusal_names_the_first_few_nodes() -> None:
    assert reason_of([(8, "b")]) == "other components are not locked: b"
    assert reason_of([(8, f"b{n}") for n in range(1, 7)]).endswith(": b1, b2, b3, b4 and 2 more")
