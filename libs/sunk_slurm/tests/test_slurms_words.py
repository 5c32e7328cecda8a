"""Our reading of Slurm's words against Slurm's own: both real releases."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunk_lab.slurm.host import HostSlurm
from sunk_slurm.hostlist import compress, expand
from sunk_slurm.states import JOB_BASES, JOB_FLAGS, NODE_BASES, NODE_FLAGS

pytestmark = pytest.mark.lab

FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

numbers = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 3)).map(
    lambda drawn: f"{drawn[0]:0{drawn[2]}d}-{drawn[0] + drawn[1]:0{drawn[2]}d}" if drawn[1] else str(drawn[0])
)
brackets = st.lists(numbers, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
parts = st.tuples(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.lists(brackets, max_size=2)).map(
    lambda drawn: "-n".join((drawn[0], *drawn[1])).replace("-n[", "-[", 1)
)
expressions = st.lists(parts, min_size=1, max_size=4).map(",".join)
names = st.sets(st.from_regex(r"[a-z]{1,3}(-[0-9]{1,4}){0,2}", fullmatch=True), min_size=1, max_size=30)


def hostnames(cluster: HostSlurm, expression: str) -> list[str]:
    return cluster.exec("scontrol", "show", "hostnames", expression).split()


@FEW
@given(expression=expressions)
def test_a_hostlist_names_what_scontrol_says_it_names(cluster: HostSlurm, expression: str) -> None:
    assert list(expand(expression)) == list(dict.fromkeys(hostnames(cluster, expression)))


@FEW
@given(names=names)
def test_what_is_folded_scontrol_unfolds_to_the_same_names(cluster: HostSlurm, names: set[str]) -> None:
    assert sorted(hostnames(cluster, compress(names))) == sorted(names)


def test_every_word_of_slurms_own_list_of_states_is_known(cluster: HostSlurm) -> None:
    headers = {"X-SLURM-USER-TOKEN": cluster.token()}
    document: Any = json.loads(httpx.get(f"{cluster.url}/openapi/v3", headers=headers, timeout=30).content)
    schemas = document["components"]["schemas"]
    api = cluster.release.api

    assert words_with(schemas, api, "NOT_RESPONDING") <= NODE_BASES | NODE_FLAGS
    assert words_with(schemas, api, "REQUEUE_FED") <= JOB_BASES | JOB_FLAGS


def words_with(schemas: dict[str, Any], api: str, word: str) -> set[str]:
    """Return every value of every list of values that *word* stands in."""
    found: set[str] = set()
    to_see: list[Any] = [schema for name, schema in schemas.items() if name.startswith(api)]
    while to_see:
        one = to_see.pop()
        if isinstance(one, dict):
            values: dict[str, Any] = one  # pyright: ignore[reportUnknownVariableType] - JSON
            if word in values.get("enum", ()):
                found |= set(values["enum"])
            to_see += values.values()
        elif isinstance(one, list):
            to_see += one  # pyright: ignore[reportUnknownArgumentType] - JSON
    assert found
    return found
