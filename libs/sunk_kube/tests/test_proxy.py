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


@pytest.mark.parametrize("named", ["environment", "not for this server", "kubeconfig"])
async def test_a_proxy_that_is_named_for_the_server_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    asked: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive())

    proxy = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - anyio, not Django
    bypassed = named == "not for this server"
    of_environment = "" if named == "kubeconfig" else proxy
    for name, value in (("https_proxy", of_environment), ("no_proxy", "api.invalid" if bypassed else "")):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    cluster = {"server": "https://api.invalid:6443"} | ({"proxy-url": proxy} if named == "kubeconfig" else {})
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
        set() if bypassed else {b"CONNECT api.invalid:6443 HTTP/1.1"}
    )
