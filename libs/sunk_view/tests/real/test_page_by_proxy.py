"""The live page behind oauth2-proxy, as examples/oauth2-proxy has it, with an issuer of OpenID Connect.

The proxy and the API server are real. The arguments are those of the example; the names of the issuer and of
the API server are the test's.
"""

import http.client
import os
import re
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml

from sunk_ctl.testing import bus_settings, nats_with_users, view_stage
from sunk_events import subjects
from sunk_events.codec import encode
from sunk_events.nodes import SlurmNodeState
from sunk_events.view import ROOT
from sunk_lab import oauth2_proxy
from sunk_lab.config import from_environment
from sunk_lab.kube.certificates import Authority
from sunk_lab.nats import NatsServer
from sunk_lab.oidc import Issuer
from sunk_lab.ports import free_port
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_runtime.http_pages import HEADERS
from sunk_runtime.jetstream import BusSettings, connect

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1800)]

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/oauth2-proxy"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sunk-view}
subjects:
- {kind: Group, name: "oidc:operators", apiGroup: rbac.authorization.k8s.io}
- {kind: User, name: dave, apiGroup: rbac.authorization.k8s.io}
"""
PAGE = f"{ROOT}/page/index.html"
CAROL: dict[str, object] = {
    "sub": "1",
    "email": "carol@example.com",
    "email_verified": True,
    "groups": ["operators"],
}
ALICE: dict[str, object] = {"sub": "2", "email": "alice@example.com", "email_verified": True, "groups": []}
SECRETS = {"client-secret": "secret-of-the-client", "cookie-secret": "0123456789abcdef0123456789abcdef"}


@dataclass(frozen=True)
class Stage:
    """A proxy before the API server, and the issuer."""

    issuer: Issuer
    url: str
    trust: ssl.SSLContext

    def browser(self) -> httpx.Client:
        """Return what keeps cookies as a browser does."""
        return httpx.Client(base_url=self.url, verify=self.trust, trust_env=False, timeout=60)

    @contextmanager
    def logged_in(self, claims: dict[str, object]) -> Generator[httpx.Client]:
        """Open the page as the user with *claims*."""
        self.issuer.claims = claims
        with self.browser() as browser:
            page = browser.get(PAGE, follow_redirects=True)
            assert page.status_code == 200, page.text
            assert page.url.path == PAGE
            yield browser


def arguments(issuer: str, api: str, folder: Path) -> list[str]:
    """Return those of the example's Deployment, with the names and files of the test; it is at ``HERE``."""
    deployment = next(yaml.safe_load_all((EXAMPLE / "proxy.yaml").read_text()))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    changed = {
        "https://issuer.example.com": issuer,
        "sunk.example.com": "HERE",
        "https://kubernetes.default.svc": api,
        "/etc/sunk-page": str(folder),
        "--cookie-refresh=5m": "--cookie-refresh=2s",
    }
    found = "\n".join(container["args"])
    for old, new in changed.items():
        assert old in found, old
        found = found.replace(old, new)
    return found.splitlines()


def authentication(issuer: str, authority: str) -> dict[str, Any]:
    """Return the example's, for that issuer."""
    found = yaml.safe_load((EXAMPLE / "authentication.yaml").read_text())
    (one,) = found["jwt"]
    one["issuer"] |= {"url": issuer, "certificateAuthority": authority}
    return found


async def fill(server: NatsServer, folder: Path) -> None:
    async with connect(bus_settings(server, folder, "admin"), "admin") as bus:
        await bus.provision("c1", BusSettings())
        node = SlurmNodeState(changed=datetime.now(UTC), node="d1", state="IDLE")
        await bus.publish(subjects.key_subject(subjects.bucket("c1", SlurmNodeState), "d1"), encode(node))


@contextmanager
def proxy(words: list[str], folder: Path, authority: Authority, trusted: list[Path]) -> Generator[str]:
    """Run oauth2-proxy with *words*, trusting the authorities in the files *trusted*; yield its URL."""
    program, port = oauth2_proxy.build(from_environment().cache, print), free_port()
    (folder / "trusted").mkdir()
    for number, file in enumerate(trusted):
        (folder / f"trusted/{number}.pem").write_bytes(file.read_bytes())
    trusted_in = {"SSL_CERT_DIR": str(folder / "trusted"), "SSL_CERT_FILE": "/nothing", "NO_PROXY": "*"}
    env = os.environ | trusted_in  # noqa: TID251 - a program's own
    own = [
        f"--https-address=127.0.0.1:{port}",
        f"--tls-cert-file={authority.crt('server')}",
        f"--tls-key-file={authority.key('server')}",
        f"--http-address=127.0.0.1:{free_port()}",
    ]
    words = [word.replace("HERE", f"127.0.0.1:{port}") for word in words if "--http-address" not in word]
    with (
        (folder / "proxy.log").open("wb") as log,
        subprocess.Popen([program, *words, *own], env=env, stdout=log, stderr=log) as done,
    ):
        try:
            yield f"https://127.0.0.1:{port}"
        finally:
            done.terminate()
            done.wait(30)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    folder = tmp_path_factory.mktemp("proxy")
    for name, value in SECRETS.items():
        (folder / name).write_text(value)
    authority = Authority(folder / "pki")
    authority.found()
    authority.issue("server", "server", names="IP:127.0.0.1")
    client = ("sunk-page", SECRETS["client-secret"])
    with (
        reserved_lab() as lab,
        nats_with_users(folder) as server,
        Issuer("127.0.0.1", authority.crt("server"), authority.key("server"), client) as issuer,
    ):
        anyio.run(fill, server, folder)
        trusted = authentication(issuer.url, authority.crt().read_text())
        with (
            view_stage(
                lab, server, folder, people=("dave",), objects=RIGHTS, settings={}, authentication=trusted
            ) as view,
            proxy(
                arguments(issuer.url, lab.network.api, folder),
                folder,
                authority,
                [authority.crt(), view.authority.crt()],
            ) as url,
        ):
            made = Stage(issuer, url, ssl.create_default_context(cafile=str(authority.crt())))
            wait_for("the APIService", lambda: view.get("dave", "/status")[0] == 200)
            with made.browser() as browser:
                log = folder / "proxy.log"
                wait_for(f"the proxy, see {log}", lambda: browser.get("/ready").status_code == 200)
            yield made


def test_the_page_and_its_questions_are_answered_with_the_rights_of_who_logged_in(stage: Stage) -> None:
    with stage.logged_in(CAROL) as browser:
        page = browser.get(PAGE)
        nodes = browser.get(f"{ROOT}/nodes")
        changes = browser.get(f"{ROOT}/changes", params={"nodes": nodes.json()["after"]})
    with stage.logged_in(ALICE) as browser:
        refused = browser.get(f"{ROOT}/jobs")

    # The API server has a Cache-Control of its own.
    assert all(value in page.headers[name] for name, value in HEADERS.items())
    assert [row["node"] for row in nodes.json()["items"]] == ["d1"]
    assert (changes.status_code, changes.json()["whole"]) == (200, [])
    assert refused.status_code == 403
    assert "alice@example.com" in refused.text


def test_who_has_not_logged_in_is_sent_to_the_issuer_and_a_question_is_refused(stage: Stage) -> None:
    with stage.browser() as browser:
        page, question = browser.get(PAGE), browser.get(f"{ROOT}/nodes")
        forged = browser.get(f"{ROOT}/nodes", headers={"Authorization": "Bearer x", "X-Remote-User": "admin"})

    assert page.status_code == 302
    assert page.headers["location"].startswith(f"{stage.issuer.url}/authorize?")
    assert (question.status_code, forged.status_code) == (401, 401)


def test_the_session_is_for_this_site_only(stage: Stage) -> None:
    stage.issuer.claims = CAROL
    with stage.browser() as browser:
        answer = browser.get(PAGE, follow_redirects=True)
        cookies = [one for step in answer.history for one in step.headers.get_list("set-cookie")]
    session = [one for one in cookies if re.match(r"__Host-sunk-page(_\d)?=[^;]", one)]

    assert session
    for one in session:
        assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/"} <= set(one.split("; "))
        assert "Domain" not in one


def raw(stage: Stage, path: str, browser: httpx.Client) -> tuple[int, str, bytes]:
    """Ask for *path* as it is written: httpx would take the dots out. Return status, where to, and body."""
    url = httpx.URL(stage.url)
    connection = http.client.HTTPSConnection(url.host, url.port, context=stage.trust, timeout=60)
    with closing(connection):
        connection.putrequest("GET", path)
        connection.putheader("Cookie", "; ".join(f"{one.name}={one.value}" for one in browser.cookies.jar))
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Location", ""), answer.read()


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/secrets",
        "/apis",
        "/apis/apps/v1/deployments",
        f"{ROOT}/../../../api/v1/secrets",
        f"{ROOT}/%2e%2e/%2e%2e/%2e%2e/api/v1/secrets",
        f"{ROOT}/..%2f..%2f..%2fapi/v1/secrets",
        f"{ROOT}//../../../api/v1/secrets",
    ],
)
def test_nothing_else_of_the_api_server_is_reached(stage: Stage, path: str) -> None:
    with stage.logged_in(CAROL) as browser:
        status, where, body = raw(stage, path, browser)
        if where:
            status, where, body = raw(stage, where.removeprefix(stage.url), browser)

    assert (status, where) == (404, "")
    # A refusal of the API server itself would be a Status of it: "secrets is forbidden".
    assert b'"kind"' not in body


def test_an_address_that_is_not_verified_is_nobody_and_a_name_of_kubernetes_too(stage: Stage) -> None:
    unverified = {name: value for name, value in CAROL.items() if name != "email_verified"}
    own = {**CAROL, "email": "system:admin"}
    statuses: list[int] = []
    for claims in (unverified, own):
        stage.issuer.claims = claims
        with stage.browser() as browser:
            statuses.append(browser.get(PAGE, follow_redirects=True).status_code)

    assert statuses == [401, 401]


def test_a_token_is_renewed_before_it_ends_and_the_page_goes_on(stage: Stage) -> None:
    stage.issuer.lifetime_s = 8
    try:
        with stage.logged_in(CAROL) as browser:
            before, statuses = stage.issuer.renewals, set[int]()
            # The API server knows a good token for ten seconds: past that only a newer one counts.
            end = time.monotonic() + stage.issuer.lifetime_s + 15

            def is_over() -> bool:
                statuses.add(browser.get(f"{ROOT}/nodes").status_code)
                return time.monotonic() > end

            wait_for("the end of the first token", is_over, 120, pause_s=0.5)
    finally:
        stage.issuer.lifetime_s = 3600

    assert statuses == {200}
    assert stage.issuer.renewals > before + 1


def test_a_session_whose_token_has_ended_asks_for_a_login(stage: Stage) -> None:
    stage.issuer.lifetime_s = 3
    try:
        with stage.logged_in(CAROL) as browser:
            stage.issuer.refuses_renewals = True
            wait_for("the end of the token", lambda: browser.get(f"{ROOT}/nodes").status_code == 401, 60)
            page = browser.get(PAGE)
    finally:
        stage.issuer.lifetime_s, stage.issuer.refuses_renewals = 3600, False

    assert page.status_code == 302
