"""What callers must not send, each with its answer."""

import httpx
import pytest

from sunk_events.requests import AcquireLock, Refused
from sunk_hook_gateway.testing.hooks import bearer, call, register, standing_in, start_pod
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("body", "named"),
    [
        pytest.param(b"", "", id="no body"),
        pytest.param(b"{", "", id="no JSON"),
        pytest.param(b"[]", "object", id="no object"),
        pytest.param(b"\xff\xfe", "", id="no UTF-8"),
        pytest.param(b'{"level":"normal"}', "`job`", id="no job"),
        pytest.param(b'{"job":"12"}', "$.job", id="a job in quotes"),
        pytest.param(b'{"job":0}', "$.job", id="job 0"),
        pytest.param(b'{"job":1,"level":"very"}', "$.level", id="an unknown level"),
        pytest.param(b'{"job":1,"deadline_s":0}', "$.deadline_s", id="no time at all"),
        pytest.param(b"[" * 60000, "", id="nested too deep"),
    ],
)
async def test_a_malformed_body_is_answered_400_naming_the_field(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer, body: bytes, named: str
) -> None:
    await register(bus, "f1")
    answer = await http.post("/v1/nodes/f1/prehook", content=body, headers=bearer(issuer.token("f1")))

    assert answer.status_code == 400
    assert named in answer.json()["error"]


async def test_a_body_over_64_kib_is_answered_413(bus: Bus, http: httpx.AsyncClient, issuer: Issuer) -> None:
    await register(bus, "f1")
    answer = await http.post(
        "/v1/nodes/f1/prehook", content=b" " * (64 * 1024 + 1), headers=bearer(issuer.token("f1"))
    )

    assert answer.status_code == 413


@pytest.mark.parametrize("job", ["0", "-1", "x", "1e3", "99999999999", "9" * 5000])
async def test_a_job_that_is_none_is_answered_400(http: httpx.AsyncClient, job: str) -> None:
    answer = await http.get(f"/v1/jobs/{job}/outcome", headers=bearer("t"))

    assert answer.status_code == 400
    assert "job" in answer.json()["error"]


async def test_nobody_is_let_in_without_the_right_token(http: httpx.AsyncClient, issuer: Issuer) -> None:
    path, body = "/v1/nodes/f2/prehook", {"job": 1}
    assert (await http.post(path, json=body)).status_code == 401
    await call(http, path, "garbage", body, expect=401)
    await call(http, path, issuer.token("f3"), body, expect=403)
    await call(http, path, issuer.token("f2", "elsewhere"), body, expect=403)
    await call(http, path, Issuer("unknown").token("f2"), body, expect=401)


async def test_a_pod_that_the_bus_does_not_have_is_told_to_ask_again(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await call(http, "/v1/nodes/f5/prehook", issuer.token("f5"), {"job": 1}, expect=503)
    await start_pod(bus, "f5", uid="another")
    await call(http, "/v1/nodes/f5/release", issuer.token("f5"), {"job": 1}, expect=503)


async def test_a_refusal_of_the_lock_is_passed_on(bus: Bus, http: httpx.AsyncClient, issuer: Issuer) -> None:
    await register(bus, "f4")
    _, answering_locks = standing_in(bus, AcquireLock, Refused(code="unknown_node", reason="no NodeSet Pod"))

    async with answering_locks:
        told = await call(http, "/v1/nodes/f4/prehook", issuer.token("f4"), {"job": 1}, expect=404)

    assert told == {"error": "no NodeSet Pod"}
