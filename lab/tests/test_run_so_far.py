"""A run of tests that is ended from outside has said what failed, and says what it was at."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pathlib
import time

import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture(autouse=True, scope="session")
def server():
    yield
    pathlib.Path("ended").touch()

def test_bad():
    assert False, "the reason"

{long}
"""
WAITS = """
def test_long():
    while True:  # A signal that comes right before a single long wait would not end it.
        time.sleep(0.1)
"""
COMPUTES = """
@pytest.mark.anyio
async def test_long(anyio_backend):
    import anyio
    while True:
        await anyio.sleep(0)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("processes", "long"),
    [("0", WAITS), ("1", WAITS), ("0", COMPUTES)],
    ids=["one process", "workers", "one process in a coroutine"],
)
def test_an_ended_run_names_failures_and_what_runs(
    tmp_path: Path, processes: str, number: int, long: str
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS.format(long=long))
    # What a shell runs by "&" ignores SIGINT, and all that it starts does too.
    command = [
        "env",
        "--default-signal=INT",
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "sunk_lab.run_so_far",
        "--rootdir",
        ".",
    ]
    run = subprocess.Popen(
        [*command, "-n", processes, "test_some.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert run.stdout
    said = b""
    while b"test_long" not in said:  # With -v a test is named when it begins.
        more = os.read(run.stdout.fileno(), 4_096)
        assert more, said.decode()
        said += more
    assert re.search(rb"test_bad failed \(call\) after \d+ s: AssertionError: the reason", said)
    run.send_signal(number)
    run.send_signal(number)  # As `timeout` does: to its child, then to the group of that.
    rest = run.communicate()[0]
    assert b"test_some.py::test_long is running for " in rest
    assert b"FAILED test_some.py::test_bad - AssertionError: the reason" in rest
    if processes == "0":
        assert (tmp_path / "ended").exists()
