"""What of a Pod's wishes about other Pods' places only kube-scheduler heeds."""

from collections.abc import Mapping

from sunk_kube.pods import PodAffinity, PodSpec


def without_effect(spec: PodSpec, *, is_required: bool = False) -> tuple[str, ...]:
    """Return which fields of *spec* only kube-scheduler heeds; *is_required*: of those, what must hold."""
    affinity = spec.affinity
    of_affinity: Mapping[str, PodAffinity | None] = {
        "spec.affinity.podAffinity": affinity and affinity.pod_affinity,
        "spec.affinity.podAntiAffinity": affinity and affinity.pod_anti_affinity,
    }
    fields = [
        name
        for name, terms in of_affinity.items()
        if terms is not None and (terms.required or (terms.preferred and not is_required))
    ]
    spreads = spec.topology_spread_constraints
    if any(not is_required or spread.when_unsatisfiable == "DoNotSchedule" for spread in spreads):
        fields.append("spec.topologySpreadConstraints")
    return tuple(fields)
