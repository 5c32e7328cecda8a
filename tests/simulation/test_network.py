"""Streams between hosts in memory, and their faults."""

import asyncio
import socket

import aiohttp
import anyio
import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_simulation.loop import Process
from sunk_simulation.simulation import Simulation


class Echo(asyncio.Protocol):
    """Says everything again, in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def echo() -> None:
    await asyncio.get_running_loop().create_server(Echo, "", 80)
    await anyio.sleep_forever()


class Said(list[tuple[float, str]]):
    """What a client heard, and when."""

    def add(self, words: object) -> None:
        self.append((round(asyncio.get_running_loop().time() - 1000, 1), str(words)))


def client(said: Said, pause_s: float = 1.0, host: str = "web"):  # noqa: ANN201 - a main
    async def main() -> None:
        try:
            reader, writer = await asyncio.open_connection(host, 80)
            for number in range(1000):
                writer.write(b"say %d\n" % number)
                line = await reader.readline()
                said.add(line.decode().strip() or "end")
                if not line:
                    return
                await anyio.sleep(pause_s)
        except OSError as error:
            said.add(f"{type(error).__name__}: {error.strerror}")

    return main


def run(*faults: tuple[float, str], seconds: float = 5.0) -> Said:
    said = Said()

    async def story(sim: Simulation) -> None:
        web = sim.start("web", echo)
        sim.start("client", client(said))
        for at, what in faults:
            await sim.sleep(at - sim.now_s)
            inflict(sim, web, what)
        await sim.sleep(seconds - sim.now_s)

    with Simulation() as sim:
        sim.run(story(sim))
    return said


def inflict(sim: Simulation, web: Process, what: str) -> None:
    match what:
        case "kill":
            web.kill()
        case "fail host":
            sim.network.fail_host("web")
        case "revive host":
            sim.start("web", echo)
        case "cut there":
            sim.network.link("client", "web").cut()
        case "cut back":
            sim.network.link("web", "client").cut()
        case "heal":
            for link in sim.network.between("client", "web"):
                link.heal()
        case "reset":
            sim.network.reset("web", "client")
        case _:
            web.pause(2)


def test_what_is_said_is_answered() -> None:
    assert [words for _, words in run(seconds=3.5)] == ["SAY 0", "SAY 1", "SAY 2", "SAY 3"]


def test_who_is_connected_hears_of_a_process_that_is_killed() -> None:
    assert run((1.5, "kill"))[-1] == (1.5, "end") or run((1.5, "kill"))[-1][1].startswith("ConnectionReset")


def test_nobody_hears_of_a_host_that_is_gone_until_another_one_is_there() -> None:
    assert run((1.5, "fail host"), seconds=900)[-1] == (1.0, "SAY 1")
    assert run((1.5, "fail host"), (5, "revive host"), seconds=900)[-1][1].startswith("ConnectionReset")


def test_nothing_is_lost_in_a_cut_and_it_comes_late() -> None:
    for way in ("cut there", "cut back"):
        said = run((1.5, way), (20, "heal"), seconds=22)
        assert said == [(0.0, "SAY 0"), (1.0, "SAY 1"), (20.0, "SAY 2"), (21.0, "SAY 3")]


def test_a_cut_that_lasts_breaks_the_stream_for_who_sent() -> None:
    assert run((1.5, "cut there"), seconds=2000)[-1] == (926.6, "TimeoutError: Connection timed out")


def test_a_reset_is_heard() -> None:
    assert run((1.5, "reset"))[-1] == (2.0, "ConnectionResetError: Connection reset by peer")


def test_a_paused_server_answers_later() -> None:
    assert run((1.5, "pause"), seconds=4)[-2:] == [(1.0, "SAY 1"), (3.5, "SAY 2")]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("nobody", "ConnectionRefusedError: Connect call failed ('nobody', 80)"),
        ("unknown", "gaierror: Name or service not known"),
        ("gone", "TimeoutError: Connect call failed: Connection timed out"),
    ],
)
def test_what_is_not_there_is_said_as_the_kernel_says_it(host: str, words: str) -> None:
    said = Said()

    async def story(sim: Simulation) -> None:
        sim.network.name("unknown")
        sim.network.fail_host("gone")
        await sim.start("client", client(said, host=host)).ended()

    with Simulation() as sim:
        sim.run(story(sim))

    assert [one for _, one in said] == [words]


def test_a_name_may_stand_for_several_hosts() -> None:
    async def story(sim: Simulation) -> set[str]:
        sim.network.name("bus", "bus-0", "bus-1")
        found = await sim.loop.getaddrinfo("bus", 4222)
        return {info[4][0] for info in found}

    with Simulation() as sim:
        assert sim.run(story(sim)) == {sim.network.address("bus-0"), sim.network.address("bus-1")}


def test_a_writer_waits_for_a_reader_that_does_not_read() -> None:
    written: list[int] = []

    async def deaf() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await anyio.sleep(50)
            while await reader.read(1 << 16):
                pass
            writer.close()

        await asyncio.start_server(connected, "", 80)
        await anyio.sleep_forever()

    async def writer() -> None:
        _, stream = await asyncio.open_connection("deaf", 80)
        for _ in range(100):
            stream.write(bytes(100_000))
            await stream.drain()
            written.append(round(asyncio.get_running_loop().time() - 1000))
        stream.close()

    async def story(sim: Simulation) -> None:
        sim.start("deaf", deaf)
        await sim.start("writer", writer).ended()

    with Simulation() as sim:
        sim.run(story(sim))

    assert set(written[:10]) == {0}
    assert set(written[20:]) == {50}


def test_the_libraries_that_services_speak_http_with_do_so_here() -> None:
    heard: list[str] = []

    async def hello(request: Request) -> Response:
        assert request.client is not None
        return PlainTextResponse(f"hello {request.client.host}")

    async def web() -> None:
        app = Starlette(routes=[Route("/", hello)])
        config = uvicorn.Config(app, host="", port=80, lifespan="off", log_config=None)
        await uvicorn.Server(config).serve()

    async def caller() -> None:
        async with httpx.AsyncClient() as one:
            heard.append((await one.get("http://web/")).text)
        async with aiohttp.ClientSession() as other, other.get("http://web/") as answer:
            heard.append(await answer.text())

    async def story(sim: Simulation) -> None:
        sim.start("web", web)
        await sim.sleep(1)
        process = sim.start("caller", caller)
        assert await process.ended() == 0, process.error
        assert heard == [f"hello {sim.network.address('caller')}"] * 2

    with Simulation() as sim:
        sim.run(story(sim))


def test_nobody_opens_a_real_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a real socket")

    monkeypatch.setattr(socket, "socket", refuse)

    assert len(run(seconds=2.5)) == 3
