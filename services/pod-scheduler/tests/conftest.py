"""The lab's real API server, for what we write on Pods."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.resources import NAMESPACES


@pytest.fixture
async def kube(request: pytest.FixtureRequest) -> AsyncGenerator[KubeClient]:
    kubeconfig = Path(request.getfixturevalue("kube_lab").kubeconfig)
    async with connect("pod-scheduler", kubeconfig=kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncGenerator[str]:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "sunk-placed-"}}
    made = await kube.create(NAMESPACES, body)
    try:
        yield made.metadata.name
    finally:
        with anyio.move_on_after(10, shield=True):
            await kube.delete(NAMESPACES, made.metadata.name)
