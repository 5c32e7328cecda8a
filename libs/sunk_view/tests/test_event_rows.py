"""Facts as rows, and where a reader stands."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events import subjects
from sunk_events.base import REASON_MAX, Event
from sunk_events.codec import encode
from sunk_events.jobs import JobSnapshot, JobStarted
from sunk_events.locks import LockPending, LockSnapshot
from sunk_events.placements import PlacementBound, PlacementSnapshot
from sunk_events.view import HIDDEN, EventRow, Events
from sunk_view.event_rows import Position, Stored, read, row_of, written
from sunk_view.facts import next_span
from sunk_view.hiding import hidden, namespaces_in, without

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def of_team_a(namespace: str) -> bool:
    return namespace == "team-a"


def row(event: Event) -> EventRow | None:
    subject = subjects.fact("c1", event)
    return row_of("c1", Stored(subject=subject, data=encode(event), sequence=7, moment=T0))


def started(name: str, nodes: str = "d1") -> JobStarted:
    job = JobSnapshot(job=11, state="RUNNING", name=name, user="ada", nodes=nodes)
    return JobStarted(id="j", source="/c1/syncer", subject="11", time=T0, data=job)


def bound(namespace: str) -> PlacementBound:
    data = PlacementSnapshot(uid="u", namespace=namespace, pod="secret", job=11, reason="for secret")
    return PlacementBound(id="b", source="/c1/pod-scheduler", subject="u", time=T0, data=data)


def test_a_row_says_each_thing_once() -> None:
    assert row(started("train")) == EventRow(
        cluster="c1",
        sequence=7,
        time=T0,
        about="slurm.job",
        name="11",
        what="started",
        details=("state RUNNING", "name train", "user ada", "nodes d1"),
    )


def test_of_another_teams_pod_nothing_is_left_but_that_there_is_one() -> None:
    lock = LockSnapshot(
        node="d1", kube_node="n", lock="pending", in_the_way=("team-b/secret", "team-a/web", "team-c/secret")
    )
    pending = LockPending(id="l", source="/c1/nodeset-controller", subject="d1", time=T0, data=lock)
    rows = tuple(one for event in (bound("team-b"), started("team-b/secret"), pending) if (one := row(event)))
    events = Events(items=rows, after="c1.1.1")

    assert namespaces_in(events) == {"team-a", "team-b", "team-c"}
    shown = without(events, of_team_a).items
    assert "secret" not in repr(shown)
    assert (shown[0].name, shown[0].namespace, shown[0].details) == (HIDDEN, "", ())
    assert f"name {HIDDEN}" in shown[1].details
    assert f"in the way {HIDDEN}, team-a/web, {HIDDEN}" in shown[2].details
    assert without(events, lambda _: True) == events


def test_a_text_of_any_length_is_cut_and_then_ends_in_no_half_of_a_name() -> None:
    found = row(started("x", nodes="team-b/" + "n" * 100_000))

    assert found is not None
    assert max(map(len, found.details)) == REASON_MAX
    assert "nnn" not in "".join(hidden(one, of_team_a) for one in found.details)


@pytest.mark.parametrize(
    "subject", ["sunk.ev.c1.slurm.node.d1", "sunk.rpc.c1.slurm.node.d1.drained", "x", "sunk.ev.c1.a.b.=FF.c"]
)
def test_what_is_on_no_facts_subject_is_no_row(subject: str) -> None:
    assert row_of("c1", Stored(subject=subject, data=b"{}", sequence=1, moment=T0)) is None


@given(st.dictionaries(st.sampled_from(["c1", "c-2"]), st.integers(0, 10**18), min_size=1))
def test_a_position_is_read_as_it_was_written(sequences: dict[str, int]) -> None:
    positions = {name: Position(created=1, sequence=number) for name, number in sequences.items()}

    assert read(written(positions), ["c1", "c-2"]) == positions
    assert read(written(positions), []) == {}


@given(st.text(max_size=60))
def test_any_other_text_is_no_position(text: str) -> None:
    try:
        found = read(text, ["c1"])
    except ValueError:
        return
    assert set(found) <= {"c1"}


@pytest.mark.parametrize(
    ("span", "looked", "wanted"),
    [
        pytest.param(32, 0, 256, id="nothing was there: much wider"),
        pytest.param(256, 50, 256, id="as many as one go reads"),
        pytest.param(256, 200, 64, id="too many: narrower"),
        pytest.param(64, 64, 50, id="all of them wanted"),
        pytest.param(32, 64, 32, id="never narrower than the first"),
    ],
)
def test_the_next_look_back_is_as_wide_as_one_go_can_read(span: int, looked: int, wanted: int) -> None:
    assert next_span(span, looked) == wanted
