"""Which of their rights in Kubernetes the services use, by the API server's audit log of a story."""

from collections.abc import Generator
from typing import Any, Final

import pytest

from sunk_lab.reserved import reserved_stack
from sunk_lab.stack.raw import dig
from sunk_lab.stack.rbac import NAMESPACE, RULES, RULES_IN_NAMESPACES, Rules
from sunk_lab.stack.stack import SLURM_NAMESPACE
from sunk_lab.story.observe import until
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1800)]

SUNK: Final = "sunk.coreweave.com"
Right = tuple[str, str, str]
"""API group, resource, verb."""
UNUSED: Final[dict[str, dict[Right, str]]] = {
    "nodeset-controller": {
        (
            "",
            "pods/eviction",
            "create",
        ): "Pods that may stay for a time, effect NoSchedule, placeholders: evict",
        ("apps", "controllerrevisions", "delete"): "templates past revisionHistoryLimit",
        ("apps", "controllerrevisions", "patch"): "adoption after a deletion with --cascade=orphan",
        ("apps", "daemonsets", "get"): "effect NoSchedule: whether an owner exists",
        ("apps", "daemonsets", "watch"): "effect NoSchedule: which owners exist",
        (
            "policy",
            "poddisruptionbudgets",
            "create",
        ): "a server-side apply of one that is not there; it is a PATCH",
        (SUNK, "nodesets", "get"): "adoption, which reads the NodeSet again",
        (SUNK, "nodesets/finalizers", "update"): "where OwnerReferencesPermissionEnforcement is on",
        (SUNK, "nodeslices", "delete"): "slices whose Nodes have all gone",
        (SUNK, "nodeslices", "patch"): "adoption after a deletion with --cascade=orphan",
        (SUNK, "nodeslices", "update"): "Nodes that come, go or fail",
    },
    "pod-scheduler": {
        ("", "pods/status", "patch"): "a Pod that cannot be placed, or is said to be ended by Slurm",
        ("batch", "jobs", "get"): "gangs of indexed Jobs",
        ("jobset.x-k8s.io", "jobsets", "get"): "gangs of JobSets",
        ("scheduling.x-k8s.io", "podgroups", "get"): "gangs of PodGroups",
    },
    "hook-gateway": {},
}
"""What the story does not need, and what it is for."""


@pytest.fixture
def audited() -> Generator[Stage]:
    with reserved_stack(is_audited=True) as stack:
        yield Stage(stack)


def rights(rules: Rules) -> set[Right]:
    return {(group, what, verb) for group, resources, verbs in rules for what in resources for verb in verbs}


def used(requests: list[dict[str, Any]], service: str) -> set[Right]:
    """Return the rights that *service* has used; what was refused needs none."""
    found = set[Right]()
    for one in requests:
        is_allowed = one.get("annotations", {}).get("authorization.k8s.io/decision") == "allow"
        if is_allowed and one["user"]["username"].endswith(f":{NAMESPACE}:sunk-{service}"):
            target: dict[str, str] = one.get("objectRef") or {}
            what = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
            found.add((target.get("apiGroup", ""), what, one["verb"]))
    return found


def update(stage: Stage) -> None:
    """Have every slurmd Pod replaced."""
    kube = stage.deeds.kube
    change = {"spec": {"template": {"metadata": {"annotations": {"lab.sunk/update": "rights"}}}}}
    kube.patch("NodeSet", "gpu", change, SLURM_NAMESPACE)

    def is_updated() -> bool:
        found = kube.get("NodeSet", "gpu", SLURM_NAMESPACE)
        is_seen = dig(found, "status", "observedGeneration") == dig(found, "metadata", "generation")
        counts = [
            dig(found, "status", name) for name in ("updatedNumberScheduled", "numberReady", "replicas")
        ]
        return is_seen and len(set(counts)) == 1

    until(
        "the update to end", is_updated, lambda: kube.get("NodeSet", "gpu", SLURM_NAMESPACE), patience_s=600
    )


def test_each_right_is_used_by_the_story_or_has_a_reason(audited: Stage) -> None:
    for step in STEPS.values():
        step(audited)
    update(audited)
    requests = audited.stack.machines.requests()

    for service, rules in RULES.items():
        granted = rights(rules) | rights(RULES_IN_NAMESPACES.get(service, ()))
        unused, known = granted - used(requests, service), set(UNUSED[service])
        assert unused == known, (
            f"{service}: unused, and not known so: {sorted(unused - known)}; used: {sorted(known - unused)}"
        )
