"""What is made of slurmrestd's answers: errors by what to do next, and never a token in them."""

import base64
import hashlib
import hmac
import inspect
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import jwt
import pytest

from sunk_runtime.errors import ConfigError
from sunk_slurm.accounting import AccountedJob, AccountedState, AccountedTime, SlurmAccounting
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import INVALID_JOB_ID, SlurmConflictError, SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.reads import NodeList, NotModified
from sunk_slurm.submission import JobDescription
from sunk_slurm.tokens import FileTokens, FileUserTokens, KeyTokens, KeyUserTokens, tokens_from

pytestmark = pytest.mark.anyio

VERSIONS: dict[str, dict[str, dict[str, str]]] = {
    "paths": {"/slurm/v0.0.42/nodes/": {}, "/slurm/v0.0.45/nodes/": {}, "/slurmdb/v0.0.44/tres/": {}}
}
TRIVIAL = JobDescription(script="#!/bin/sh", environment=("A=1",), current_working_directory="/")
TOKEN = "eyJ-secret"  # noqa: S105 - of this test


class OneToken:
    renewed = 0

    def current(self) -> str:
        return TOKEN

    def renew(self) -> None:
        self.renewed += 1


def client(answer: Callable[[httpx.Request], httpx.Response], tokens: OneToken | None = None) -> SlurmClient:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        if request.url.path == "/openapi/v3":
            return httpx.Response(200, json=VERSIONS)
        return answer(request)

    return SlurmClient("http://slurm", tokens or OneToken(), transport=httpx.MockTransport(handle))


def error(status: int, number: int, words: str = "said so") -> httpx.Response:
    problem = {"error_number": number, "error": words, "description": "what", "source": "here"}
    return httpx.Response(status, json={"errors": [problem]})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(httpx.Response(200, json={"jobs": []}), id="an empty list"),
        pytest.param(httpx.Response(200, json={}), id="no list"),
        pytest.param(httpx.Response(200, json={"jobs": [{"job_id": 8}]}), id="another job"),
        pytest.param(httpx.Response(304), id="not modified, although nothing was asked about"),
    ],
)
async def test_a_job_is_not_absent_because_an_answer_leaves_it_out(answer: httpx.Response) -> None:
    async with client(lambda _: answer) as slurm:
        with pytest.raises(SlurmUnavailableError):
            await slurm.job(7)


@pytest.mark.parametrize("whole", ["array_job_id", "het_job_id"])
async def test_the_first_of_several_jobs_may_be_gone_before_the_others(whole: str) -> None:
    other = {"job_id": 8, whole: {"set": True, "infinite": False, "number": 7}}
    async with client(lambda _: httpx.Response(200, json={"jobs": [other]})) as slurm:
        assert await slurm.job(7) is None


async def test_only_slurms_own_error_makes_a_job_absent() -> None:
    async with client(lambda _: error(500, INVALID_JOB_ID)) as slurm:
        assert await slurm.job(7) is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(error(500, 2010), SlurmRejectedError, id="24.11 refuses with HTTP 500"),
        pytest.param(error(422, 2010), SlurmRejectedError, id="26.05 refuses with HTTP 422"),
        pytest.param(error(500, 9207), SlurmRejectedError, id="unknown enum value"),
        pytest.param(error(500, 2084), SlurmConflictError, id="the job is over"),
        pytest.param(error(500, 2028), SlurmRejectedError, id="not in this state"),
        pytest.param(error(500, -1), SlurmUnavailableError, id="something failed"),
        pytest.param(error(500, 1800), SlurmUnavailableError, id="slurmctld is away"),
        pytest.param(error(500, 2027), SlurmUnavailableError, id="standby"),
        pytest.param(error(511, 1007), SlurmUnavailableError, id="token not accepted"),
        pytest.param(
            httpx.Response(401, text="Authentication failure"), SlurmUnavailableError, id="no token"
        ),
        pytest.param(httpx.Response(500, text="oops"), SlurmUnavailableError, id="a proxy's 500"),
        pytest.param(httpx.Response(502, html="<html>"), SlurmUnavailableError, id="a proxy's 502"),
        pytest.param(httpx.Response(200, text="<html>"), SlurmUnavailableError, id="a web page"),
        pytest.param(httpx.Response(200, content=b""), SlurmUnavailableError, id="nothing"),
        pytest.param(httpx.Response(200, content=b"\xff\x00{"), SlurmUnavailableError, id="bytes"),
        pytest.param(httpx.Response(200, json=[1]), SlurmUnavailableError, id="no object"),
        pytest.param(httpx.Response(200, json={"errors": [7]}), SlurmUnavailableError, id="types"),
        pytest.param(httpx.Response(200, text='{"errors": ['), SlurmUnavailableError, id="cut off"),
        pytest.param(httpx.Response(200, text="[" * 100_000), SlurmUnavailableError, id="nested deeply"),
        pytest.param(httpx.Response(503, json={}), SlurmUnavailableError, id="503 without words"),
        pytest.param(httpx.Response(400, json={}), SlurmRejectedError, id="400 without words"),
        pytest.param(httpx.Response(404, text="no endpoint"), SlurmUnavailableError, id="version is gone"),
    ],
)
async def test_an_error_says_what_to_do_next_and_no_token(
    answer: httpx.Response, kind: type[Exception]
) -> None:
    async with client(lambda _: answer) as slurm:
        with pytest.raises(kind, match="drain node n1") as raised:
            await slurm.drain("n1", "k8s: test")

    assert type(raised.value) is kind
    assert TOKEN not in f"{raised.value!r} {raised.value.__cause__!r}"


async def test_no_token_is_in_a_log_a_message_or_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("cut off", request=request)

    async with client(refuse) as slurm:
        with pytest.raises(SlurmUnavailableError) as raised:
            await slurm.node("n1")
    shown = [*traceback.format_exception(raised.value), caplog.text, repr(slurm), str(raised.value.args)]
    cause = raised.value.__cause__
    assert isinstance(cause, httpx.ReadError)
    shown.append(f"{cause.request!r} {cause.request.headers!r}")

    assert "ReadError" in "".join(shown)
    assert not [text for text in shown if TOKEN in text]


def test_every_error_of_httpx_is_translated() -> None:
    def mapped(kind: type[Exception]) -> bool:
        return issubclass(kind, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError)

    kinds = [kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, Exception)]
    unmapped = {kind for kind in kinds if not mapped(kind)}

    assert unmapped == {httpx.CookieConflict}  # slurmrestd sets no cookies.


async def test_a_connection_that_fails_is_unavailable() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with client(refuse) as slurm:
        with pytest.raises(SlurmUnavailableError, match="look at node n1: ConnectError"):
            await slurm.node("n1")


async def test_a_token_that_is_not_accepted_is_renewed_once() -> None:
    tokens = OneToken()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"nodes": []}) if tokens.renewed else error(511, 1007)

    async with client(answer, tokens) as slurm:
        assert await slurm.node("n1") is None
    assert tokens.renewed == 1


async def test_the_version_that_loses_fields_is_chosen_last() -> None:
    async with client(lambda _: httpx.Response(200, json={})) as slurm:
        await slurm.partitions()

        assert slurm.version == "v0.0.42"


async def test_a_slurmrestd_of_no_version_we_speak_is_named() -> None:
    def handle(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"paths": {"/slurm/v0.0.39/nodes/": {}}})

    async with SlurmClient("http://slurm", OneToken(), transport=httpx.MockTransport(handle)) as slurm:
        with pytest.raises(SlurmRejectedError, match=r"serves v0\.0\.39; needed is one of v0\.0\.44"):
            await slurm.partitions()


async def test_another_version_is_negotiated_when_slurmrestd_was_replaced() -> None:
    served = ["v0.0.42"]

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/openapi/v3":
            return httpx.Response(200, json={"paths": {f"/slurm/{served[-1]}/nodes/": {}}})
        if not request.url.path.startswith(f"/slurm/{served[-1]}/"):
            return httpx.Response(404, text="no endpoint")
        return httpx.Response(200, json={})

    async with SlurmClient("http://slurm", OneToken(), transport=httpx.MockTransport(handle)) as slurm:
        await slurm.partitions()
        served.append("v0.0.44")

        assert await slurm.partitions() == ()
        assert slurm.version == "v0.0.44"


async def test_all_nodes_are_asked_for_where_the_conditional_question_fails() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if "update_time" in request.url.params:
            return error(500, -1, "Unable to query partitions")
        return httpx.Response(
            200, json={"nodes": [{"name": "n1"}], "last_update": {"set": True, "number": 9}}
        )

    async with client(answer) as slurm:
        nodes = await slurm.nodes(5)

    assert isinstance(nodes, NodeList)
    assert ([node.name for node in nodes.nodes], nodes.last_update) == (["n1"], 9)


async def test_304_is_not_modified() -> None:
    async with client(lambda _: httpx.Response(304)) as slurm:
        assert await slurm.nodes(5) == NotModified()


async def test_a_submission_that_names_no_job_is_not_taken_for_one() -> None:
    async with client(lambda _: httpx.Response(200, json={"job_id": 0})) as slurm:
        with pytest.raises(SlurmUnavailableError, match="names no job"):
            await slurm.submit_job(TRIVIAL)


@pytest.mark.parametrize(
    ("number", "is_sent"),
    [
        pytest.param(2007, False, id="the queue is full"),
        pytest.param(2105, False, id="submissions are disabled"),
        pytest.param(2027, True, id="it stands by: another may have been asked before"),
        pytest.param(-1, True, id="something failed"),
    ],
)
async def test_a_submission_that_slurmctld_itself_refuses_made_no_job(number: int, *, is_sent: bool) -> None:
    async with client(lambda _: error(500, number, "no")) as slurm:
        with pytest.raises(SlurmUnavailableError) as told:
            await slurm.submit_job(TRIVIAL)

    assert (told.value.number, told.value.is_sent) == (number, is_sent)


PEM: Final = b"-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n"
"""Slurm's documents once had `openssl genrsa` make the key; Slurm takes the file's bytes as they are."""


def test_pyjwt_by_itself_refuses_keys_that_slurm_takes() -> None:
    with pytest.raises(jwt.InvalidKeyError):
        jwt.encode({}, PEM, algorithm="HS256")


def test_an_empty_key_is_no_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()

    with pytest.raises(SlurmUnavailableError, match="key holds no key"):
        KeyTokens(key).current()


@pytest.mark.parametrize("secret", [b"k" * 32, PEM], ids=["bytes", "PEM"])
def test_a_signed_token_is_a_jwt_and_is_renewed_at_half_its_life(tmp_path: Path, secret: bytes) -> None:
    key = tmp_path / "key"
    key.write_bytes(secret)
    clock = [1000.0]
    tokens = KeyTokens(key, lifetime_s=100, now=lambda: clock[0])
    first = tokens.current()
    clock[0] += 49
    same = tokens.current()
    clock[0] += 2
    renewed = tokens.current()

    head, claims, signature = first.split(".")
    expected = hmac.new(secret, f"{head}.{claims}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + "=") == expected
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {"iat": 1000, "exp": 1100, "sun": "root"}
    assert (same == first, renewed == first) == (True, False)
    assert first not in repr(tokens)


def test_a_token_is_signed_anew_when_the_clock_jumps_back(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    clock = [100_000.0]
    tokens = KeyTokens(key, now=lambda: clock[0])
    first = tokens.current()
    clock[0] -= 3600

    assert tokens.current() != first


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = FileTokens(file)
    with pytest.raises(SlurmUnavailableError, match=r"read .*token: No such file"):
        tokens.current()
    file.write_text("one\n")
    first = tokens.current()
    new = tmp_path / "new"
    new.write_text("SLURM_JWT=two")
    new.replace(file)

    assert (first, tokens.current()) == ("one", "two")
    assert "two" not in repr(tokens)


def test_tokens_of_users_are_read_again_when_they_change_and_who_has_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    tokens = FileUserTokens(file)
    with pytest.raises(SlurmUnavailableError, match=r"read .*users.json: No such file"):
        tokens.of(7)
    file.write_text('{"7": "one", "8": "two words"}')
    first = tokens.of(7)
    for nobody in (8, 9):
        with pytest.raises(SlurmRejectedError, match=f"no token of the Slurm user {nobody}"):
            tokens.of(nobody)
    new = tmp_path / "new"
    new.write_text('{"7": "three"}')
    new.replace(file)

    assert (first.current(), tokens.of(7).current()) == ("one", "three")
    assert "one" not in repr(first)

    file.write_text("[]")
    with pytest.raises(SlurmUnavailableError, match="holds no table"):
        tokens.of(7)


def test_tokens_of_users_are_signed_with_the_key_for_their_numbers(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    tokens = KeyUserTokens(key)

    claims = tokens.of(64100).current().split(".")[1]

    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sun"] == "64100"
    assert tokens.of(64100) is tokens.of(64100)


@pytest.mark.parametrize("content", ["", "\n", "two words", "umläut", "a\x00b"])
def test_a_file_without_a_token_is_said_to_be_one(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)

    with pytest.raises(SlurmUnavailableError, match="holds no token") as raised:
        FileTokens(file).current()
    assert not raised.value.is_sent


def test_one_source_of_tokens_is_needed_and_no_more(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        tokens_from(key_file=None, token_file=None)
    with pytest.raises(ConfigError):
        tokens_from(key_file=tmp_path, token_file=tmp_path)


@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "for people"])
async def test_of_an_array_only_the_record_that_was_asked_for_is_read(indent: int | None) -> None:
    """Slurm tells all tasks of an array where its own number is asked for: 57 MB of 10,000 tasks."""
    tasks = [{"job_id": 70 + task, "name": None, "nice": '"job_id": 7,'} for task in range(1, 50)]
    wanted = {"job_id": 7, "name": "array", "step_id": {"job_id": 7}}
    for order in ([*tasks, wanted], [wanted, *tasks]):
        text = json.dumps(
            {"jobs": order, "errors": []}, indent=indent, separators=None if indent else (",", ":")
        )
        async with client(lambda _, text=text: httpx.Response(200, text=text)) as slurm:
            found = await slurm.job(7)

            assert found is not None
            assert found.name == "array"
            with pytest.raises(SlurmUnavailableError, match="name"):
                await slurm.job(71)


async def test_accountings_records_of_a_user_whom_slurmrestd_does_not_know_are_read() -> None:
    """Measured on 24.11 and 26.05: ``user`` is null then, and who cancelled is empty."""
    told = {"job_id": 7, "name": "a", "user": None, "kill_request_user": "", "extra": "e"}
    told |= {"state": {"current": ["CANCELLED"], "reason": "None"}, "time": {"submission": 5, "end": 9}}

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/openapi/v3":
            return httpx.Response(200, json={"paths": {"/slurmdb/v0.0.44/job/{job_id}": {}}} | VERSIONS)
        assert request.url.path == "/slurmdb/v0.0.42/job/7"
        return httpx.Response(200, json={"jobs": [told]})

    transport = httpx.MockTransport(handle)
    async with SlurmAccounting("http://slurm", OneToken(), transport=transport) as accounting:
        (record,) = await accounting.jobs(7, timeout_s=5)

    state, time = AccountedState(current=("CANCELLED",)), AccountedTime(submission=5, end=9)
    assert record == AccountedJob(job_id=7, name="a", extra="e", state=state, time=time)
