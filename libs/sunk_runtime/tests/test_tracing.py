"""Traces go through message headers end to end, to a real OTLP receiver; without one nothing runs."""

import socket
import subprocess
import sys
from collections.abc import Generator
from datetime import UTC, datetime

import anyio
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import Noted, NudgeNode
from sunk_lab.collector import Collector
from sunk_runtime.errors import ConfigError
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import answering, ask
from sunk_runtime.settle import FactConsumer
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.tracing import TraceSettings, acting, continuing, here, traces_url, tracing
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter, publish

pytestmark = pytest.mark.anyio

FACT = NodeDrained(
    id="drained:n1:0",
    source="/c1/test",
    subject="n1",
    time=datetime(2026, 1, 1, tzinfo=UTC),
    data=NodeSnapshot(node="n1", state="IDLE"),
)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Generator[Collector]:
    monkeypatch.setattr("sunk_runtime.tracing.EXPORT_S", WITHIN_S)  # However busy the machine is.
    with Collector() as collector:
        yield collector


async def test_asker_answerer_and_what_the_answerer_tells_are_one_trace(
    bus: Bus, receiver: Collector
) -> None:
    async def answer(_: NudgeNode) -> Noted:
        await publish(bus, "c1", FACT)
        return Noted()

    settings = TraceSettings(endpoint=receiver.url, ratio=1.0)
    async with tracing("test", settings), answering(bus, "c1", NudgeNode, answer):
        await ask(bus, "c1", NudgeNode(node="n1"))

    asked, answered = receiver.named("ask NudgeNode"), receiver.named("answer NudgeNode")
    told = receiver.named("publish NodeDrained")
    assert asked.trace_id == answered.trace_id == told.trace_id
    assert (asked.parent_span_id, answered.parent_span_id, told.parent_span_id) == (
        b"",
        asked.span_id,
        answered.span_id,
    )
    assert (asked.kind, answered.kind, told.kind) == (
        Span.SPAN_KIND_CLIENT,
        Span.SPAN_KIND_SERVER,
        Span.SPAN_KIND_PRODUCER,
    )
    assert {seen.service for seen in receiver.received} == {"sunk-test"}
    assert {one.key: one.value.string_value for one in answered.attributes}["sunk.reply"] == "Noted"


async def test_whoever_handles_a_fact_continues_the_trace_of_who_told_it(
    bus: Bus, receiver: Collector
) -> None:
    done = anyio.Event()

    async def handle(_: Event) -> None:
        await ask(bus, "c1", NudgeNode(node="n1"))
        done.set()

    async def answer(_: NudgeNode) -> Noted:
        return Noted()

    settings = TraceSettings(endpoint=receiver.url, ratio=1.0)
    async with tracing("test", settings), answering(bus, "c1", NudgeNode, answer):
        await publish(bus, "c1", FACT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(FactConsumer(bus, "c1", "test", handle).run)
            with anyio.fail_after(WITHIN_S):
                await done.wait()
            tasks.cancel_scope.cancel()

    told, handled = receiver.named("publish NodeDrained"), receiver.named("handle NodeDrained")
    asked = receiver.named("ask NudgeNode")
    assert told.trace_id == handled.trace_id == asked.trace_id
    assert (handled.parent_span_id, asked.parent_span_id) == (told.span_id, handled.span_id)
    assert handled.kind == Span.SPAN_KIND_CONSUMER


async def test_what_follows_from_a_change_of_state_is_of_its_trace(bus: Bus, receiver: Collector) -> None:
    """From a cordon to its drain: one service stores, another reads it, acts upon it and tells of that."""
    mine, theirs = StateView(bus, "c1", SlurmNodeState), StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, mine, fence=None)
    settings = TraceSettings(endpoint=receiver.url, ratio=1.0)
    async with tracing("test", settings), following(mine, theirs):
        await mine.complete()
        await theirs.complete()
        await writer.record("n1", SlurmNodeState(changed=FACT.time, node="n1", state="IDLE"), revision=0)
        await until(lambda: theirs.get("n1") is not None)
        with acting("DrainNode", "n1", theirs.event("n1")):
            done = here(theirs.event("n1").id)
        with continuing(done):
            await publish(bus, "c1", FACT)

    stored, acted, told = (
        receiver.named(name) for name in ("store SlurmNodeState", "DrainNode", "publish NodeDrained")
    )
    assert theirs.event("n1").id == f"SUNK_c1_slurm_node:n1:{theirs.revision('n1')}"
    assert theirs.event("n1") == mine.event("n1")
    assert (acted.parent_span_id, told.parent_span_id) == (stored.span_id, acted.span_id)
    assert {one.key: one.value.string_value for one in acted.attributes} == {
        "sunk.entity": "n1",
        "sunk.cause": theirs.event("n1").id,
    }


async def test_what_the_asker_does_not_record_nobody_records(bus: Bus, receiver: Collector) -> None:
    async def answer(_: NudgeNode) -> Noted:
        return Noted()

    settings = TraceSettings(endpoint=receiver.url, ratio=0.0)
    async with tracing("test", settings), answering(bus, "c1", NudgeNode, answer):
        await ask(bus, "c1", NudgeNode(node="n1"))

    assert receiver.received == []


async def test_without_an_endpoint_messages_carry_nothing(bus: Bus) -> None:
    async with tracing("test", TraceSettings()):
        await publish(bus, "c1", FACT)
    found = await bus.last(subjects.fact_stream("c1"), subjects.fact("c1", FACT))

    assert found is not None
    assert "traceparent" not in found[1].headers


def test_without_an_endpoint_nothing_that_exports_is_imported() -> None:
    code = "import sys, sunk_runtime.jetstream; print('requests' in sys.modules, 'google' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


async def test_a_collector_that_is_away_or_hangs_holds_up_nothing(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")  # The library's own limit, if we set none.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (9, silent.getsockname()[1]):
            with anyio.fail_after(WITHIN_S):
                async with tracing("test", TraceSettings(endpoint=f"http://127.0.0.1:{port}", ratio=1.0)):
                    await publish(bus, "c1", FACT)


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "/v1/traces"])
async def test_an_endpoint_that_is_no_url_is_said_at_start(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a URL such as"):
        async with tracing("test", TraceSettings(endpoint=endpoint)):
            pytest.fail("started")


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://collector/otlp", "https://collector/otlp/v1/traces"),
        ("http://collector/v1/traces", "http://collector/v1/traces"),
    ],
)
def test_an_endpoint_is_the_base_as_the_standard_variable_has_it(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url
