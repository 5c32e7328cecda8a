"""The way to an API server leads through a proxy where the environment names one."""

import json
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from sunk_kube.client import connect
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.resources import PODS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("bypassed", [False, True], ids=["named", "named, but not for this server"])
async def test_the_proxy_of_the_environment_is_used_unless_it_leaves_the_server_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, bypassed: bool
) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    asked: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive())

    proxy = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610 - anyio, not Django
    for name, value in (("https_proxy", proxy), ("no_proxy", "api.invalid" if bypassed else "")):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    config = tmp_path / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://api.invalid:6443"}}],
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
