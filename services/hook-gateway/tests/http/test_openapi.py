# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Calls made by Schemathesis from the OpenAPI document that the gateway serves.

Half of them fit the document and half do not; each with the right token and with wrong ones. Who answers on
the bus stands in, and does so at once.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import requests
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, Config, GenerationMode, openapi
from schemathesis.generation.hypothesis import setup
from schemathesis.specs.openapi import checks

from sunk_events.base import Reply, Request
from sunk_events.requests import (
    AcquireLock,
    LockGranted,
    Noted,
    NudgeJob,
    NudgeNode,
    PlacementAnnounced,
    PlacementReleased,
    PlacementSilent,
    RebootNode,
    ReleaseLock,
    ReleasePlacement,
)
from sunk_hook_gateway.testing.hooks import (
    CLUSTER,
    Gateway,
    bearer,
    place,
    register,
    standing_in,
    token_of,
)
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process, settings_of
from sunk_lab.ports import free_port
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until

NODE: Final = "o1"
JOB: Final = 91
PATHS: Final = {"node": NODE, "job": JOB}
OWNERS: Final[dict[type[Request], Reply]] = {
    AcquireLock: LockGranted(),
    ReleaseLock: Noted(),
    RebootNode: Noted(),
    PlacementAnnounced: Noted(),
    PlacementSilent: Noted(),
    ReleasePlacement: PlacementReleased(is_pod_gone=True),
    NudgeNode: Noted(),
    NudgeJob: Noted(),
}
CONFORMS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
"""Not that what fits is accepted: 1.0 is an integer to JSON Schema, and no job."""
CONFIG: Final = {
    "checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "503"]}},
    "generation": {"with-security-parameters": False},
    "analysis": {"constants": {"enabled": False}},  # Made from the document, not from our source.
}
FEW: Final = 8
"""Examples of each operation in each run, the same ones each time."""
MANY: Final = 300
"""In a night, new ones each time."""


@pytest.fixture(autouse=True)
def _other_tests_keep_hypothesis_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Schemathesis from replacing Hypothesis' printer, here and in every test after this one."""
    monkeypatch.setattr(setup, "_is_patched", True, raising=False)


@pytest.fixture
def hasty(nats_url: str, keys_file: Path, tmp_path: Path) -> Generator[Gateway]:
    port = free_port()
    waits = dict.fromkeys(("RELEASE_WAIT_S", "POLL_S", "PREHOOK_DEADLINE_S", "PREHOOK_DEADLINE_MAX_S"), "0.2")
    process = Process(tmp_path, settings_of(CLUSTER, nats_url, port, keys_file) | waits)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.close()


@pytest.mark.anyio
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(
    "examples", [FEW, pytest.param(MANY, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
async def test_what_is_made_from_the_document_is_answered_as_it_says_and_is_no_secret_in_the_log(
    bus: Bus, hasty: Gateway, issuer: Issuer, mode: GenerationMode, examples: int
) -> None:
    process, url = hasty
    right = {"node": issuer.token(NODE), "job": token_of(JOB)}
    wrong = [issuer.token("o2"), issuer.token(NODE, "elsewhere"), token_of(JOB + 1), "x" * 200]
    await register(bus, NODE)
    await place(bus, JOB, token=right["job"])

    async with AsyncExitStack() as owners, httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for kind, reply in OWNERS.items():
            await owners.enter_async_context(standing_in(bus, kind, reply)[1])

        async def is_ready() -> bool:
            try:
                return (await http.get("/readyz")).is_success
            except httpx.TransportError:
                return False

        async def is_read() -> bool:
            answer = await http.post(f"/v1/jobs/{JOB}/release", headers=bearer(right["job"]))
            return answer.status_code == 200

        await until(is_ready)
        await until(is_read)
        document = (await http.get("/openapi.json")).json()
        statuses = await to_thread.run_sync(
            partial(fuzz, url, document, mode, right, wrong, examples=examples)
        )
        assert (await http.get("/readyz")).is_success

    assert {401, 200 if mode is GenerationMode.POSITIVE else 400} <= statuses
    log = process.log.read_text()
    assert "call refused" in log
    assert "Traceback" not in log
    assert not [token for token in (*right.values(), *wrong) if token[:60] in log or token[-40:] in log]


def fuzz(
    url: str,
    document: dict[str, Any],
    mode: GenerationMode,
    right: Mapping[str, str],
    wrong: Sequence[str],
    *,
    examples: int,
) -> set[int]:
    """Call each operation with *examples* that are made for it; return the statuses that were answered."""
    statuses: set[int] = set()
    with requests.Session() as session:
        session.trust_env = False
        schema: Any = openapi.from_dict(document, config=Config.from_dict(CONFIG))
        for found in schema.get_all_operations():
            operation = found.ok()
            if mode is GenerationMode.NEGATIVE and not operation.body and "{job}" not in operation.path:
                continue  # Any text may be a node's name.
            mine = right["job" if "{job}" in operation.path else "node"]
            others = wrong if "{" in operation.path else wrong[1:]  # Any node may nudge.

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=examples == FEW,
                database=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            )
            @given(case=made_for(operation, mode), token=st.just(mine) | st.sampled_from(others))
            def call_with(case: Case[Any], token: str) -> None:
                answer = case.call(url, session, bearer(token), timeout=120)
                statuses.add(answer.status_code)
                assert answer.status_code < 500 or answer.status_code == 503
                assert token in right.values() or answer.status_code >= 400
                case.validate_response(answer, CONFORMS)

            call_with()
    return statuses


def made_for(
    operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode
) -> st.SearchStrategy[Case[Any]]:
    """Return what makes calls of *operation*, also for the node or the job that there is."""
    anywhere = operation.as_strategy(mode)
    known = {name: value for name, value in PATHS.items() if f"{{{name}}}" in operation.path}
    if mode is GenerationMode.NEGATIVE and not operation.body:
        return anywhere  # Only the path can be wrong.
    at_home = operation.as_strategy(mode, path_parameters=known)
    # A job that nobody knows is waited for, two seconds each: other tests do.
    return at_home if mode is GenerationMode.POSITIVE and "job" in known else at_home | anywhere
