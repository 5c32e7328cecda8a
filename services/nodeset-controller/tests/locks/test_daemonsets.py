"""Which daemons a lock ends is known before it does."""

import json
from typing import Any

import msgspec
import pytest

from sunk_nodeset_controller.locks.daemonsets import DaemonSet, driven_out
from sunk_nodeset_controller.locks.model import Clearing, LockTaint
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy

KEY = LockTaint().key
EVICTING = LockTaint(effect="NoSchedule")


def daemon(name: str, *tolerations: dict[str, str], priority: str = "") -> DaemonSet:
    """A DaemonSet as the API server tells of it."""
    told: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": {"tolerations": tolerations, "priorityClassName": priority}}},
    }
    return msgspec.json.decode(json.dumps(told), type=DaemonSet)


BARE = daemon("bare")
DAEMONS = (
    BARE,
    daemon("bears", {"key": KEY, "operator": "Exists"}),
    daemon("bears everything", {"operator": "Exists"}),
    daemon("bears another", {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}),
)


def test_daemons_whose_template_does_not_tolerate_the_lock_are_named() -> None:
    assert driven_out(DAEMONS, EvictionPolicy()) == ["kube-system/bare", "kube-system/bears another"]


@pytest.mark.parametrize(
    ("clearing", "found"),
    [
        pytest.param(Clearing(), [], id="daemons are exempt"),
        pytest.param(Clearing(are_daemons_exempt=False), ["kube-system/bare"], id="they are not"),
        pytest.param(
            Clearing(are_daemons_exempt=False, exempt_namespaces=frozenset({"kube-system"})),
            [],
            id="their namespace is",
        ),
    ],
)
def test_where_we_evict_the_check_knows_who_is_exempt(clearing: Clearing, found: list[str]) -> None:
    assert driven_out([BARE], EvictionPolicy(EVICTING, clearing)) == found
