from sunk_kube.nodesets import ControllerRevision
from sunk_kube.objects import ObjectMeta
from sunk_nodeset_controller.nodesets.revisions import surplus


def kept(*numbers: int) -> list[ControllerRevision]:
    return [ControllerRevision(metadata=ObjectMeta(name=f"gpu-{one}"), revision=one) for one in numbers]


def test_the_oldest_templates_go_first_and_those_in_use_stay() -> None:
    history = kept(3, 1, 2, 5, 4)

    assert [one.revision for one in surplus(history, {"gpu-1", "gpu-5"}, 1)] == [3, 2]
    assert surplus(history, (), 5) == []
