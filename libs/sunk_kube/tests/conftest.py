"""Fixtures on the lab's real API server, which `sunk_lab` brings up."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.resources import NAMESPACES


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue("kube_lab").kubeconfig)


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncGenerator[KubeClient]:
    async with connect("test", kubeconfig=kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncGenerator[str]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-kube-"}}
    made = await kube.create(NAMESPACES, body)
    try:
        yield made.metadata.name
    finally:
        with anyio.move_on_after(10, shield=True):
            await kube.delete(NAMESPACES, made.metadata.name)
