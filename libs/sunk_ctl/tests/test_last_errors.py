"""The last error in a service's log: which line it is, and what of it is shown."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sunk_ctl import tables
from sunk_ctl.last_errors import (
    ERROR_CHARS,
    LINE_CHARS,
    LastError,
    LastErrors,
    Leader,
    StatusReport,
    last_error,
    leaders,
    without_leader,
)
from sunk_events.view import ClusterStatus, ServiceRow, Status

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def line(level: str = "error", message: str = "node not changed", **more: object) -> str:
    written = json.dumps({"time": T0.isoformat(), "level": level, "message": message, **more})
    return f"2026-01-01T00:00:01.5Z {written}"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param([line(error="HTTP 500")], "node not changed: HTTP 500", id="with its cause"),
        pytest.param([line("critical", "stopped")], "stopped", id="the end of the process"),
        pytest.param([line(message="first"), line(message="last")], "last", id="the last of two"),
        pytest.param([line(), line("warning", "late"), line("info", "on")], "node not changed", id="before"),
        pytest.param([line().replace("Z {", "Z GET /{")], None, id="behind another program's words"),
        pytest.param([line(error="a\nb")], "node not changed: a b", id="of several lines"),
        pytest.param(
            ["T Traceback (most recent call last):", "T {", "T {}", "{}"], None, id="no line of ours"
        ),
        pytest.param([line("warning", "late")], None, id="no error"),
        pytest.param([line(message="x" * LINE_CHARS)], None, id="a line without end"),
        pytest.param(['T {"level": "error", "message": "no time"}'], None, id="without a time"),
        pytest.param(['T {"error":' + "[" * 50_000], None, id="nested"),
    ],
)
def test_the_last_error_is_the_newest_line_of_that_level(log: list[str], expected: str | None) -> None:
    found = last_error("\n".join(log))

    assert found == (None if expected is None else (T0, expected))


def test_an_error_is_bounded_and_names_no_secret() -> None:
    found = last_error(line(error="nats://syncer:Hunter2-plain@nats:4222 " + "x" * 10_000))

    assert found is not None
    assert "Hunter2" not in found[1]
    assert len(found[1]) == ERROR_CHARS


@given(st.lists(st.text() | st.text().map(lambda text: line(message=text))))
def test_no_log_is_an_error(log: list[str]) -> None:
    last_error("\n".join(log))


def error(service: str, pod: str, ago_s: float = 0, cluster: str = "lab", text: str = "no") -> LastError:
    at = T0 - timedelta(seconds=ago_s)
    return LastError(service=service, cluster=cluster, pod=f"slurm/{pod}", at=at, error=text)


def cluster(name: str, leaders: dict[str, str]) -> ClusterStatus:
    services = tuple(ServiceRow(service=service, leader=leader) for service, leader in leaders.items())
    return ClusterStatus(
        cluster=name, nodes={}, locks={}, jobs={}, waits={}, placements={}, gangs=0, services=services
    )


def test_the_pods_of_the_leaders_are_named_each_once() -> None:
    controller = {"nodeset-controller": "nodeset-controller-sunk-nodeset-controller-7d-x-1"}
    red = cluster("red", controller | {"syncer": "syncer-slurm-syncer-6d5f-b-17"})
    blue = cluster("blue", controller | {"syncer": "", "pod-scheduler": "pod-scheduler-../x?y=z-1"})

    assert without_leader(Status(clusters=(red, blue))) == ("syncer of blue",)
    assert leaders(Status(clusters=(red, blue))) == (
        Leader(service="nodeset-controller", pod="sunk-nodeset-controller-7d-x"),
        Leader(service="syncer", pod="slurm-syncer-6d5f-b", cluster="red"),
    )


def test_people_see_the_errors_and_which_logs_they_may_not_read() -> None:
    found = LastErrors(
        found=(error("sunk-syncer", "a", ago_s=120, text="node \x1b[31mnot changed"),),
        unknown=tuple(f"the log of slurm/{name}: you may not" for name in "bcdef"),
    )
    console = Console(width=240, record=True, markup=False, highlight=False)
    for one in tables.status_with_errors(StatusReport(clusters=(), last_errors=found), T0):
        console.print(one)

    assert console.export_text().split() == [
        *("SERVICE", "CLUSTER", "POD", "AGO", "LAST", "ERROR"),
        *("sunk-syncer", "lab", "slurm/a", "2m", "node", "\\x1b[31mnot", "changed"),
        *(
            word
            for name in "bcd"
            for word in f"last errors are not known: the log of slurm/{name}: you may not".split()
        ),
        *("and", "of", "2", "more"),
    ]
