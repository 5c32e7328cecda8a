"""A job may be made smaller while it waits; a Pod takes what its spec says."""

import pytest
from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember
from sunk_kube.pods import Container, PodSpec, ResourceRequirements
from sunk_pod_scheduler.podspec.job_size import Held, Size, held, too_small, too_small_for
from sunk_pod_scheduler.podspec.validation import SOME_MAX, Rules, size
from sunk_slurm.wire import CpusHeld, Job, JobResources, MemoryHeld, NodeHeld, NodesHeld

NEEDS = Size(cpus=8, memory_mib=1024, gpus=2)
GANG = Gang(
    kind="PodGroup",
    members=tuple(GangMember(uid=name, pod=name, node=node) for name, node in ("an", "bn", "cm")),
    members_per_node=2,
    cpus=2,
    memory_mib=100,
    gpus=1,
)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        pytest.param({"n": NEEDS}, "", id="as much"),
        pytest.param({"n": Size(cpus=64, memory_mib=4096, gpus=8)}, "", id="more: all of the node"),
        pytest.param({"n": Size(cpus=8, gpus=2)}, "", id="Slurm does not count memory"),
        pytest.param(None, "", id="nobody says"),
        pytest.param({"n": Size(cpus=8, memory_mib=1024)}, "0 of 2 GPUs on n", id="GPUs taken away"),
        pytest.param(
            {"n": Size(cpus=1, memory_mib=1)},
            "1 of 8 CPUs, 1 of 1024 MiB of memory, 0 of 2 GPUs on n",
            id="all taken away",
        ),
        pytest.param({"m": NEEDS}, "0 of 8 CPUs, 0 of 2 GPUs on n", id="elsewhere"),
    ],
)
def test_a_job_is_too_small_where_it_holds_less_of_anything_than_its_pod_needs(
    held: Held | None, said: str
) -> None:
    told = too_small(7, held, "n", NEEDS)

    assert told.startswith(f"job 7 holds {said}: ") if said else told == ""
    assert too_small(7, held, "n", None) == ""


@pytest.mark.parametrize(
    ("held", "said"),
    [
        pytest.param(
            {"n": Size(cpus=4, memory_mib=200, gpus=2), "m": Size(cpus=2, memory_mib=200, gpus=2)},
            "",
            id="as it was asked for",
        ),
        pytest.param(
            {"n": Size(cpus=2, memory_mib=200, gpus=2), "m": Size(cpus=4, memory_mib=200, gpus=2)},
            "",
            id="Slurm has its tasks the other way round",
        ),
        pytest.param(
            {"n": Size(cpus=4, memory_mib=200, gpus=1), "m": Size(cpus=2, memory_mib=100, gpus=1)},
            "1 of 2 GPUs on n",
            id="a GPU for two members",
        ),
        pytest.param(
            {"n": Size(cpus=1, memory_mib=200, gpus=2), "m": Size(cpus=1, memory_mib=200, gpus=2)},
            "2 of 6 CPUs on all its nodes",
            id="CPUs taken away",
        ),
        pytest.param(None, "", id="nobody says"),
    ],
)
def test_a_job_is_too_small_for_a_gang_by_what_all_members_need(held: Held | None, said: str) -> None:
    told = too_small_for(7, held, GANG)

    assert told.startswith(f"job 7 holds {said}: ") if said else told == ""


def test_what_a_job_holds_is_read_by_node() -> None:
    allocation = tuple(
        NodeHeld(name=name, cpus=CpusHeld(count=4), memory=MemoryHeld(allocated=100)) for name in ("a", "b")
    )
    job = Job(job_id=7, job_resources=JobResources(nodes=NodesHeld(allocation=allocation)))

    assert held(Job(job_id=7)) is None
    assert held(replace(job, gres_detail=("gpu:h100:2(IDX:0-1)",))) == {
        "a": Size(cpus=4, memory_mib=100, gpus=2),
        "b": Size(cpus=4, memory_mib=100),
    }


@pytest.mark.parametrize(
    ("requests", "containers", "expected"),
    [
        pytest.param({"cpu": "1500m", "memory": "1Mi"}, 1, Size(cpus=2, memory_mib=1), id="rounded up"),
        pytest.param({"nvidia.com/gpu": "8"}, 1, Size(gpus=8), id="not valid, but counted"),
        pytest.param({"cpu": "much"}, 1, None, id="no quantity"),
        pytest.param({"cpu": "1e999999"}, 1, None, id="absurd"),
        pytest.param({"cpu": "1"}, SOME_MAX + 1, None, id="more containers than anybody counts"),
    ],
)
def test_what_a_pod_takes_is_known_though_it_is_not_valid_any_more(
    requests: dict[str, str], containers: int, expected: Size | None
) -> None:
    container = Container(name="main", resources=ResourceRequirements(requests=requests))

    assert size(PodSpec(containers=(container,) * containers), Rules()) == expected
