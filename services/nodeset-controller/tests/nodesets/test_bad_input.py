"""Nodes and objects as they should not be: a name, a sentence or nothing, and never an error."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.codec import encode
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import DynamicFeature, Features
from sunk_kube.objects import Condition
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.node_controller.gres import Gres, gres_conf
from sunk_nodeset_controller.nodesets.naming import pod_name
from sunk_nodeset_controller.nodesets.template import features
from sunk_nodeset_controller.nodesets.topology import Topology, topology_conf
from sunk_nodeset_controller.pods.projection import verified
from sunk_nodeset_controller.pods.state import PodObserved, state

LONG = ".".join(("n" * 62, "n" * 62, "n" * 62, "n" * 62))[:253]
ENDS = st.sampled_from("aZ0")
LABEL_VALUES = st.just("") | st.builds("{}{}{}".format, ENDS, st.text("aZ0-_.", max_size=61), ENDS)


@pytest.mark.parametrize("address", ["", "fd00::12", "10.0.0.300", "no address"])
@pytest.mark.parametrize("kube_node", ["n", LONG], ids=["short", "253 characters"])
def test_a_node_of_any_name_and_address_gets_a_pods_name(kube_node: str, address: str) -> None:
    name = pod_name("p" * 48, kube_node, address, ())

    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert pod_name("p" * 48, kube_node, address, ()) == name


@given(LABEL_VALUES)
def test_every_label_makes_a_feature_that_slurm_takes_or_none(value: str) -> None:
    wanted = Features(dynamic_features={"zone": DynamicFeature(prefix="zone-")})
    found = features(wanted, {"zone": value})

    assert len(found) == bool(value)
    assert all(re.fullmatch(r"[A-Za-z0-9_.=+/:-]+", one) for one in found)


def test_a_node_deleted_while_its_pod_terminates_keeps_what_was_known() -> None:
    ending = pod("gpu-000-011", deleted=T0, labels={wk.LABEL_NODESET: "gpu"})
    seen = PodObserved(pod=ending, node=None, nodeset=nodeset(), before=None, lock_key=wk.TAINT_LOCK, now=T0)
    found = state(seen)

    assert found is not None
    assert (found.phase, found.kube_node) == ("terminating", "node1")
    assert encode(found)
    assert state(PodObserved(pod=None, node=None, nodeset=None, before=found, lock_key="x", now=T0)) is None


def test_a_clock_ahead_moves_no_time_but_its_own() -> None:
    ahead = T0 + timedelta(days=1)
    check = Condition(type="HPCVerification", status="True", last_transition_time=ahead)
    seen = PodObserved(
        pod=pod("gpu-000-011"),
        node=node(conditions=(check,)),
        nodeset=nodeset(),
        before=None,
        lock_key=wk.TAINT_LOCK,
        now=T0,
    )
    found = state(seen)

    assert found is not None
    assert (found.changed, found.ready_changed, found.hpc_verified) == (T0, T0, ahead)
    assert verified(node(conditions=(Condition(type="HPCVerification", status="True"),)), None) is None


@given(st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.tuples(LABEL_VALUES, LABEL_VALUES)))
def test_any_labels_make_a_tree_in_which_every_node_stands_once(found: dict[str, tuple[str, str]]) -> None:
    nodes = {name: {"a": one, "b": other} for name, (one, other) in found.items()}
    text = topology_conf(Topology(kind="tree", labels=("a", "b")), nodes)
    names = re.findall(r"^SwitchName=(\S+) ", text, re.MULTILINE)

    assert len(names) == len(set(names))
    assert all(
        re.fullmatch(r"(SwitchName=[\w.-]+ (Nodes|Switches)=\S+|#.*)", line) for line in text.splitlines()
    )


def test_a_resource_that_is_no_whole_number_counts_what_is_whole() -> None:
    odd = node(allocatable={"x/y": "2500m"})

    assert "Count=2" in gres_conf((Gres(resource="x/y", name="y"),), ("none",), {"n1": odd})
