"""What sunk-bus makes of what people type, and of what the bus holds: values alone."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import ClusterInfo, StreamConfig, StreamInfo, StreamState

from sunk_bus import letters, patterns, states
from sunk_bus.facts import Line, json_of, line_of, text_of
from sunk_bus.health import LeaseRow, StreamRow, lease_row
from sunk_bus.letters import Letter, Plan, Refusal, Replay
from sunk_bus.patterns import Pattern, Place
from sunk_bus.reading import Record
from sunk_bus.states import Bucket, Row
from sunk_bus.streams import stream_row
from sunk_bus.words import age, safe, seconds, size
from sunk_events import subjects
from sunk_events.base import Event, State
from sunk_events.catalog import EVENTS, REQUESTS, STATES
from sunk_events.codec import encode
from sunk_events.dead import DeadLetter, DeadMessage
from sunk_events.locks import LockPending, LockSnapshot, LockState
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_runtime.errors import ConfigError, PermanentError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = Bucket("c1", "slurm_node", SlurmNodeState)
ON = subjects.facts("c1", NodeDrained).replace("*", "gpu-1")


def record(subject: str, data: bytes, seq: int = 7, headers: Mapping[str, str] | None = None) -> Record:
    return Record(subject, data, seq, NOW, headers or {})


def drained(node: str = "gpu-1") -> NodeDrained:
    data = NodeSnapshot(node=node, state="IDLE", flags=("DRAIN",), reason="k8s: cordon: fan")
    return NodeDrained(id="d1", source="/c1/syncer", subject=node, time=NOW, data=data)


def letter(
    seq: int = 1, *, on: str = ON, payload: bytes = b"{}", by: str = "syncer", is_cut: bool = False
) -> Letter:
    data = DeadMessage(on=on, reason="because", payload=payload, is_cut=is_cut)
    event = DeadLetter(id=f"{by}:{on}:{seq}", source=f"/c1/{by}", subject=on, time=NOW, data=data)
    return Letter(seq, NOW, event)


@pytest.mark.parametrize(
    ("typed", "filter_subject"),
    [
        pytest.param("", "sunk.ev.c1.>", id="nothing is everything"),
        pytest.param("lock", "sunk.ev.c1.lock.>", id="a system"),
        pytest.param("slurm.node", "sunk.ev.c1.slurm.node.>", id="a kind"),
        pytest.param("slurm.node.*", "sunk.ev.c1.slurm.node.>", id="a kind with a star"),
        pytest.param("slurm.node.gpu-1", "sunk.ev.c1.slurm.node.gpu-1.*", id="a kind and a name"),
        pytest.param("slurm.node.*.drained", "sunk.ev.c1.slurm.node.*.drained", id="any name, one word"),
        pytest.param("slurm.node.a.b.drained", "sunk.ev.c1.slurm.node.a=2Eb.drained", id="a name with a dot"),
        pytest.param("slurm.node.a=2Eb", "sunk.ev.c1.slurm.node.a=2Eb.*", id="a name copied from a subject"),
        pytest.param("job.17", "sunk.ev.c1.*.job.17.*", id="a kind by its last name"),
        pytest.param("drained", "sunk.ev.c1.*.*.*.drained", id="a word"),
        pytest.param("ip-10.ec2", "sunk.ev.c1.*.*.ip-10=2Eec2.*", id="a name"),
        pytest.param("gpu-*", "sunk.ev.c1.*.*.*.*", id="a glob on names is ours to match"),
        pytest.param("sunk.ev.>", "sunk.ev.c1.>", id="a whole subject of every cluster"),
        pytest.param("sunk.ev.c1.lock.>", "sunk.ev.c1.lock.>", id="a whole subject"),
        pytest.param("dead", "sunk.dlq.c1.>", id="dead letters"),
        pytest.param("sunk.dlq.c1.syncer.>", "sunk.dlq.c1.syncer.>", id="dead letters of one service"),
    ],
)
def test_a_subject_is_understood_as_people_type_it(typed: str, filter_subject: str) -> None:
    assert patterns.parse(typed).filter_for("c1") == filter_subject


@pytest.mark.parametrize("typed", ["slurm.nodes", "kube.job.x", "sunk.foo", "gpu 1"])
def test_a_wrong_subject_says_what_there_is(typed: str) -> None:
    with pytest.raises(ConfigError, match=r"there are slurm\.node, .* the words registered, "):
        patterns.parse(typed)


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind is not DeadLetter])
def test_every_fact_of_the_contract_can_be_asked_for_by_the_short_form_of_its_subject(
    kind: type[Event],
) -> None:
    short = subjects.facts("c1", kind).removeprefix("sunk.ev.c1.")

    assert patterns.parse(short) == Pattern(rest=short)


@given(st.text(min_size=1, max_size=40))
def test_an_entity_of_any_name_is_read_back_from_its_subject(name: str) -> None:
    subject = f"sunk.ev.c1.slurm.node.{subjects.token(name)}.drained"

    assert patterns.place_of(subject) == Place("c1", "slurm.node", name, "drained")


@given(st.text(max_size=60))
def test_no_text_from_the_bus_can_steer_a_terminal_or_break_a_line(text: str) -> None:
    assert safe(text).isprintable()


def test_a_fact_is_a_line_with_the_words_that_matter() -> None:
    line = line_of(record(ON, encode(drained())))

    assert line == Line(NOW, "c1", "slurm.node gpu-1", "drained", "IDLE+DRAIN  k8s: cordon: fan")
    assert text_of(line).plain == (
        "01-01 12:00:00.000  slurm.node gpu-1                    drained       IDLE+DRAIN  k8s: cordon: fan"
    )
    assert text_of(line, has_cluster=True).plain.startswith("01-01 12:00:00.000  c1  slurm.node gpu-1")


def test_a_lock_that_waits_names_the_jobs_and_the_pods_in_its_way() -> None:
    data = LockSnapshot(
        node="gpu-1", kube_node="k1", lock="pending", jobs=(17,), in_the_way=("default/web", "default/db")
    )
    event = LockPending(id="l1", source="/c1/nodeset-controller", subject="gpu-1", time=NOW, data=data)

    line = line_of(record(subjects.fact("c1", event), encode(event)))

    assert line.words == "kube node k1  lock pending  jobs 17  in the way: default/web, default/db"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(
            b'{"type":"sunk.syncer.v2.node_moved","data":{"rack":3}}',
            'sunk.syncer.v2.node_moved: {"rack":3}',
            id="a newer type",
        ),
        pytest.param(b"\x1b[31m", "unreadable: b'\\x1b[31m'", id="no JSON"),
        pytest.param(b'"text"', "unreadable: b'\"text\"'", id="no object"),
    ],
)
def test_a_fact_that_this_version_cannot_read_is_shown_as_it_came(data: bytes, words: str) -> None:
    assert line_of(record(ON, data)) == Line(NOW, "c1", "slurm.node gpu-1", "drained", words)


def test_a_raw_line_is_one_line_of_json_whatever_was_published() -> None:
    assert json_of(record(ON, b'{\n "a": 1.50\n}')) == '{"a":1.50}'
    assert json_of(record(ON, b"\xff")) == f'{{"subject":"{ON}","payload":"/w=="}}'


def test_a_node_is_a_row_of_what_matters() -> None:
    state = SlurmNodeState(
        changed=NOW - timedelta(minutes=5),
        node="gpu-1",
        state="IDLE",
        flags=("DRAIN",),
        reason="a\nb",
        cpus=8,
        gpus=4,
        partitions=("main",),
    )

    row = states.row_of(NODES, record(subjects.key_subject(NODES.full_name, "gpu.1"), encode(state)), NOW)

    assert row == Row("gpu.1", ("IDLE+DRAIN", "0/8", "0/4", "main", "a\\nb"), "5m")


@pytest.mark.parametrize(
    ("data", "headers", "problem"),
    [
        pytest.param(b'{"type":"x"}', {}, "unreadable: unknown type 'x'", id="a newer type"),
        pytest.param(b"", {"KV-Operation": "PURGE"}, "deleted", id="deleted by its owner"),
        pytest.param(b"", {"Nats-Marker-Reason": "MaxAge"}, "deleted", id="deleted by age"),
    ],
)
def test_a_value_that_cannot_be_read_keeps_its_row_and_says_why(
    data: bytes, headers: dict[str, str], problem: str
) -> None:
    row = states.row_of(
        NODES, record(subjects.key_subject(NODES.full_name, "n1"), data, headers=headers), NOW
    )

    assert row == Row("n1", (), "0s", problem)


@pytest.mark.parametrize("kind", STATES)
def test_every_kind_of_state_has_a_bucket_that_is_found_again_and_columns(kind: type[State]) -> None:
    stream = subjects.bucket_stream(subjects.bucket("c-1", kind))

    (bucket,) = states.buckets_of([stream, "KV_other", subjects.DEAD_LETTER_STREAM])

    assert (bucket.cluster, bucket.kind, bucket.stream) == ("c-1", kind, stream)
    assert states.columns_of(kind)


@pytest.mark.parametrize("typed", ["slurm_node", "slurm-node", "node", "SUNK_c1_slurm_node"])
def test_a_bucket_is_found_by_the_names_that_people_use(typed: str) -> None:
    assert states.chosen([NODES, Bucket("c1", "lock", LockState)], typed) == [NODES]


def test_a_bucket_that_is_not_there_says_which_are() -> None:
    with pytest.raises(PermanentError, match="no bucket is called 'nods': there are slurm_node"):
        states.chosen([NODES], "nods")


def test_a_replay_has_the_same_id_each_time_and_another_than_the_fact() -> None:
    payload = encode(drained())

    first, second = (letters.plan([letter(payload=payload)]) for _ in "ab")

    (replay,) = first.replays
    assert first == second
    assert replay == Replay((1,), "c1", ON, payload, replay.msg_id)
    assert replay.msg_id != drained().id


def test_a_fact_that_was_buried_anew_after_its_replay_can_be_replayed_anew() -> None:
    (first,), (again,) = (letters.plan([letter(seq)]).replays for seq in (1, 2))

    assert first.msg_id != again.msg_id


def test_what_two_services_buried_is_replayed_once() -> None:
    plan = letters.plan([letter(1, by="a"), letter(2, by="b"), letter(3, payload=b"[]")])

    assert [replay.letters for replay in plan.replays] == [(2, 1), (3,)]


KEY = subjects.key_subject(subjects.bucket("c1", SlurmNodeState), "n1")
QUESTION = subjects.questions("c1", next(iter(REQUESTS))).replace("*", "n1")


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        pytest.param(letter(is_cut=True), "only the first 2 bytes", id="cut"),
        pytest.param(letter(on=KEY), "a bucket's key: its owner, syncer", id="a key"),
        pytest.param(letter(on=QUESTION), "a question: ", id="a question"),
        pytest.param(
            letter(on="sunk.dlq.c1.x.message.y"), "a dead letter about a dead letter", id="a dead letter"
        ),
        pytest.param(letter(on="other.subject"), "'other.subject' is not a subject of facts", id="not ours"),
        pytest.param(letter(payload=b"{"), "the message is not JSON", id="no JSON"),
        pytest.param(Letter(1, NOW, None, "cannot be read"), "cannot be read", id="an unreadable letter"),
    ],
)
def test_what_must_not_be_replayed_is_refused_with_the_reason(refused: Letter, reason: str) -> None:
    plan = letters.plan([refused])

    (refusal,) = plan.refusals
    assert plan == Plan(refusals=(Refusal(1, refusal.reason),))
    assert refusal.reason.startswith(reason)


def test_a_stream_that_is_not_ours_is_left_out_of_the_health_view() -> None:
    def row(name: str) -> StreamRow | None:
        config = StreamConfig(name=name, num_replicas=3)
        state = StreamState(messages=2, bytes=4096, first_seq=1, last_seq=2, consumer_count=0)
        info = StreamInfo(config, state, cluster=ClusterInfo(leader="n2"))
        return stream_row(info, NOW - timedelta(hours=3), NOW)

    assert row("ORDERS") is None
    assert row(subjects.fact_stream("c1")) == StreamRow("c1", "facts", 2, "4 KiB", "3h", "3, n2")


def test_a_lease_that_ran_out_is_held_by_nobody() -> None:
    leases = Bucket("c1", "lease", None)
    subject = subjects.key_subject(leases.full_name, "syncer")
    held = msgspec.json.encode({"holder": "syncer-0"})

    rows = [
        lease_row(leases, record(subject, held), NOW),
        lease_row(leases, record(subject, b"", headers={"Nats-Marker-Reason": "MaxAge"}), NOW),
    ]

    assert rows == [LeaseRow("c1", "syncer", "syncer-0", "0s"), LeaseRow("c1", "syncer", "nobody", "0s")]


def test_ages_sizes_and_durations_read_as_people_say_them() -> None:
    assert [age(NOW - timedelta(seconds=s), NOW) for s in (-3, 119, 120, 7200, 172800)] == [
        "0s",
        "119s",
        "2m",
        "2h",
        "2d",
    ]
    assert [size(count) for count in (0, 1024, 5 << 20, 3 << 30)] == ["0 B", "1 KiB", "5 MiB", "3.0 GiB"]
    assert [seconds(typed) for typed in ("90s", "10m", "1h30m", "2d")] == [90, 600, 5400, 172800]


@pytest.mark.parametrize("typed", ["", "10", "m", "10x", "-5m", "5m "])
def test_what_is_no_duration_is_refused(typed: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration"):
        seconds(typed)
