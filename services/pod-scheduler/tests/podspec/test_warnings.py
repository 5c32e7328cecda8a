import pytest

from sunk_kube.pods import Affinity, Container, PodAffinity, PodSpec, ResourceRequirements, TopologySpread
from sunk_kube.wellknown import PREFIX
from sunk_pod_scheduler.podspec.namespace_policy import Grant, Policy
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.podspec.warnings import PodWarning, warnings
from sunk_pod_scheduler.testing.builders import manifest

TERM = {"topologyKey": "kubernetes.io/hostname"}
REQUIRED = Affinity(pod_anti_affinity=PodAffinity(required=(TERM,)))
PREFERRED = Affinity(pod_affinity=PodAffinity(preferred=({"weight": 1, "podAffinityTerm": TERM},)))
SPREAD = (TopologySpread(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),)


def container(cpu: str, limit: str, *, memory: str = "1Gi", gpus: str = "") -> Container:
    more = {"nvidia.com/gpu": gpus} if gpus else {}
    return Container(
        name="main",
        resources=ResourceRequirements(
            requests={"cpu": cpu, "memory": "1Gi"} | more,
            limits={"cpu": limit, "memory": memory} | more,
        ),
    )


def said(spec: PodSpec, exclusive: str = "") -> tuple[PodWarning, ...]:
    pod = manifest(spec=spec, annotations={PREFIX + "exclusive": exclusive} if exclusive else {})
    wanted = validate(pod, Rules())
    assert isinstance(wanted, ValidatedPod)
    return warnings(pod, wanted)


def reasons(spec: PodSpec, exclusive: str = "") -> list[str]:
    return [warned.reason for warned in said(spec, exclusive)]


@pytest.mark.parametrize(
    ("cpu", "limit", "memory", "expected"),
    [
        pytest.param("2", "2", "1Gi", ["StaticCPUs"], id="Guaranteed, whole CPUs"),
        pytest.param("2000m", "2", "1Gi", ["StaticCPUs"], id="written in another way"),
        pytest.param("1500m", "1500m", "1Gi", [], id="Guaranteed, a fraction"),
        pytest.param("2", "3", "1Gi", [], id="Burstable: a higher CPU limit"),
        pytest.param("2", "2", "2Gi", [], id="Burstable: a higher memory limit"),
    ],
)
def test_a_guaranteed_pod_with_whole_cpus_is_warned_of_static_allocation(
    cpu: str, limit: str, memory: str, expected: list[str]
) -> None:
    assert reasons(PodSpec(containers=(container(cpu, limit, memory=memory),))) == expected


def test_one_container_without_limits_and_nothing_is_pinned() -> None:
    free = Container(name="side", resources=ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"}))

    assert reasons(PodSpec(containers=(container("2", "2"), free))) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (PodSpec(affinity=REQUIRED), "spec.affinity.podAntiAffinity"),
        (PodSpec(affinity=PREFERRED), "spec.affinity.podAffinity"),
        (PodSpec(topology_spread_constraints=SPREAD), "spec.topologySpreadConstraints"),
    ],
)
def test_what_only_kube_scheduler_heeds_is_said_to_have_no_effect(spec: PodSpec, field: str) -> None:
    spec = PodSpec(
        containers=(container("1", "2"),),
        affinity=spec.affinity,
        topology_spread_constraints=spec.topology_spread_constraints,
    )
    (warned,) = said(spec)

    assert (warned.reason, field in warned.message) == ("NoEffect", True)


def test_required_places_beside_other_pods_refuse_the_pod_where_an_administrator_says_so() -> None:
    strict = Rules(refuses_pod_affinity=True)
    required = manifest(spec=PodSpec(containers=(container("1", "2"),), affinity=REQUIRED))
    preferred = manifest(spec=PodSpec(containers=(container("1", "2"),), affinity=PREFERRED))

    assert validate(required, strict) == (
        "spec.affinity.podAntiAffinity: has no effect, because Slurm chooses the Node: remove it",
    )
    assert isinstance(validate(preferred, strict), ValidatedPod)
    assert isinstance(validate(required, Rules()), ValidatedPod)


def test_gpus_that_are_shared_with_anybody_are_warned_of() -> None:
    spec = PodSpec(containers=(container("1", "2", gpus="1"),))

    assert reasons(spec, "ok") == ["SharedGPUs"]
    assert reasons(spec, "user") == []
    assert reasons(spec) == []


def test_gpus_of_a_user_with_jobs_of_its_own_are_warned_of_unless_the_node_is_the_pods_alone() -> None:
    rules = Rules(policy=Policy(namespaces={"default": Grant(user_ids=(1001,))}))

    def told(exclusive: str) -> list[str]:
        asked = {PREFIX + "user-id": "1001", PREFIX + "exclusive": exclusive}
        pod = manifest(spec=PodSpec(containers=(container("1", "2", gpus="1"),)), annotations=asked)
        wanted = validate(pod, rules)
        assert isinstance(wanted, ValidatedPod)
        return [warned.reason for warned in warnings(pod, wanted)]

    assert (told(""), told("none")) == (["SharedGPUs"], [])


def test_the_old_boolean_says_what_it_means_for_gpus() -> None:
    (warned,) = said(PodSpec(containers=(container("1", "2", gpus="1"),)), "false")

    assert (warned.reason, warned.message.endswith("; for a Pod with GPUs it means user")) == (
        "OldAnnotation",
        True,
    )


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_old_boolean_still_holds_and_is_warned_of(value: str) -> None:
    assert reasons(PodSpec(containers=(container("1", "2"),)), value) == ["OldAnnotation"]
