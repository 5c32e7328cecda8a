from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.indexes import Index
from sunk_kube.pods import Pod
from sunk_kube.testing import pod

changes = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from(["n1", "n2"])), max_size=12)


@given(changes)
def test_an_index_says_what_a_walk_through_all_objects_would_say(made: list[tuple[str, str | None]]) -> None:
    index: Index[Pod] = Index(lambda found: (found.spec.node_name,))
    everything: dict[str, Pod] = {}
    for name, node in made:
        before = everything.pop(name, None)
        after = None if node is None else pod(name, node=node)
        if after is not None:
            everything[name] = after
        index.change(before, after)

    for node in ("n1", "n2"):
        there = {name: found for name, found in everything.items() if found.spec.node_name == node}
        assert {found.metadata.name: found for found in index.of(node)} == there
        assert index.count(node) == len(there)
    assert set(index.keys()) == {found.spec.node_name for found in everything.values()}
