"""Tokens and keys of a real API server."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from sunk_hook_gateway.access.tokens import AccessError, Caller
from sunk_hook_gateway.adapters import keys
from sunk_hook_gateway.adapters.keys import PodTokens, from_api_server
from sunk_hook_gateway.testing.issuer import AUDIENCE
from sunk_kube.api import Api, open_api
from sunk_kube.client import connect
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.errors import SunkError
from sunk_runtime.testing import WITHIN_S, until

pytestmark = [pytest.mark.anyio, pytest.mark.lab]

POD = "gpu-000-012"


class ServiceAccount:
    """A ServiceAccount with a Pod, in a namespace of its own."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._api.send("POST", f"/api/v1/namespaces/{self.namespace}/{path}", body=body)
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def token(self, audience: str, pod: dict[str, Any] | None) -> str:
        """Return what the kubelet would project into *pod*."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
        if pod:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": meta["name"],
                "uid": meta["uid"],
            }
        answer = await self.post("serviceaccounts/slurmd/token", {"spec": spec})
        return str(answer["status"]["token"])


@pytest.fixture
def kubeconfig(kube_lab: KubeLab) -> Path:
    return Path(kube_lab.kubeconfig)


@pytest.fixture
async def account(kubeconfig: Path) -> AsyncGenerator[ServiceAccount]:
    async with open_api("test", kubeconfig=kubeconfig, timeout_s=10) as api:
        body = {"metadata": {"generateName": "hooks-"}}
        made = await api.send("POST", "/api/v1/namespaces", body=body)
        namespace = msgspec.json.decode(made, type=dict[str, Any])["metadata"]["name"]
        account = ServiceAccount(api, namespace)
        try:
            await account.post("serviceaccounts", {"metadata": {"name": "slurmd"}})
            yield account
        finally:
            with anyio.move_on_after(5, shield=True):
                await api.send("DELETE", f"/api/v1/namespaces/{namespace}")


async def made_pod(account: ServiceAccount) -> dict[str, Any]:
    """Return a Pod, which need not run: tokens are bound to its object."""
    body = {
        "metadata": {"name": POD},
        "spec": {
            "serviceAccountName": "slurmd",
            "schedulerName": "nobody",
            "containers": [{"name": "slurmd", "image": "localhost/sunk-pause:1"}],
        },
    }
    made: list[dict[str, Any]] = []

    async def is_made() -> bool:
        try:
            made.append(await account.post("pods", body))
        except SunkError:  # Admission waits for the namespace's own account.
            return False
        return True

    await until(is_made)
    return made[0]


async def test_a_real_pod_token_tells_its_pod_and_no_other_token_is_let_in(
    kubeconfig: Path, account: ServiceAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "WAIT_S", WITHIN_S)
    pod = await made_pod(account)
    bound = await account.token(AUDIENCE, pod)
    elsewhere = await account.token("https://elsewhere", pod)
    unbound = await account.token(AUDIENCE, None)

    statuses: list[int] = []
    async with connect("test", kubeconfig=kubeconfig) as kube, anyio.create_task_group() as tasks:
        tokens = PodTokens(from_api_server(kube, ""), audience=AUDIENCE)
        tasks.start_soon(tokens.run)

        assert await tokens.identify(bound) == Caller(
            POD, account.namespace, pod["metadata"]["uid"], "slurmd"
        )
        for token in (elsewhere, unbound, bound[:-8] + "AAAAAAAA"):
            with pytest.raises(AccessError) as refused:
                await tokens.identify(token)
            statuses.append(refused.value.status)
        tasks.cancel_scope.cancel()

    assert statuses == [401, 403, 401]
