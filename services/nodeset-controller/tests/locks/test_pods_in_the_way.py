"""Which Pods are in the way of a lock."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_kube.objects import OwnerReference
from sunk_kube.pods import Container, ContainerState, ContainerStatus, ContainerTerminated, Pod, Toleration
from sunk_kube.testing import T0, pod
from sunk_nodeset_controller.locks.daemon_claims import DaemonClaim
from sunk_nodeset_controller.locks.model import Blockers, Clearing, LockTaint
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy, blockers, may_run, tolerates

TAINT = LockTaint()
DRIVEN = EvictionPolicy()
EVICTING = EvictionPolicy(
    LockTaint(effect="NoSchedule"),
    Clearing(
        exempt_namespaces=frozenset({"kube-system"}),
        exempt_priority_classes=frozenset({"system-node-critical"}),
    ),
)
KEY = TAINT.key


def tolerating(**fields: object) -> Pod:
    return pod(tolerations=(replace(Toleration(key=KEY, operator="Exists"), **fields),))


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        pytest.param(Toleration(key=KEY, operator="Exists"), True, id="the key exists"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key=KEY, value="true"), True, id="the same value"),
        pytest.param(Toleration(key=KEY, operator="", value="true"), True, id="no operator means Equal"),
        pytest.param(Toleration(key=KEY, operator="Exists", effect="NoExecute"), True, id="the same effect"),
        pytest.param(Toleration(key=KEY, value="false"), False, id="another value"),
        pytest.param(Toleration(key="other", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key=KEY, operator="Exists", effect="NoSchedule"), False, id="another effect"),
        pytest.param(
            Toleration(key=KEY, operator="Exists", toleration_seconds=3600),
            False,
            id="for an hour: not at all",
        ),
        pytest.param(Toleration(key=KEY, operator="Gt", value="1"), False, id="an operator from the future"),
        pytest.param(Toleration(), False, id="an empty one"),
    ],
)
def test_a_pod_bears_the_lock_only_for_good(toleration: Toleration, *, does: bool) -> None:
    assert tolerates(toleration, TAINT) == does


@pytest.mark.parametrize(
    ("found", "is_in"),
    [
        pytest.param(pod(), True, id="an ordinary one"),
        pytest.param(pod(phase="Pending"), True, id="bound and not started"),
        pytest.param(pod(deleted=T0), True, id="terminating"),
        pytest.param(pod(phase="Unknown"), True, id="nobody knows"),
        pytest.param(pod(phase="Succeeded"), False, id="succeeded"),
        pytest.param(pod(phase="Failed"), False, id="failed"),
        pytest.param(tolerating(), False, id="tolerates"),
        pytest.param(tolerating(toleration_seconds=0), True, id="tolerates for no time"),
        pytest.param(pod(scheduler="slurm-sunk"), True, id="our schedulerName proves nothing"),
        pytest.param(
            pod(annotations={"sunk.coreweave.com/job": "1"}), True, id="an annotation proves nothing"
        ),
    ],
)
def test_who_is_in_the_way(found: Pod, *, is_in: bool) -> None:
    names = ("default/web",) if is_in else ()

    assert blockers(DRIVEN.others([found], {}, alive=set(), daemons=())) == Blockers(
        normal=names, strict=names, until=found.metadata.deletion_timestamp if is_in else None
    )


@pytest.mark.parametrize(
    ("pods", "until"),
    [
        pytest.param([], None, id="no Pod"),
        pytest.param([pod(deleted=T0), pod(deleted=T0 + timedelta(seconds=30))], 30.0, id="the last ends"),
        pytest.param([pod(deleted=T0), pod()], None, id="one was not asked to go"),
    ],
)
def test_the_end_is_that_of_the_last_pod_if_all_were_asked(pods: list[Pod], until: float | None) -> None:
    assert blockers(pods).until == (None if until is None else T0 + timedelta(seconds=until))


@pytest.mark.parametrize(
    ("found", "job", "is_in"),
    [
        pytest.param(pod(), 7, False, id="ours, its job lives here"),
        pytest.param(tolerating(), 8, True, id="ours, its job has ended: in the way though it tolerates"),
        pytest.param(tolerating(), None, True, id="ours, without a job: bound by somebody else"),
        pytest.param(pod(phase="Failed"), 8, False, id="ours, its job has ended, it has failed"),
    ],
)
def test_a_pod_that_slurm_placed_may_stay_as_long_as_its_job_lives_here(
    found: Pod, job: int | None, *, is_in: bool
) -> None:
    assert bool(DRIVEN.others([found], {found.metadata.uid: job}, alive={7}, daemons=())) == is_in


def test_a_job_is_leant_on_where_a_pod_that_slurm_placed_may_stay_for_its_sake_alone() -> None:
    pods = [pod("a"), pod("b"), pod("c", phase="Succeeded"), pod("d"), tolerating()]
    jobs = dict(zip([one.metadata.uid for one in pods[:4]], [7, 7, 8, 9], strict=True))

    assert DRIVEN.keeping_pods(pods, jobs, alive={7, 8}) == {7}


DAEMON = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="logs", uid="uid-logs", controller=True)
NODE = OwnerReference(api_version="v1", kind="Node", name="node1", uid="uid-node1", controller=True)
STATIC = {"kubernetes.io/config.mirror": "hash"}


@pytest.mark.parametrize(
    ("found", "is_in"),
    [
        pytest.param(pod(), True, id="an ordinary one"),
        pytest.param(pod(namespace="kube-system"), False, id="its namespace is exempt"),
        pytest.param(pod("daemon", owners=(DAEMON,)), False, id="of a DaemonSet that exists"),
        pytest.param(pod(owners=(DAEMON,)), True, id="says that it is a DaemonSet's"),
        pytest.param(pod(owners=(NODE,), annotations=STATIC), False, id="static"),
        pytest.param(pod(owners=(NODE,)), True, id="says that it is a Node's, and its kubelet runs it"),
        pytest.param(pod(annotations=STATIC), True, id="says that it is static, and is no Node's"),
        pytest.param(
            replace(pod(), spec=replace(pod().spec, priority_class_name="system-node-critical")),
            False,
            id="its priority class is exempt",
        ),
    ],
)
def test_who_is_exempt_may_stay_where_we_evict_and_nowhere_else(found: Pod, *, is_in: bool) -> None:
    assert bool(EVICTING.others([found], {}, alive=set(), daemons={"uid-daemon"})) == is_in
    assert DRIVEN.others([found], {}, alive=set(), daemons={"uid-daemon"}) == [found]


@pytest.mark.parametrize(
    ("found", "is_asked"),
    [
        pytest.param(pod(owners=(DAEMON,)), True, id="says that it is a DaemonSet's"),
        pytest.param(pod(), False, id="says nothing"),
        pytest.param(pod(owners=(replace(DAEMON, controller=False),)), False, id="is only owned"),
        pytest.param(
            pod(owners=(replace(DAEMON, api_version="example.com/v1"),)), False, id="another's DaemonSet"
        ),
        pytest.param(pod(owners=(DAEMON,), phase="Failed"), False, id="is over"),
        pytest.param(
            pod(owners=(DAEMON,), tolerations=(Toleration(operator="Exists"),)), False, id="tolerates"
        ),
        pytest.param(pod(namespace="kube-system", owners=(DAEMON,)), False, id="its namespace is exempt"),
        pytest.param(pod("placed", owners=(DAEMON,)), False, id="Slurm placed it"),
    ],
)
def test_a_daemonset_is_asked_for_only_where_a_pod_may_stay_for_its_sake_alone(
    found: Pod, *, is_asked: bool
) -> None:
    claim = DaemonClaim("default", "logs", "uid-logs")

    assert EVICTING.daemon_claims([found], {"uid-placed": 7}) == ({"uid-web": claim} if is_asked else {})
    assert DRIVEN.daemon_claims([found], {"uid-placed": 7}) == {}


@pytest.mark.parametrize(
    "claim",
    [
        DaemonClaim("team", "../pods", "u"),
        DaemonClaim("team", "logs", ""),
        DaemonClaim("team", "logs", "u" * 1_000_000),  # What is refuted is remembered.
    ],
    ids=["a path", "no uid", "a uid of a megabyte"],
)
def test_an_owner_that_can_be_no_daemonset_is_none(claim: DaemonClaim) -> None:
    assert not claim.is_possible


def test_a_pod_of_an_ended_job_is_in_the_way_whatever_is_exempt() -> None:
    found = pod(namespace="kube-system")

    assert EVICTING.others([found], {found.metadata.uid: 8}, alive={7}, daemons=()) == [found]


def ended(at_s: int, *, names: tuple[str, ...] = ("main",), sidecar: str = "") -> Pod:
    """Return a Pod whose deletion was asked for at T0, its containers *names* ended *at_s* after."""
    found = pod(deleted=T0 + timedelta(seconds=30))
    state = ContainerState(
        terminated=ContainerTerminated(exit_code=137, finished_at=T0 + timedelta(seconds=at_s))
    )
    sidecars = (Container(name=sidecar, restart_policy="Always"),) if sidecar else ()
    return replace(
        found,
        metadata=replace(found.metadata, deletion_grace_period_seconds=30),
        spec=replace(found.spec, init_containers=sidecars),
        status=replace(
            found.status,
            container_statuses=tuple(ContainerStatus(name=name, state=state) for name in names),
        ),
    )


@pytest.mark.parametrize(
    ("found", "may"),
    [
        pytest.param(ended(2), False, id="the kubelet ended it"),
        pytest.param(ended(-9), True, id="it had crashed before and may be started again"),
        pytest.param(ended(2, names=()), True, id="nothing is known of its container"),
        pytest.param(ended(2, sidecar="log"), True, id="its sidecar still runs"),
        pytest.param(pod(deleted=T0), True, id="marked for deletion only"),
        pytest.param(pod(phase="Pending"), True, id="may start any moment"),
    ],
)
def test_a_terminating_pod_stops_counting_for_a_normal_lock_once_its_containers_have_ended(
    found: Pod, *, may: bool
) -> None:
    assert may_run(found) == may
    assert blockers(DRIVEN.others([found], {}, alive=set(), daemons=())).strict == ("default/web",)


def deleted_with(grace_s: int, *, until_s: int) -> Pod:
    """Return a Pod made at T0 whose container ended 9 s later, deleted with a grace period of *grace_s*."""
    found = ended(9)
    deletion = replace(
        found.metadata,
        deletion_timestamp=T0 + timedelta(seconds=until_s),
        deletion_grace_period_seconds=grace_s,
    )
    return replace(found, metadata=deletion)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(deleted_with(10**10, until_s=-8_446_744_073), id="the API server's time went round"),
        pytest.param(deleted_with(10**11, until_s=7_766_279_631), id="before the first year"),
        pytest.param(deleted_with(10**12, until_s=3_875_820_019), id="after a trillion seconds"),
        pytest.param(deleted_with(10**15, until_s=5), id="more days than a time has"),
        pytest.param(deleted_with(-(10**12), until_s=5), id="a negative one, after the last year"),
        pytest.param(deleted_with(-(10**15), until_s=5), id="a negative one, of too many days"),
    ],
)
def test_a_grace_period_beyond_all_times_leaves_a_pod_in_the_way(found: Pod) -> None:
    assert may_run(found)
    assert blockers([found]) == Blockers(normal=("default/web",), strict=("default/web",))


@pytest.mark.parametrize(
    ("found", "measure", "is_ours"),
    [
        pytest.param(pod(), DRIVEN, False, id="Kubernetes drives it out"),
        pytest.param(tolerating(toleration_seconds=3600), DRIVEN, True, id="not for an hour"),
        pytest.param(pod(), EVICTING, True, id="nobody but us"),
    ],
)
def test_who_is_let_in_for_a_while_is_asked_to_leave_by_us(
    found: Pod, measure: EvictionPolicy, *, is_ours: bool
) -> None:
    assert measure.may_evict(found) is is_ours


def test_of_thousands_of_tolerations_only_those_are_looked_at_that_may_be_about_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def counted(toleration: Toleration, taint: LockTaint) -> bool:
        looked.append(toleration.key)
        return tolerates(toleration, taint)

    monkeypatch.setattr("sunk_nodeset_controller.locks.pods_in_the_way.tolerates", counted)
    others = tuple(Toleration(key=f"k{at}", operator="Exists") for at in range(5000))
    hour = Toleration(key=KEY, operator="Exists", toleration_seconds=3600)

    assert DRIVEN.is_driven_out(pod(tolerations=others), is_daemon=False)
    assert DRIVEN.lets_in_for_a_while((*others, hour))
    tolerant = pod(tolerations=(*others, Toleration(operator="Exists")))
    assert not DRIVEN.is_driven_out(tolerant, is_daemon=False)
    assert set(looked) == {KEY, ""}
