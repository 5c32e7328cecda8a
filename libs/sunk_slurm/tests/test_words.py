"""Slurm's words: states, hostlists, GRES and TRES."""

import tracemalloc
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_slurm.gres import Gres, gpu_type, gpus, parse_gres, tres_count, tres_memory_mib
from sunk_slurm.hostlist import compress, expand, has
from sunk_slurm.states import JobState, NodeState
from sunk_slurm.testing import job
from sunk_slurm.wire import ExitCode, JobStateRow, Number


def spelled(words: Iterable[str]) -> str:
    """Name a case the same in each process: sets have no order."""
    return " ".join(sorted(words)) or "nothing"


@pytest.mark.parametrize(
    ("words", "predicates"),
    [
        (["IDLE"], set[str]()),
        (["IDLE", "DRAIN"], {"drain", "drained"}),
        (["DRAIN", "idle"], {"drain", "drained"}),
        (["ALLOCATED", "DRAIN"], {"drain", "draining", "busy"}),
        (["MIXED"], {"busy"}),
        (["IDLE", "DRAIN", "COMPLETING"], {"drain", "draining", "busy", "completing"}),
        (["DOWN", "NOT_RESPONDING"], {"down", "not_responding"}),
        (["DOWN", "DRAIN"], {"down", "drain", "drained"}),
        (["IDLE", "FAIL"], set[str]()),
        (["IDLE", "CLOUD", "POWERED_DOWN"], set[str]()),
        (["IDLE", "A_WORD_OF_TOMORROW"], set[str]()),
        ([], set[str]()),
    ],
    ids=spelled,
)
def test_a_node_state_answers_as_slurms_predicates_do(words: list[str], predicates: set[str]) -> None:
    state = NodeState.of(words)
    every = (
        "drain",
        "drained",
        "draining",
        "busy",
        "completing",
        "down",
        "not_responding",
    )

    assert {name for name in every if getattr(state, f"is_{name}")} == predicates


@pytest.mark.parametrize(
    ("words", "predicates"),
    [
        (["PENDING"], {"pending"}),
        (["RUNNING"], {"running"}),
        (["CONFIGURING", "RUNNING"], {"running"}),
        (["SUSPENDED"], {"suspended"}),
        (["COMPLETED"], {"over"}),
        (["CANCELLED", "COMPLETING"], {"over", "completing"}),
        (["PENDING", "COMPLETING", "REQUEUED"], {"pending", "completing"}),
        (["A_WORD_OF_TOMORROW"], set[str]()),
    ],
    ids=spelled,
)
def test_a_job_state_answers_as_slurms_predicates_do(words: list[str], predicates: set[str]) -> None:
    state = JobState.of(words)
    every = ("pending", "running", "suspended", "over", "completing")

    assert {name for name in every if getattr(state, f"is_{name}")} == predicates


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("gpu-[01-03,07]", ("gpu-01", "gpu-02", "gpu-03", "gpu-07")),
        ("a[1-2]-b,login", ("a1-b", "a2-b", "login")),
        ("r[1-2]n[08-10]", ("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10")),
        ("n[1-2],n[2-3]", ("n1", "n2", "n3")),
        ("gpu-000-[012-013]", ("gpu-000-012", "gpu-000-013")),
    ],
)
def test_a_hostlist_names_its_nodes(expression: str, names: tuple[str, ...]) -> None:
    assert expand(expression) == names
    assert [name for name in ("n1", "n10", "gpu-07", "r2n08", *names) if has(expression, name)] == [
        name for name in ("n1", "n10", "gpu-07", "r2n08", *names) if name in names
    ]


@pytest.mark.parametrize(
    "expression", ["n[1-2", "n1-2]", "n[[1]]", "n[2-1]", "n[a-b]", "n[]", "n[1-999999999]", "n[0-99999][0-9]"]
)
def test_what_is_no_hostlist_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="hostlist"):
        expand(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a" + "[1,1]" * 60,
        "a" + "[0-9]" * 60,
        "a[" + ",".join(["1"] * 70_000) + "]",
        ",".join(["a[1-60000]"] * 2),
        "a," * 70_000,
        "," * 70_000,
        "[1]," * 70_000,
        "a" * 200_000 + "[1-1000]",
        "[0-9][0-9][0-9]" + "[1]" * 60_000,
        "a[1-999999999999999]",
    ],
    ids=[
        "one name, spelled 2 to the power of 60 times",
        "10 to the power of 60 names",
        "one name, often in one pair of brackets",
        "the same range twice",
        "one name, often",
        "nothing, often",
        "one name in brackets, often",
        "a thousand long names",
        "a thousand names of many brackets",
        "a long range",
    ],
)
def test_what_stands_for_too_much_is_refused_before_it_is_made(expression: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"too many nodes|more than 255 characters"):
            expand(expression)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 << 20


def test_a_caller_may_take_fewer_names_and_counts_each_as_often_as_it_is_spelled() -> None:
    assert expand("a[1-3],b", 4) == ("a1", "a2", "a3", "b")
    for expression in ("a[1-3],b", "a1,a1,a1,a1", "a[1,1,1,1]", "[1,1]a[1-2]"):
        with pytest.raises(ValueError, match="too many nodes"):
            expand(expression, 3)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["login"], "login"),
        (["gpu-02", "gpu-01", "gpu-03", "gpu-07"], "gpu-[01-03,07]"),
        (["n9", "n10", "n11"], "n9,n[10-11]"),
        (["gpu-000-012", "gpu-000-013", "gpu-001-000"], "gpu-000-[012-013],gpu-001-000"),
    ],
)
def test_names_are_folded_as_slurm_folds_them(names: list[str], expression: str) -> None:
    assert compress(names) == expression


node_names = st.from_regex(r"[a-z]{1,3}(-?[0-9]{1,4}){0,2}", fullmatch=True)


ranges = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 3)).map(
    lambda drawn: f"{drawn[0]:0{drawn[2]}d}-{drawn[0] + drawn[1]:0{drawn[2]}d}"
)
pieces = st.one_of(
    st.sampled_from(["a", "b1", "1", "-"]), st.lists(ranges, min_size=1, max_size=2).map(",".join)
)
parts = st.lists(
    pieces.map(lambda piece: f"[{piece}]" if "-" in piece[1:] else piece), min_size=1, max_size=3
)


@given(st.lists(parts.map("".join), min_size=1, max_size=3).map(",".join), st.data())
def test_whether_a_name_is_there_is_known_without_the_names(expression: str, data: st.DataObject) -> None:
    names = expand(expression)
    others = st.from_regex(r"(a|b1|1|-)?[0-9]{1,4}(a|b1|1|-)?[0-9]{0,4}", fullmatch=True)
    for name in (
        data.draw(st.sampled_from(names)),
        data.draw(others),
        data.draw(st.sampled_from(names)) + "0",
    ):
        assert has(expression, name) == (name in names)


def test_a_name_is_found_in_what_stands_for_more_names_than_may_be_made() -> None:
    assert has("n[1-999999999999999]", "n77")
    assert has("a" + "[0-9]" * 60, "a" + "7" * 60)
    assert not has("a" + "[1,1]" * 60, "a" + "1" * 59)
    with pytest.raises(ValueError, match="hostlist"):
        has("n[1-2", "n1")


@given(st.sets(node_names, max_size=30))
def test_what_is_folded_unfolds_to_the_same_names(names: set[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(names)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:8", (Gres("gpu", "", 8),)),
        ("gpu:h100:8(S:0-1),shard:2K", (Gres("gpu", "h100", 8), Gres("shard", "", 2048))),
        ("gres/gpu:a100:2", (Gres("gpu", "a100", 2),)),
        ("gpu:2(IDX:0-1)", (Gres("gpu", "", 2),)),
        ("gpu:h100", (Gres("gpu", "h100", 1),)),
    ],
)
def test_gres_are_read(text: str, found: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == found


def test_gpus_of_all_types_are_counted_and_written_back() -> None:
    assert gpus("gpu:h100:4(S:0),gpu:a100:2,shard:8") == 6
    assert str(Gres("gpu", "h100", 2)) == "gpu:h100:2"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("gpu:" + "9" * 5000, id="more digits than Python reads"),
        pytest.param("gpu:" + "9" * 15 + "P", id="more than a message holds"),
        pytest.param("gpu:1," * 20_000, id="longer than any node's"),
        pytest.param("gpu:1(" + "(" * 60_000, id="parentheses that never close"),
    ],
)
def test_a_gres_that_nobody_can_mean_counts_little_and_is_read_in_one_pass(text: str) -> None:
    assert gpus(text) <= 1
    assert (tres_count(f"gres/gpu={text[4:]}", "gres/gpu") or 0) <= 1
    assert tres_memory_mib(f"mem={text[4:]}") is None


def test_tres_are_read() -> None:
    tres = "cpu=4,mem=15.5G,node=2,gres/gpu:h100=2,gres/gpu:a100=1,billing=4"

    assert tres_count(tres, "cpu") == 4
    assert tres_count(tres, "gres/gpu") == 3
    assert tres_count("gres/gpu=2,gres/gpu:h100=2", "gres/gpu") == 2
    assert tres_count(tres, "license/x") is None
    assert tres_memory_mib("cpu=1,mem=16000M") == 16000
    assert tres_memory_mib("mem=2G") == 2048
    assert tres_memory_mib(tres) == 15872


@given(st.text(max_size=60))
def test_no_gres_or_tres_of_anyone_raises(text: str) -> None:
    assert gpus(text) >= 0
    tres_memory_mib(text)
    tres_count(text, "cpu")


def test_words_of_a_newer_slurm_are_named() -> None:
    assert NodeState.of(["IDLE", "DRAIN", "TOMORROW"]).unknown_words == {"TOMORROW"}
    assert JobState.of(["TOMORROW", "COMPLETING"]).unknown_words == {"TOMORROW"}


@pytest.mark.parametrize(
    ("code", "number"),
    [
        pytest.param({"status": ["SUCCESS"], "return_code": {"set": True, "number": 0}}, 0, id="success"),
        pytest.param({"status": ["ERROR"], "return_code": {"set": True, "number": 3}}, 3, id="error"),
        pytest.param(
            {"status": ["SIGNALED"], "signal": {"id": {"set": True, "number": 9}, "name": "KILL"}},
            137,
            id="killed",
        ),
        pytest.param(
            {"status": ["CORE_DUMPED"], "signal": {"id": {"set": True, "number": 11}}}, 139, id="core dumped"
        ),
        pytest.param({"status": ["PENDING"], "return_code": {"set": False}}, None, id="has not ended"),
        pytest.param({"status": ["INVALID"], "return_code": {"infinite": True}}, None, id="invalid"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_an_exit_code_is_a_number_as_a_shell_has_it(code: dict[str, object], number: int | None) -> None:
    assert msgspec.convert(code, ExitCode).number == number


@pytest.mark.parametrize(
    ("job_id", "number"),
    [
        ("4", 4),
        ("4_3", 4),
        ("4+1", 4),
        ("4_[1-5]", 4),
        ("", None),
        ("x", None),
        ("-4", None),
        ("9" * 40, None),
    ],
)
def test_the_id_of_a_row_is_that_of_its_record(job_id: str, number: int | None) -> None:
    assert JobStateRow(job_id=job_id).number == number


@pytest.mark.parametrize("seconds", [-1, 0, -62135596801, 1e30, float("nan"), float("inf")], ids=str)
def test_what_is_no_time_is_none(seconds: float) -> None:
    assert Number.of(seconds).moment is None


@pytest.mark.parametrize(
    ("array", "task", "leader", "name"),
    [
        pytest.param(0, None, 0, "7", id="a job"),
        pytest.param(4, 3, 0, "4_3", id="a task"),
        pytest.param(4, 0, 0, "4_0", id="the task 0"),
        pytest.param(7, 20, 0, "7_20", id="the last task, which has the array's number"),
        pytest.param(7, None, 0, "7", id="all the tasks that wait"),
        pytest.param(0, None, 6, "6", id="a component"),
    ],
)
def test_a_job_has_a_name_that_commands_take_for_no_other(
    array: int, task: int | None, leader: int, name: str
) -> None:
    number = Number() if task is None else Number.of(task)
    seen = replace(job(7), array_job_id=Number.of(array), array_task_id=number, het_job_id=Number.of(leader))

    assert seen.name_in_slurm == name


@pytest.mark.parametrize(
    ("model", "spelled_as"),
    [
        ("NVIDIA_H100", "h100"),
        ("NVIDIA_L4", "l4"),
        ("NVIDIA-H100-80GB-HBM3", "h100_80gb_hbm3"),
        ("NVIDIA-H100-PCIe", "h100_pcie"),
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA-A100-80GB-PCIe", "a100_80gb_pcie"),
        ("NVIDIA-A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla-V100-SXM2-32GB", "tesla_v100-sxm2-32gb"),
        ("Tesla-T4", "tesla_t4"),
        ("NVIDIA-GeForce-RTX-4090", "geforce_rtx_4090"),
        ("Quadro_RTX_4000", "quadro_rtx_4000"),
        ("AMD_Instinct_MI300X", "instinct_mi300x"),
        ("NVIDIA", "nvidia"),
        ("H100_NVLINK_80GB", "hopper"),
        ("", ""),
    ],
)
def test_a_gpu_model_has_the_type_of_the_table_or_one_that_is_spelled_like_it(
    model: str, spelled_as: str
) -> None:
    assert gpu_type(model, {"H100_NVLINK_80GB": "hopper"}) == spelled_as


@given(st.text(max_size=200))
def test_a_type_is_never_more_than_one_word_of_slurms(model: str) -> None:
    spelled_as = gpu_type(model, {})

    assert set(spelled_as) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
    assert len(spelled_as) <= 63
