"""Which requests `sunkctl ui` hands on, and what it answers, with a test's own API server."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from sunk_ctl.cluster import Cluster
from sunk_ctl.ui import Forwarder, free_port, serve
from sunk_ctl.ui_gate import START, Elsewhere, Refusal, Wanted, judged
from sunk_events.view import ROOT
from sunk_kube.errors import (
    KubeBusyError,
    KubeNotFoundError,
    KubeRejectedError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)
from sunk_runtime.http_pages import HEADERS

SECRET = "s3cret"  # noqa: S105 - of a test
PORT = 4321
HOST = f"0f1e2d.localhost:{PORT}"


def judge(
    path: str, headers: Mapping[str, str] | None = None, query: tuple[tuple[str, str], ...] = ()
) -> Wanted | Elsewhere | Refusal:
    return judged(path, query, {"host": HOST} | dict(headers or {}), secret=SECRET, own=HOST)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example"},
        {"host": f"localhost:{PORT}"},
        {"host": f"127.0.0.1:{PORT}"},
        {"host": f"0f1e2d.localhost:{PORT + 1}"},
        {"host": f"another.localhost:{PORT}"},
        {"host": f"x.0f1e2d.localhost:{PORT}"},
        {"host": ""},
        {"origin": "http://attacker.example"},
        {"origin": f"http://127.0.0.1:{PORT}"},
        {"origin": f"http://0f1e2d.localhost:{PORT + 1}"},
        {"origin": f"http://another.localhost:{PORT}"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_or_name_gets_nothing_although_it_knows_the_secret(headers: dict[str, str]) -> None:
    found = judge(f"/{SECRET}/nodes", headers)

    assert isinstance(found, Refusal)
    assert found.status == 403


@pytest.mark.parametrize(
    "path", ["/", "/page/index.html", "/nodes", f"/{SECRET}x/nodes", f"//{SECRET}/nodes", "/é/nodes"]
)
def test_without_the_secret_there_is_nothing(path: str) -> None:
    found = judge(path)

    assert isinstance(found, Refusal)
    assert (found.status, SECRET in found.text) == (404, False)


@pytest.mark.parametrize(
    "rest",
    [
        "../../../api/v1/secrets",
        "nodes/../../x",
        "%2e%2e/secrets",
        "nodes//explain",
        "nodes?x=1",
        "nodes/a%2Fb/explain",
        ".hidden",
        "x" * 700,
    ],
)
def test_only_paths_of_the_view_are_handed_on(rest: str) -> None:
    assert isinstance(judge(f"/{SECRET}/{rest}"), Refusal)


def test_questions_and_files_are_handed_on_with_their_types() -> None:
    same = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}

    assert judge(f"/{SECRET}") == Elsewhere(path=f"/{SECRET}/{START}")
    assert judge(f"/{SECRET}/page/main.js", same) == Wanted(
        path="/page/main.js", media_type="text/javascript; charset=utf-8"
    )
    assert judge(f"/{SECRET}/events", same, (("last", "5"),)) == Wanted(
        path="/events", query={"last": "5"}, media_type="application/json"
    )


@pytest.mark.parametrize("query", [(("watch", "true"),), (("after", "x" * 40_000),)])
def test_a_query_of_something_else_is_refused(query: tuple[tuple[str, str], ...]) -> None:
    found = judge(f"/{SECRET}/events", None, query)

    assert isinstance(found, Refusal)
    assert found.status == 400


class Api:
    """Answers with what it is given."""

    def __init__(self, given: bytes | Exception) -> None:
        self.asked: list[tuple[str, str]] = []
        self._given = given

    async def send(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> bytes:
        self.asked.append((method, path + "?" * bool(query)))
        if isinstance(self._given, Exception):
            raise self._given
        return self._given


def browser(api: Api) -> httpx.AsyncClient:
    cluster = cast("Cluster", SimpleNamespace(api=api))
    app = Starlette(routes=Forwarder(cluster, HOST, SECRET).routes())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "status"),
    [
        (b"{}", 200),
        (KubeBusyError("busy", retry_after_s=3), 429),
        (KubeUnavailableError("away"), 503),
        (KubeUnauthorizedError("get /x: HTTP 401: Unauthorized"), 401),
        (KubeNotFoundError("none"), 404),
        (KubeRejectedError("may not", status=403), 403),
    ],
)
async def test_each_answer_has_the_headers_of_the_page_and_its_own_status(
    given: bytes | Exception, status: int
) -> None:
    api = Api(given)
    async with browser(api) as http:
        found = await http.get(f"/{SECRET}/nodes")

    assert found.status_code == status
    assert found.headers.items() >= {key.lower(): value for key, value in HEADERS.items()}.items()
    assert api.asked == [("GET", f"{ROOT}/nodes")]
    assert ("retry-after" in found.headers) == (status in {401, 429, 503})


@pytest.mark.anyio
async def test_what_is_refused_never_reaches_the_api_server() -> None:
    api = Api(b"{}")
    async with browser(api) as http:
        codes = [
            (await http.get("/healthz")).status_code,
            (await http.get("/nodes")).status_code,
            (await http.post(f"/{SECRET}/nodes")).status_code,
            (await http.get(f"/{SECRET}/nodes", headers={"Host": "attacker.example"})).status_code,
        ]
        start = await http.get(f"/{SECRET}/")

    assert codes == [404, 404, 405, 403]
    assert (start.status_code, start.headers["location"]) == (307, f"/{SECRET}/{START}")
    assert api.asked == []


@pytest.mark.anyio
async def test_each_run_has_a_name_that_no_other_had_at_that_port(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    cluster = cast("Cluster", SimpleNamespace(api=Api(b"{}")))
    found: list[tuple[str, int, int]] = []
    for _ in range(2):
        async with anyio.create_task_group() as tasks, httpx.AsyncClient(trust_env=False) as http:
            tasks.start_soon(serve, cluster, port)
            printed = ""
            while not printed:
                await anyio.sleep(0.02)
                printed = capsys.readouterr().out.strip()
            address = httpx.URL(printed)
            at = address.copy_with(host="127.0.0.1")
            right = await http.get(at, headers={"Host": address.netloc.decode()})
            wrong = await http.get(at)
            found.append((address.host, right.status_code, wrong.status_code))
            tasks.cancel_scope.cancel()

    assert [codes for _, *codes in found] == [[200, 403]] * 2
    assert len({host for host, *_ in found}) == 2
    assert all(host.endswith(".localhost") for host, *_ in found)
