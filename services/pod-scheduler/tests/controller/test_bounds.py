"""What one user writes, or one outage leaves, costs no more than it may."""

from collections import Counter
from collections.abc import ItemsView, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmStatisticsState
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_events.requests import Later, PlacementReleased, ReleasePlacement
from sunk_events.subjects import STATISTICS_KEY
from sunk_kube.indexes import Index
from sunk_kube.objects import Node
from sunk_kube.pods import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
    TopologySpread,
)
from sunk_kube.testing import node
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.adapters.placeholder_jobs import PlaceholderJobs
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Views
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_chooser import SLICE, NodeChoiceCache
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.controller.sweeper import Sweeper
from sunk_pod_scheduler.placement import job_claims, marks, tokens
from sunk_pod_scheduler.placement.actions import Action, Record, Refuse, Wait
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, Observed, pod_seen
from sunk_pod_scheduler.placement.node_filter import NodeChoice, NodeConstraints
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.podspec import pod_requests
from sunk_pod_scheduler.podspec.validation import Rules, validate
from sunk_pod_scheduler.rpc.handlers import Handlers
from sunk_pod_scheduler.testing.builders import KEY, KUBE_NODE, T0, UID, job, manifest, placement
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.changes import Changes
from sunk_slurm.errors import NotSentError, SlurmUnavailableError
from sunk_slurm.submission import JobDescription
from sunk_slurm.wire import Job

pytestmark = pytest.mark.anyio


RUNS = SlurmJobState(changed=T0, job=7, state="RUNNING")


class _State:
    is_over = False


class _Row:
    state = _State()


class _Slurm:
    """Counts lists, and fails submissions as it is told."""

    def __init__(self) -> None:
        self.lists = 0
        self.error: SlurmUnavailableError | None = None
        self.jobs: dict[int, str] = {}

    async def submit_job(self, description: JobDescription, _tokens: None) -> int:
        if self.error is None or self.error.is_sent:
            self.jobs[len(self.jobs) + 1] = description.extra
        if self.error is not None:
            raise self.error
        return len(self.jobs)

    async def job(self, job: int) -> Job | None:
        extra = self.jobs.get(job)
        return None if extra is None else Job(job_id=job, job_state=("PENDING",), extra=extra)

    async def job_states(self) -> Mapping[int, _Row]:
        self.lists += 1
        return {job: _Row() for job in self.jobs}


class _Known:
    def __init__(self, slurm: _Slurm) -> None:
        self._slurm = slurm

    def require_complete(self) -> None:
        """Return: all is known."""

    def get(self, key: str) -> SlurmJobState | None:
        extra = self._slurm.jobs.get(int(key))
        return (
            None if extra is None else SlurmJobState(changed=T0, job=int(key), state="PENDING", extra=extra)
        )


def description(uid: str) -> JobDescription:
    return JobDescription(
        script="",
        environment=(),
        current_working_directory="/",
        name=uid,
        extra=marks.extra_text(KEY, uid, "n/p", 0, 0),
    )


async def submitted(jobs: PlaceholderJobs, uid: str) -> None:
    with pytest.raises(SlurmUnavailableError):
        await jobs.submit(description(uid))


async def test_one_list_serves_all_who_resume_after_an_outage() -> None:
    slurm = _Slurm()
    jobs = PlaceholderJobs(slurm, _Known(slurm), KEY, timeout_s=5)  # pyright: ignore[reportArgumentType]
    slurm.error = NotSentError("left alone", is_sent=False)
    for number in range(100):
        await submitted(jobs, f"unsent-{number}")
    slurm.error = SlurmUnavailableError("cut")
    for number in range(100):
        await submitted(jobs, f"sent-{number}")

    found = [await jobs.find_marked(Owner(uid=f"unsent-{number}", attempt=0)) for number in range(100)]
    found += [await jobs.find_marked(Owner(uid=f"sent-{number}", attempt=0)) for number in range(100)]

    assert found == [*[None] * 100, *range(1, 101)]
    assert slurm.lists == 1


async def test_a_submission_that_may_have_come_after_the_list_has_another_list() -> None:
    slurm = _Slurm()
    jobs = PlaceholderJobs(slurm, _Known(slurm), KEY, timeout_s=5)  # pyright: ignore[reportArgumentType]
    assert await jobs.find_marked(Owner(uid="first", attempt=0)) is None
    slurm.error = SlurmUnavailableError("cut")
    await submitted(jobs, "second")

    assert await jobs.find_marked(Owner(uid="second", attempt=0)) == 1
    assert slurm.lists == 2


async def test_a_job_whose_number_could_not_be_stored_is_looked_for_in_a_list_of_afterwards() -> None:
    slurm = _Slurm()
    jobs = PlaceholderJobs(slurm, _Known(slurm), KEY, timeout_s=5)  # pyright: ignore[reportArgumentType]
    assert await jobs.find_marked(Owner(uid="first", attempt=0)) is None
    job = await jobs.submit(description("second"))
    jobs.not_stored("second", 0)

    assert await jobs.find_marked(Owner(uid="second", attempt=0)) == job


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_an_extra_or_a_claim_of_any_depth_is_not_ours_and_no_failure(opening: str) -> None:
    deep = '{"sunk":' + opening * 50_000

    assert marks.read_extra(KEY, deep, 0) is None
    assert marks.read_claim(KEY, "uid", deep) is None


def test_each_container_of_a_pod_is_counted_once_however_many_sidecars_it_has() -> None:
    looks: list[str] = []

    class Counted(dict[str, str]):
        def items(self) -> ItemsView[str, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
            looks.append("")
            return dict(self).items()

    sidecar = Container(
        restart_policy="Always", resources=ResourceRequirements(requests=Counted(cpu="1m", memory="1"))
    )
    spec = PodSpec(init_containers=(sidecar,) * 1000, containers=(sidecar,))

    assert {name: str(amount) for name, amount in pod_requests.requests(spec).items()} == {
        "cpu": "1.001",
        "memory": "1001",
    }
    assert len(looks) == 1001


def test_each_request_of_a_sidecar_is_counted_once_whatever_those_before_it_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 255 sidecars was counted with all that 254 others ask for: 140 ms for one Pod within bounds."""
    counted: list[int] = []
    plus = pod_requests._plus  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def recorded(some: Mapping[str, Decimal], more: Mapping[str, Decimal]) -> dict[str, Decimal]:
        found = plus(some, more)
        counted.append(len(found))
        return found

    monkeypatch.setattr(pod_requests, "_plus", recorded)
    sidecars = tuple(
        Container(
            restart_policy="Always",
            resources=ResourceRequirements(requests={f"x{place}.io/{name}": "1" for name in range(8)}),
        )
        for place in range(255)
    )

    found = pod_requests.requests(PodSpec(init_containers=sidecars, containers=(MAIN,)))

    assert len(found) == 255 * 8 + len(MAIN.resources.requests)
    assert sum(counted) == len(found)


asked = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9).map(str))


@given(st.lists(st.tuples(asked, st.booleans()), max_size=5), asked)
def test_requests_are_those_of_the_largest_moment_of_a_pod(
    starting: list[tuple[dict[str, str], bool]], running: dict[str, str]
) -> None:
    spec = PodSpec(
        init_containers=tuple(
            Container(
                resources=ResourceRequirements(requests=requests),
                restart_policy="Always" if is_sidecar else "",
            )
            for requests, is_sidecar in starting
        ),
        containers=(Container(resources=ResourceRequirements(requests=running)),),
    )
    beside: Counter[str] = Counter()
    moments: list[Counter[str]] = []
    for requests, is_sidecar in (*starting, (running, False)):
        moments.append(beside + Counter({name: int(amount) for name, amount in requests.items()}))
        beside = moments[-1] if is_sidecar else beside

    found = pod_requests.requests(spec)

    assert {name: int(amount) for name, amount in found.items() if amount} == {
        name: largest for name in "abc" if (largest := max(moment[name] for moment in moments))
    }


def test_a_pod_that_is_wrong_in_a_thousand_ways_is_told_of_the_first_ones() -> None:
    requests = {"cpu": "1", "memory": "1", **{f"x{number}.io/y": "1" for number in range(2000)}}
    shown = pod_seen(manifest(requests=requests), KEY, Rules())
    assert len(shown.problems) == 2000

    action = decide(Observed(uid=UID, pod=shown), T0, Limits())

    assert isinstance(action, Refuse)
    assert len(msgspec.json.encode(action)) < 2 * REASON_MAX
    assert action.state.reason.startswith(shown.problems[0])


class _Shown:
    """A view that is complete and fresh."""

    is_complete = True
    undecodable: frozenset[str] = frozenset()
    age_s = 0.0

    def __init__(self, **found: object) -> None:
        self.found = found

    def get(self, key: str) -> object | None:
        return self.found.get(key)

    def values(self) -> list[object]:
        return [*self.found.values()]

    def __len__(self) -> int:
        return len(self.found)

    def changes(self) -> Changes:
        return Changes(self.found)

    def require_complete(self) -> None:
        """Return: all is known."""


class _Looked:
    """Counts looks; Slurm knows of no job."""

    def __init__(self) -> None:
        self.looks = 0

    async def look(self, _job: int, _owner: Owner) -> AnyJob:
        self.looks += 1
        return JobGone()


class _Idle:
    """Carries nothing out, and remembers what it was told to."""

    def __init__(self) -> None:
        self.done: list[Action] = []

    async def apply(self, action: Action, _seen: Observed, _pod: Pod | None) -> float | None:
        self.done.append(action)
        return None


@pytest.mark.parametrize(
    ("said", "answered", "looks"),
    [
        pytest.param(None, T0, 0, id="the bus knows of no such job"),
        pytest.param(
            SlurmJobState(changed=T0, job=7, state="COMPLETED", is_over=True), T0, 0, id="it is over"
        ),
        pytest.param(SlurmJobState(changed=T0, job=7, state="RUNNING"), T0, 5, id="it runs on"),
        pytest.param(None, T0 - timedelta(hours=1), 5, id="the bus is old"),
    ],
)
async def test_a_pod_that_is_over_costs_no_look_at_each_resync(
    said: SlurmJobState | None, answered: datetime, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunk_pod_scheduler.controller.reconciler.now", lambda: T0)
    over = manifest(annotations={ANNOTATION_JOB: marks.claim(KEY, UID, 0, 7)})
    over = replace(over, status=PodStatus(phase="Succeeded"), spec=replace(over.spec, node_name="node2"))
    jobs, executor, nothing = _Looked(), _Idle(), _Shown()
    told = SlurmStatisticsState(changed=T0, jobs_answered=answered)
    locks = NodeLocks(nothing)  # type: ignore[arg-type]
    views: Any = Views(kube_pods=nothing, slurm_nodes=nothing, locks=locks)  # type: ignore[arg-type]
    slurm_jobs: Any = _Shown() if said is None else _Shown(**{"7": said})
    statistics: Any = _Shown(**{STATISTICS_KEY: told})
    unused: Any = nothing
    stored: Any = {
        "placements": nothing,
        "bus_jobs": BusJobs(slurm_jobs, statistics),
        "takers": NodeTakers(BusJobs(slurm_jobs, statistics), unused, unused),
        "views": views,
        "executor": executor,
        "jobs": jobs,
    }
    scheduler = Reconciler(
        pods=MemoryPods(over), mailbox=Mailbox(), rules=Rules(), limits=Limits(), key=KEY, **stored
    )

    for _ in range(5):
        await scheduler.reconcile(UID)

    assert jobs.looks == looks
    assert executor.done == [Wait()] * 5
    assert scheduler.remembered == 0


class _Asked(_Idle):
    """A Slurm in which every job runs; it remembers which one it was asked for, and as whose."""

    def __init__(self, looked: dict[str, Any] | None = None) -> None:  # Any: of a look.
        super().__init__()
        self._looked = looked or {}
        self.asked: list[tuple[int, int]] = []
        self.cancelled: list[int] = []

    async def look(self, number: int, owner: Owner) -> AnyJob:
        self.asked.append((number, owner.attempt))
        return replace(job(), job=number, **self._looked)

    async def cancel(self, number: int, _owner: Owner) -> None:
        self.cancelled.append(number)


OLDER = [
    *(pytest.param(placement(phase, job=101), id=phase) for phase in get_args(PlacementPhase)),
    pytest.param(placement("submitted", job=None), id="its first intent"),
    pytest.param(placement("submitted", job=None, attempt=1, digest=""), id="before its intent"),
    pytest.param(placement("submitted", job=None, attempt=1), id="before its number"),
    pytest.param(placement("refused", job=None, attempt=1, digest=""), id="before it was mended"),
]


def went_back(stored: PlacementState, slurm: _Asked) -> tuple[Reconciler, Sweeper]:
    """Return who looks at a Pod that runs as attempt 1, and at its job 102; *stored* tells of neither."""
    bound = manifest(annotations={ANNOTATION_JOB: marks.claim(KEY, UID, 1, 102)})
    bound = replace(bound, status=PodStatus(phase="Running"), spec=replace(bound.spec, node_name=KUBE_NODE))
    runs = SlurmJobState(
        changed=T0, job=102, state="RUNNING", extra=marks.extra_text(KEY, UID, bound.key, 1, 0)
    )
    nothing: Any = _Shown()
    asked: Any = slurm
    slurm_jobs: Any = _Shown(**{"102": runs})
    shared: Any = {
        "pods": MemoryPods(bound),
        "jobs": asked,
        "placements": _Shown(**{UID: stored}),
        "key": KEY,
    }
    reconciler = Reconciler(
        executor=asked,
        views=Views(kube_pods=nothing, slurm_nodes=nothing, locks=NodeLocks(nothing)),
        bus_jobs=BusJobs(slurm_jobs, nothing),
        takers=NodeTakers(BusJobs(slurm_jobs, nothing), nothing, nothing),
        mailbox=Mailbox(),
        rules=Rules(),
        limits=Limits(),
        **shared,
    )
    return reconciler, Sweeper(check=lambda: None, slurm_jobs=slurm_jobs, **shared)


@pytest.mark.parametrize("stored", OLDER)
async def test_a_pod_remembers_its_later_job_where_the_bus_went_back_to_an_earlier_one(
    stored: PlacementState,
) -> None:
    slurm = _Asked()

    reconciler, _ = went_back(stored, slurm)
    seen = await reconciler.look(UID)
    action = decide(seen, T0, Limits())

    assert slurm.asked == [(102, 1)]
    assert isinstance(action, Record)
    assert (action.state.job, action.state.attempt, action.state.phase) == (102, 1, "submitted")


@pytest.mark.parametrize("stored", OLDER)
async def test_the_job_of_a_pod_that_runs_is_no_stray_where_the_bus_went_back(stored: PlacementState) -> None:
    slurm = _Asked()

    _, sweeper = went_back(stored, slurm)
    await sweeper.sweep("102")

    assert slurm.cancelled == []


@pytest.mark.parametrize(
    ("looked", "is_written"),
    [
        pytest.param({"is_ours": True}, True, id="its AdminComment says so too"),
        pytest.param({"is_ours": False}, False, id="a mark alone may be copied"),
        pytest.param({"is_ours": True, "is_marked": False}, False, id="its mark is gone since"),
        pytest.param({"is_ours": True, "base": "CANCELLED", "is_over": True}, False, id="it has ended since"),
    ],
)
async def test_the_job_of_a_pod_on_a_node_that_lost_every_word_of_it_is_not_cancelled_and_written_on_it_again(
    looked: dict[str, Any], *, is_written: bool
) -> None:
    bound = replace(manifest(), spec=replace(manifest().spec, node_name=KUBE_NODE))
    bound = replace(bound, status=PodStatus(phase="Running"))
    extra, slurm, pods = marks.extra_text(KEY, UID, bound.key, 1, 0), _Asked(looked), MemoryPods(bound)
    jobs: Any = _Shown(**{"102": replace(RUNS, job=102, extra=extra)})
    nothing: Any = _Shown()
    asked: Any = slurm
    sweeper = Sweeper(pods=pods, jobs=asked, placements=nothing, slurm_jobs=jobs, key=KEY, check=lambda: None)

    await sweeper.sweep("102")

    found = await pods.find(UID, "", "")
    text = "" if found is None else found.metadata.annotations.get(ANNOTATION_JOB, "")
    assert slurm.cancelled == []
    assert text == (marks.claim(KEY, UID, 1, 102) if is_written else "")


async def test_nothing_is_remembered_of_pods_whose_jobs_stir_when_they_are_gone() -> None:
    nothing: Any = _Shown()
    stored: Any = {
        "executor": _Idle(),
        "jobs": _Looked(),
        "views": Views(kube_pods=nothing, slurm_nodes=nothing, locks=NodeLocks(nothing)),
    }
    scheduler = Reconciler(
        pods=MemoryPods(),
        placements=nothing,
        bus_jobs=BusJobs(nothing, nothing),
        takers=NodeTakers(BusJobs(nothing, nothing), nothing, nothing),
        mailbox=Mailbox(),
        rules=Rules(),
        limits=Limits(),
        key=KEY,
        **stored,
    )
    for number in range(100):
        scheduler.invalidate(f"uid-{number}")
        await scheduler.reconcile(f"uid-{number}")

    assert scheduler.remembered == 0


async def test_a_mark_that_is_copied_to_a_thousand_jobs_is_said_on_its_pod_once() -> None:
    nothing: Any = _Looked()
    copied = marks.extra_text(KEY, UID, "default/infer", 0, 1000)
    copies: Any = {
        str(number): replace(RUNS, job=number, extra=copied, user_id=1000) for number in range(100, 120)
    }
    placements: Any = _Shown(**{UID: placement("bound")})
    extra = marks.extra_text(KEY, "uid-2", "default/other", 0, 1000)
    copies["200"] = replace(RUNS, job=200, extra=extra, user_id=1000)
    other = replace(manifest(), metadata=replace(manifest().metadata, name="other", uid="uid-2"))
    pods = MemoryPods(manifest(), other)
    sweeper = Sweeper(
        pods=pods,
        jobs=nothing,
        placements=placements,
        slurm_jobs=_Shown(**copies),  # type: ignore[arg-type]
        key=KEY,
        check=lambda: None,
    )

    for number in range(100, 120):
        assert await sweeper.sweep(str(number)) is None
    assert pods.warned == {UID: ["MarkCopied"]}
    assert sweeper.remembered == 1

    placements.found.clear()
    placements.found["uid-2"] = placement("bound")
    assert await sweeper.sweep("200") is None
    assert pods.warned == {UID: ["MarkCopied"], "uid-2": ["MarkCopied"]}
    assert sweeper.remembered == 1  # Of the first, which is gone, nothing.


class _Counted(MemoryPods):
    """Pods that are found by their claims, and never looked through."""

    def uids(self) -> list[str]:
        raise AssertionError("all Pods were looked through")


async def test_a_release_of_a_job_that_nobody_knows_looks_at_no_pod_but_those_that_claim_it() -> None:
    nothing: Any = _Shown()
    claiming = manifest(annotations={ANNOTATION_JOB: marks.claim(KEY, UID, 1, 102)})
    claiming = replace(claiming, spec=replace(claiming.spec, node_name=KUBE_NODE))
    answerer = Handlers(nothing, _Counted(claiming), Mailbox(), KEY, lambda _: None)

    assert await answerer.released(ReleasePlacement(job=101)) == PlacementReleased(is_pod_gone=True)
    assert isinstance(await answerer.released(ReleasePlacement(job=102)), Later)


def test_pods_are_found_by_the_claims_that_we_wrote_and_what_others_wrote_costs_nothing() -> None:
    index = Index(job_claims.keys_of(KEY))
    first = manifest(uid="u1", name="p1", annotations={ANNOTATION_JOB: marks.claim(KEY, "u1", 0, 7)})
    unsigned = msgspec.json.encode({"job": 7, "mark": tokens.mark(KEY, "u2", 0)}).decode()
    second = manifest(uid="u2", name="p2", annotations={ANNOTATION_JOB: unsigned})
    texts = (marks.claim(KEY, "u1", 0, 7), '{"job":7}', "[" * 2000, " " * 200_000 + unsigned)
    others = [
        manifest(uid=f"v{at}", name=f"q{at}", annotations={ANNOTATION_JOB: text})
        for at, text in enumerate(texts)
    ]
    for found in (first, second, *others):
        index.change(None, found)

    assert index.of("7") == [first]  # Only a number that we signed is believed by itself.
    assert index.of(job_claims.of_owner("u1", 7)) == [first]
    assert index.of(job_claims.of_owner("u2", 7)) == [second]
    assert len(index.keys()) == 3
    index.change(first, replace(first, status=PodStatus(phase="Succeeded")))
    assert index.keys() == [job_claims.of_owner("u2", 7)]


def of(**fields: Any) -> PodSpec:  # noqa: ANN401 - of any type
    return replace(manifest().spec, **fields)


def affinity(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(terms)))


def term(*values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key="a", operator="In", values=values),)
    )


MANY = tuple(str(number) for number in range(3000))
MAIN = manifest().spec.containers[0]
ASKED = ResourceRequirements(requests={"cpu": "1", "memory": "1", **{f"x.io/{name}": "0" for name in MANY}})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (of(containers=(MAIN,) * 300), "spec.containers and spec.initContainers"),
        (of(init_containers=(MAIN,) * 300), "spec.containers and spec.initContainers"),
        (of(containers=(replace(MAIN, ports=(ContainerPort(),) * 3000),)), "spec.containers[].ports"),
        (of(containers=(replace(MAIN, resources=ASKED),)), "spec.containers[].resources.requests"),
        (of(tolerations=tuple(Toleration(key=key) for key in MANY)), "spec.tolerations"),
        (of(node_selector=dict.fromkeys(MANY, "")), "spec.nodeSelector"),
        (of(affinity=affinity(*(term("b") for _ in range(300)))), "spec.affinity.nodeAffinity: terms"),
        (of(affinity=affinity(term(*MANY))), "spec.affinity.nodeAffinity: values"),
        (of(resource_claims=(PodResourceClaim(),) * 300), "spec.resourceClaims"),
        (of(topology_spread_constraints=(TopologySpread(),) * 300), "spec.topologySpreadConstraints"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_pod_with_more_of_something_than_anybody_needs_is_refused_before_it_is_read(
    spec: PodSpec, field: str
) -> None:
    found = validate(manifest(spec=spec), Rules(kill_wait_s=30))

    assert isinstance(found, tuple)
    (problem,) = found
    assert problem.startswith(field)
    assert "more than" in problem


async def test_others_have_their_turn_while_nodes_are_chosen_among_thousands() -> None:
    known: dict[str, Node | None] = {f"gpu-{number}": node(f"node{number}") for number in range(5000)}
    turns: list[int] = []
    chosen: list[NodeChoice] = []

    async def other() -> None:
        while True:
            await checkpoint()
            turns.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        picky = manifest(spec=of(affinity=affinity(*(term("b") for _ in range(100)))))
        chosen.append(await NodeChoiceCache().choose((picky,), lambda: known, NodeConstraints(), T0))
        tasks.cancel_scope.cancel()

    assert not chosen[0].is_possible
    assert len(turns) >= len(known) // SLICE - 1  # Between the slices.
