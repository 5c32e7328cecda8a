"""What a long run of tests says before its end: each failure at once, and what was running if it is ended.

pytest names failures in its summary, and a run that is ended from outside (a CI's limit, SIGTERM) has none.
"""

import asyncio
import os
import signal
from time import monotonic
from types import FrameType
from typing import Any, Final

import pytest

RUNNING_MAX: Final = 20
AGAIN_S: Final = 10.0
"""`timeout` sends a signal twice. So much later another one ends the run at once."""


class RunSoFar:
    """A plugin of the process that reports: of several processes the one that deals out tests."""

    def __init__(self, terminal: pytest.TerminalReporter, capture: Any) -> None:  # noqa: ANN401 - pytest exports no type for it
        self._terminal = terminal
        self._capture = capture
        self._began = monotonic()
        self._running: dict[str, float] = {}
        """When each test that runs began: seconds of `monotonic`, by its id."""
        self._ended: float | None = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when it began."""
        self._running[nodeid] = monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget it."""
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a failure at once."""
        if report.failed:
            self._say(f"{report.nodeid} failed ({report.when}) after {report.duration:.0f} s: {_why(report)}")

    def end(self, number: int, _frame: FrameType | None) -> None:
        """Say what runs, then end the run as Ctrl-C does: with a summary."""
        if self._ended is not None:
            if monotonic() - self._ended > AGAIN_S:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._ended = monotonic()
        for nodeid, began in sorted(self._running.items(), key=lambda item: item[1])[:RUNNING_MAX]:
            self._say(f"{nodeid} is running for {monotonic() - began:.0f} s")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            _interrupt(number)
        else:  # Within a coroutine it would end the task that pytest needs to end the fixtures.
            loop.call_soon_threadsafe(_interrupt, number)

    def _say(self, line: str) -> None:
        with self._capture.global_and_fixture_disabled():  # A signal comes in the midst of a test.
            self._terminal.write(f"\n[{monotonic() - self._began:.0f} s] {line}\n", flush=True)


def _interrupt(number: int) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash else "see the summary"


@pytest.hookimpl(trylast=True)  # pytest's terminal comes with its own.
def pytest_configure(config: pytest.Config) -> None:
    """Register it where tests are reported, not in a worker of pytest-xdist."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if terminal is None or capture is None or hasattr(config, "workerinput"):
        return
    so_far = RunSoFar(terminal, capture)
    config.pluginmanager.register(so_far, "run_so_far")
    for ending in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # As for a program that a shell runs by "&".
            signal.signal(ending, so_far.end)
