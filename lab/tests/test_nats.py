"""The lab's NATS, for real: a process of its own, which starts in milliseconds and needs no privilege."""

# pyright: reportUnknownMemberType=false
# nats-py is partly untyped.

from collections.abc import Generator
from pathlib import Path

import anyio
import nats
import pytest
from nats.js import JetStreamContext

from sunk_lab.config import LabConfig, from_environment
from sunk_lab.errors import LabError
from sunk_lab.nats import ExistingNats, NatsServer
from sunk_lab.which_nats import nats_of

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


async def store(server: NatsServer, text: bytes) -> None:
    client = await nats.connect(server.url)
    bucket = await client.jetstream().create_key_value(bucket="lab")
    await bucket.put("key", text)
    await client.close()


async def stored(server: NatsServer) -> bytes | None:
    client = await nats.connect(server.url)
    context: JetStreamContext = client.jetstream()
    entry = await (await context.key_value("lab")).get("key")
    await client.close()
    return entry.value


async def test_what_was_acknowledged_is_still_there_after_kill_9_at_the_same_address(
    server: NatsServer,
) -> None:
    await store(server, b"kept")
    before = server.url

    server.kill()
    server.start()

    assert server.url == before
    assert await stored(server) == b"kept"


async def test_an_orderly_restart_keeps_address_and_data_too(server: NatsServer) -> None:
    await store(server, b"kept")
    before = server.url

    server.restart()

    assert (server.url, await stored(server)) == (before, b"kept")


async def test_another_run_finds_the_server_that_is_there(server: NatsServer, tmp_path: Path) -> None:
    await store(server, b"kept")

    found = NatsServer(tmp_path / "nats")
    found.start()

    assert (found.url, await stored(found)) == (server.url, b"kept")


def test_starting_and_stopping_twice_is_harmless(server: NatsServer) -> None:
    before = server.url
    server.start()
    assert server.url == before

    server.stop()
    server.stop()


async def test_a_server_that_hangs_answers_nothing_until_it_goes_on(server: NatsServer) -> None:
    server.hang()
    async with await anyio.connect_tcp("127.0.0.1", int(server.url.rpartition(":")[2])) as stream:
        with anyio.move_on_after(0.2) as silence:
            await stream.receive()
        server.resume()

        assert silence.cancelled_caught
        with anyio.fail_after(120):
            assert (await stream.receive()).startswith(b"INFO ")


def test_a_server_that_hangs_can_be_ended_orderly(server: NatsServer) -> None:
    server.hang()

    server.stop()

    with pytest.raises(LabError):
        server.hang()


async def test_configuration_of_ones_own_wins(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", extra="max_payload: 1000") as server:
        client = await nats.connect(server.url)
        assert client.max_payload == 1000
        await client.close()


def test_a_port_that_is_taken_is_an_error_that_names_the_log(server: NatsServer, tmp_path: Path) -> None:
    other = NatsServer(tmp_path / "other", port=int(server.url.rpartition(":")[2]))

    with pytest.raises(LabError, match=r"nats-server\.log"):
        other.start()


def test_a_server_that_never_ran_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="start it first"):
        _ = NatsServer(tmp_path).url


def test_an_existing_nats_is_used_where_the_settings_name_one(tmp_path: Path) -> None:
    config = from_environment(
        {"SUNK_LAB_NATS_URL": "nats://bus.example:4222", "SUNK_LAB_CACHE": str(tmp_path)}
    )

    server = nats_of(config, tmp_path)

    assert isinstance(server, ExistingNats)
    assert server.url == "nats://bus.example:4222"


@pytest.mark.parametrize(
    ("name", "value"),
    [("SUNK_LAB_NATS_URL", "http://bus"), ("SUNK_LAB_ENGINE", "docker")],
    ids=["url", "engine"],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(LabError, match=f"{name} must .*{value}"):
        from_environment({name: value})


def test_by_default_nats_is_a_process_of_its_own(tmp_path: Path) -> None:
    assert isinstance(nats_of(LabConfig(cache=tmp_path), tmp_path), NatsServer)
