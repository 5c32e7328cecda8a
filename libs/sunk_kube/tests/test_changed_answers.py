"""Answers of a real API server, changed at random with their form in mind, are read or refused; no other end.

`./task test:nightly` takes many more examples.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.client import KubeClient, connect
from sunk_kube.resources import LEASES, NODES, PODS, Resource
from sunk_lab.odd_json import changed, few_and_many, fuzzed
from sunk_runtime.errors import SunkError

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

LINE: Final = 2000
KINDS: Final[tuple[Resource[Any], ...]] = (PODS, NODES, LEASES)
READS: Final[Mapping[str, Callable[[KubeClient, Resource[Any]], Awaitable[object]]]] = {
    "get": lambda kube, kind: kube.get(kind, "one", "default" if kind.is_namespaced else None),
    "list_all": lambda kube, kind: kube.list_all(kind),
    "list_with_version": lambda kube, kind: kube.list_with_version(kind),
}


async def made(kube: KubeClient, namespace: str) -> list[Any]:
    """Return a Node, a Pod and a Lease as the API server shows them, alone and as lists."""
    meta = {
        "name": "changed",
        "namespace": namespace,
        "annotations": {"a": "b"},
        "finalizers": ["x.example/y"],
    }
    taint = {"key": "x.example/full", "effect": "NoSchedule"}
    bodies: list[tuple[Resource[Any], dict[str, Any]]] = [
        (NODES, {"metadata": {"name": namespace, "labels": {"a": "b"}}, "spec": {"taints": [taint]}}),
        (
            PODS,
            {
                "metadata": {**meta, "finalizers": None},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        ),
        (LEASES, {"metadata": meta, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 3}}),
    ]
    found: list[Any] = []
    for kind, body in bodies:
        within = namespace if kind.is_namespaced else None
        one = await kube.create(kind, body, within)
        found.append(json.loads(await kube.get_raw(f"{kind.path(within)}/{one.metadata.name}")))
        found.append(json.loads(await kube.get_raw(kind.path(within))))
    await kube.delete(NODES, namespace)
    await kube.patch(LEASES, "changed", {"metadata": {"finalizers": None}}, namespace)
    return found


@few_and_many
async def test_a_changed_answer_is_read_or_refused_in_few_words(
    kube: KubeClient, namespace: str, tmp_path: Path, examples: int
) -> None:
    documents = await made(kube, namespace)
    status, body = 200, b""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = f"HTTP/1.1 {status} Whatever\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send(head.encode() + body)

    async def asked(read: str, kind: Resource[Any]) -> str:
        try:
            await READS[read](client, kind)
        except SunkError as error:
            return str(error)
        return "-"

    outcomes = set[bool]()

    def run() -> None:
        @fuzzed(examples)
        @given(
            st.sampled_from([*READS]),
            st.sampled_from(KINDS),
            changed(documents),
            st.sampled_from([200, 200, 200, 404, 409, 500]),
        )
        def is_read_or_refused(read: str, kind: Resource[Any], content: bytes, answered: int) -> None:
            nonlocal status, body
            status, body = answered, content
            said = anyio.from_thread.run(asked, read, kind)
            assert 0 < len(said) < LINE
            outcomes.add(said == "-")

        is_read_or_refused()
        assert outcomes == {True, False}

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - anyio, not Django
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "x", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        async with connect("test", kubeconfig=tmp_path / "kubeconfig") as client:
            await anyio.to_thread.run_sync(run)
        tasks.cancel_scope.cancel()
