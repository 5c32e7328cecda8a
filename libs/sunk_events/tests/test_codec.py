from datetime import UTC, datetime

import pytest

from sunk_events.codec import (
    MAX_BYTES,
    OversizeError,
    UndecodableError,
    decode_event,
    decode_fact,
    decode_reply,
    decode_request,
    decode_state,
    encode,
)
from sunk_events.jobs import JobSnapshot, JobStarted, SlurmJobState
from sunk_events.nodes import NodeDown, NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import ConfirmNode, Later, NudgeNode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_fact_is_what_it_was_after_the_trip() -> None:
    event = JobStarted(
        id="1", source="/c1/syncer", subject="7", time=NOW, data=JobSnapshot(job=7, state="RUNNING")
    )

    assert decode_event(encode(event)) == event


def test_a_field_that_a_newer_writer_added_is_ignored() -> None:
    data = encode(NudgeNode(node="n1")).replace(b'"node"', b'"new":[1],"node"')

    assert decode_request(NudgeNode, data) == NudgeNode(node="n1")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "not a JSON object", id="empty"),
        pytest.param(b"\xff\xfe", "not a JSON object", id="not text"),
        pytest.param(b"[1]", "not a JSON object", id="not an object"),
        pytest.param(b"{}", "`type` is missing", id="no type"),
        pytest.param(b'{"type":"sunk.syncer.v9.new"}', "unknown type 'sunk.syncer.v9.new'", id="unknown"),
        pytest.param(
            b'{"type":"sunk.syncer.v2.slurm_node"}',
            r"slurm_node: version 2 is unknown here, this reads version 1: upgrade this consumer",
            id="a newer version",
        ),
        pytest.param(
            b'{"type":"sunk.syncer.v0.slurm_node"}',
            "version 0 .*: upgrade what sent it",
            id="an older version",
        ),
        pytest.param(
            b'{"type":"sunk.syncer.v1.node_drained"}',
            "kind fact, expected kind state",
            id="a fact",
        ),
        pytest.param(b'{"type":"sunk.syncer.v1.slurm_node","node":7}', "node", id="a field of a wrong type"),
        pytest.param(b" " * (MAX_BYTES + 1), "bytes", id="too large"),
    ],
)
def test_what_is_no_state_says_why(data: bytes, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        decode_state(SlurmNodeState, data)


def test_a_state_of_another_bucket_is_refused() -> None:
    with pytest.raises(UndecodableError, match=r"expected sunk.syncer.v1.slurm_job"):
        decode_state(SlurmJobState, encode(SlurmNodeState(node="n1", state="IDLE", changed=NOW)))


def test_a_question_of_another_kind_is_refused() -> None:
    with pytest.raises(UndecodableError, match=r"expected sunk.request.v1.confirm_node"):
        decode_request(ConfirmNode, encode(NudgeNode(node="n1")))


def test_later_answers_any_question() -> None:
    assert decode_reply(encode(Later(reason="views incomplete"))) == Later(reason="views incomplete")


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(OversizeError, match=r"slurm_node of \d+ bytes: at most 262144"):
        encode(SlurmNodeState(node="n1", state="IDLE", changed=NOW, extra="x" * MAX_BYTES))


def node_fact(kind: type[NodeDrained | NodeDown], node: str = "n1", source: str = "/c1/syncer") -> bytes:
    data = NodeSnapshot(node=node, state="IDLE")
    return encode(kind(id="1", source=source, subject=node, time=NOW, data=data))


DRAINED = "sunk.ev.c1.slurm.node.n1.drained"


def test_a_fact_is_read_where_it_belongs() -> None:
    assert decode_fact(DRAINED, node_fact(NodeDrained)) == decode_event(node_fact(NodeDrained))


@pytest.mark.parametrize(
    ("subject", "data", "why"),
    [
        pytest.param(
            DRAINED,
            node_fact(NodeDown),
            r"node_down: came on \S+n1\.drained, belongs on \S+n1\.down",
            id="another type's subject",
        ),
        pytest.param(DRAINED, node_fact(NodeDrained, "n2"), r"belongs on \S+n2\.drained", id="other node"),
        pytest.param(
            DRAINED,
            node_fact(NodeDrained, source="/c2/syncer"),
            "is of cluster c2, its subject",
            id="cluster",
        ),
        pytest.param(DRAINED, node_fact(NodeDrained, source="syncer"), "is not /<cluster>", id="source"),
        pytest.param("", node_fact(NodeDrained), "is of cluster c1", id="no subject"),
        pytest.param(
            DRAINED,
            node_fact(NodeDrained).replace(b".v1.", b".v2."),
            r"sunk\.syncer\.v2\.node_drained: version 2 is unknown here, this reads version 1",
            id="a newer version",
        ),
    ],
)
def test_a_fact_where_it_does_not_belong_says_why(subject: str, data: bytes, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        decode_fact(subject, data)
