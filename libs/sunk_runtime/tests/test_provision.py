"""Streams and buckets: made once, never changed, never deleted, refused where they would lose our data."""

import logging
from typing import Any

import msgspec
import pytest
from nats.js.api import StreamConfig as StreamSettings

from sunk_events import subjects
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.requests import NudgeNode
from sunk_runtime import jetstream
from sunk_runtime.connection import connected
from sunk_runtime.context import JetStream
from sunk_runtime.errors import NoAnswerError, PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.provision import provide
from sunk_runtime.requests import ask
from sunk_runtime.streams import StreamConfig, differences, stream_configs
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

FACTS = subjects.fact_stream("c1")
BUCKET = subjects.bucket("c1", SlurmNodeState)
NODES = subjects.bucket_stream(BUCKET)


async def stored(bus: Bus, stream: str) -> dict[str, int]:
    """Return how many messages stand on each subject."""
    return (await bus.js.stream_info(stream, subjects_filter=">")).state.subjects or {}


async def settings_of(bus: Bus, stream: str) -> dict[str, Any]:
    return (await bus.js.stream_info(stream)).config.as_dict()


async def edit(bus: Bus, stream: str, **changed: object) -> None:
    await bus.js.update_stream(StreamSettings.from_response({**await settings_of(bus, stream), **changed}))


async def replace(bus: Bus, stream: str, **changed: object) -> None:
    """Make *stream* anew with other settings, as somebody else would have made it."""
    config = {**await settings_of(bus, stream), **changed}
    await bus.js.delete_stream(stream)
    await bus.js.add_stream(StreamSettings.from_response(config))


def configs_of(settings: BusSettings) -> list[StreamConfig]:
    return stream_configs(
        "c1",
        replicas=settings.replicas,
        facts_max_bytes=settings.facts_max_bytes,
        facts_max_age_s=settings.facts_max_age_s,
    )


async def test_making_streams_and_buckets_twice_changes_nothing(
    bus: Bus, settings: BusSettings, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.publish("sunk.ev.c1.test", b"precious")
    before = await settings_of(bus, FACTS)

    with caplog.at_level(logging.WARNING):
        await bus.provision("c1", settings)

    assert caplog.messages == []
    assert await settings_of(bus, FACTS) == before
    assert await stored(bus, FACTS) == {"sunk.ev.c1.test": 1}


async def test_what_is_made_is_what_was_asked_for(bus: Bus, settings: BusSettings) -> None:
    for config in configs_of(settings):
        found = msgspec.convert(await settings_of(bus, config.name), StreamConfig)
        assert differences(found, config) == ([], [])


async def test_harmless_differences_are_told_in_one_line_and_left_alone(
    bus: Bus, settings: BusSettings, caplog: pytest.LogCaptureFixture
) -> None:
    await edit(bus, FACTS, max_bytes=1 << 20, max_age=3600 * 10**9)

    with caplog.at_level(logging.WARNING):
        await bus.provision("c1", settings)

    (record,) = caplog.records
    assert record.message == "stream has other settings"
    assert vars(record)["settings"] == (
        "max_age is 3600000000000, needed is 604800000000000; max_bytes is 1048576, needed is 1073741824"
    )
    assert (await settings_of(bus, FACTS))["max_bytes"] == 1 << 20


@pytest.mark.parametrize(
    ("stream", "changed", "words"),
    [
        pytest.param(FACTS, {"subjects": ["theirs.>"]}, r"subjects is \[theirs\.>\]", id="other subjects"),
        pytest.param(FACTS, {"retention": "workqueue"}, "retention is workqueue", id="a work queue"),
        pytest.param(FACTS, {"retention": "interest"}, "retention is interest", id="interest"),
        pytest.param(FACTS, {"storage": "memory"}, "storage is memory, needed is file", id="in memory"),
        pytest.param(FACTS, {"discard": "new"}, "discard is new, needed is old", id="full refuses"),
        pytest.param(FACTS, {"no_ack": True}, "no_ack is True", id="without acknowledgement"),
        pytest.param(FACTS, {"max_msg_size": 1000}, "max_msg_size is 1000", id="small messages only"),
        pytest.param(FACTS, {"allow_msg_ttl": False}, "allow_msg_ttl is False", id="no TTL"),
        pytest.param(NODES, {"max_msgs_per_subject": 5}, "max_msgs_per_subject is 5", id="a history"),
        pytest.param(NODES, {"max_age": 10**12}, "max_age is 1000000000000", id="states that age"),
        pytest.param(
            NODES, {"discard": "old", "max_msgs": 100}, "max_msgs is 100", id="a bucket that drops the oldest"
        ),
        pytest.param(
            NODES,
            {"allow_rollup_hdrs": False, "subject_delete_marker_ttl": 0},
            "allow_rollup_hdrs is False",
            id="no rollup",
        ),
        pytest.param(
            NODES,
            {"allow_rollup_hdrs": False, "subject_delete_marker_ttl": 0, "deny_purge": True},
            "deny_purge is True, needed is False",
            id="no purge",
        ),
        pytest.param(
            NODES,
            {"subjects": None, "mirror": {"name": "OTHER"}, "subject_delete_marker_ttl": None},
            "mirror is .*OTHER",
            id="a mirror",
        ),
        pytest.param(NODES, {"sources": [{"name": "OTHER"}]}, "sources is .*OTHER", id="with sources"),
    ],
)
async def test_a_stream_that_would_lose_our_data_is_refused_by_name_setting_and_remedy(
    bus: Bus, settings: BusSettings, stream: str, changed: dict[str, object], words: str
) -> None:
    await bus.js.add_stream(name="OTHER", subjects=["other.>"])
    await replace(bus, stream, **changed)
    before = await settings_of(bus, stream)

    with pytest.raises(PermanentError, match=rf"stream {stream} exists .*{words}.*nats stream edit {stream}"):
        await bus.provision("c1", settings)

    assert await settings_of(bus, stream) == before


async def test_a_sealed_stream_is_refused(bus: Bus, settings: BusSettings) -> None:
    await edit(bus, FACTS, sealed=True, discard="new", deny_delete=True, deny_purge=True, max_age=0)

    with pytest.raises(PermanentError, match="sealed is True, needed is False"):
        await bus.provision("c1", settings)


async def test_every_setting_that_is_wrong_is_named_at_once(bus: Bus, settings: BusSettings) -> None:
    await replace(bus, NODES, max_msgs_per_subject=3, storage="memory")

    with pytest.raises(PermanentError, match=r"storage is memory.*max_msgs_per_subject is 3"):
        await bus.provision("c1", settings)


@pytest.mark.parametrize(("has", "wants"), [(1, 3), (3, 1)], ids=["fewer", "more, where the bus has grown"])
def test_other_replicas_than_wished_are_told_and_used(has: int, wants: int) -> None:
    (needed, *_) = stream_configs("c1", replicas=wants, facts_max_bytes=1, facts_max_age_s=1)
    (found, *_) = stream_configs("c1", replicas=has, facts_max_bytes=1, facts_max_age_s=1)

    refused, told = differences(found, needed)

    assert refused == []
    assert list(map(str, told)) == [f"num_replicas is {has}, needed is {wants}"]


@pytest.mark.parametrize("replicas", [0, 2, 4, 5])
async def test_a_number_of_replicas_that_helps_nobody_is_refused_with_what_would(
    bus: Bus, settings: BusSettings, replicas: int
) -> None:
    other = BusSettings(url=settings.url, replicas=replicas)

    with pytest.raises(PermanentError, match=rf"{replicas} replicas .*set 1 .* or 3"):
        await bus.provision("c2", other)


async def test_three_replicas_on_one_server_say_what_is_missing(bus: Bus, settings: BusSettings) -> None:
    with pytest.raises(PermanentError, match=r"3 replicas: .*run three NATS servers"):
        await bus.provision("c2", BusSettings(url=settings.url, replicas=3))


async def test_a_strangers_stream_that_takes_our_facts_is_named_and_not_touched(
    settings: BusSettings,
) -> None:
    async with connect(settings, "test") as bus:
        await bus.js.add_stream(name="ALL", subjects=[subjects.EVERYTHING])

        with pytest.raises(
            PermanentError, match=rf"stream {FACTS} cannot be created: ALL captures sunk\.ev\.c1"
        ):
            await bus.provision("c1", settings)

        assert await stored(bus, "ALL") == {}


@pytest.mark.parametrize("captured", ["sunk.>", "sunk.rpc.>", "sunk.rpc.c1.slurm.node.n1.*"])
async def test_a_strangers_stream_that_takes_our_questions_is_named(
    settings: BusSettings, captured: str
) -> None:
    async with connect(settings, "test") as bus:
        await bus.js.add_stream(name="ALL", subjects=[captured])

        with pytest.raises(PermanentError, match="stream ALL captures the services' questions"):
            await bus.provision("c1", settings)


async def test_a_question_that_a_stream_answers_is_later_and_names_the_stream(bus: Bus) -> None:
    await bus.js.add_stream(name="ALL", subjects=["sunk.rpc.>"])  # While we run.

    with pytest.raises(NoAnswerError, match="stream ALL stored it, narrow its subjects"):
        await ask(bus, "c1", NudgeNode(node="n1"))


async def test_where_all_is_there_no_right_to_make_it_is_needed(bus: Bus, settings: BusSettings) -> None:
    called: set[str] = set()

    class Listening(JetStream):
        async def _api_request(
            self,
            req_subject: str,
            req: bytes = b"",
            timeout: float = 5.0,  # noqa: ASYNC109 - nats-py's
        ) -> dict[str, Any]:
            called.add(".".join(req_subject.split(".")[2:4]))
            return await super()._api_request(req_subject, req, timeout)

    async with connected("test", servers=[settings.url], user="", password=None) as connection:
        await provide(Listening(connection, bus.clock), "c1", configs_of(settings))

    assert called == {"STREAM.NAMES", "STREAM.INFO"}


async def test_buckets_answer_from_the_leader_and_keep_one_value(bus: Bus) -> None:
    config = await settings_of(bus, subjects.bucket_stream(subjects.bucket("c1", LockState)))

    assert (config["allow_direct"], config["max_msgs_per_subject"]) == (False, 1)


async def test_facts_that_somebody_removed_have_a_stream_again_soon(
    settings: BusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "CLOCK_S", 0.05)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        await bus.js.delete_stream(FACTS)

        async def is_there() -> bool:
            return FACTS in [info.config.name for info in await bus.js.streams_info()]

        await until(is_there)
