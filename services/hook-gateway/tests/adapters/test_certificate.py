"""TLS: hooks are answered with the certificate that is on disk now, and with nothing less."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from sunk_events.requests import AcquireLock, LockGranted
from sunk_hook_gateway.adapters.certificate import Certificate
from sunk_hook_gateway.testing.certificates import Authority
from sunk_hook_gateway.testing.hooks import CLUSTER, call, register, standing_in
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process, settings_of
from sunk_lab.ports import free_port
from sunk_runtime.errors import ConfigError
from sunk_runtime.http import Health, serve_http
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import WITHIN_S, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(certificate: Certificate, *, look_s: float = 0.05) -> AsyncGenerator[int]:
    """Serve with *certificate* while the context lasts, and yield the port."""
    port = free_port()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(certificate.run, look_s=look_s))
        tasks.start_soon(partial(serve_http, "127.0.0.1", port, Health(), tls=certificate.context))
        yield port
        tasks.cancel_scope.cancel()


async def shown(port: int) -> str:
    """Return the certificate that a new connection is shown, as soon as somebody listens."""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await anyio.to_thread.run_sync(ssl.get_server_certificate, ("127.0.0.1", port))
            except OSError:
                await anyio.sleep(0.05)


def ends(file: Path) -> float | None:
    """Return when the certificate ends, as the metric says."""
    return REGISTRY.get_sample_value("sunk_hook_certificate_end_timestamp_seconds", {"file": str(file)})


def until_when(file: Path) -> float:
    """Return when it ends, as openssl says."""
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return ssl.cert_time_to_seconds(told.removeprefix("notAfter=").strip())


async def test_a_certificate_that_is_renewed_on_disk_is_shown_to_the_next_connection(
    authority: Authority,
) -> None:
    file, key_file = authority.issue()
    async with serving(Certificate(file, key_file)) as port:
        assert await shown(port) == file.read_text()
        assert ends(file) == until_when(file)
        authority.issue(lasts_s=7200)

        async def is_renewed() -> bool:
            return await shown(port) == file.read_text()

        await until(is_renewed)
        assert ends(file) == until_when(file)


async def test_a_certificate_without_its_key_is_not_taken_over_before_the_key_is_there(
    authority: Authority,
) -> None:
    file, key_file = authority.issue()
    new, new_key = authority.issue("new")
    before = file.read_text()
    async with serving(Certificate(file, key_file)) as port:
        assert await shown(port) == before
        shutil.copyfile(new, file)
        await anyio.sleep(0.5)
        assert await shown(port) == before

        shutil.copyfile(new_key, key_file)

        async def is_renewed() -> bool:
            return await shown(port) == new.read_text()

        await until(is_renewed)


async def test_connections_that_are_made_while_certificates_are_renewed_all_stand(
    authority: Authority,
) -> None:
    file, key_file = authority.issue()
    issued = {file.read_text()}
    seen: list[str] = []
    async with serving(Certificate(file, key_file), look_s=0) as port:
        await shown(port)

        async def connect() -> None:
            while len(seen) < 400 or len(set(seen)) < 10:
                seen.append(await anyio.to_thread.run_sync(ssl.get_server_certificate, ("127.0.0.1", port)))

        async def renew() -> None:
            while True:
                await anyio.to_thread.run_sync(authority.issue)
                issued.add(file.read_text())
                await anyio.sleep(0.005)

        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as renewing:
                renewing.start_soon(renew)
                async with anyio.create_task_group() as connecting:
                    for _ in range(4):
                        connecting.start_soon(connect)
                renewing.cancel_scope.cancel()

    assert set(seen) <= issued | {file.read_text()}


def test_a_certificate_that_is_no_pair_with_its_key_ends_the_process_at_start(
    authority: Authority, tmp_path: Path
) -> None:
    file, _ = authority.issue()
    _, other = authority.issue("other")

    with pytest.raises(ConfigError, match="no certificate with its key"):
        Certificate(file, other)
    with pytest.raises(ConfigError, match="no certificate with its key"):
        Certificate(file, tmp_path / "nothing")


@pytest.fixture
def ports(
    request: pytest.FixtureRequest, nats_url: str, keys_file: Path, authority: Authority, tmp_path: Path
) -> Generator[Mapping[str, int]]:
    file, key_file = authority.issue()
    found = {name: free_port() for name in ("HTTP_PORT", "TLS_PORT", "HOOKS_PORT")}
    more = {"TLS_CERT_FILE": str(file), "TLS_KEY_FILE": str(key_file), "TLS_REQUIRED": request.param}
    settings = settings_of(CLUSTER, nats_url, found["HTTP_PORT"], keys_file)
    process = Process(tmp_path, settings | more | {name: str(port) for name, port in found.items()})
    try:
        yield found
    finally:
        process.close()


@pytest.mark.parametrize("ports", ["true", "false"], indirect=True, ids=["required", "not required"])
async def test_with_a_certificate_hooks_are_answered_without_tls_only_if_it_is_not_required(
    request: pytest.FixtureRequest, bus: Bus, ports: Mapping[str, int], authority: Authority, issuer: Issuer
) -> None:
    await register(bus, "tls1")
    context = ssl.create_default_context(cafile=str(authority.file))

    def client(port: str, scheme: str = "http") -> httpx.AsyncClient:
        url = f"{scheme}://127.0.0.1:{ports[port]}"
        return httpx.AsyncClient(base_url=url, trust_env=False, timeout=120, verify=context)

    async with (
        client("HTTP_PORT") as rest,
        client("TLS_PORT", "https") as with_tls,
        client("HOOKS_PORT") as without_tls,
    ):

        async def is_ready() -> bool:
            try:
                await with_tls.get("/")  # The ports are opened one after the other.
                return (await rest.get("/readyz")).is_success
            except httpx.TransportError:
                return False

        await until(is_ready)
        _, answering_locks = standing_in(bus, AcquireLock, LockGranted())
        path, token = "/v1/nodes/tls1/prehook", issuer.token("tls1")
        async with answering_locks:
            assert await call(with_tls, path, token, {"job": 1}) == {"locked": True}
            if request.node.callspec.params["ports"] == "false":
                assert await call(without_tls, path, token, {"job": 2}) == {"locked": True}
                seen = 1.0
            else:
                with pytest.raises(httpx.ConnectError):
                    await without_tls.get("/")
                seen = 0.0
            refused = await rest.post(path, json={"job": 1})
            pages = [await one.get("/metrics") for one in (rest, with_tls)]

    assert refused.status_code == 404
    assert [page.status_code for page in pages] == [200, 404]
    counted = [
        sample.value
        for family in text_string_to_metric_families(pages[0].text)
        for sample in family.samples
        if sample.name == "sunk_hook_calls_without_tls_total"
    ]
    assert sum(counted) == seen
