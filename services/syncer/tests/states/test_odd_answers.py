"""Answers that nobody would expect, decoded and told: bad names, texts, times, sizes."""

import time

import msgspec
import pytest

from sunk_events.codec import decode_state, encode
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_slurm.testing import T0
from sunk_slurm.wire import JobsAnswer, JobStatesAnswer, NodesAnswer
from sunk_syncer.states.jobs import job_state
from sunk_syncer.states.nodes import node_state


def number(value: float) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"name": "ip-10-0-0-1.eu.example"}, id="dots in the name"),
        pytest.param({"reason": "Lüfter — 更换 🔥 \u0000 \u202e"}, id="not only ASCII"),
        pytest.param({"reason": "k8s: " + "x" * 200_000}, id="long reason"),
        pytest.param({"extra": "{" * 200_000}, id="long Extra"),
        pytest.param({"state": ["TOMORROW", "ALSO_TOMORROW"]}, id="states of a newer Slurm"),
        pytest.param({"state": []}, id="no state"),
        pytest.param({"boot_time": number(-1), "reason_changed_at": number(-(2**40))}, id="negative times"),
        pytest.param({"boot_time": number(2**62), "slurmd_start_time": number(1e300)}, id="far future"),
        pytest.param({"cpus": -1, "alloc_cpus": -3, "real_memory": -1}, id="negative counts"),
        pytest.param({"gres": "gpu:h100:many(S:x),,:::", "gres_used": "N/A"}, id="odd GRES"),
        pytest.param({"of_tomorrow": {"a": [1, {"b": None}]}}, id="a field of a newer Slurm"),
    ],
)
def test_an_odd_node_is_told_as_far_as_it_can_be_read(odd: dict[str, object]) -> None:
    answer = msgspec.json.encode({"nodes": [{"name": "n1", **odd}], "last_update": number(1)})
    (seen,) = msgspec.json.decode(answer, type=NodesAnswer).nodes
    told = node_state(seen, T0)

    assert decode_state(SlurmNodeState, encode(told)) == told
    assert len(encode(told)) < 100_000


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"name": "Größe\n\t\u0000", "user_name": "…"}, id="not only ASCII"),
        pytest.param({"extra": "[" * 200_000, "admin_comment": "]" * 200_000}, id="long texts"),
        pytest.param({"job_state": ["TOMORROW"]}, id="a state of a newer Slurm"),
        pytest.param(
            {"start_time": number(-5), "end_time": number(-5), "submit_time": number(-1)}, id="negative times"
        ),
        pytest.param({"submit_time": number(4e9), "start_time": number(1)}, id="a clock that is off"),
        pytest.param({"user_id": -2, "restart_cnt": -1, "cpus": number(-4)}, id="negative counts"),
        pytest.param({"exit_code": {"status": ["TOMORROW"]}}, id="an exit of a newer Slurm"),
    ],
)
def test_an_odd_job_is_told_as_far_as_it_can_be_read(odd: dict[str, object]) -> None:
    answer = msgspec.json.encode({"jobs": [{"job_id": 1, **odd}]})
    (seen,) = msgspec.json.decode(answer, type=JobsAnswer).jobs
    told = job_state(seen, 1, T0)

    assert decode_state(SlurmJobState, encode(told)) == told
    assert len(encode(told)) < 100_000


def test_ten_thousand_jobs_are_read_in_a_moment() -> None:
    rows = [{"job_id": str(job), "state": ["RUNNING", "COMPLETING"]} for job in range(1, 10_001)]
    answer = msgspec.json.encode({"jobs": rows})
    began = time.process_time()
    read = msgspec.json.decode(answer, type=JobStatesAnswer).jobs

    assert {row.number for row in read} == set(range(1, 10_001))
    took_s = time.process_time() - began  # Of the processor: whoever else has it does not count.
    assert took_s < 5  # Some 10 ms; a quadratic reading would take minutes.
