"""The lab's real API server, for what we write on Pods."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.resources import NAMESPACES
from sunk_lab.kube.lab import KubeLab


@pytest.fixture
async def kube(kube_lab: KubeLab) -> AsyncGenerator[KubeClient]:
    async with connect("pod-scheduler", kubeconfig=kube_lab.kubeconfig) as client:
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
