"""`sunk-bus` as people run it, on a real NATS; a process of its own where signals and pipes matter."""

import io
import shlex
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from sunk_bus.main import main
from sunk_bus.reading import last_seq
from sunk_events import subjects
from sunk_events.base import Event, Reply, Request
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_events.requests import ExplainKubeNode, ExplainSlurmNode, Explanation, Finding, Refused
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, PermanentError
from sunk_runtime.jetstream import Bus, BusSettings
from sunk_runtime.leases import BusLease
from sunk_runtime.requests import answering, ask_until
from sunk_runtime.settle import FactConsumer, Handle
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter, publish

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROGRAM = (sys.executable, "-m", "sunk_bus")
BUCKET = subjects.bucket("c1", SlurmNodeState)


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    status: int
    out: str
    err: str


def drained(node: str, times: int = 0, cluster: str = "c1") -> NodeDrained:
    data = NodeSnapshot(node=node, state="IDLE", reason=f"k8s: cordon {times}")
    return NodeDrained(id=f"{node}:{times}", source=f"/{cluster}/syncer", subject=node, time=NOW, data=data)


async def run(settings: BusSettings, *arguments: str) -> Ended:
    """Run a command to its end, in a thread with a loop of its own: a process each would take a second."""

    def call() -> Ended:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            status = main(["--url", settings.url, *arguments])
        return Ended(status, out.getvalue(), err.getvalue())

    with anyio.fail_after(WITHIN_S):
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


class Running:
    """A command that goes on."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def line(self) -> str:
        with anyio.fail_after(WITHIN_S):
            return (await self._lines.receive_until(b"\n", 1 << 20)).decode()

    async def interrupt(self) -> Ended:
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGINT)
        with anyio.fail_after(WITHIN_S):
            err = b"".join([bytes(part) async for part in self.process.stderr])
            return Ended(await self.process.wait(), "", err.decode())


@asynccontextmanager
async def running(settings: BusSettings, *arguments: str) -> AsyncGenerator[Running]:
    async with await anyio.open_process([*PROGRAM, "--url", settings.url, *arguments]) as process:
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def consuming(bus: Bus, handle: Handle) -> AsyncGenerator[None]:
    """Have a service handle what comes meanwhile."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FactConsumer(bus, "c1", "exporter", handle).run)
        yield
        tasks.cancel_scope.cancel()


async def bury(bus: Bus, *events: Event) -> None:
    """Have a service fail for good on every fact there is, *events* the last."""
    for event in events:
        await publish(bus, "c1", event)

    async def handle(_: Event) -> None:
        raise PermanentError("no driver for this node")

    async def is_done() -> bool:
        if await last_seq(bus, subjects.DEAD_LETTER_STREAM) < len(events):
            return False
        # Who is ended before it has said that it is through gives the fact to the next.
        found = await bus.js.consumer_info(subjects.fact_stream("c1"), "exporter")
        return not found.num_ack_pending and not found.num_pending

    async with consuming(bus, handle):
        await until(is_done)


async def test_tail_shows_facts_as_they_happen_and_ctrl_c_ends_it_quietly(
    bus: Bus, settings: BusSettings
) -> None:
    await publish(bus, "c1", drained("gpu-1"))

    async with running(settings, "tail", "drained", "--last", "1") as tail:
        first = await tail.line()
        await publish(bus, "c1", drained("gpu-2"))
        second = await tail.line()
        ended = await tail.interrupt()

    assert (first.split()[3], second.split()[3]) == ("gpu-1", "gpu-2")
    assert "k8s: cordon 0" in second
    assert "\x1b" not in first
    assert ended == Ended(0, "", "")


async def test_tail_goes_on_after_the_server_was_killed_and_shows_each_fact_once(
    bus: Bus, settings: BusSettings, server: NatsServer
) -> None:
    await publish(bus, "c1", drained("n0"))

    async with running(settings, "tail", "--json", "--last", "1") as tail:
        lines = [await tail.line()]
        for number in (1, 2):
            server.kill()
            await until(lambda: not bus.is_connected)
            server.start()
            await _publish_until_acknowledged(bus, drained(f"n{number}"))
            lines.append(await tail.line())
        await _publish_until_acknowledged(bus, drained("n3"))
        lines.append(await tail.line())

    assert [msgspec.json.decode(line)["subject"] for line in lines] == ["n0", "n1", "n2", "n3"]


async def _publish_until_acknowledged(bus: Bus, event: Event) -> None:
    while True:
        try:
            return await publish(bus, "c1", event)
        except BusUnavailableError:
            await anyio.sleep(0.05)


async def test_tail_shows_the_last_of_what_was_asked_for_however_far_back_it_is(
    bus: Bus, settings: BusSettings
) -> None:
    for times in range(5):
        await publish(bus, "c1", drained("rare", times))
    for times in range(100):
        await publish(bus, "c1", drained("often", times))

    by_name = await run(settings, "tail", "rare", "--last", "2", "--no-follow", "--json")
    by_glob = await run(settings, "tail", "rar*", "--last", "2", "--no-follow", "--json")

    reasons = [msgspec.json.decode(line)["data"]["reason"] for line in by_name.out.splitlines()]
    assert reasons == ["k8s: cordon 3", "k8s: cordon 4"]
    assert by_glob == by_name


async def test_tail_of_two_clusters_says_which_and_can_keep_to_one(bus: Bus, settings: BusSettings) -> None:
    await bus.provision("c2", settings)
    await publish(bus, "c1", drained("a"))
    await publish(bus, "c2", drained("b", cluster="c2"))

    both = await run(settings, "tail", "--since", "1h", "--no-follow")
    one = await run(settings, "tail", "--since", "1h", "--no-follow", "--cluster", "c2")

    assert sorted(line.split()[2:5] for line in both.out.splitlines()) == [
        ["c1", "slurm.node", "a"],
        ["c2", "slurm.node", "b"],
    ]
    assert [line.split()[3] for line in one.out.splitlines()] == ["b"]


async def test_a_name_that_nothing_is_stored_about_is_said_to_be_so(bus: Bus, settings: BusSettings) -> None:
    await publish(bus, "c1", drained("gpu-1"))

    ended = await run(settings, "tail", "gpu-l", "--no-follow")

    assert (ended.status, ended.out) == (0, "")
    assert "nothing is stored about a node, job or Pod called 'gpu-l'" in ended.err


async def test_state_shows_what_cannot_be_read_and_looking_writes_nothing(
    bus: Bus, settings: BusSettings
) -> None:
    await bus.publish(subjects.key_subject(BUCKET, "gpu-1"), b'{"type":"sunk.syncer.v9.slurm_node"}')

    listed = await run(settings, "state")
    table = await run(settings, "state", "node", "gpu-*")
    whole = await run(settings, "state", "slurm_node", "gpu-1")

    assert ["c1", "slurm_node", "1"] in [line.split() for line in listed.out.splitlines()]
    assert "unreadable: sunk.syncer.v9.slurm_node: version 9 is unknown here" in table.out
    assert '"type": "sunk.syncer.v9.slurm_node"' in whole.out
    assert await last_seq(bus, subjects.DEAD_LETTER_STREAM) == 0


async def test_state_watched_shows_each_change(bus: Bus, settings: BusSettings) -> None:
    view = StateView(bus, "c1", SlurmNodeState)
    writer = StateWriter(bus, view, fence=None)
    async with following(view), running(settings, "state", "node", "gpu-*", "--watch", "--json") as watch:
        await view.complete()
        await writer.record("gpu-1", _node("IDLE"), revision=0)
        first = msgspec.json.decode(await watch.line())
        await writer.record("other", _node("IDLE"), revision=0)
        await writer.record("gpu-1", _node("DOWN"), revision=view.revision("gpu-1"))
        second = msgspec.json.decode(await watch.line())
        await writer.forget("gpu-1", revision=view.revision("gpu-1"))
        third = msgspec.json.decode(await watch.line())
        ended = await watch.interrupt()

    assert [(line["key"], line["revision"]) for line in (first, second, third)] == [
        ("gpu-1", 1),
        ("gpu-1", 3),
        ("gpu-1", 4),
    ]
    assert (first["value"]["state"], second["value"]["state"], third["value"]) == ("IDLE", "DOWN", None)
    assert ended == Ended(0, "", "")


def _node(state: str) -> SlurmNodeState:
    return SlurmNodeState(changed=NOW, node="gpu-1", state=state)


async def test_a_dead_letter_is_listed_shown_and_once_replayed_handled_once(
    bus: Bus, settings: BusSettings
) -> None:
    await bury(bus, drained("gpu-1"))
    handled: list[Event] = []

    async def handle(event: Event) -> None:
        handled.append(event)

    listed = await run(settings, "dead-letters")
    shown = await run(settings, "dead-letters", "show", "1")
    async with consuming(bus, handle):
        replayed = await run(settings, "dead-letters", "--replay", "1", "--wait", "60")
        again = await run(settings, "dead-letters", "--replay", "1", "--wait", "60")

    assert "no driver for this node" in listed.out
    assert '"reason": "k8s: cordon 0"' in shown.out
    assert "replay  possible" in shown.out
    assert "exporter has handled it" in replayed.out
    assert "already replayed" in again.out
    assert handled == [drained("gpu-1")]


async def test_a_replay_that_fails_again_says_so(bus: Bus, settings: BusSettings) -> None:
    await bury(bus, drained("gpu-1"))

    async def handle(_: Event) -> None:
        raise PermanentError("still no driver")

    async with consuming(bus, handle):
        replayed = await run(settings, "dead-letters", "--replay", "1", "--wait", "60")
        again = await run(settings, "dead-letters", "--replay", "2", "--wait", "60")

    assert "test made it a dead letter again, 2: still no driver" in replayed.out
    assert "test made it a dead letter again, 3: still no driver" in again.out


async def test_all_letters_are_replayed_only_when_that_is_confirmed(bus: Bus, settings: BusSettings) -> None:
    await bury(bus, drained("gpu-1"), drained("gpu-2"))
    before = await last_seq(bus, subjects.fact_stream("c1"))

    asked = await run(settings, "dead-letters", "--replay", "all", "--on", "*gpu-2*")
    unasked = await last_seq(bus, subjects.fact_stream("c1"))
    done = await run(settings, "dead-letters", "--replay", "all", "--on", "*gpu-2*", "--yes", "--wait", "0")

    assert (asked.status, unasked) == (1, before)
    assert "1 messages would be published: confirm with --yes" in asked.err
    assert done.status == 0
    assert await last_seq(bus, subjects.fact_stream("c1")) == before + 1


async def test_streams_shows_what_lags_and_who_leads(bus: Bus, settings: BusSettings) -> None:
    await bury(bus, drained("gpu-1"))
    await publish(bus, "c1", drained("gpu-2"))
    await BusLease(bus, "c1", "syncer", "syncer-0", ttl_s=60).acquire()

    ended = await run(settings, "streams")

    rows = [line.split() for line in ended.out.splitlines()]
    assert ["c1", "exporter", "1", "0", "0", "0"] in rows
    assert ["c1", "syncer", "syncer-0"] in [row[:3] for row in rows]
    assert ["c1", "facts", "2"] in [row[:3] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tail", "slurm.nodes"), "there are no facts 'slurm.nodes'; there are slurm.node"),
        (("tail", "--cluster", "c9"), "no cluster is called 'c9': there are c1"),
        (("state", "nods"), "no bucket is called 'nods': there are kube_pod"),
        (("state", "node", "gpu-1"), "SUNK_c1_slurm_node has no key 'gpu-1': it has 0 keys"),
        (("dead-letters", "show", "99"), "there is no dead letter '99'"),
        (("dead-letters", "--replay", "99"), "there is no dead letter '99'"),
        (("streams", "--password-file", "/nowhere"), "cannot read /nowhere: No such file"),
    ],
    ids=["subject", "cluster", "bucket", "key", "letter", "letter to replay", "password file"],
)
async def test_what_is_not_there_is_one_sentence(
    bus: Bus, settings: BusSettings, arguments: tuple[str, ...], sentence: str
) -> None:
    assert bus.is_connected

    ended = await run(settings, *arguments)

    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"sunk-bus: {sentence}")
    assert ended.err.count("\n") == 1


async def test_a_server_without_our_streams_says_so(server: NatsServer) -> None:
    settings = BusSettings(url=server.url)

    said = [(await run(settings, name)).err for name in ("tail", "state", "dead-letters", "streams")]

    assert all("no service has created its" in sentence for sentence in said)


async def test_no_server_is_one_sentence_after_a_while_and_tells_no_password() -> None:
    url = "nats://ops:secret@127.0.0.1:1"

    with anyio.fail_after(WITHIN_S):
        done = await anyio.run_process([*PROGRAM, "tail", "--url", url, "--timeout", "0.3"], check=False)

    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert said.startswith("sunk-bus: no NATS answers at nats://127.0.0.1:1 within 0.3 s: ")
    assert said.count("\n") == 1


async def test_wrong_credentials_are_one_sentence_and_right_ones_work(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("good\n")
    wrong.write_text("bad\n")
    extra = "authorization { users = [{ user: ops, password: good }] }"
    with NatsServer(tmp_path / "nats", extra=extra) as server:
        settings = BusSettings(url=server.url)
        refused = await run(settings, "streams", "--user", "ops", "--password-file", str(wrong))
        let_in = await run(settings, "streams", "--user", "ops", "--password-file", str(right))

    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith("sunk-bus: NATS refuses user 'ops'")
    assert refused.err.count("\n") == 1
    assert "no stream of SUNK" in let_in.err


async def test_a_reader_that_has_seen_enough_ends_tail_without_a_word(
    bus: Bus, settings: BusSettings
) -> None:
    await publish(bus, "c1", drained("first"))
    program = shlex.join([*PROGRAM, "--url", settings.url, "tail", "--last", "1"])
    ended: list[Ended] = []

    async def pipe() -> None:
        with anyio.fail_after(WITHIN_S):
            done = await anyio.run_process(
                ["bash", "-o", "pipefail", "-c", f"{program} | head -1"], check=False
            )
        ended.append(Ended(done.returncode, "", done.stderr.decode()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe)
        while not ended:
            await publish(bus, "c1", drained("more", await last_seq(bus, subjects.fact_stream("c1"))))
            await anyio.sleep(0.02)

    assert ended == [Ended(0, "", "")]


async def test_explain_shows_what_the_services_say_of_a_node_and_who_says_nothing(
    bus: Bus, settings: BusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_the_silent_one_briefly(
        on: Bus, cluster: str, question: Request, *, deadline: float
    ) -> Reply:
        if isinstance(question, ExplainKubeNode):
            deadline = anyio.current_time() + 0.3
        return await ask_until(on, cluster, question, deadline=deadline)

    monkeypatch.setattr("sunk_bus.explain.ask_until", ask_the_silent_one_briefly)

    async def answer(question: ExplainSlurmNode) -> Reply:
        if question.node != "gpu-1":
            return Refused(code="unknown_node", reason=f"Slurm knows no node {question.node}")
        return Explanation(
            findings=(Finding(what="drained", because="k8s: cordon", would_change="kubectl uncordon"),)
        )

    async with answering(bus, "c1", ExplainSlurmNode, answer):
        told = await run(settings, "--timeout", "60", "explain", "node", "gpu-1")
        untold = await run(settings, "--timeout", "60", "explain", "node", "gpu-2")

    assert told.status == 0
    assert [cell.strip() for cell in told.out.splitlines()[-2].split("  ") if cell] == [
        "drained",
        "k8s: cordon",
        "kubectl uncordon",
    ]
    assert "c1, syncer" in told.out
    assert told.err.strip() == "no nodeset-controller of c1 answers"
    assert untold == Ended(
        1,
        "",
        "sunk-bus: syncer of c1: Slurm knows no node gpu-2; no nodeset-controller of c1 answers\n",
    )


@pytest.mark.parametrize(("what", "name"), [("job", "gpu-1"), ("pod", "web"), ("pod", "a/b/c")])
async def test_explain_says_how_a_thing_is_called(settings: BusSettings, what: str, name: str) -> None:
    ended = await run(settings, "explain", what, name)

    assert ended.status == 1
    assert f"explain {what}: " in ended.err
