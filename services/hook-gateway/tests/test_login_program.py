"""sunkctl of login nodes: one sentence and a status for whatever goes wrong, and no traceback."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_hook_gateway.testing.cluster import FILES
from sunk_hook_gateway.testing.scripted import ScriptedAnswer, ScriptedGateway, scripted_gateway
from sunk_runtime.testing import WITHIN_S

PROGRAM = (FILES / "scripts/sunkctl.py").read_text()
SCONTROL, CALLS = "timeout=WITHIN_S,", "time.monotonic() + WITHIN_S"
"""What the program waits for: Slurm's token, and all calls together. Each call has a bound of its own."""
NOTHING: ScriptedAnswer = (200, {"findings": []})
AGAIN: ScriptedAnswer = (503, {"retry": True, "error": "views are not read yet"})


@pytest.fixture
def gateway() -> Generator[ScriptedGateway]:
    with scripted_gateway() as gateway:
        yield gateway


class Login:
    """A login node."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self.scontrol("echo SLURM_JWT=of-ada")

    def scontrol(self, does: str) -> None:
        """Have another scontrol."""
        file = self._folder / "scontrol"
        file.write_text(f'#!/bin/bash\necho "$*" >>{self._folder}/called\n{does}\n')
        file.chmod(0o755)

    def called(self) -> list[str]:
        return (self._folder / "called").read_text().splitlines()

    def run(
        self, *arguments: str, url: str | None = None, token: str = "", short: str = "", more: str = ""
    ) -> tuple[int, str, str]:
        """Return status, output and errors of the program; only the wait *short* runs out soon."""
        assert short in PROGRAM
        program = PROGRAM.replace(short, short.replace("WITHIN_S", "0.5")) if short else PROGRAM
        program = program.replace("WITHIN_S = 20.0", f"WITHIN_S = {WITHIN_S}")
        (self._folder / "hooks.env").write_text(f"# Of the chart.\nSUNK_HOOKS_URL={url or self._url}\n{more}")
        (self._folder / "sunkctl.py").write_text(program.replace("PAUSE_S = 1.0", "PAUSE_S = 0.1"))
        env = {
            "PATH": f"{self._folder}:/usr/bin:/bin",
            "SUNK_HOOKS_ENV": str(self._folder / "hooks.env"),
            "http_proxy": "http://127.0.0.1:1",
            "SLURM_JWT": token,
        }
        command = [sys.executable, "-I", self._folder / "sunkctl.py", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def login(tmp_path: Path, gateway: ScriptedGateway) -> Login:
    return Login(tmp_path, gateway.url)


def test_it_asks_with_a_token_of_slurm_and_past_any_proxy(login: Login, gateway: ScriptedGateway) -> None:
    gateway.answers = [NOTHING]

    assert login.run("explain", "job", "7") == (0, "job 7: nothing to report\n", "")
    assert gateway.sent == [("/v1/jobs/7/explanation", "Bearer of-ada", {})]
    assert login.called() == ["token lifespan=60"]


def test_it_asks_without_tls_if_this_pod_lacks_the_authority_and_the_gateway_answers_both(
    login: Login, gateway: ScriptedGateway
) -> None:
    gateway.answers = [NOTHING]
    more = f"SUNK_HOOKS_CA_FILE=/nowhere\nSUNK_HOOKS_URL_WITHOUT_TLS={gateway.url}\n"

    assert login.run("explain", "job", "7", url="https://127.0.0.1:9", more=more)[0] == 0


def test_it_asks_again_while_nothing_is_decided(login: Login, gateway: ScriptedGateway) -> None:
    gateway.answers = [AGAIN, (0, {}), NOTHING]

    assert login.run("explain", "job", "7")[0] == 0
    assert len(gateway.sent) == 3


ANSWERS: list[tuple[ScriptedAnswer, int, str]] = [
    ((401, {"error": "the token has expired"}), 3, "the token has expired"),
    ((403, {"error": "set login.explain.enabled"}), 3, "set login.explain.enabled"),
    ((404, {"error": "Slurm has no job 7 of ada"}), 4, "Slurm has no job 7 of ada"),
    ((500, {"error": "the gateway failed\x1b[2J\nfine"}), 1, r"the gateway failed\x1b[2J\nfine"),
    ((502, "a proxy"), 1, "HTTP 502"),
    ((404, "no such route"), 5, "the hook gateway has an earlier version"),
    (AGAIN, 5, "the hook gateway: views are not read yet"),
    ((200, ["other"]), 5, "the hook gateway: no answer: it gave an unexpected answer"),
    ((200, {"findings": ["x"]}), 5, "the hook gateway: no answer: "),
    ((-200, {"findings": "x"}), 5, "the hook gateway: no answer: "),
]


@pytest.mark.parametrize(("answer", "status", "sentence"), ANSWERS)
def test_what_goes_wrong_is_a_sentence_and_a_status(
    login: Login, gateway: ScriptedGateway, answer: ScriptedAnswer, status: int, sentence: str
) -> None:
    gateway.answers = [answer]

    found, said, errors = login.run("explain", "job", "7", short=CALLS)

    assert (found, said) == (status, "")
    assert errors.startswith(f"sunkctl: {sentence}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("does", "short", "sentence"),
    [
        ("echo 'Invalid user' >&2; exit 1", "", "scontrol token: Invalid user"),
        ("exit 1", "", "scontrol token: it printed no token"),
        ("echo other words", "", "scontrol token: other words"),
        ("exec sleep 600", SCONTROL, "scontrol token: "),
    ],
)
def test_a_slurm_that_gives_no_token_is_named(login: Login, does: str, short: str, sentence: str) -> None:
    login.scontrol(does)

    found, _, errors = login.run("explain", "job", "7", short=short)

    assert found == 5
    assert errors.startswith(f"sunkctl: {sentence}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("arguments", ["", "explain", "explain node n1", "explain job x", "explain job 7_3"])
def test_wrong_usage_asks_nothing(login: Login, gateway: ScriptedGateway, arguments: str) -> None:
    found, _, errors = login.run(*arguments.split())

    assert found == 2
    assert "usage: sunkctl" in errors
    assert not gateway.sent


def test_a_gateway_that_is_not_there_is_named(login: Login) -> None:
    found, _, errors = login.run("explain", "job", "7", url="http://127.0.0.1:1", short=CALLS)

    assert found == 5
    assert errors.startswith("sunkctl: the hook gateway: no answer: ")


def test_a_task_of_an_array_is_not_taken_for_another_job(login: Login) -> None:
    assert "give the array's number" in login.run("explain", "job", "1234_5")[2]


@pytest.mark.parametrize("token", ["of-ada\r\n", " of-ada "])
def test_a_token_with_ends_of_lines_is_read_and_one_with_other_letters_never_shown(
    login: Login, gateway: ScriptedGateway, token: str
) -> None:
    gateway.answers = [NOTHING]

    assert login.run("explain", "job", "7", token=token)[0] == 0
    assert gateway.sent[0][1] == "Bearer of-ada"
    shown = login.run("explain", "job", "7", token="x\x01y")  # noqa: S106 - no token
    assert shown == (3, "", "sunkctl: SLURM_JWT is not a token\n")


def test_a_token_goes_to_no_other_address(login: Login, gateway: ScriptedGateway) -> None:
    gateway.location = f"{gateway.url}/elsewhere"
    gateway.answers = [(302, {})]

    assert login.run("explain", "job", "7") == (1, "", "sunkctl: HTTP 302\n")
    assert [path for path, _, _ in gateway.sent] == ["/v1/jobs/7/explanation"]
