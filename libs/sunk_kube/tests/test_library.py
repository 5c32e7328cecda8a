# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What of kubernetes_asyncio we do not use, each with the fault that keeps us from it.

A test that fails here tells that the library has changed, and that something of ours may go.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp.http_exceptions import LineTooLong
from anyio.abc import SocketAttribute, SocketStream

from sunk_kube.client import connect
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.library import ApiClient, Configuration, load_incluster_config, load_kube_config
from sunk_kube.resources import PODS
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

ENDED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
"""The head of an answer that lasts as long as its connection."""
EXPIRED = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
LEASE_S = 3
LEASE = {"metadata": {"name": "leader", "resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}


def with_status(status: int, body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        len(text),
        text,
    )


@asynccontextmanager
async def server(*answers: bytes | None) -> AsyncGenerator[tuple[str, list[str]]]:
    """Yield an address and the lines of requests; each is answered as *answers* say, the last for ever.

    None is silence, an empty answer an end without a word.
    """
    script, heard = list(answers), list[str]()

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    heard.append((await stream.receive()).decode().partition("\r\n")[0])
                    said = script.pop(0) if len(script) > 1 else script[0]
                    if said is None:
                        await anyio.sleep_forever()
                    await stream.send(said or b"")
                    if not said or said.startswith(ENDED):
                        return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio, not Django
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{port}", heard
        tasks.cancel_scope.cancel()


@pytest.fixture(scope="module")
def whole() -> None:
    """Have its packages read that `library` leaves empty."""
    library: Any = sys.modules["kubernetes_asyncio"]
    client: Any = importlib.reload(sys.modules["kubernetes_asyncio.client"])
    library.client, client.models = client, importlib.reload(sys.modules["kubernetes_asyncio.client.models"])


@pytest.fixture
def of_default(whole: None, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """Return the configuration that the library's Watch makes a client of its own by."""
    del whole
    made = Configuration()
    monkeypatch.setattr(Configuration, "_default", made)
    return made


def kubeconfig(path: Path, address: str, **user: str) -> Path:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": address}}],
        "users": [{"name": "x", "user": user}],
    }
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    "service", ["sunk_nodeset_controller", "sunk_pod_scheduler", "sunk_hook_gateway"], ids=lambda name: name
)
def test_its_models_are_read_by_no_service(service: str) -> None:
    look = f"""if True:
        import sys, {service}.main
        assert not [name for name in sys.modules if "kubernetes_asyncio.client.models." in name]
    """
    subprocess.run([sys.executable, "-c", look], check=True)


def test_what_was_read_of_it_before_stays_whole() -> None:
    look = """if True:
        from kubernetes_asyncio import client
        from sunk_kube.library import ApiClient
        assert client.ApiClient is ApiClient and client.models.V1Pod is client.V1Pod and client.CoreV1Api
    """
    subprocess.run([sys.executable, "-c", look], check=True)


async def test_its_calls_have_no_deadline_and_ours_have(tmp_path: Path) -> None:
    answered = list[object]()
    async with server(None) as (address, heard), anyio.create_task_group() as tasks:

        async def ask() -> None:
            async with ApiClient(Configuration(host=address)) as library:
                answered.append(await library.call_api("/api", "GET"))

        tasks.start_soon(ask)
        await until(lambda: len(heard) == 1)
        async with connect("x", kubeconfig=kubeconfig(tmp_path / "k", address), timeout_s=0.5) as ours:
            with pytest.raises(KubeUnavailableError):
                await ours.find(PODS, "web", "default")
        assert not answered  # Nor has it failed.
        tasks.cancel_scope.cancel()


async def watched(address: str, of_default: Configuration, **more: object) -> list[Any]:
    """Return what the library's watch tells of Pods until it ends."""
    from kubernetes_asyncio.client import CoreV1Api  # noqa: PLC0415 - with 700 models
    from kubernetes_asyncio.watch import Watch  # noqa: PLC0415

    of_default.host = address
    async with ApiClient(of_default) as client, Watch() as watch:
        return [event async for event in watch.stream(CoreV1Api(client).list_pod_for_all_namespaces, **more)]


async def test_its_watch_begins_again_at_once_where_ours_waits(of_default: Configuration) -> None:
    async with server(ENDED) as (address, heard), anyio.create_task_group() as tasks:
        tasks.start_soon(watched, address, of_default)
        await until(lambda: len(heard) > 20)  # Ours: test_a_watch_that_ends_at_once_is_no_hot_loop
        tasks.cancel_scope.cancel()


async def test_its_watch_asks_again_for_the_version_that_was_refused(of_default: Configuration) -> None:
    from kubernetes_asyncio.client import ApiException  # noqa: PLC0415

    async with server(ENDED + json.dumps(EXPIRED).encode() + b"\n") as (address, heard):
        with pytest.raises(ApiException, match="410"):
            await watched(address, of_default, resource_version="7")

    assert ["resourceVersion=7" in line for line in heard] == [True, True]


async def test_its_watch_takes_a_proxys_page_for_an_event(of_default: Configuration) -> None:
    async with server(b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\nsorry") as (address, _):
        told = await watched(address, of_default, timeout_seconds=5)

    assert told == ["sorry"]


async def test_its_watch_ends_at_an_object_of_four_megabytes(of_default: Configuration) -> None:
    line = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "x" * (5 << 20)}}}).encode()
    async with server(ENDED + line + b"\n") as (address, _):
        with pytest.raises(LineTooLong):
            await watched(address, of_default, timeout_seconds=5)


@asynccontextmanager
async def election(
    of_default: Configuration, *answers: bytes | None
) -> AsyncGenerator[tuple[Any, list[float]]]:
    """Yield an election of the library that we win, and when its leader wrote."""
    from kubernetes_asyncio.leaderelection.electionconfig import Config  # noqa: PLC0415
    from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection  # noqa: PLC0415
    from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock  # noqa: PLC0415

    writes = list[float]()

    async def lead() -> None:
        while True:
            writes.append(time.monotonic())
            await anyio.sleep(0.01)

    async def stop() -> None:
        raise AssertionError("it is never told")

    absent = with_status(404, {"code": 404, "message": "not found"})
    async with server(absent, with_status(201, LEASE), *answers) as (address, _):
        of_default.host = address
        async with ApiClient(of_default) as client:
            lock = LeaseLock("leader", "default", "me", client)
            yield LeaderElection(Config(lock, LEASE_S, 2, 1.1, lead, stop)), writes


async def test_its_leader_goes_on_when_the_election_has_ended(of_default: Configuration) -> None:
    async with election(of_default, b"") as (elected, writes):
        with pytest.raises(aiohttp.ClientError):  # Of a connection that ends before an answer.
            await elected.run()
        before = len(writes)
        await until(lambda: len(writes) > before + 10)


async def test_its_leader_goes_on_when_the_api_server_hangs(of_default: Configuration) -> None:
    async with election(of_default, None) as (elected, writes), anyio.create_task_group() as tasks:
        tasks.start_soon(elected.run)
        await until(lambda: bool(writes) and writes[-1] - writes[0] > LEASE_S + 1)
        tasks.cancel_scope.cancel()


async def test_it_reads_a_token_file_once(tmp_path: Path) -> None:
    token, found = tmp_path / "token", Configuration()
    token.write_text("first")
    path = kubeconfig(tmp_path / "kubeconfig", "http://x", tokenFile=str(token))
    await load_kube_config(config_file=str(path), client_configuration=found, persist_config=False)
    token.write_text("second")

    assert await found.get_api_key_with_prefix("BearerToken") == "Bearer first"


async def test_it_leaves_a_pods_token_when_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes_asyncio.config import incluster_config  # noqa: PLC0415

    now = [datetime(2026, 1, 1)]  # noqa: DTZ001 - as the library has it
    for name, value in (("KUBERNETES_SERVICE_HOST", "x"), ("KUBERNETES_SERVICE_PORT", "1")):
        monkeypatch.setenv(name, value)
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda: now[0]), timedelta=timedelta)
    monkeypatch.setattr(incluster_config, "datetime", clock)
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("first")
    found = Configuration()
    load_incluster_config(
        client_configuration=found,
        token_filename=tmp_path / "token",
        cert_filename=tmp_path / "ca.crt",
    )
    (tmp_path / "token").write_text("second")
    now[0] -= timedelta(hours=1)

    for minutes, expected in ((60, "Bearer first"), (2, "Bearer second")):
        now[0] += timedelta(minutes=minutes)
        assert await found.get_api_key_with_prefix("BearerToken") == expected


async def test_a_netrc_of_the_servers_host_breaks_each_of_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else")
    monkeypatch.setenv("NETRC", str(netrc))
    async with server(with_status(200, {})) as (address, _):
        found = Configuration(host=address, api_key={"BearerToken": "Bearer ours"})
        async with ApiClient(found) as library:
            with pytest.raises(ValueError, match="Cannot combine"):
                await library.call_api("/api", "GET", auth_settings=["BearerToken"], _preload_content=False)
