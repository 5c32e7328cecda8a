from datetime import timedelta

import pytest

from sunk_pod_scheduler.podspec.scopes import (
    ALIAS,
    ALIAS_KEPT,
    SILENT,
    Peer,
    PodScope,
    Share,
    look_again_s,
    share,
)
from sunk_pod_scheduler.testing.builders import T0

OURS = PodScope(cluster="b", names=("b-slurm", ALIAS))
SECOND = timedelta(seconds=1)


def peer(cluster: str = "a", *, holder: str = "a-0") -> Peer:
    scope = PodScope(cluster=cluster, names=(f"{cluster}-slurm", ALIAS))
    return Peer(lease=f"{cluster}/sunk", pod_scope=scope, holder=holder, renewed=T0)


@pytest.mark.parametrize(
    ("holder", "after", "is_ceded"),
    [
        pytest.param("a-0", timedelta(), True, id="it leads"),
        pytest.param("a-0", ALIAS_KEPT - SECOND, True, id="the API server was away for minutes"),
        pytest.param("a-0", ALIAS_KEPT, False, id="it is gone"),
        pytest.param("", ALIAS_KEPT - SECOND, True, id="its next replica waits for a Node"),
        pytest.param("", ALIAS_KEPT, False, id="it was uninstalled"),
        pytest.param("a-0", -SILENT, False, id="it was renewed in the future, and would have it for ever"),
    ],
)
def test_the_common_name_is_another_schedulers_until_that_is_gone(
    holder: str, after: timedelta, *, is_ceded: bool
) -> None:
    ceded, had = Share(names=("b-slurm",), ceded="a"), Share(names=OURS.names)

    assert share(OURS, [peer(holder=holder)], T0 + after) == (ceded if is_ceded else had)


def test_schedulers_that_cede_to_each_other_look_again_one_after_the_other_by_their_clusters_names() -> None:
    names = ["a", "b", "c"]
    turns = [
        look_again_s(
            PodScope(cluster=name, names=(ALIAS,)), [peer(one) for one in names if one != name], T0, 30.0
        )
        for name in names
    ]

    assert turns == [30.0, 60.0, 90.0]
