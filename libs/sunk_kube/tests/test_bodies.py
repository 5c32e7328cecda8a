import msgspec
import pytest

from sunk_kube import bodies
from sunk_kube.bodies import EventText
from sunk_kube.errors import KubeRejectedError
from sunk_kube.nodesets import NodeSetStatus
from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_kube.resources import LEASES, NODES, NODESETS, PODS
from sunk_kube.testing import T0, SampleReason, pod


def test_paths_are_those_of_the_api_server() -> None:
    assert PODS.path("default", "web", "status") == "/api/v1/namespaces/default/pods/web/status"
    assert NODES.path(None, "node1") == "/api/v1/nodes/node1"
    assert LEASES.path("slurm") == "/apis/coordination.k8s.io/v1/namespaces/slurm/leases"
    assert NODES.path(None, "ip-10-0-0-1.ec2.internal") == "/api/v1/nodes/ip-10-0-0-1.ec2.internal"
    assert NODESETS.path() == "/apis/sunk.coreweave.com/v1alpha1/nodesets"


@pytest.mark.parametrize(
    "name", ["../../../pods?watch=true", "..", ".", "a/b", "a?b", "a#b", "a%2Fb", "a b", "a\n", "\u0661"]
)
def test_a_name_that_no_object_can_have_asks_the_api_server_for_nothing(name: str) -> None:
    with pytest.raises(KubeRejectedError, match="not a name"):
        PODS.path("default", name)
    with pytest.raises(KubeRejectedError, match="not a name"):
        PODS.path(name, "web")


def test_the_same_event_in_the_same_hour_has_the_same_name() -> None:
    text = EventText(reason=SampleReason.WAITING, action="Schedule", note="no Node fits")
    first = bodies.event(PODS, pod(), text, reporter="test", now=T0)
    again = bodies.event(PODS, pod(), text, reporter="test", now=T0.replace(minute=59))
    later = bodies.event(PODS, pod(), text, reporter="test", now=T0.replace(hour=13))

    assert first["metadata"] == again["metadata"]
    assert first["metadata"] != later["metadata"]


def test_a_patch_may_name_the_one_object_that_is_meant() -> None:
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {}}

    assert bodies.with_uid(patch, "u1") == {"metadata": {"labels": {"a": "b"}, "uid": "u1"}, "spec": {}}


def test_a_json_patch_cannot() -> None:
    with pytest.raises(msgspec.ValidationError):
        bodies.with_uid([{"op": "add"}], "u1")


def test_a_deletion_without_a_uid_is_for_whatever_has_the_name() -> None:
    assert bodies.deletion("", None) == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert bodies.deletion("u1", 0)["preconditions"] == {"uid": "u1"}


def test_an_object_of_a_newer_kubernetes_still_decodes() -> None:
    data = b'{"apiVersion":"v1","metadata":{"name":"web","new":{}},"spec":{"containers":[{"x":1}]},"new":[]}'
    found = msgspec.json.decode(data, type=Pod)

    assert found.metadata.name == "web"
    assert not found.is_ready
    assert not found.is_over


def test_a_missing_condition_is_none() -> None:
    assert condition((), "Ready") is None


def test_a_status_says_its_zeros_so_that_a_merge_sets_them() -> None:
    assert msgspec.to_builtins(NodeSetStatus())["numberReady"] == 0
