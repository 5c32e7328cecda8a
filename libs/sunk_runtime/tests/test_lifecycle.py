import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sunk_runtime.lifecycle import identity
from sunk_runtime.testing import WITHIN_S

SERVICE = """
import os
import sys

import anyio
import msgspec

from sunk_runtime.config import load
from sunk_runtime.errors import TransientError
from sunk_runtime.lifecycle import run, serve


class Config(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    mode: str = "wait"


async def main() -> None:
    config = load(Config, os.environ, "SUNK_TEST_")

    async def loop() -> None:
        if config.mode == "fail":
            raise TransientError("the loop failed")
        if config.mode == "bug":
            raise KeyError("a bug")
        try:
            print("ready", flush=True)
            await anyio.sleep_forever()
        finally:
            print("cancelled", flush=True)

    async def stopping() -> None:
        print("stopping", flush=True)
        if config.mode == "slow":
            await anyio.sleep_forever()

    if config.mode == "early":
        from sunk_runtime.jetstream import BusSettings, connect

        print("ready", flush=True)
        async with connect(BusSettings(url="nats://127.0.0.1:1"), "test"):
            print("connected")
    await serve(loop, anyio.sleep_forever, grace_s=0.1, stopping=stopping)
    if config.mode == "late":
        print("late", flush=True)
        await anyio.sleep_forever()


run("test", main)
"""


class Process:
    def __init__(self, folder: Path, **env: str) -> None:
        file = folder / "service.py"
        file.write_text(SERVICE)
        self._popen = subprocess.Popen(
            [sys.executable, file],
            env={"PATH": "/bin", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def signal_when_ready(self, number: signal.Signals, *, after: str = "ready") -> None:
        """Send a signal when it printed *after*."""
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if line == f"{after}\n":
                break
        os.kill(self._popen.pid, number)

    def ended(self) -> tuple[int, list[str], list[dict[str, Any]]]:
        """Return exit status, what was printed and what was logged."""
        try:
            out, error = self._popen.communicate(timeout=WITHIN_S)
        finally:
            self._popen.kill()
        return self._popen.returncode, out.splitlines(), [json.loads(line) for line in error.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_ends_what_is_under_way_and_exits_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = Process(tmp_path, SUNK_TEST_CLUSTER="c1")
    process.signal_when_ready(number)

    status, printed, logged = process.ended()

    assert (status, printed) == (0, ["stopping", "cancelled"])
    assert [(line["message"], line["signal"]) for line in logged] == [("stopping", number.name)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_while_it_waits_for_nats_exits_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = Process(tmp_path, SUNK_TEST_CLUSTER="c1", SUNK_TEST_MODE="early")
    process.signal_when_ready(number)

    status, printed, logged = process.ended()

    assert (status, printed) == (0, [])
    assert [line["message"] for line in logged if line["message"] != "bus error"] == ["stopping"]


def test_a_service_that_is_told_twice_to_stop_exits_with_0(tmp_path: Path) -> None:
    process = Process(tmp_path, SUNK_TEST_CLUSTER="c1", SUNK_TEST_MODE="late")
    process.signal_when_ready(signal.SIGTERM)  # Its loops end,
    process.signal_when_ready(signal.SIGTERM, after="late")  # and so does what it does then.

    assert process.ended()[0] == 0


def test_what_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    process = Process(tmp_path, SUNK_TEST_CLUSTER="c1", SUNK_TEST_MODE="slow")
    process.signal_when_ready(signal.SIGTERM)

    assert process.ended()[:2] == (0, ["stopping", "cancelled"])


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "SUNK_TEST_CLUSTER is missing"),
        ({"SUNK_TEST_CLUSTR": "c1"}, "unknown settings: SUNK_TEST_CLUSTR"),
    ],
    ids=["missing", "a typo"],
)
def test_a_wrong_setting_exits_with_2_and_one_line_that_names_it(
    tmp_path: Path, env: dict[str, str], name: str
) -> None:
    status, _, logged = Process(tmp_path, **env).ended()

    assert status == 2
    assert [(line["message"], name in line["error"]) for line in logged] == [("wrong settings", True)]


def test_a_loop_that_fails_ends_the_process_with_1_and_one_line_that_says_why(tmp_path: Path) -> None:
    status, _, logged = Process(tmp_path, SUNK_TEST_CLUSTER="c1", SUNK_TEST_MODE="fail").ended()

    assert status == 1
    assert [(line["message"], line["errors"]) for line in logged] == [("stopped", ["the loop failed"])]


def test_a_bug_ends_the_process_with_1_and_its_traceback(tmp_path: Path) -> None:
    status, _, logged = Process(tmp_path, SUNK_TEST_CLUSTER="c1", SUNK_TEST_MODE="bug").ended()

    assert status == 1
    assert [(line["message"], "KeyError" in line["exception"]) for line in logged] == [
        ("stopped by a bug", True)
    ]


def test_two_processes_of_one_service_are_told_apart() -> None:
    assert identity("syncer").startswith("syncer-")
    assert identity("syncer").endswith(f"-{os.getpid()}")
