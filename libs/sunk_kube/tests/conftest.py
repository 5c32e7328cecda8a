"""Fixtures on the lab's real API server, which `sunk_lab` brings up."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.objects import KubeObject
from sunk_kube.resources import NAMESPACES, Resource
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.testing import until

SERVICE_ACCOUNTS = Resource(kind="ServiceAccount", plural="serviceaccounts", struct=KubeObject)


@pytest.fixture(scope="session")
def kubeconfig(kube_lab: KubeLab) -> Path:
    return Path(kube_lab.kubeconfig)


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncGenerator[KubeClient]:
    async with connect("test", kubeconfig=kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncGenerator[str]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-kube-"}}
    made = await kube.create(NAMESPACES, body)

    async def is_usable() -> bool:  # No Pod is admitted before its ServiceAccount is there.
        return await kube.find(SERVICE_ACCOUNTS, "default", made.metadata.name) is not None

    await until(is_usable)
    try:
        yield made.metadata.name
    finally:
        with anyio.move_on_after(10, shield=True):
            await kube.delete(NAMESPACES, made.metadata.name)
