"""Names that Pods of somebody else have are left alone for a while, by NodeSet."""

from sunk_nodeset_controller.nodeset_controller.name_conflicts import REMEMBERED_S, NameConflicts


def test_a_name_that_a_stranger_had_is_tried_again_later() -> None:
    clock = [0.0]
    name_conflicts = NameConflicts(lambda: clock[0])
    name_conflicts.note("slurm/gpu", ["gpu-1"])

    assert (name_conflicts.of("slurm/gpu"), name_conflicts.of("slurm/cpu")) == ({"gpu-1"}, frozenset())
    clock[0] = REMEMBERED_S
    assert name_conflicts.of("slurm/gpu") == frozenset()
