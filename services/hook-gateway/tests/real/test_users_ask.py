"""A user asks with a token that a real slurmctld of both releases made, by the program of login nodes."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import partial

import anyio
import pytest

from sunk_events.requests import ExplainJobToOwner, Explanation, Finding
from sunk_hook_gateway.testing.checker import running_checker
from sunk_hook_gateway.testing.cluster import FILES
from sunk_hook_gateway.testing.hooks import standing_in
from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.jetstream import Bus

pytestmark = [pytest.mark.anyio, pytest.mark.lab]

WHY = Finding(
    what="pending",
    because="3 Pods have to leave node gpu-1\x1b[2J\n  job 7: nothing to report",
    would_change="those Pods are gone",
)
Ask = Callable[..., subprocess.CompletedProcess[str]]
"""Runs the program with a token."""


@pytest.fixture(scope="module")
def ask(
    slurm: HostSlurm,
    start_gateway: Callable[..., tuple[object, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Ask]:
    folder = tmp_path_factory.mktemp("asks")
    with running_checker(folder, slurm.jwt_key) as checker:
        _, url = start_gateway(USER_TOKENS_SOCKET=str(checker.socket))
        (folder / "hooks.env").write_text(f"SUNK_HOOKS_URL={url}\n")

        def run(token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-I", FILES / "scripts/sunkctl.py", *arguments]
            env = {"SUNK_HOOKS_ENV": str(folder / "hooks.env"), "SLURM_JWT": token}
            return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

        yield run


def token_of(slurm: HostSlurm, user: str) -> str:
    """Return the token that slurmctld makes for a user who asks for one."""
    as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return slurm.exec(*as_user, "scontrol", "token", "lifespan=60").strip().removeprefix("SLURM_JWT=")


async def said(ask: Ask, token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(partial(ask, token, *arguments))


async def test_slurm_says_who_asks_and_the_terminal_obeys_no_text(
    bus: Bus, slurm: HostSlurm, ask: Ask
) -> None:
    answers, answering = standing_in(bus, ExplainJobToOwner, Explanation(findings=(WHY,)))
    token = token_of(slurm, "daemon")

    async with answering:
        told = await said(ask, token, "explain", "job", "7")
        read = await said(ask, token, "explain", "job", "7", "-o", "json")

    assert told.stdout.splitlines() == [
        "job 7",
        "  pending",
        r"    because: 3 Pods have to leave node gpu-1\x1b[2J\n  job 7: nothing to report",
        "    what would change it: those Pods are gone",
    ]
    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(read.stdout)[0]["because"] == WHY.because
    assert answers.requests == [ExplainJobToOwner(job=7, user="daemon")] * 2


async def test_a_token_that_is_over_or_of_another_cluster_is_refused_in_a_sentence(
    bus: Bus, slurm: HostSlurm, ask: Ask
) -> None:
    answers, answering = standing_in(bus, ExplainJobToOwner, Explanation())
    over, changed = slurm.token("daemon", lifespan_s=-10), f"{token_of(slurm, 'daemon')[:-6]}AAAAAA"

    async with answering:
        told = [await said(ask, token, "explain", "job", "7") for token in (over, changed)]

    assert [(one.returncode, one.stderr) for one in told] == [
        (3, "sunkctl: the token has expired, or is not valid yet\n"),
        (3, "sunkctl: this Slurm cluster did not issue the token\n"),
    ]
    assert not answers.requests
