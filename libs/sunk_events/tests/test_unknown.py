from datetime import UTC, datetime

import pytest

from sunk_events.codec import MAX_BYTES, UndecodableError, encode
from sunk_events.nodes import NodeDrained, NodeSnapshot
from sunk_events.unknown import UnknownEvent, read_fact

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECT = "sunk.ev.c1.slurm.node.n1.drained"
DRAINED = NodeDrained(
    id="1", source="/c1/syncer", subject="n1", time=NOW, data=NodeSnapshot(node="n1", state="IDLE")
)


def newer(data: str) -> bytes:
    return (
        '{"type":"sunk.syncer.v9.melted","id":"7","source":"/c1/syncer","subject":"n1",'
        f'"time":"2026-01-01T00:00:00Z","data":{data}}}'
    ).encode()


def test_a_fact_of_a_known_type_is_of_that_type_and_says_so() -> None:
    assert read_fact(SUBJECT, encode(DRAINED)) == DRAINED
    assert DRAINED.type == "sunk.syncer.v1.node_drained"


def test_of_a_newer_type_all_is_there_that_facts_share() -> None:
    fact = read_fact("sunk.ev.c1.slurm.node.n1.melted", newer('{"degrees":900}'))

    expected = UnknownEvent(
        name="sunk.syncer.v9.melted",
        id="7",
        source="/c1/syncer",
        subject="n1",
        time=NOW,
        data={"degrees": 900},
    )
    assert fact == expected
    assert fact.type == "sunk.syncer.v9.melted"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"{}", "`type` is missing", id="no type"),
        pytest.param(b"\xff", "not a JSON object", id="no text"),
        pytest.param(b'{"type":"sunk.x.v9.y"}', "field `id`", id="a newer type without an id"),
        pytest.param(newer("1").replace(b"/c1/", b"/c2/"), "not of cluster c1", id="another cluster's"),
        pytest.param(newer(f'"{"x" * MAX_BYTES}"'), "at most", id="too large"),
        pytest.param(newer("[" * 100_000 + "]" * 100_000), "not a JSON object", id="nested too deep"),
        pytest.param(encode(DRAINED).replace(b'"n1"', b"7"), "node_drained", id="a field of a wrong type"),
        pytest.param(b'{"type":"sunk.syncer.v1.slurm_node"}', "expected kind fact", id="a state"),
    ],
)
def test_what_is_no_fact_says_why(data: bytes, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        read_fact(SUBJECT, data)
