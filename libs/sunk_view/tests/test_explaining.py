"""What a Pod's owner learns of its job, and what is said where a service does not know it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sunk_events.base import Reply, Request
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainJob, Explanation, Finding, Refused
from sunk_events.view import Part
from sunk_view.explaining import Explainer
from sunk_view.questions import Questions
from sunk_view.states import ClusterStates

pytestmark = pytest.mark.anyio
T0 = datetime(2026, 1, 1, tzinfo=UTC)
POD = PlacementState(
    changed=T0, uid="u1", namespace="team-a", pod="train", phase="released", job=11, created=T0
)
PENDING = Finding(what="pending", because="Resources")
PLACE = "place 3 to 4 of 9 in the queue of gpu"
NAMED = Finding(what=PLACE, because="some priorities are not known; ahead: job 41 of ada (Resources)")
NOT_NAMED = Finding(what=PLACE, because="some priorities are not known; jobs are ahead")


class Placements:
    """A cluster with these placements."""

    cluster = "c1"

    def __init__(self, *found: PlacementState) -> None:
        self.placements = {one.uid: one for one in found}

        self.silent = ""

    def require(self, *_views: object) -> None:
        return None

    def without_scheduler(self) -> str:
        return self.silent

    def placement(self, namespace: str, name: str, *, is_gang: bool) -> PlacementState | None:
        wanted = (namespace, name, is_gang)
        of = {(one.namespace, one.pod, one.roster is not None): one for one in self.placements.values()}
        return of.get(wanted)


class Syncer:
    """Answers as *answer* does, and notes what it was asked."""

    def __init__(self, answer: Callable[[ExplainJob], Reply]) -> None:
        self.asked: list[Request] = []
        self._answer = answer

    async def ask(self, _cluster: str, question: Request, _deadline: float) -> Reply:
        self.asked.append(question)
        assert isinstance(question, ExplainJob)
        return self._answer(question)


async def part_of_syncer(syncer: Syncer, *found: PlacementState, **asked: Any) -> Part | None:  # noqa: ANN401 - of `pod`
    states = cast("ClusterStates", Placements(*found))
    answer = await Explainer(Questions(syncer.ask, answer_s=60), [states]).pod("team-a", "train", **asked)
    return next((part for part in answer.parts if part.service == "syncer"), None)


def present(question: ExplainJob) -> Reply:
    return Explanation(findings=(PENDING, NAMED if question.is_ahead_named else NOT_NAMED))


def older(_: ExplainJob) -> Reply:
    return Explanation(findings=(PENDING, NAMED))


@pytest.mark.parametrize(
    ("answer", "place"),
    [(present, NOT_NAMED), pytest.param(older, replace(NAMED, because=""), id="an older syncer")],
)
async def test_a_pods_owner_does_not_learn_whose_jobs_are_ahead(
    answer: Callable[[ExplainJob], Reply], place: Finding
) -> None:
    part = await part_of_syncer(Syncer(answer), POD)

    assert part == Part(cluster="c1", service="syncer", findings=(PENDING, place))


async def test_a_user_who_may_see_all_jobs_learns_whose_are_ahead() -> None:
    part = await part_of_syncer(Syncer(present), POD, is_ahead_named=True)

    assert part == Part(cluster="c1", service="syncer", findings=(PENDING, NAMED))


async def test_a_job_that_the_syncer_does_not_know_yet_is_a_sentence() -> None:
    part = await part_of_syncer(Syncer(lambda _: Refused(code="unknown_job", reason="no")), POD)

    assert part is not None
    assert part.problem == "it does not know job 11 yet, or no longer: ask again in some seconds"


async def test_a_pod_that_a_dead_pod_scheduler_has_not_seen_is_unknown_and_not_of_another_scheduler() -> None:
    syncer, cluster = Syncer(present), Placements()
    explainer = Explainer(Questions(syncer.ask, answer_s=60), [cast("ClusterStates", cluster)])
    alive = (await explainer.pod("team-a", "train")).parts[0].findings[0]
    cluster.silent = "has had no leader for 40 s"
    dead = (await explainer.pod("team-a", "train")).parts[0].findings[0]

    assert alive.what == "Slurm does not place train"
    assert dead == Finding(
        what="whether Slurm places train is not known",
        because="pod-scheduler of c1 has had no leader for 40 s: it looks at no new Pod",
        would_change="a replica of it leads again",
    )


async def test_a_job_that_slurm_has_lost_is_not_asked_about_as_its_number_may_be_anothers() -> None:
    syncer = Syncer(present)
    part = await part_of_syncer(syncer, replace(POD, lost=T0, lost_job=11))

    assert (part, syncer.asked) == (None, [])
