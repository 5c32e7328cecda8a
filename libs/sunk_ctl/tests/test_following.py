"""Answers one after the other, with a test's own in place of the view's."""

import io
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from sunk_ctl import following
from sunk_ctl.cluster import Cluster
from sunk_ctl.event_commands import line_of, path_of
from sunk_ctl.refusals import NOT_FOUND, NOT_NOW, REFUSED, LoggedOutError, NoAnswerError
from sunk_ctl.top import Seen, fitted, repeat, screen
from sunk_events.view import ClusterStatus, DrainCause, EventRow, Events, LockRow, ServiceRow, Status

pytestmark = pytest.mark.anyio
T0 = datetime(2026, 1, 1, tzinfo=UTC)
AWAY = NoAnswerError("no answer: the bus is silent", NOT_NOW)
Given = msgspec.Struct | NoAnswerError


class View:
    """Gives its answers in turn, and notes what it was asked."""

    def __init__(self, *given: Given) -> None:
        self.asked: list[dict[str, str]] = []
        self.left = list(given)

    async def get(self, _kind: object, _path: str, query: Mapping[str, str] | None = None) -> msgspec.Struct:
        self.asked.append(dict(query or {}))
        found = self.left.pop(0)
        if isinstance(found, NoAnswerError):
            raise found
        return found


def row(sequence: int) -> EventRow:
    return EventRow(cluster="c1", sequence=sequence, time=T0, about="slurm.node", name="d1", what="drained")


def page(*sequences: int, after: str, problems: tuple[str, ...] = ()) -> Events:
    return Events(items=tuple(map(row, sequences)), after=after, key="d1", problems=problems)


async def follow(view: View, *, is_following: bool = True) -> tuple[list[int], list[str], int]:
    """Return the sequences that were handed on, what was noted, and the status in the end."""
    seen: list[int] = []
    notes: list[str] = []

    def take(rows: tuple[EventRow, ...]) -> None:
        seen.extend(row.sequence for row in rows)

    cluster = cast("Cluster", view)
    try:
        await following.events(
            cluster,
            "/x",
            {"last": "2"},
            take,
            notes.append,
            is_following=is_following,
            poll_s=0.0,
            again_s=0.0,
        )
    except NoAnswerError as error:
        return seen, notes, error.status
    return seen, notes, 0


async def test_each_event_is_handed_on_once_whatever_answers_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("POLL_S", "AGAIN_S", "PAUSE_S"):
        monkeypatch.setattr(following, name, 0.0)
    withdrawn = NoAnswerError("user alice may not", REFUSED)
    missing = ("c1: up to 3 events were too old to be kept, and are missing",)
    view = View(
        page(1, 2, after="c1.7.2"),
        AWAY,
        AWAY,
        page(3, after="c1.7.3"),
        page(after="c1.7.9", problems=missing),
        page(10, after="c1.7.10", problems=missing),
        withdrawn,
    )

    seen, notes, status = await follow(view)

    assert seen == [1, 2, 3, 10]
    assert notes == ["no answer: the bus is silent. Trying again; no event is missed", *missing]
    assert status == REFUSED
    assert view.asked == [
        {"last": "2"},
        *[{"after": "c1.7.2", "key": "d1"}] * 3,
        {"after": "c1.7.3", "key": "d1"},
        {"after": "c1.7.9", "key": "d1"},
        {"after": "c1.7.10", "key": "d1"},
    ]


async def test_a_token_that_a_plugin_renews_meanwhile_loses_no_event_and_one_that_is_not_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("POLL_S", "AGAIN_S", "PAUSE_S"):
        monkeypatch.setattr(following, name, 0.0)
    expired = [LoggedOutError()] * 9
    first, second = page(1, after="c1.7.1"), page(2, after="c1.7.2")

    class Ends(View):
        async def get(
            self, _kind: object, _path: str, query: Mapping[str, str] | None = None
        ) -> msgspec.Struct:
            if len(self.left) == 1:  # The last refusals go on for longer than a plugin may take.
                monkeypatch.setattr(following, "REFUSED_S", 0.0)
            return await super().get(_kind, _path, query)

    seen, notes, status = await follow(Ends(first, *expired, AWAY, *expired, second, *expired))

    assert (seen, status) == ([1, 2], REFUSED)
    assert [note.partition(":")[0] for note in notes] == ["the API server does not know you"] * 2


def test_the_api_server_may_not_know_the_user_for_a_minute() -> None:
    refusals = following.Refusals()

    assert [refusals.may_pass(LoggedOutError(), at) for at in (100.0, 130.0, 159.0)] == [True, True, True]
    assert refusals.may_pass(AWAY, 160.0)
    assert [refusals.may_pass(LoggedOutError(), at) for at in (161.0, 220.0, 221.0)] == [True, True, False]
    assert not following.Refusals().may_pass(NoAnswerError("user alice may not", REFUSED), 0.0)


async def test_without_following_there_is_one_answer_and_a_first_one_that_fails_ends_it() -> None:
    assert await follow(View(page(1, after="c1.7.1")), is_following=False) == ([1], [], 0)
    assert await follow(View(AWAY)) == ([], [], NOT_NOW)
    assert await follow(View(Events(items=(), after="", near=("train",)))) == ([], [], NOT_FOUND)


@pytest.mark.parametrize(
    ("node", "pod", "job", "path"),
    [
        ("", "", "", "/events"),
        ("d1", "", "", "/nodes/d1/events"),
        ("", "web", "", "/namespaces/team-a/pods/web/events"),
        ("", "team-b/web", "", "/namespaces/team-b/pods/web/events"),
        ("", "", "11", "/jobs/11/events"),
    ],
)
def test_each_thing_has_its_events(node: str, pod: str, job: str, path: str) -> None:
    assert path_of(node, pod, job, "team-a") == path


@pytest.mark.parametrize("name", ["../status", "a?b", "a/b/c", "a b", "x" * 10_000_000])
def test_what_can_be_no_name_is_never_sent_and_not_repeated_at_length(name: str) -> None:
    with pytest.raises(NoAnswerError, match="not a name") as refused:
        path_of(name, "", "", "team-a")

    assert len(str(refused.value)) < 200


def test_a_line_has_nothing_that_a_terminal_obeys() -> None:
    crafted = msgspec.structs.replace(row(1), name="\x1b[2J", what="\n", details=("reason \u202egnp",))
    line = line_of(crafted).plain

    assert line.isprintable()
    assert "\\x1b[2J" in line


def status(cluster: str) -> Status:
    one = ClusterStatus(cluster=cluster, nodes={}, locks={}, jobs={}, waits={}, placements={})
    return Status(clusters=(one,))


async def test_top_never_shows_an_old_status_as_a_new_one() -> None:
    drawn: list[Seen] = []
    view = View(status("c1"), AWAY, AWAY, status("c2"))

    await repeat(cast("Cluster", view), drawn.append, 0.0, 4)

    assert [seen.problem for seen in drawn] == ["", str(AWAY), str(AWAY), ""]
    assert [seen.status.clusters[0].cluster for seen in drawn] == ["c1", "c1", "c1", "c2"]
    assert len({seen.at for seen in drawn[:3]}) == 1
    old = Seen(status=status("c1"), at=T0, problem="no answer")
    assert str(screen(old, T0 + timedelta(minutes=5))[0]) == "2026-01-01 00:00:00 UTC, 5m old: no answer"


def busy(cluster: str) -> ClusterStatus:
    """Return a cluster of which more is to be said than a terminal has lines."""
    drains = tuple(DrainCause(reason=f"fan {number}", nodes=1, some=("d1",)) for number in range(30))
    lock = LockRow(cluster=cluster, node="d1", kube_node="node1", lock="pending", since=T0)
    services = (
        ServiceRow(service="syncer", leader="syncer-0", seen=T0),
        ServiceRow(service="pod-scheduler", problem=f"no replica of {cluster} leads"),
    )
    empty = ClusterStatus(cluster=cluster, nodes={}, locks={}, jobs={}, waits={}, placements={})
    return msgspec.structs.replace(empty, drains=drains, pending_locks=(lock,) * 20, services=services)


def on_terminal(clusters: int, height: int, width: int = 80) -> list[str]:
    """Return the lines that `top` has for a terminal."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    seen = Seen(status=Status(clusters=tuple(busy(f"c{number}") for number in range(clusters))), at=T0)
    made = console.render_lines(fitted(seen, T0, console), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in made]


@pytest.mark.parametrize("clusters", [1, 2])
def test_top_shows_what_is_wrong_in_24_lines_and_counts_what_it_leaves_out(clusters: int) -> None:
    whole, shown = on_terminal(clusters, 1000), on_terminal(clusters, 24)

    assert len(shown) == 24
    for number in range(clusters):
        assert any(f"no replica of c{number} leads" in line for line in shown)
    assert shown[7:9] == whole[7:9]  # Below the counts of the first cluster.
    assert "no replica of c0 leads" in shown[8]
    assert shown[-1] == f"and {len(whole) - 23} more lines: sunkctl status shows all"
    assert not any("more lines" in line for line in whole)


@pytest.mark.parametrize(("clusters", "height", "width"), [(9, 24, 80), (1, 24, 20), (1, 3, 80), (1, 1, 80)])
def test_top_fits_into_every_terminal_and_says_so_where_lines_are_missing(
    clusters: int, height: int, width: int
) -> None:
    shown = on_terminal(clusters, height, width)

    assert len(shown) == height
    assert shown[-1].startswith("and ")


async def test_top_goes_on_while_credentials_are_read_again_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Seen] = []
    view = View(status("c1"), *[LoggedOutError()] * 4, status("c2"), *[LoggedOutError()] * 4)

    def draw(seen: Seen) -> None:
        drawn.append(seen)
        if len(view.left) == 1:
            monkeypatch.setattr(following, "REFUSED_S", 0.0)

    with pytest.raises(LoggedOutError):
        await repeat(cast("Cluster", view), draw, 0.0, 0)

    assert [bool(seen.problem) for seen in drawn] == [False, *[True] * 4, False, *[True] * 3]


def test_top_says_what_the_status_says_is_wrong_with_itself() -> None:
    seen = Seen(status=Status(clusters=(), problems=("c1: 3 states of nodes cannot be read",)), at=T0)

    (head,) = screen(seen, T0)

    assert "c1: 3 states of nodes cannot be read" in cast("Text", head).plain


async def test_top_ends_where_it_never_had_an_answer_or_may_have_none_any_longer() -> None:
    for given in ([AWAY], [status("c1"), NoAnswerError("user alice may not", REFUSED)]):
        with pytest.raises(NoAnswerError):
            await repeat(cast("Cluster", View(*given)), lambda _: None, 0.0, 0)
