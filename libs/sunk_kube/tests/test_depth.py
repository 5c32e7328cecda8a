"""An object that is nested deeper than Python reads keeps no other from being read: on a real API server."""

import contextlib
import json
from typing import Any, Final, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.client import KubeClient
from sunk_kube.crds import crds
from sunk_kube.depth import MOST, cut_deep
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.reflector import Reflector
from sunk_kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODESETS
from sunk_lab.kube.lab import KubeLab
from sunk_runtime.testing import until

DEEP: Final = 4000
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('[]{}"\\'))
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def cut(value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON has every shape
    """Return *value* with null for what is deeper than *depth*: what `cut_deep` is to do."""
    if isinstance(value, list | dict) and not depth:
        return None
    if isinstance(value, list):
        return [cut(one, depth - 1) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: cut(one, depth - 1) for name, one in cast("dict[str, Any]", value).items()}
    return value


@given(JSON, st.integers(1, 4))
def test_what_is_too_deep_is_null_and_all_else_is_as_it_was(value: Any, depth: int) -> None:  # noqa: ANN401 - JSON has every shape
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert json.loads(cut_deep(text.encode(), depth)) == cut(value, depth)


@given(st.binary())
def test_what_is_no_json_is_as_little_afterwards(data: bytes) -> None:
    assert len(cut_deep(data, 1)) <= 4 * len(data)


def test_an_object_of_megabytes_is_read_to_its_end() -> None:
    whole = b'{"a":' + b"[" * 700_000 + b"]" * 700_000 + b',"b":"[[}{\\""}'

    assert json.loads(cut_deep(whole, MOST))["b"] == '[[}{"'


@pytest.mark.lab
@pytest.mark.anyio
async def test_a_nodeset_that_is_nested_without_end_keeps_no_other_from_being_seen(
    kube: KubeClient, namespace: str, kube_lab: KubeLab
) -> None:
    path = f"/apis/{NODESETS.api_version}/namespaces/{namespace}/nodesets"

    async def make(name: str, more: str = "1") -> None:
        container = f'{{"name":"slurmd","image":"localhost/slurm:1","env":[],"more":{more}}}'
        spec = f'{{"cluster":"lab","template":{{"spec":{{"containers":[{container}]}}}}}}'
        kind = f'"apiVersion":"{NODESETS.api_version}","kind":"NodeSet"'
        text = f'{{{kind},"metadata":{{"name":"{name}"}},"spec":{spec}}}'
        await anyio.to_thread.run_sync(
            lambda: kube_lab.kubectl("create", "--raw", path, "-f", "-", input=text)
        )

    for crd in crds():
        await kube.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], crd, kind="apply")

    async def is_served() -> bool:
        with contextlib.suppress(KubeNotFoundError):
            await kube.list_all(NODESETS, namespace)
            return True
        return False

    await until(is_served)
    view = Reflector(kube, NODESETS, namespace=namespace)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.run)
        await view.complete()
        await make("deep", "[" * DEEP + "]" * DEEP)
        await make("watched")
        await until(lambda: view.get(f"{namespace}/watched") is not None)
        tasks.cancel_scope.cancel()
    found = await kube.list_all(NODESETS, namespace)

    assert sorted(one.metadata.name for one in found) == ["deep", "watched"]
    assert view.get(f"{namespace}/deep") is not None
