import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_nodeset_controller.nodesets.naming import octets, pod_name, short_hash


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("10.174.12.2", "012-002", id="the documents' own example"),
        pytest.param("10.0.255.255", "255-255", id="the last"),
        pytest.param("", None, id="no address"),
        pytest.param("fd00::1", None, id="IPv6"),
        pytest.param("10.0.0", None, id="half an address"),
        pytest.param("10.0.0.999", None, id="no octet"),
    ],
)
def test_the_suffix_is_the_last_two_octets_padded(address: str, expected: str | None) -> None:
    assert octets(address) == expected


def test_a_node_without_a_usable_address_is_named_by_its_hash() -> None:
    assert pod_name("gpu", "node1", "fd00::1", ()) == f"gpu-{short_hash('node1')}"


def test_a_taken_name_is_left_to_who_has_it() -> None:
    assert pod_name("gpu", "node1", "10.1.0.12", {"gpu-000-012"}) == f"gpu-{short_hash('node1')}"


@given(st.text(max_size=40), st.text(max_size=15))
def test_a_name_is_the_same_each_time_and_a_label(kube_node: str, address: str) -> None:
    name = pod_name("gpu", kube_node, address, ())

    assert name == pod_name("gpu", kube_node, address, ())
    assert name.isascii()
    assert len(name) <= 63
