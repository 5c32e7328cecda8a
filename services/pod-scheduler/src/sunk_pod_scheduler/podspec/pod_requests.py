"""What a Pod asks for as a whole, counted as Kubernetes counts it.

Containers and sidecars run together; init containers run one after another beside the sidecars that were
started before them; the largest moment counts, and the Pod's overhead comes on top. Requests of the Pod as
a whole replace what its containers say.

Source: Kubernetes, "Resource requests for sidecars", "Pod overhead", "Pod-level resources".
"""

from collections.abc import Callable, Mapping
from decimal import Decimal

from sunk_kube.pods import PodSpec, ResourceRequirements
from sunk_kube.quantity import Resources, number, total


def requests(spec: PodSpec) -> Mapping[str, Decimal]:
    """Return the requests of the whole Pod, by resource name.

    Raises:
        ValueError: a request is no quantity.
    """
    return _whole(spec, lambda given: given.requests)


def limit(spec: PodSpec, name: str) -> Decimal:
    """Return how much of the resource *name* all of the Pod may take, if each of its containers has a limit.

    Raises:
        ValueError: a limit is no quantity.
    """
    found = _whole(spec, lambda given: {name: given.limits[name]} if name in given.limits else {})
    return found.get(name, Decimal(0))


def _whole(spec: PodSpec, of: Callable[[ResourceRequirements], Resources]) -> Mapping[str, Decimal]:
    beside: dict[str, Decimal] = {}  # What the sidecars take that were started before.
    needed: dict[str, Decimal] = {}

    def count(moment: Mapping[str, Decimal]) -> None:
        for name, amount in moment.items():
            needed[name] = max(needed.get(name, amount), amount)

    for container in spec.init_containers:
        # What it does not ask for is as it was before it: it has been counted.
        moment = _plus(total([of(container.resources)]), beside)
        count(moment)
        if container.restart_policy == "Always":
            beside |= moment
    running = total(of(container.resources) for container in spec.containers)
    count(_plus(running, beside))
    if spec.resources is not None:
        needed |= {name: number(amount) for name, amount in of(spec.resources).items()}
    for name, amount in spec.overhead.items():
        needed[name] = needed.get(name, Decimal(0)) + number(amount)
    return needed


def _plus(some: Mapping[str, Decimal], more: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Return *some*, each with what *more* has of it."""
    none = Decimal(0)
    return {name: amount + more.get(name, none) for name, amount in some.items()}
