"""What a Pod's user may write: it is refused in words, or handed on as it is; nothing breaks."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_kube.objects import OwnerReference
from sunk_kube.pods import Container, PodResourceClaim, PodSpec, ResourceRequirements
from sunk_kube.wellknown import (
    ANNOTATION_GANG,
    ANNOTATION_GANG_MEMBERS_PER_NODE,
    ANNOTATION_GANG_MIN_AVAILABLE,
    ANNOTATION_GANG_POLICY,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_SIZE,
    JOB_ANNOTATIONS,
    PREFIX,
)
from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.gang_membership import (
    ANNOTATION_COMPLETION_INDEX,
    ANNOTATION_LWS_SIZE,
    LABEL_JOBSET_JOB,
    LABEL_JOBSET_NAME,
    LABEL_JOBSET_RESTART,
    LABEL_JOBSET_UID,
    LABEL_LWS_GROUP,
    LABEL_LWS_NAME,
    LABEL_LWS_WORKER,
    LABEL_POD_GROUP,
    SIZE_MAX,
    gang_options,
    membership,
    order,
    published_rank,
)
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.namespace_policy import Policy
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import KEY, manifest

MADE = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)
NASTY = "'; scancel -u root; $(id) `id` \\ \"}{ ] & | <a> %s \u202e\u00e9"
ASKED = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize("name", sorted(JOB_ANNOTATIONS))
def test_300_kilobytes_in_an_annotation_are_refused_in_few_words(name: str) -> None:
    found = validate(manifest(annotations={name: "9" * 300_000}), Rules())

    assert isinstance(found, tuple)
    assert found[0].startswith(name)
    assert len(found[0]) < 400


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        pytest.param("user-id", "0", "root", id="root"),
        pytest.param("group-id", "0", "root", id="root's group"),
        pytest.param("user-id", "-1", "must be an integer", id="negative"),
        pytest.param("user-id", str(1 << 32), "must be an integer", id="2^32"),
        pytest.param("user-id", str((1 << 32) - 1), "must be an integer", id="Slurm's word for none"),
        pytest.param("user-id", "\u0661", "must be an integer", id="digits of another script"),
        pytest.param("user-id", "9" * 5000, "must be an integer", id="more digits than can be read"),
        pytest.param("comment", "a\u0000b", "printable", id="a zero byte"),
        pytest.param("comment", "a\r\nb", "one line", id="a newline"),
        pytest.param("required-nodes", "a[0-999999999]", "too many nodes", id="a billion nodes"),
        pytest.param("required-nodes", "x[1-10001]", "too many nodes", id="more nodes than may be named"),
        pytest.param("excluded-nodes", "a" + "[1,1]" * 190, "too many nodes", id="one node, all too often"),
    ],
)
def test_what_no_pod_may_ask_is_refused_by_name(name: str, value: str, why: str) -> None:
    found = validate(manifest(annotations={PREFIX + name: value}), Rules(policy=Policy()))

    assert isinstance(found, tuple)
    assert found[0].startswith(PREFIX + name)
    assert why in found[0]


def test_shell_and_json_metacharacters_reach_slurm_as_they_are_and_nowhere_else() -> None:
    text = NASTY.replace("\u202e", "")
    pod = manifest(annotations={PREFIX + "comment": text, PREFIX + "constraints": text})
    wanted = validate(pod, Rules())
    assert isinstance(wanted, ValidatedPod)

    job = describe(pod, wanted, NodeChoice(), 0, MADE)

    read = msgspec.json.decode(msgspec.json.encode(job))
    assert (read["comment"], read["constraints"]) == (text, text)
    assert not any(text in found for found in (job.script, job.extra, job.admin_comment, *job.environment))
    assert marks.read_extra(KEY, job.extra, int(job.user_id)) is not None
    assert isinstance(validate(manifest(annotations={PREFIX + "comment": NASTY}), Rules()), tuple)


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        pytest.param("0.0001", "1Gi", (1, 1024), id="a sliver of a cpu is one"),
        pytest.param("100u", "1", (1, 1), id="a byte is a MiB"),
        pytest.param("1", "1000000000Gi", (1, 1024 * 10**9), id="Slurm says itself that it has no exbibyte"),
        pytest.param("1", "1e30", "memory: is more than any node has", id="more than 64 bits"),
        pytest.param("1e9999999", "1Gi", "resources.requests", id="more than can be counted"),
        pytest.param("-1", "1Gi", "cpu: must be set", id="negative"),
        pytest.param("one", "1Gi", "'one' is not a quantity", id="no number"),
    ],
)
def test_odd_amounts_are_rounded_up_or_refused(
    cpu: str, memory: str, expected: tuple[int, int] | str
) -> None:
    found = validate(manifest(requests={"cpu": cpu, "memory": memory}), Rules())

    if isinstance(expected, str):
        assert isinstance(found, tuple)
        assert expected in found[0]
    else:
        assert isinstance(found, ValidatedPod)
        assert (found.cpus, found.memory_mib) == expected


def test_claimed_devices_are_refused_because_slurm_would_give_them_twice() -> None:
    spec = PodSpec(
        containers=(Container(resources=ResourceRequirements(requests=ASKED)),),
        resource_claims=(PodResourceClaim(name="gpu"),),
    )

    assert validate(manifest(spec=spec), Rules()) == (
        "spec.resourceClaims (gpu): Slurm does not know claimed devices; request nvidia.com/gpu",
    )


@given(st.dictionaries(st.sampled_from(sorted(JOB_ANNOTATIONS)), st.text(max_size=50)), st.text(max_size=10))
def test_whatever_is_written_is_judged(annotations: dict[str, str], amount: str) -> None:
    pod = manifest(requests={**ASKED, "nvidia.com/gpu": amount}, annotations=annotations)

    for asked in (pod, replace(pod, spec=replace(pod.spec, containers=()))):
        found = validate(asked, Rules())
        if isinstance(found, ValidatedPod):
            assert msgspec.json.encode(describe(asked, found, NodeChoice(), 0, MADE))
        else:
            assert found


LABELS = (
    LABEL_POD_GROUP,
    LABEL_LWS_NAME,
    LABEL_LWS_GROUP,
    LABEL_LWS_WORKER,
    LABEL_JOBSET_NAME,
    LABEL_JOBSET_UID,
    LABEL_JOBSET_RESTART,
    LABEL_JOBSET_JOB,
)
WRITTEN = (
    ANNOTATION_COMPLETION_INDEX,
    ANNOTATION_GANG,
    ANNOTATION_GANG_MEMBERS_PER_NODE,
    ANNOTATION_GANG_MIN_AVAILABLE,
    ANNOTATION_GANG_POLICY,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_LWS_SIZE,
)
LABEL = st.from_regex(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,20}[A-Za-z0-9])?", fullmatch=True)
"""As the API server takes them."""


@given(
    st.dictionaries(st.sampled_from(LABELS), LABEL),
    st.dictionaries(st.sampled_from(WRITTEN), st.text(max_size=30) | st.integers().map(str)),
)
def test_whatever_is_written_of_a_gang_is_read_in_bounds_or_refused_in_few_words(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    pod = manifest(annotations=annotations)
    gang = membership(replace(pod, metadata=replace(pod.metadata, labels=labels)))
    options, problems = gang_options(annotations)
    rank = published_rank(annotations)

    is_one = bool({LABEL_POD_GROUP, LABEL_LWS_NAME, LABEL_JOBSET_NAME} & labels.keys())
    assert (gang is not None) == (is_one and annotations.get(ANNOTATION_GANG, "").strip() != "none")
    if gang is not None:
        assert gang.namespace == pod.metadata.namespace
        assert gang.size is None or 1 <= gang.size <= SIZE_MAX
        assert order(gang.index, "a-2") < order(gang.index, "a-10")
    for number in (options.size, options.members_per_node, options.min_available):
        assert number is None or 1 <= number <= SIZE_MAX
    assert rank is None or 0 <= rank < 10**6
    assert all(len(problem) < 400 for problem in problems)


@given(st.text(max_size=200), st.integers(-(1 << 70), 1 << 70), st.integers(-5, 1 << 40))
def test_no_text_but_our_own_claims_a_job_or_marks_one(text: str, job: int, attempt: int) -> None:
    ours = marks.claim(KEY, "uid", 3, 7)
    extra = marks.extra_text(KEY, "uid", "default/infer", 3, 7)

    assert marks.read_claim(KEY, "uid", ours) is not None
    assert marks.read_extra(KEY, extra, 7) is not None
    assert marks.read_claim(KEY, "uid", text) is None
    assert marks.read_extra(KEY, text, 7) is None
    for changed in (ours.replace(":7,", f":{job},"), ours.replace(":3,", f":{attempt},")):
        assert changed == ours or marks.read_claim(KEY, "uid", changed) is None
    assert marks.read_claim(KEY, f"u{text}", ours) is None
    assert marks.read_extra(KEY, extra, job) is None or job == 7


PATH = "../../../../../../api/v1/pods?watch=true"


def test_the_name_of_an_owner_is_no_path() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=PATH, uid="j", controller=True)
    pod = manifest()

    assert membership(replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))) is None


@pytest.mark.parametrize("name", [f"x/{PATH}", f"{PATH}/x", "x", "x/", "/x", "x/y/z", "x/..", ""])
def test_a_mark_whose_pod_is_no_name_is_nobodys(name: str) -> None:
    extra = marks.extra_text(KEY, "uid", "default/infer", 0, 7)

    assert marks.read_extra(KEY, extra, 7) is not None
    assert marks.read_extra(KEY, extra.replace("default/infer", name), 7) is None


@pytest.mark.parametrize("job", [0, -5, 1 << 32, 10**4000])
def test_a_claim_to_what_is_no_job_is_none(job: int) -> None:
    def claimed(number: int) -> str:
        return f'{{"job":{number},"attempt":0,"mark":"{tokens.mark(KEY, "uid", 0)}"}}'

    assert marks.read_claim(KEY, "uid", claimed(5)) is not None
    assert marks.read_claim(KEY, "uid", claimed(job)) is None


@pytest.mark.parametrize("text", ['{"sunk":{"uid":"\ud800","pod":"n/p"}}', "\ud800"])
def test_a_lone_surrogate_is_no_mark(text: str) -> None:
    assert marks.read_extra(KEY, text, 7) is None
    assert marks.read_claim(KEY, "uid", text) is None
