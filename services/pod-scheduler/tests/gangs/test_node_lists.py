"""The lists of nodes that the Pods of one gang name: few are kept, each once; Pods with more are refused."""

from msgspec.structs import replace

from sunk_pod_scheduler.gangs.model import MemberSeen
from sunk_pod_scheduler.gangs.node_lists import REMEMBERED_MAX, TOO_MANY, NodeLists, is_remembered
from sunk_pod_scheduler.podspec.annotations import NAMES_MAX, JobOptions
from sunk_pod_scheduler.podspec.namespace_policy import Identity
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.testing.builders import pod


def member(number: int, *, required: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> MemberSeen:
    requested = JobOptions(required_nodes=required, excluded_nodes=excluded)
    wanted = ValidatedPod(cpus=1, memory_mib=1, identity=Identity(1, 1), requested=requested)
    return MemberSeen(uid=f"u{number}", pod=replace(pod(), requested=requested), wanted=wanted)


def names(prefix: str, count: int = NAMES_MAX) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(count))


def test_pods_that_name_the_same_nodes_have_one_list() -> None:
    lists = NodeLists()

    first, second = (lists.shared(member(number, required=names("a"))) for number in range(2))

    assert first.pod.requested is not None
    assert second.pod.requested is not None
    assert second.wanted is not None
    assert second.pod.requested.required_nodes is first.pod.requested.required_nodes
    assert second.wanted.requested.required_nodes is first.pod.requested.required_nodes
    assert second == member(1, required=names("a"))


def test_pods_beyond_the_names_that_one_gang_may_have_are_refused_and_keep_none() -> None:
    lists = NodeLists()
    found = [
        lists.shared(member(number, required=names(f"r{number}-"), excluded=names("x")))
        for number in range(8)
    ]

    refused = [one.uid for one in found if one.pod.problems == (TOO_MANY,)]
    assert refused == ["u3", "u4", "u5", "u6", "u7"]
    assert all(one.wanted is None and one.pod.requested is None for one in found[3:])
    assert lists.shared(member(9)) == member(9)  # One that names none is as good as before.


def test_a_pod_with_a_long_list_is_not_kept_from_one_look_to_the_next() -> None:
    assert is_remembered(member(0, required=names("a", REMEMBERED_MAX)))
    assert not is_remembered(member(0, required=names("a", REMEMBERED_MAX), excluded=("b",)))
