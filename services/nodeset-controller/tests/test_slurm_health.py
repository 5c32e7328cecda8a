from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_kube import wellknown as wk
from sunk_kube.objects import Condition, condition
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, node, pod
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.metadata import patch
from sunk_nodeset_controller.nodes.conditions import marks as node_marks
from sunk_nodeset_controller.pods.conditions import forgotten, marks, unknown
from sunk_nodeset_controller.slurm_health import MissingTracker, SlurmHealth, missing, was_known
from sunk_runtime.jetstream import Bus
from sunk_runtime.views import StateView

STALE_S, UNKNOWN_S = 60.0, 600.0


def view(kind: type[Any]) -> StateView[Any]:
    """A view that nothing feeds but the test."""
    made: StateView[Any] = StateView(cast("Bus", SimpleNamespace()), "lab", kind)
    set_complete(made, is_complete=True)
    return made


def set_complete(view: StateView[Any], *, is_complete: bool) -> None:
    """Make *view* as if it was read whole, or is in doubt."""
    view._set_complete(is_complete=is_complete)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def at(at_s: float) -> datetime:
    return T0 + timedelta(seconds=at_s)


class Bench:
    """An ear, and what it listens to."""

    def __init__(self) -> None:
        self.nodes = view(SlurmNodeState)
        self.statistics = view(SlurmStatisticsState)
        self.slurm_health = SlurmHealth(T0, stale_s=STALE_S, unknown_s=UNKNOWN_S)
        self.slurm_health.attach(self.nodes, self.statistics)

    def speaks(self, revision: int, at_s: float) -> None:
        state = SlurmStatisticsState(changed=T0 + timedelta(hours=1))  # Its clock is off.
        self.statistics.apply_own("scheduler", state, revision, stored=T0 + timedelta(seconds=at_s))

    def doubts(self, at_s: float) -> str:
        found = self.slurm_health.doubt(T0 + timedelta(seconds=at_s))
        return found.reason if found else ""

    def is_unknown(self, at_s: float) -> bool:
        return self.slurm_health.is_unknown(T0 + timedelta(seconds=at_s))


def test_silence_is_doubted_first_and_makes_unknown_only_later() -> None:
    bench = Bench()
    bench.speaks(1, 0)

    assert (bench.doubts(59), bench.is_unknown(59)) == ("", False)
    assert (bench.doubts(61), bench.is_unknown(61)) == ("NoNewsFromSlurm", False)
    assert (bench.doubts(601), bench.is_unknown(601)) == ("NoNewsFromSlurm", True)
    bench.speaks(2, 650)
    assert (bench.doubts(651), bench.is_unknown(651)) == ("", False)


def test_what_is_said_counts_from_when_it_arrives_whatever_the_speakers_clock_says() -> None:
    bench = Bench()
    bench.speaks(1, 0)
    assert not bench.doubts(1)
    bench.speaks(2, -7200)
    assert not bench.doubts(40)
    assert not bench.doubts(90)
    assert bench.doubts(101) == "NoNewsFromSlurm"


def test_old_words_are_old_after_a_restart_and_a_clock_ahead_is_not_believed() -> None:
    old, ahead = Bench(), Bench()
    old.speaks(7, -1000)
    ahead.speaks(7, 7200)

    assert old.is_unknown(1)
    assert not ahead.doubts(1)
    assert ahead.doubts(62) == "NoNewsFromSlurm"


def test_words_that_came_back_with_an_older_store_are_as_old_as_they_were_then() -> None:
    bench = Bench()
    bench.speaks(100, 0)
    assert bench.doubts(200) == "NoNewsFromSlurm"

    bench.statistics.correct("scheduler", SlurmStatisticsState(changed=T0), 40, stored=at(-3600))
    assert (bench.doubts(201), bench.is_unknown(201)) == ("NoNewsFromSlurm", True)
    bench.speaks(41, 202)

    assert (bench.doubts(202), bench.is_unknown(202)) == ("", False)


def test_words_of_a_bucket_in_doubt_are_neither_new_nor_old() -> None:
    bench = Bench()
    bench.speaks(100, 0)
    assert not bench.doubts(1)
    statistics = bench.statistics

    set_complete(statistics, is_complete=False)
    statistics.correct("scheduler", SlurmStatisticsState(changed=T0), 40, stored=at(-3600))
    assert (bench.doubts(30), bench.is_unknown(30)) == ("", False)
    bench.speaks(41, 31)
    set_complete(statistics, is_complete=True)

    assert (bench.doubts(80), bench.is_unknown(80)) == ("", False)


def test_a_bus_that_was_never_reached_is_said() -> None:
    slurm_health = SlurmHealth(T0, stale_s=STALE_S, unknown_s=UNKNOWN_S)

    assert slurm_health.doubt(T0 + timedelta(seconds=9)) is None
    found = slurm_health.doubt(T0 + timedelta(seconds=11))
    assert found is not None
    assert found.reason == "NoNewsFromBus"
    assert slurm_health.nodes is None


def known(name: str, *, running: str = "False") -> Pod:
    return pod(name, conditions=(Condition(type=wk.CONDITION_SLURM_RUNNING, status=running),))


@pytest.mark.parametrize(
    ("here", "pods", "is_alarm"),
    [
        (0, [known(f"n{number}") for number in range(4)], True),
        (1, [known(f"n{number}") for number in range(4)], True),
        (2, [known(f"n{number}") for number in range(4)], False),
        (0, [known("n0")], True),
        (0, [pod("new")], False),
        (0, [replace(known("n0"), metadata=replace(known("n0").metadata, deletion_timestamp=T0))], False),
        (0, [], False),
    ],
    ids=["none", "far fewer", "half", "the only one", "never known", "on its way out", "no Pods"],
)
def test_nodes_that_slurm_suddenly_does_not_know_are_an_alarm(
    here: int, pods: list[Pod], *, is_alarm: bool
) -> None:
    nodes = view(SlurmNodeState)
    for number in range(here):
        name = f"n{number}"
        nodes.apply_own(name, SlurmNodeState(changed=T0, node=name, state="IDLE"), number + 1)
    found = missing(pods, nodes)

    assert (found is not None) is is_alarm
    assert missing(pods, None) is None


def test_what_was_not_heard_for_long_is_unknown_and_its_drain_not_lifted() -> None:
    drained = SlurmNodeState(changed=T0, node="n", state="IDLE", is_drain=True, reason="bad dimm")
    bears = marks(drained)
    annotations = {name: value for name, value in bears.annotations.items() if value is not None}
    body = patch(pod("n").metadata, bears.conditions, unknown(), T0)
    faded = pod("n", annotations=annotations, conditions=unknown().conditions)
    on_node = node_marks(node(), faded, is_wanted=True)

    assert body is not None
    assert {one["status"] for one in body["status"]["conditions"]} == {"Unknown"}
    assert "annotations" not in body.get("metadata", {})
    assert wk.ANNOTATION_DRAIN not in on_node.annotations
    cordon = condition(on_node.conditions, wk.CONDITION_SLURM_CORDON)
    assert cordon is not None
    assert cordon.status == "Unknown"
    assert patch(faded.metadata, faded.status.conditions, unknown(), T0) is None


def test_a_node_that_slurm_has_not_known_for_long_is_unknown_and_no_longer_known() -> None:
    clock = [0.0]
    absent = MissingTracker(600.0, lambda: clock[0])
    drained = SlurmNodeState(changed=T0, node="n", state="IDLE", is_drain=True, reason="bad dimm")
    bears = marks(drained)
    annotations = {name: value for name, value in bears.annotations.items() if value is not None}
    body = patch(pod("n", annotations=annotations).metadata, bears.conditions, forgotten(), T0)

    assert (absent.is_long("n"), absent.again_s("n"), absent.again_s("other")) == (False, 600.0, None)
    clock[0] = 600.0
    assert absent.is_long("n")
    assert body is not None
    assert body["metadata"]["annotations"] == {wk.ANNOTATION_DRAIN: None}
    assert was_known(pod("n", conditions=unknown().conditions))
    assert not was_known(pod("n", conditions=forgotten().conditions))


def test_no_object_is_written_twice_in_a_second() -> None:
    clock = [100.0]
    rest = RateLimit(1.0, lambda: clock[0])
    rest.begin("a")
    clock[0] = 100.4
    rest.begin("b")

    assert rest.left_s("a") == pytest.approx(0.6)
    assert rest.left_s("b") == 1.0
    assert rest.left_s("c") == 0.0
    clock[0] = 101.2
    rest.begin("c")
    assert rest.left_s("a") == 0.0
    assert rest.left_s("b") == pytest.approx(0.2)
