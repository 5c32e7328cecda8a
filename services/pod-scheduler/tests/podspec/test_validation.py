import pytest

from sunk_kube.pods import Container, PodSpec, ResourceRequirements
from sunk_kube.wellknown import JOB_ANNOTATIONS, PREFIX
from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec import annotations, pod_requests
from sunk_pod_scheduler.podspec.namespace_policy import Grant, Policy
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import KEY, UID, manifest
from sunk_slurm.wire import Number

GRACE = "termination grace period must be less than Slurm KillWait - 5s"
NO_GRACE = "termination grace period must be at least 1s: with 0 a Pod is gone before its containers"
CPU = "spec.containers[].resources.requests.cpu: must be set and not be zero"
MEMORY = "spec.containers[].resources.requests.memory: must be set and not be zero"
H100 = Rules(gpu_types={"NVIDIA_H100": "h100"})
SPELLED = Rules(gpu_types={"NVIDIA_H100": "hopper"}, spells_gpu_types=True)


def asking(**amounts: str) -> ResourceRequirements:
    return ResourceRequirements(requests=amounts)


@pytest.mark.parametrize(
    ("requests", "grace_s", "problems"),
    [
        pytest.param({"cpu": "500m", "memory": "1"}, 24, None, id="just right"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, 25, (GRACE,), id="strictly less"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, None, (GRACE,), id="Kubernetes' default grace"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, 0, (NO_GRACE,), id="gone before its containers"),
        pytest.param({"cpu": "0", "memory": "1Gi"}, 5, (CPU,), id="no cpu"),
        pytest.param({"cpu": "1"}, 5, (MEMORY,), id="no memory"),
        pytest.param({}, 30, (CPU, MEMORY, GRACE), id="everything at once"),
    ],
)
def test_a_pod_needs_cpu_memory_and_a_short_grace(
    requests: dict[str, str], grace_s: int | None, problems: tuple[str, ...] | None
) -> None:
    found = validate(manifest(requests=requests, grace_s=grace_s), Rules(kill_wait_s=30))

    assert found == problems if problems else isinstance(found, ValidatedPod)


def test_init_containers_sidecars_and_overhead_count_as_kubernetes_counts_them() -> None:
    spec = PodSpec(
        init_containers=(
            Container(resources=asking(cpu="1", memory="1Gi"), restart_policy="Always"),
            Container(resources=asking(cpu="4", memory="1Gi")),
        ),
        containers=(Container(resources=asking(cpu="2", memory="6Gi")),),
        overhead={"cpu": "250m", "memory": "1Gi"},
    )

    found = pod_requests.requests(spec)

    assert (float(found["cpu"]), found["memory"] / (1 << 30)) == (5.25, 8)


def test_the_table_has_each_documented_annotation() -> None:
    assert {PREFIX + name for name in annotations.RULES} == set(JOB_ANNOTATIONS)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("account", "root", "account", "root"),
        ("comment", "A Kubernetes job", "comment", "A Kubernetes job"),
        ("constraints", "h100&ib", "constraints", "h100&ib"),
        ("current-working-dir", "/path/to/use", "current_working_directory", "/path/to/use"),
        ("exclusive", "none", "shared", ("none",)),
        ("exclusive", "user", "shared", ("user",)),
        ("exclusive", "ok", "shared", ("oversubscribe",)),
        ("exclusive", "true", "shared", ("none",)),
        ("exclusive", "False", "shared", ()),
        ("excluded-nodes", "a-01,a-02", "excluded_nodes", ("a-01", "a-02")),
        ("required-nodes", "a-[04-05]", "required_nodes", ("a-04", "a-05")),
        ("partition", "default", "partition", "default"),
        ("prefer", "ib", "prefer", "ib"),
        ("priority", "100", "priority", Number.of(100)),
        ("qos", "normal", "qos", "normal"),
        ("reservation", "test", "reservation", "test"),
        ("timeout", "123", "time_limit", Number.of(123)),
        ("user-id", "1001", "user_id", 1001),
        ("group-id", "1002", "group_id", 1002),
    ],
)
def test_an_annotation_becomes_slurms_field(name: str, value: str, field: str, expected: object) -> None:
    asked, problems = annotations.read({PREFIX + name: value})

    assert (getattr(asked, field), problems) == (expected, ())


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("exclusive", "yes", "must be one of none, user, ok"),
        ("priority", "high", "must be an integer from 1 to"),
        ("priority", "0", "must be an integer from 1 to"),
        ("timeout", "-1", "must be an integer from 1 to"),
        ("timeout", "1.5", "must be an integer from 1 to"),
        ("current-working-dir", "here", "must be an absolute path"),
        ("required-nodes", "a-[1", "brackets"),
        ("required-nodes", "cpu-000-012,$(id)", "is not a host list"),
        ("required-nodes", ",", "names no node"),
        ("excluded-nodes", "../a", "is not a host list"),
        ("partition", "a b", "must not contain spaces"),
        ("comment", "x" * 1024, "is longer than 1023 characters"),
        ("comment", "a\nb", "must be one line"),
    ],
)
def test_a_malformed_annotation_is_named_with_what_is_allowed(name: str, value: str, why: str) -> None:
    found = validate(manifest(annotations={PREFIX + name: value}), Rules())

    assert isinstance(found, tuple)
    assert found[0].startswith(PREFIX + name)
    assert why in found[0]


def gpu_pod(**selector: str) -> PodSpec:
    requests = asking(cpu="8", memory="64Gi", **{"nvidia.com/gpu": "2"})
    labels = {"gpu.nvidia.com/model": selector["model"]} if selector else {}
    return PodSpec(containers=(Container(resources=requests),), node_selector=labels)


@pytest.mark.parametrize(
    ("spec", "rules", "expected"),
    [
        pytest.param(gpu_pod(model="NVIDIA_H100"), H100, "gres/gpu:h100:2", id="a model: its type"),
        pytest.param(gpu_pod(), H100, "gres/gpu:2", id="no model: any type"),
        pytest.param(gpu_pod(model="NVIDIA_H100"), Rules(), "gres/gpu:2", id="no types here"),
        pytest.param(gpu_pod(model="NVIDIA_L40S"), SPELLED, "gres/gpu:l40s:2", id="a model without an entry"),
        pytest.param(gpu_pod(model="NVIDIA_H100"), SPELLED, "gres/gpu:hopper:2", id="an entry holds"),
        pytest.param(gpu_pod(), SPELLED, "gres/gpu:2", id="no model, spelled: any type"),
    ],
)
def test_gpus_become_gres(spec: PodSpec, rules: Rules, expected: str) -> None:
    wanted = validate(manifest(spec=spec), rules)

    assert isinstance(wanted, ValidatedPod)
    job = describe(manifest(spec=spec), wanted, NodeChoice(), 0, MADE)
    assert (job.tres_per_node, job.cpus_per_task, job.memory_per_node) == (expected, 8, Number.of(65536))


@pytest.mark.parametrize(
    ("spec", "exclusive", "shared"),
    [
        pytest.param(gpu_pod(), "", ("user",), id="GPUs: with placeholders only"),
        pytest.param(gpu_pod(), "false", ("user",), id="the old boolean too"),
        pytest.param(gpu_pod(), "ok", ("oversubscribe",), id="unless somebody insists"),
        pytest.param(gpu_pod(), "none", ("none",), id="or wants the whole node"),
        pytest.param(
            PodSpec(containers=(Container(resources=asking(cpu="1", memory="1Gi")),)), "", (), id="no GPUs"
        ),
    ],
)
def test_a_pod_with_gpus_does_not_share_its_node_with_slurm_jobs(
    spec: PodSpec, exclusive: str, shared: tuple[str, ...]
) -> None:
    found = manifest(spec=spec, annotations={PREFIX + "exclusive": exclusive})
    wanted = validate(found, Rules())

    assert isinstance(wanted, ValidatedPod)
    assert describe(found, wanted, NodeChoice(), 0, MADE).shared == shared


def limited(*, cpu: bool, gpus: str = "", limit: str = "2") -> Container:
    more = {"nvidia.com/gpu": gpus} if gpus else {}
    limits = {"cpu": limit} if cpu else {"memory": "1Gi"}
    requests = {"cpu": "1500m", "memory": "1Gi"} | more
    return Container(name="main", resources=ResourceRequirements(requests=requests, limits=limits | more))


OWN = Policy(namespaces={"default": Grant(user_ids=(1001,))})
BESIDE = (
    "spec.containers[].resources.limits.cpu (main): must be set if Slurm jobs may share the node; "
    "or set sunk.coreweave.com/exclusive: none"
)


@pytest.mark.parametrize(
    ("container", "asked", "is_refused"),
    [
        pytest.param(limited(cpu=False), {}, True, id="shared by default"),
        pytest.param(limited(cpu=False), {"exclusive": "ok"}, True, id="shared with anybody"),
        pytest.param(limited(cpu=False), {"exclusive": "user"}, False, id="shared with other Pods only"),
        pytest.param(
            limited(cpu=False), {"exclusive": "user", "user-id": "1001"}, True, id="its user has jobs"
        ),
        pytest.param(limited(cpu=False), {"exclusive": "none"}, False, id="alone"),
        pytest.param(limited(cpu=False, gpus="1"), {}, False, id="GPUs"),
        pytest.param(limited(cpu=False, gpus="1"), {"exclusive": "ok"}, True, id="GPUs, with anybody"),
        pytest.param(limited(cpu=True), {}, False, id="limited"),
    ],
)
def test_a_pod_beside_jobs_needs_a_cpu_limit_where_an_administrator_says_so(
    container: Container, asked: dict[str, str], *, is_refused: bool
) -> None:
    marked = {PREFIX + name: value for name, value in asked.items()}
    pod = manifest(spec=PodSpec(containers=(container,)), annotations=marked)

    assert isinstance(validate(pod, Rules(policy=OWN)), ValidatedPod)
    found = validate(pod, Rules(policy=OWN, requires_limits=("cpu",)))
    assert found == (BESIDE,) if is_refused else isinstance(found, ValidatedPod)


def test_a_cpu_limit_of_the_pod_as_a_whole_will_do_and_init_containers_count() -> None:
    free, whole = limited(cpu=False), ResourceRequirements(limits={"cpu": "2"})
    strict = Rules(requires_limits=("cpu",))

    assert isinstance(
        validate(manifest(spec=PodSpec(containers=(free,), resources=whole)), strict), ValidatedPod
    )
    spec = PodSpec(containers=(limited(cpu=True),), init_containers=(free,))
    assert validate(manifest(spec=spec), strict) == (BESIDE,)


@pytest.mark.parametrize(
    ("spec", "all_in_all"),
    [
        (PodSpec(containers=(limited(cpu=True, limit="64"),)), "64"),
        (PodSpec(containers=(limited(cpu=True, limit="1e999"),)), "all"),
        (PodSpec(containers=(limited(cpu=True, limit="2500m"), limited(cpu=True, limit="2"))), "4.5"),
        (PodSpec(containers=(limited(cpu=True),), init_containers=(limited(cpu=True, limit="9"),)), "9"),
        (
            PodSpec(containers=(limited(cpu=True),), resources=ResourceRequirements(limits={"cpu": "2001m"})),
            "2.001",
        ),
        (PodSpec(containers=(limited(cpu=True),) * 2), ""),  # 3 CPUs are given, and 4 may be taken.
        (PodSpec(containers=(limited(cpu=True, limit="1500m"),) * 2), None),
        (PodSpec(containers=(limited(cpu=True),), overhead={"cpu": "100m"}), "2.1"),
        (PodSpec(containers=(limited(cpu=True),), overhead={"cpu": "600m"}), None),
    ],
)
def test_a_cpu_limit_is_no_more_than_slurm_gives_the_pod_where_jobs_run_beside_it(
    spec: PodSpec, all_in_all: str | None
) -> None:
    """A limit that nothing reaches is none: the Pod would take what Slurm gave to the jobs beside it."""
    found = validate(manifest(spec=spec), Rules(requires_limits=("cpu",)))

    assert isinstance(validate(manifest(spec=spec), Rules()), ValidatedPod)
    if all_in_all is None:
        assert isinstance(found, ValidatedPod)
    else:
        (problem,) = found if isinstance(found, tuple) else ("",)
        assert problem.startswith(f"spec.containers[].resources.limits.cpu: {all_in_all}")
        assert "that Slurm gives: lower it if" in problem


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (None, " (main): must be set"),
        ("64Gi", ": 65536 MiB is more than the 1025 MiB that Slurm gives"),
        ("1025Mi", ""),
    ],
)
def test_a_memory_limit_is_no_more_than_slurm_gives_the_pod_where_an_administrator_says_so(
    limit: str | None, problem: str
) -> None:
    """Else the kernel ends jobs of others for a Pod that takes the node's memory: slurmd requests little."""
    limits = {} if limit is None else {"memory": limit}
    requests = {"cpu": "1", "memory": "1048577Ki"}
    main = Container(name="main", resources=ResourceRequirements(requests=requests, limits=limits))
    made = manifest(spec=PodSpec(containers=(main,)))
    alone = manifest(spec=PodSpec(containers=(main,)), annotations={PREFIX + "exclusive": "none"})

    found = validate(made, Rules(requires_limits=("memory",)))
    assert isinstance(validate(alone, Rules(requires_limits=("memory",))), ValidatedPod)
    if problem:
        assert isinstance(found, tuple)
        assert [one.startswith(f"spec.containers[].resources.limits.memory{problem}") for one in found] == [
            True
        ]
    else:
        assert isinstance(found, ValidatedPod)


def test_gpus_of_all_makers_count_and_what_nobody_counts_is_refused_with_the_setting() -> None:
    asked = {"cpu": "1", "memory": "1Gi"}
    amd = validate(manifest(requests={**asked, "amd.com/gpu": "2", "rdma/ib": "1"}), Rules())
    fpga = {**asked, "example.com/fpga": "1", "hugepages-2Mi": "2Mi", "example.com/none": "0"}

    assert isinstance(amd, ValidatedPod)
    assert amd.gpus == 2
    refused = validate(manifest(requests=fpga), Rules())
    assert isinstance(refused, tuple)
    (reason,) = refused
    assert reason.startswith("spec.containers[].resources.requests.example.com/fpga: Slurm does not count it")
    assert "GPU_RESOURCES" in reason
    counted = validate(manifest(requests=fpga), Rules(gpu_resources=("example.com/fpga",)))
    assert isinstance(counted, ValidatedPod)
    assert counted.gpus == 1


def test_a_gpu_model_that_slurm_does_not_have_is_named() -> None:
    assert validate(manifest(spec=gpu_pod(model="NVIDIA_B200")), H100) == (
        "gpu.nvidia.com/model: NVIDIA_B200 is not a GPU type of this Slurm cluster; known: NVIDIA_H100",
    )


MADE = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)


def test_a_script_is_told_where_it_finds_the_gateway_and_what_on_its_node_knows_better() -> None:
    found = manifest()
    wanted = validate(found, Rules(policy=Policy(default="allow")))
    assert isinstance(wanted, ValidatedPod)
    made = Placeholder(
        script="", hooks_url="https://hooks", hooks_ca_file="/ca.crt", hooks_env_file="/hooks.env", key=KEY
    )
    wide, narrow = (
        {entry.partition("=")[0]: entry.partition("=")[2] for entry in job.environment}
        for job in (
            describe(found, wanted, NodeChoice(), 0, made),
            describe(found, wanted, NodeChoice(), 0, MADE),
        )
    )

    places = {"SUNK_HOOKS_URL": "https://hooks", "CURL_CA_BUNDLE": "/ca.crt", "SUNK_HOOKS_ENV": "/hooks.env"}
    assert wide.items() >= places.items()
    assert narrow["SUNK_HOOKS_URL"] == "http://hooks"
    assert not {"CURL_CA_BUNDLE", "SUNK_HOOKS_ENV"} & narrow.keys()


def test_a_placeholder_is_held_never_requeued_and_carries_the_token_in_its_environment_only() -> None:
    pod = manifest(requests={"cpu": "1500m", "memory": "100Mi"}, annotations={PREFIX + "priority": "9"})
    wanted = validate(pod, Rules(policy=Policy(default="allow")))
    assert isinstance(wanted, ValidatedPod)

    job = describe(pod, wanted, NodeChoice(), 2, MADE)

    token = tokens.token(KEY, UID, 2)
    assert f"SUNK_PLACEHOLDER_TOKEN={token}" in job.environment
    assert token not in job.extra + job.admin_comment + job.script + job.comment
    assert (job.hold, job.requeue, job.priority) == (True, False, None)  # A priority would undo the hold.
    assert (job.cpus_per_task, job.memory_per_node) == (2, Number.of(100))
    assert (job.user_id, job.group_id, job.kill_warning_signal) == ("64100", "", "USR1")
    mark = marks.read_extra(KEY, job.extra + marks.STARTED, int(job.user_id))
    assert mark is not None
    assert (mark.uid, mark.attempt, mark.pod) == (UID, 2, "default/infer")


def test_a_mark_of_another_key_pod_or_attempt_is_no_mark() -> None:
    text = marks.extra_text(KEY, UID, "default/infer", 1, 7)

    assert marks.read_extra(b"other" * 8, text, 7) is None
    assert marks.read_extra(KEY, text.replace('"attempt":1', '"attempt":0'), 7) is None
    assert marks.read_extra(KEY, "no json", 7) is None
    assert marks.read_claim(KEY, "other", marks.claim(KEY, UID, 0, 7)) is None
    assert tokens.is_token(tokens.token(KEY, UID, 0), KEY, UID, 1) is False
