"""Whose Pod is whose: labels may be put on by anybody, and taken off."""

import pytest

from sunk_kube import wellknown as wk
from sunk_kube.objects import OwnerReference
from sunk_kube.resources import NODESETS
from sunk_kube.testing import nodeset, pod
from sunk_nodeset_controller.nodesets.owners import is_member_pod, is_orphan_of

OURS = OwnerReference(api_version=NODESETS.api_version, kind="NodeSet", name="gpu", uid="u", controller=True)
THEIRS = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="v", controller=True)
SLINKYS = OwnerReference(
    api_version="slinky.slurm.net/v1alpha1", kind="NodeSet", name="gpu", uid="w", controller=True
)


@pytest.mark.parametrize(
    ("namespace", "owners", "is_one"),
    [
        ("slurm", (OURS,), True),
        ("slurm", (), True),
        ("web", (OURS,), False),
        ("web", (), False),
        ("slurm", (THEIRS,), False),
        ("slurm", (SLINKYS,), False),
    ],
    ids=["ours", "orphan", "another namespace", "a stranger", "a replica set's", "another NodeSet's"],
)
def test_a_label_alone_makes_no_nodeset_pod(
    namespace: str, owners: tuple[OwnerReference, ...], *, is_one: bool
) -> None:
    labelled = pod("gpu-1", namespace=namespace, labels={wk.LABEL_NODESET: "gpu"}, owners=owners)

    assert is_member_pod(labelled, {"slurm"}) is is_one


@pytest.mark.parametrize(
    ("labels", "owners", "is_ours"),
    [
        ({}, (), True),
        ({wk.LABEL_CLUSTER: "other"}, (), False),
        ({wk.LABEL_NODESET: "cpu"}, (), False),
        ({}, (OURS,), False),
        ({}, (THEIRS,), False),
    ],
    ids=["left behind", "another Slurm cluster", "another set", "has a NodeSet", "somebody else's"],
)
def test_only_what_nobody_has_is_adopted(
    labels: dict[str, str], owners: tuple[OwnerReference, ...], *, is_ours: bool
) -> None:
    labels = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab", **labels}
    found = pod("gpu-1", namespace="slurm", labels=labels, owners=owners)

    assert is_orphan_of(found, nodeset()) is is_ours
    assert not is_orphan_of(found, nodeset(namespace="other"))
