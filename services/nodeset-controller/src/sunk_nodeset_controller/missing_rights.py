"""Rights in Kubernetes that are missing: which, and which chart gives them; pure.

Source: Kubernetes, RBAC; what kube-apiserver answers (403) to an account without the right.
"""

import re
from typing import Final

_REFUSED: Final = re.compile(
    r'cannot (?P<verb>[a-z]{1,20}) resource "(?P<resource>[a-z/]{1,80})" in API group "[a-z0-9.-]{0,253}"'
    r'(?: in the namespace "(?P<namespace>[a-z0-9-]{1,63})")?'
)
_EVERYWHERE: Final = frozenset({"pods/eviction", "events", "nodesets/status"})
"""What nodeset-controller writes in every namespace."""
_READS: Final = frozenset({"get", "list", "watch"})


def missing_right(refusal: str) -> str:
    """Return which right is missing and what to do; nothing if *refusal* has another reason."""
    found = _REFUSED.search(refusal)
    if found is None:
        return ""
    verb, resource, namespace = found["verb"], found["resource"], found["namespace"]
    if namespace is None:
        return f"may not {verb} {resource}: upgrade the helm/sunk release, which gives this right"
    right = f"may not {verb} {resource} in namespace {namespace}"
    if resource in _EVERYWHERE or (verb in _READS and resource != "controllerrevisions"):
        return f"{right}: upgrade the helm/sunk release, which gives this right everywhere"
    return f"{right}: install or upgrade the helm/slurm release there, which gives this right"
