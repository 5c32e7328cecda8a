"""What a Pod asks for as a whole, counted as Kubernetes counts it.

Containers and sidecars run together; init containers run one after another beside the sidecars that were
started before them; the largest moment counts, and the Pod's overhead comes on top. Requests of the Pod as
a whole replace what its containers say.

Source: Kubernetes, "Resource requests for sidecars", "Pod overhead", "Pod-level resources".
"""

from collections.abc import Mapping
from decimal import Decimal

from sunk_kube.objects import PodSpec
from sunk_kube.quantity import largest, number, total


def requests(spec: PodSpec) -> Mapping[str, Decimal]:
    """Return the requests of the whole Pod, by resource name.

    Raises:
        ValueError: a request is no quantity.
    """
    sidecars: Mapping[str, Decimal] = {}
    needed: dict[str, Decimal] = {}
    for container in spec.init_containers:
        moment = _plus(sidecars, total([container.resources.requests]))
        needed = largest([needed, moment])
        if container.restart_policy == "Always":
            sidecars = moment
    running = total(container.resources.requests for container in spec.containers)
    needed = largest([needed, _plus(sidecars, running)])
    if spec.resources is not None:
        needed |= {name: number(amount) for name, amount in spec.resources.requests.items()}
    for name, amount in spec.overhead.items():
        needed[name] = needed.get(name, Decimal(0)) + number(amount)
    return needed


def _plus(some: Mapping[str, Decimal], more: Mapping[str, Decimal]) -> dict[str, Decimal]:
    none = Decimal(0)
    return {name: some.get(name, none) + more.get(name, none) for name in {**some, **more}}
