from sunk_kube.nodesets import ControllerRevision
from sunk_kube.objects import ObjectMeta
from sunk_nodeset_controller.nodeset_controller.revisions import next_number, surplus


def kept(*numbers: int) -> list[ControllerRevision]:
    return [ControllerRevision(metadata=ObjectMeta(name=f"gpu-{one}"), revision=one) for one in numbers]


def test_the_oldest_templates_go_first_and_those_in_use_stay() -> None:
    history = kept(3, 1, 2, 5, 4)

    assert [one.revision for one in surplus(history, {"gpu-1", "gpu-5"}, 1)] == [3, 2]
    assert surplus(history, (), 5) == []


def test_the_present_template_has_the_highest_number_also_when_it_is_an_old_one_that_came_back() -> None:
    assert next_number(kept(1, 2, 3), "gpu-4") == 4
    assert next_number(kept(1, 2, 3), "gpu-2") == 4
    assert next_number(kept(1, 2, 3), "gpu-3") == 3
    assert next_number([], "gpu-1") == 1
