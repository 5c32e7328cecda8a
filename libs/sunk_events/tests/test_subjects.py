import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events import subjects
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.dead import DeadLetter, DeadMessage
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState, SlurmReservationState
from sunk_events.requests import AcquireLock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def drained(node: str) -> NodeDrained:
    return NodeDrained(
        id="1", source="/c1/syncer", subject=node, time=NOW, data=NodeSnapshot(node=node, state="IDLE")
    )


def letter(about: str) -> DeadLetter:
    data = DeadMessage(on=about, reason="b", payload=b"")
    return DeadLetter(id="1", source="/c1/syncer", subject=about, time=NOW, data=data)


def test_a_dotted_node_name_stays_one_token() -> None:
    assert subjects.fact("c1", drained("ip-10.ec2")) == "sunk.ev.c1.slurm.node.ip-10=2Eec2.drained"


def test_subscribing_to_one_kind_of_fact_matches_where_it_is_published() -> None:
    assert subjects.facts("c1", NodeDrained) == "sunk.ev.c1.slurm.node.*.drained"


def test_a_question_names_its_entity() -> None:
    ask = AcquireLock(node="gpu-000-012", job=7, level="normal", deadline=NOW)

    assert subjects.question("c1", ask) == "sunk.rpc.c1.lock.node.gpu-000-012.acquire"
    assert subjects.questions("c1", AcquireLock) == "sunk.rpc.c1.lock.node.*.acquire"


def test_a_dead_letter_is_no_fact() -> None:
    assert subjects.fact("c1", letter("kube_pod.x")) == "sunk.dlq.c1.syncer.message.kube_pod=2Ex"


hostile = st.sampled_from(".=*> \t\r\n$_-/%A2Eé日\U0001f600")
names = st.text(min_size=1, max_size=253) | st.text(hostile, min_size=1, max_size=253)


@given(names)
def test_every_name_survives_the_trip_through_a_subject_and_a_key(name: str) -> None:
    bucket = subjects.bucket("c1", SlurmNodeState)
    subject = subjects.key_subject(bucket, name)

    assert subjects.from_token(subjects.token(name)) == name
    assert subjects.key_of(bucket, subject) == name


@given(names)
def test_every_name_is_one_token_and_a_key_that_nats_allows(name: str) -> None:
    assert re.fullmatch(r"[-/_=.a-zA-Z0-9]+", subjects.token(name))
    assert subjects.fact("c1", drained(name)).count(".") == subjects.facts("c1", NodeDrained).count(".")
    assert subjects.misfit(subjects.fact("c1", drained(name)), drained(name)) is None


@given(names, st.data())
def test_two_names_never_meet_in_one_subject(name: str, data: st.DataObject) -> None:
    other = data.draw(names | st.just(subjects.token(name)) | st.just(name.swapcase()) | st.just(name + "="))

    assert (subjects.token(name) == subjects.token(other)) == (name == other)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        pytest.param("n" * 253, 253, id="plain"),
        pytest.param("." * 253, 759, id="dots"),
        pytest.param("\U0001f600" * 253, 3036, id="four bytes each"),
    ],
)
def test_the_longest_name_still_fits_the_line_that_a_server_takes(name: str, length: int) -> None:
    longest = "c" * 40
    bucket = subjects.bucket(longest, SlurmReservationState)

    assert len(subjects.token(name)) == length
    assert len(subjects.key_subject(bucket, name)) < 4096 - 256
    assert len(subjects.fact(longest, drained(name))) < 4096 - 256


@given(names)
def test_a_dead_letter_about_a_long_subject_has_a_subject_that_fits(name: str) -> None:
    one, other = letter(subjects.fact("c1", drained(name))), letter(subjects.fact("c1", drained(name + "n")))

    assert len(subjects.fact("c1", one)) < 1200
    assert subjects.fact("c1", one) != subjects.fact("c1", other)


def test_an_empty_name_is_refused_before_the_server_sees_it() -> None:
    with pytest.raises(ValueError, match="empty name"):
        subjects.token("")


def test_no_two_kinds_of_fact_share_a_subject() -> None:
    places = [subjects.facts("c1", kind) for kind in EVENTS if kind is not DeadLetter]

    assert len(places) == len(set(places)) == len(EVENTS) - 1


def test_no_two_kinds_of_state_share_a_bucket() -> None:
    assert len({subjects.bucket("c1", kind) for kind in STATES}) == len(STATES)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_no_stream_can_capture_a_question(kind: type) -> None:
    assert subjects.questions("c1", kind).startswith("sunk.rpc.c1.")
