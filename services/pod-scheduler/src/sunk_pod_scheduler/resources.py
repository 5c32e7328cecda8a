"""What a Pod asks for as a whole, counted as Kubernetes counts it.

Containers and sidecars run together; init containers run one after another beside the sidecars that were
started before them; the largest moment counts, and the Pod's overhead comes on top. Requests of the Pod as
a whole replace what its containers say.

Source: Kubernetes, "Resource requests for sidecars", "Pod overhead", "Pod-level resources".
"""

from collections.abc import Mapping
from decimal import Decimal

from sunk_kube.objects import Container, PodSpec
from sunk_kube.quantity import largest, number, total


def requests(spec: PodSpec) -> Mapping[str, Decimal]:
    """Return the requests of the whole Pod, by resource name.

    Raises:
        ValueError: a request is no quantity.
    """
    sidecars: list[Container] = []
    moments: list[Mapping[str, Decimal]] = []
    for container in spec.init_containers:
        moments.append(_sum([container, *sidecars]))
        if container.restart_policy == "Always":
            sidecars.append(container)
    moments.append(_sum([*spec.containers, *sidecars]))
    needed = largest(moments)
    if spec.resources is not None:
        needed |= {name: number(amount) for name, amount in spec.resources.requests.items()}
    for name, amount in spec.overhead.items():
        needed[name] = needed.get(name, Decimal(0)) + number(amount)
    return needed


def _sum(containers: list[Container]) -> dict[str, Decimal]:
    return total(container.resources.requests for container in containers)
