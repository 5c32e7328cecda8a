"""slurmrestd behind TLS: whom we believe, how long a connection lasts, and certificates that are renewed."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sunk_lab.slurm.host import HostSlurm
from sunk_lab.tls import TlsProxy, tls_proxy
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.server import MAX_CONNECTIONS
from sunk_slurm.tokens import KeyTokens
from sunk_slurm.trust import Trust

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CALLS = 30


@pytest.fixture
async def proxy(cluster: HostSlurm, tmp_path: Path) -> AsyncIterator[TlsProxy]:
    async with tls_proxy(cluster.url, tmp_path) as proxy:
        yield proxy


@pytest.fixture
async def client(cluster: HostSlurm, proxy: TlsProxy) -> AsyncIterator[SlurmClient]:
    tokens = KeyTokens(cluster.jwt_key)
    async with SlurmClient(proxy.url, tokens, trust=Trust(proxy.ca_file)) as client:
        yield client


async def test_one_connection_serves_calls_that_follow_each_other(
    proxy: TlsProxy, client: SlurmClient
) -> None:
    nodes = [await client.node("node01") for _ in range(CALLS)]
    await client.nodes()
    await client.drain("node01", "k8s: test")
    await client.undrain("node01")

    assert [node.name for node in nodes if node] == ["node01"] * CALLS
    assert proxy.connections == 1


async def test_calls_at_once_have_connections_that_are_used_again(
    proxy: TlsProxy, client: SlurmClient
) -> None:
    async def ask() -> None:
        for _ in range(CALLS):
            await client.node("node01")

    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_CONNECTIONS):
            tasks.start_soon(ask)

    assert proxy.connections <= MAX_CONNECTIONS


async def test_whoever_has_a_certificate_of_another_authority_is_not_slurmrestd(
    proxy: TlsProxy, cluster: HostSlurm
) -> None:
    tokens = KeyTokens(cluster.jwt_key)
    async with SlurmClient(proxy.url, tokens) as client:
        with pytest.raises(SlurmUnavailableError, match=r": ConnectError: .*VERIFY_FAILED") as raised:
            await client.node("node01")

    assert not raised.value.is_sent
    assert tokens.current() not in str(raised.value)


async def test_whoever_has_a_certificate_of_another_name_is_not_slurmrestd(
    proxy: TlsProxy, cluster: HostSlurm
) -> None:
    url = proxy.url.replace("127.0.0.1", "localhost")
    async with SlurmClient(url, KeyTokens(cluster.jwt_key), trust=Trust(proxy.ca_file)) as client:
        with pytest.raises(SlurmUnavailableError, match="not valid for 'localhost'"):
            await client.node("node01")


async def test_connections_that_the_proxy_ended_are_made_again(proxy: TlsProxy, client: SlurmClient) -> None:
    for _ in range(3):
        assert await client.node("node01")
        proxy.end_all()
        assert await client.node("node01")
        await client.drain("node01", "k8s: test")
        proxy.end_all()
        await client.undrain("node01")


@pytest.mark.parametrize("authority", ["first", "second"])
async def test_a_certificate_may_be_renewed_and_its_authority_too(
    proxy: TlsProxy, client: SlurmClient, authority: str
) -> None:
    assert await client.node("node01")
    proxy.certify(authority)
    assert await client.node("node01")
    proxy.end_all()
    assert await client.node("node01")
    assert proxy.connections == 2


async def test_authorities_that_cannot_be_read_are_told_of_and_used_once_they_are_there(
    proxy: TlsProxy, cluster: HostSlurm, tmp_path: Path
) -> None:
    file = tmp_path / "mounted-later.crt"
    async with SlurmClient(proxy.url, KeyTokens(cluster.jwt_key), trust=Trust(file)) as client:
        with pytest.raises(SlurmUnavailableError, match=r"mounted-later.crt: No such file"):
            await client.node("node01")
        file.write_text("no certificate")
        with pytest.raises(SlurmUnavailableError, match=r"mounted-later.crt: .*NO_CERTIFICATE"):
            await client.node("node01")
        file.write_bytes(proxy.ca_file.read_bytes())

        assert await client.node("node01")
