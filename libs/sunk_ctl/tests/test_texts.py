"""What reaches the terminal, and what the program says of refusals."""

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text
from typer.testing import CliRunner

from sunk_ctl import tables
from sunk_ctl.config import kubeconfig
from sunk_ctl.main import What, app, path_of
from sunk_ctl.refusals import NOT_NOW, REFUSED, NoAnswerError, refusal
from sunk_ctl.running import plain_console
from sunk_ctl.texts import as_json
from sunk_events.requests import Finding
from sunk_events.view import ClusterStatus, Explained, JobRow, Jobs, Part, ServiceRow, Status
from sunk_kube.errors import (
    KubeBusyError,
    KubeNotFoundError,
    KubeRejectedError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)
from sunk_runtime.errors import TransientError
from sunk_view.states import ClusterStates

if TYPE_CHECKING:
    from sunk_runtime.jetstream import Bus
    from sunk_runtime.views import StateView

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATER = T0 + timedelta(minutes=5)


def printed(lines: list[RenderableType]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=240, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line)
    return out.getvalue()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("[red]markup[/red]", "[red]markup[/red]"),
        (":bomb:", ":bomb:"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202egnp", "\\u202egnp"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_a_terminal_obeys_nothing_that_a_user_wrote(written: str, shown: str) -> None:
    jobs = Jobs(items=(JobRow(cluster="c1", job=1, name=written),))
    part = Part(cluster="c1", service="syncer", findings=(Finding(what=written, because=written),))
    explained = Explained(what="job", name=written, parts=(part,))

    assert shown in printed(tables.jobs(jobs, T0))
    assert printed(tables.explained(explained, T0)).count(shown) == 3


@given(st.text(max_size=40))
def test_json_is_the_same_for_programs_and_has_nothing_that_a_terminal_obeys(text: str) -> None:
    jobs = Jobs(items=(JobRow(cluster="c1", job=1, name=f"\x9b2J\u202e\U000e0001{text}"),))
    made = as_json(jobs)

    assert msgspec.json.decode(made, type=Jobs) == jobs
    assert all(one.isprintable() for one in made.replace("\n", ""))


@given(st.text(max_size=40))
def test_no_control_character_is_ever_printed(text: str) -> None:
    one = ClusterStatus(
        cluster="c1",
        nodes={text: 1},
        locks={},
        jobs={},
        waits={text: 2},
        placements={},
        services=(ServiceRow(service=text, problem=text),),
    )
    found = printed(tables.status(Status(clusters=(one,)), T0))

    assert all(letter.isprintable() or letter == "\n" for letter in found)


def test_an_explanation_reads_as_sentences() -> None:
    finding = Finding(what="waits", since=T0, because="no node is free", would_change="a job ends")
    parts = (
        Part(cluster="c1", service="placements on the bus", findings=(finding,)),
        Part(cluster="c1", service="syncer"),
        Part(cluster="c1", service="nodeset-controller", problem="it does not answer"),
    )

    assert printed(tables.explained(Explained(what="pod", name="a/web", parts=parts), LATER)).split("\n") == [
        "pod a/web",
        "c1, placements on the bus",
        "  waits, for 5m",
        "    because: no node is free",
        "    what would change it: a job ends",
        "c1, syncer: nothing to report",
        "c1, nodeset-controller: it does not answer",
        "",
    ]


def test_a_refusal_says_which_cluster_role_a_user_needs() -> None:
    text = 'get /apis/x: HTTP 403: status is forbidden: User "dave" cannot list resource "status"'
    error = refusal(KubeRejectedError(text, status=403), "/status")

    assert error.status == REFUSED
    assert str(error).startswith('status is forbidden: User "dave" cannot list')
    assert "--clusterrole=sunk-view --user=USER" in str(error)


def test_what_the_view_says_of_a_refusal_is_passed_on_as_it_is() -> None:
    text = "get /apis/x: HTTP 403: user dave may not get nodes: ask for the ClusterRole sunk-view"

    assert str(refusal(KubeRejectedError(text, status=403), "/nodes")) == (
        "user dave may not get nodes: ask for the ClusterRole sunk-view"
    )


@pytest.mark.parametrize(
    ("text", "step", "other"),
    [
        ("not now: the bus has been silent for 75 s", "name=sunk-nats", "apiservices"),
        ("not now: the bus has been silent for 75 s", "sunkctl doctor", "Try again"),
        ("not now: state SUNK_c1_lock is not read yet", "Try again; sunkctl doctor", "apiservices"),
        ("too many questions of all users are under way", "Try again; sunkctl doctor", "apiservices"),
        ("the server is currently unable to handle the request", "get apiservices", "doctor"),
        ("", "get apiservices", "doctor"),
    ],
)
def test_what_to_do_next_is_said_by_who_does_not_answer(text: str, step: str, other: str) -> None:
    error = refusal(KubeUnavailableError(f"get /apis/x: HTTP 503{': ' if text else ''}{text}"), "/status")

    assert error.status == NOT_NOW
    assert step in str(error)
    assert other not in str(error)


def test_a_silent_bus_is_known_by_the_views_own_words() -> None:
    states = ClusterStates(cast("Bus", None), "c1", silent_s=15)
    view = cast("StateView[Any]", SimpleNamespace(require_complete=lambda: None, age_s=75.0))
    with pytest.raises(TransientError) as silent:
        states.require(view)

    error = refusal(KubeUnavailableError(f"get /apis/x: HTTP 503: not now: {silent.value}"), "/status")

    assert "name=sunk-nats" in str(error)


@pytest.mark.parametrize(
    "text",
    ["'dave' is not the Kubernetes API server's front proxy", "the front proxy names no user"],
)
def test_a_401_of_the_view_is_no_reason_to_log_in(text: str) -> None:
    error = refusal(KubeUnauthorizedError(f"get /apis/x: HTTP 401: {text}"), "/status")

    assert (error.status, "log in" in str(error)) == (NOT_NOW, False)
    assert text in str(error)


def test_a_cluster_without_the_view_is_said_with_what_to_do() -> None:
    error = refusal(KubeNotFoundError("get /apis/x: HTTP 404: 404 page not found"), "/status")

    assert error.status == NOT_NOW
    assert "view.enabled" in str(error)


def test_what_passes_by_itself_is_told_from_what_does_not() -> None:
    busy = refusal(KubeBusyError("get /x: HTTP 429: user dave asks too often", retry_after_s=2), "/x")
    away = refusal(KubeUnavailableError("get /x: HTTP 503: not now: the bus is silent"), "/x")

    assert (str(busy), busy.status) == ("user dave asks too often. Wait 2 s", NOT_NOW)
    assert (away.status, "not now: the bus is silent" in str(away)) == (NOT_NOW, True)


@pytest.mark.parametrize(
    ("what", "name", "path"),
    [
        (What.POD, "web", "/namespaces/team-a/pods/web/explain"),
        (What.POD, "team-b/web", "/namespaces/team-b/pods/web/explain"),
        (What.GANG, "train", "/namespaces/team-a/gangs/train/explain"),
        (What.NODE, "d1", "/nodes/d1/explain"),
        (What.JOB, "4711", "/jobs/4711/explain"),
    ],
)
def test_each_thing_has_its_path(what: What, name: str, path: str) -> None:
    assert path_of(what, name, "team-a") == path


@pytest.mark.parametrize("name", ["../status", "a?b", "", "a/b/c", "a b"])
def test_what_can_be_no_name_is_never_sent(name: str) -> None:
    with pytest.raises(NoAnswerError, match="not a name"):
        path_of(What.POD, name, "team-a")


def test_the_kubeconfig_is_the_one_that_kubectl_would_take() -> None:
    assert kubeconfig(Path("x"), {"KUBECONFIG": "y"}) == Path("x")
    assert kubeconfig(None, {"KUBECONFIG": "a:b"}) == Path("a:b")
    assert kubeconfig(None, {}) == Path.home() / ".kube/config"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_options(shell: str) -> None:
    def completed(*words: str) -> set[str]:
        line = " ".join(words)
        told = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}  # As bash passes it.
        told |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        found = CliRunner(env={"_SUNKCTL_COMPLETE": f"complete_{shell}", **told}).invoke(
            app, prog_name="sunkctl"
        )
        of_zsh = re.findall(r'^(?:_arguments .*\(\()?"([^"]+)":', found.stdout, re.MULTILINE)
        return set(of_zsh if shell == "zsh" else re.findall(r"^\S+", found.stdout, re.MULTILINE))

    assert completed("sunkctl", "dr") == {"drain"}
    assert {"events", "top", "undrain", "reboot", "doctor"} <= completed("sunkctl", "")
    assert {"--node", "--pod", "--job", "--follow"} <= completed("sunkctl", "events", "--")


def test_colours_are_for_terminals_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        plain_console().print(Text("d1", style="red"))
        return terminal.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown() == "\x1b[31md1\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == "d1\n"


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True
