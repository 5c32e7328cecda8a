"""Slurm's words: states, hostlists, GRES and TRES."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_slurm.gres import Gres, gpus, parse_gres, tres_count, tres_memory_mib
from sunk_slurm.hostlist import compress, expand
from sunk_slurm.states import JobState, NodeState


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
        (["IDLE", "A_WORD_OF_TOMORROW"], set[str]()),
        ([], set[str]()),
    ],
    ids=str,
)
def test_a_node_state_answers_as_slurms_predicates_do(words: list[str], predicates: set[str]) -> None:
    state = NodeState.of(words)
    every = ("drain", "drained", "draining", "busy", "completing", "down", "not_responding")

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
    ids=str,
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


@pytest.mark.parametrize(
    "expression", ["n[1-2", "n1-2]", "n[[1]]", "n[2-1]", "n[a-b]", "n[]", "n[1-999999999]", "n[0-99999][0-9]"]
)
def test_what_is_no_hostlist_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="hostlist"):
        expand(expression)


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
