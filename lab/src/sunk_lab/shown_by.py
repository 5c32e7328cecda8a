"""Tables that say which tests show something: a whole run without those tests shows less than the tables say.

A table names a test as ``path::name`` in backquotes. One of the parts that follow in parentheses may say that
only an occasional run has it: "nightly", "on request".
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

import pytest

OPTION: Final = "shown_by"
OCCASIONAL: Final = ("nightly", "on request")
SHOWN: Final = 20
_NAMED: Final = re.compile(r"`([\w./-]+\.py)::(\w+)`(?: \(([^)]*)\))?")


def named(table: str) -> Iterator[tuple[str, str]]:
    """Yield path and name of each test that *table* names, but for those of occasional runs."""
    for path, name, when in _NAMED.findall(table):
        if not set(OCCASIONAL) & set(when.split(", ")):
            yield path, name


def not_run(table: str, passed: Collection[str]) -> list[str]:
    """Return the tests that *table* names and that are not among the ids *passed*.

    The ids may name a class and parameters besides: one set of parameters is enough.
    """
    done = {(parts[0], parts[-1]) for one in passed if (parts := one.partition("[")[0].split("::"))}
    return [f"{path}::{name}" for path, name in dict.fromkeys(named(table)) if (path, name) not in done]


class ShownBy:
    """A plugin of the process that reports: it fails a whole run in which a named test has not passed."""

    def __init__(self, config: pytest.Config) -> None:
        self._tables = [config.rootpath / name for name in config.getini(OPTION)]
        self._passed = set[str]()
        self._missing: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what passes."""
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Compare, where nothing else has failed: a run that was ended has not run them all."""
        if exitstatus != pytest.ExitCode.OK:
            return
        self._missing = [one for table in self._tables for one in not_run(table.read_text(), self._passed)]
        if self._missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if not self._missing:
            return
        names = ", ".join(str(table.name) for table in self._tables)
        terminalreporter.section(f"{len(self._missing)} tests that {names} name have not passed", red=True)
        for one in self._missing[:SHOWN]:
            terminalreporter.line(one)


def is_whole(config: pytest.Config) -> bool:
    """Whether *config* runs all that a run has by default: no paths, and no other choice of tests."""
    option, default = config.option, list(config.getini("addopts"))
    marks = default[default.index("-m") + 1] if "-m" in default else ""
    chosen = option.keyword or option.deselect or option.ignore or option.collectonly
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS and option.markexpr == marks and not chosen
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    parser.addini(OPTION, "tables whose tests a whole run must have passed", type="args", default=[])


@pytest.hookimpl(trylast=True)  # The terminal comes first.
def pytest_configure(config: pytest.Config) -> None:
    """Register it where tests are reported, not in a worker of pytest-xdist."""
    if not hasattr(config, "workerinput") and config.getini(OPTION) and is_whole(config):
        config.pluginmanager.register(ShownBy(config), OPTION)
