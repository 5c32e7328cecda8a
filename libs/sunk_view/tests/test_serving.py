"""What a request gets, with a test's own decisions in place of the API server's."""

from collections.abc import Callable
from typing import Any, cast

import anyio
import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from sunk_events.base import Reply, Request
from sunk_events.requests import Explanation, Finding
from sunk_events.view import GROUP, HIDDEN, ROOT
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeUnavailableError
from sunk_runtime.call_rates import CallRates
from sunk_runtime.http_guard import Line
from sunk_view import openapi
from sunk_view.access import NAMESPACES_MAX, Access, SubjectAccessReview
from sunk_view.callers import FrontProxy
from sunk_view.events import EventAnswers
from sunk_view.explaining import Explainer
from sunk_view.facts import Facts
from sunk_view.questions import Questions
from sunk_view.serving import OF_ONE_MAX, UNDER_WAY_MAX, Serving
from sunk_view.states import ClusterStates

pytestmark = pytest.mark.anyio
JOB = f"{ROOT}/jobs/1/explain"
DISCOVERY = ("/apis", f"/apis/{GROUP}", ROOT)
PROXY = FrontProxy(authority="PEM", user_headers=("x-remote-user",))


class OneCluster:
    """A cluster whose syncer is silent."""

    cluster = "c1"

    def problems(self, *, is_of_nodes: bool = False) -> tuple[str, ...]:
        assert not is_of_nodes
        return ("c1: syncer has not seen Slurm for 600 s: its data may be old",)


class Decisions:
    """Grants a right where *grants* says so; notes which users it was asked about."""

    def __init__(self, grants: Callable[[dict[str, str]], bool] = lambda _: True) -> None:
        self.users: list[str] = []
        self._grants = grants

    async def create(self, _resource: object, body: dict[str, Any]) -> SubjectAccessReview:
        self.users.append(body["spec"]["user"])
        granted = self._grants(body["spec"]["resourceAttributes"])
        return msgspec.convert({"status": {"allowed": granted}}, SubjectAccessReview)


class Jobs:
    """Answers each question about a job once it may."""

    def __init__(self) -> None:
        self.may_answer = anyio.Event()
        self.may_answer.set()
        self.because = ""

    async def ask(self, _cluster: str, _question: Request, _deadline: float) -> Reply:
        await self.may_answer.wait()
        return Explanation(findings=(Finding(what="pending", because=self.because),))


def client(decisions: Decisions, jobs: Jobs, *, burst: int = 10_000) -> httpx.AsyncClient:
    states = cast("ClusterStates", OneCluster())
    access = Access(cast("KubeClient", decisions), decisions_s=60)
    why = Explainer(Questions(jobs.ask, answer_s=60), [states])
    app = Starlette(routes=Serving(PROXY, access, CallRates(0.001, burst), [states], why).routes())
    line = Line()
    line.common_name = "front-proxy-client"

    async def with_line(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own
        await app({**scope, "state": {"line": line}}, receive, send)

    transport = httpx.ASGITransport(with_line)
    return httpx.AsyncClient(transport=transport, base_url="http://view", headers={"X-Remote-User": "alice"})


async def test_discovery_does_not_count_against_a_callers_rate() -> None:
    async with client(Decisions(), Jobs(), burst=1) as http:
        found = [(await http.get(path)).status_code for path in DISCOVERY * 5]
        first, second = await http.get(JOB), await http.get(JOB)

    assert found == [200] * 15
    assert (first.status_code, second.status_code) == (200, 429)


def test_the_openapi_document_has_each_path_that_is_served() -> None:
    states = cast("ClusterStates", OneCluster())
    access = Access(cast("KubeClient", Decisions()), decisions_s=60)
    why = Explainer(Questions(Jobs().ask, answer_s=60), [states])
    events = EventAnswers(access, cast("Facts", None), [states])
    served = Serving(PROXY, access, CallRates(1, 1), [states], why, more=events.routes()).routes()
    paths = {cast("Route", route).path for route in served}

    assert {f"{ROOT}{path}" for path in openapi.ANSWERS} == {
        one for one in paths if one.startswith(f"{ROOT}/")
    }
    assert openapi.DOCUMENT_PATH in paths


async def test_an_answer_names_the_services_that_are_silent() -> None:
    async with client(Decisions(), Jobs()) as http:
        found = (await http.get(JOB)).json()

    assert found["problems"] == list(OneCluster().problems())


async def test_an_answer_says_that_it_hides_pods_of_namespaces_that_it_did_not_look_up() -> None:
    jobs = Jobs()
    jobs.because = ", ".join(f"team-{number:03}/x" for number in range(NAMESPACES_MAX + 6))
    decisions = Decisions(lambda right: right["resource"] != "pods" or right.get("namespace") == "team-069")
    async with client(decisions, jobs) as http:
        many = (await http.get(JOB)).json()
    jobs.because = "team-068/x, team-069/x"
    async with client(decisions, jobs) as http:
        few = (await http.get(JOB)).json()

    (problem,) = many["problems"][1:]
    assert problem == (
        "Pods of 6 namespaces are hidden, whatever your rights: one answer looks up 64. "
        "Ask about one namespace"
    )
    assert "team-" not in many["parts"][0]["findings"][0]["because"]
    assert few["parts"][0]["findings"][0]["because"] == f"{HIDDEN}, team-069/x"
    assert few["problems"] == many["problems"][:1]


async def test_an_api_server_that_is_away_in_the_middle_is_an_answer_to_ask_again() -> None:
    def grants(right: dict[str, str]) -> bool:
        if right.get("namespace"):
            raise KubeUnavailableError("the API server is slow")
        return right["resource"] != "pods"

    jobs = Jobs()
    jobs.because = "team-a/x, team-b/y"
    async with client(Decisions(grants), jobs) as http:
        found = await http.get(JOB)

    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert found.json()["message"] == "not now: the API server is slow"


async def test_more_questions_than_the_process_answers_at_once_are_asked_to_come_again() -> None:
    jobs = Jobs()
    jobs.may_answer = anyio.Event()
    codes: list[int] = []
    async with client(Decisions(), jobs) as http, anyio.create_task_group() as tasks:

        async def get(user: str) -> None:
            codes.append((await http.get(JOB, headers={"X-Remote-User": user})).status_code)

        for number in range(UNDER_WAY_MAX):
            tasks.start_soon(get, f"user-{number // OF_ONE_MAX}")
        await anyio.wait_all_tasks_blocked()
        one_more = await http.get(JOB)
        fixed = await http.get(ROOT)
        jobs.may_answer.set()
        assert (one_more.status_code, one_more.headers["retry-after"], fixed.status_code) == (503, "1", 200)

    assert codes == [200] * UNDER_WAY_MAX


@pytest.mark.parametrize("name", ["alice", "system:serviceaccount:team-a:x{}"])
async def test_one_caller_takes_a_part_of_the_places_only(name: str) -> None:
    jobs = Jobs()
    jobs.may_answer = anyio.Event()
    codes: list[int] = []
    async with client(Decisions(), jobs) as http, anyio.create_task_group() as tasks:

        async def get(user: str) -> None:
            codes.append((await http.get(JOB, headers={"X-Remote-User": user})).status_code)

        for number in range(UNDER_WAY_MAX):
            tasks.start_soon(get, name.format(number))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(get, "bob")
        await anyio.wait_all_tasks_blocked()
        jobs.may_answer.set()

    assert codes == [429] * (UNDER_WAY_MAX - OF_ONE_MAX) + [200] * (OF_ONE_MAX + 1)


async def test_a_tenant_gets_no_second_rate_by_more_service_accounts() -> None:
    async with client(Decisions(), Jobs(), burst=3) as http:
        found = [
            await http.get(JOB, headers={"X-Remote-User": f"system:serviceaccount:{user}"})
            for user in ("team-a:x1", "team-a:x2", "team-a:x3", "team-a:x4", "team-b:x1")
        ]

    assert [one.status_code for one in found] == [200, 200, 200, 429, 200]
    assert found[3].json()["message"] == "namespace team-a asks too often"


async def test_a_users_name_is_utf_8() -> None:
    decisions = Decisions()
    async with client(decisions, Jobs()) as http:
        await http.get(JOB, headers={b"X-Remote-User": "zo\u00eb".encode()})
        refused = await http.get(JOB, headers={b"X-Remote-User": b"zo\xeb"})

    assert set(decisions.users) == {"zo\u00eb"}
    assert refused.status_code == 401
