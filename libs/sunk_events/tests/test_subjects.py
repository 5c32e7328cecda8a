from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events import subjects
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.dead import DeadLetter, DeadMessage
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import AcquireLock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def drained(node: str) -> NodeDrained:
    return NodeDrained(
        id="1", source="/c1/syncer", subject=node, time=NOW, data=NodeSnapshot(node=node, state="IDLE")
    )


def test_a_dotted_node_name_stays_one_token() -> None:
    assert subjects.fact("c1", drained("ip-10.ec2")) == "sunk.ev.c1.slurm.node.ip-10=2Eec2.drained"


def test_subscribing_to_one_kind_of_fact_matches_where_it_is_published() -> None:
    assert subjects.facts("c1", NodeDrained) == "sunk.ev.c1.slurm.node.*.drained"


def test_a_question_names_its_entity() -> None:
    ask = AcquireLock(node="gpu-000-012", job=7, level="normal", deadline=NOW)

    assert subjects.question("c1", ask) == "sunk.rpc.c1.lock.node.gpu-000-012.acquire"
    assert subjects.questions("c1", AcquireLock) == "sunk.rpc.c1.lock.node.*.acquire"


def test_a_dead_letter_is_no_fact() -> None:
    letter = DeadLetter(
        id="1",
        source="/c1/syncer",
        subject="kube_pod.x",
        time=NOW,
        data=DeadMessage(on="a", reason="b", payload=b""),
    )

    assert subjects.fact("c1", letter) == "sunk.dlq.c1.syncer.message.kube_pod=2Ex"


@given(st.text(min_size=1, max_size=253))
def test_every_name_survives_the_trip_through_a_key(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    bucket = subjects.bucket("c1", SlurmNodeState)
    subject = subjects.key_subject(bucket, name)

    assert subjects.key_of(bucket, subject) == name
    assert subject.count(".") == 2
    assert not set(subject) & set(" *>\t\r\n")


def test_no_two_kinds_of_fact_share_a_subject() -> None:
    places = [subjects.facts("c1", kind) for kind in EVENTS if kind is not DeadLetter]

    assert len(places) == len(set(places)) == len(EVENTS) - 1


def test_no_two_kinds_of_state_share_a_bucket() -> None:
    assert len({subjects.bucket("c1", kind) for kind in STATES}) == len(STATES)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_no_stream_can_capture_a_question(kind: type) -> None:
    assert subjects.questions("c1", kind).startswith("sunk.rpc.c1.")
