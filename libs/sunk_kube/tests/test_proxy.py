"""The way to an API server leads through a proxy where the environment or the kubeconfig names one."""

import json
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from sunk_kube.client import connect
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.resources import PODS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_proxied"),
    [
        pytest.param("api.invalid:6443", "", True, id="environment"),
        pytest.param("api.invalid:6443", None, True, id="kubeconfig"),
        pytest.param("api.invalid:6443", "example.com, api.invalid", False, id="not for this server"),
        pytest.param("127.0.0.1:9", "127.0.0.1:9", False, id="not for this port"),
        pytest.param("127.0.0.1:9", "127.0.0.1:10", True, id="not for another port"),
        pytest.param("127.0.0.1:9", ".svc,127.0.0.1/8", False, id="not for this network"),
        pytest.param("127.0.0.1:9", "10.0.0.0/8,fd00::/8", True, id="not for other networks"),
    ],
)
async def test_a_proxy_that_is_named_for_the_server_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str | None, *, is_proxied: bool
) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    asked: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive())

    proxy = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - anyio, not Django
    for name, value in (("https_proxy", "" if no_proxy is None else proxy), ("no_proxy", no_proxy or "")):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    cluster = {"server": f"https://{server}"} | ({"proxy-url": proxy} if no_proxy is None else {})
    config = tmp_path / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        async with connect("test", kubeconfig=config, timeout_s=10) as client:
            with pytest.raises(KubeUnavailableError):
                await client.find(PODS, "web", "default")
        tasks.cancel_scope.cancel()

    # aiohttp asks again where the connection ends before an answer.
    assert {request.split(b"\r\n")[0] for request in asked} == (
        {f"CONNECT {server} HTTP/1.1".encode()} if is_proxied else set()
    )
