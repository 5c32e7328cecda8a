"""Which Slurm user a namespace may be, and what of Slurm it may use.

All placeholders belong to one service user, so Slurm's own associations cannot tell one namespace from
another: the policy does. Without a word in it every Pod is that user and no other, and names no account, QoS,
partition, reservation or priority (docs/adr/0025). Root is nobody's: a placeholder's script needs no rights,
and a namespace is not to have Slurm's.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from sunk_kube.wellknown import PREFIX
from sunk_pod_scheduler.podspec.annotations import JobOptions

EVERY_NAMESPACE: Final = "*"
"""Whose grant counts where a namespace's own does not say."""

Names = tuple[str, ...]


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What Pods of a namespace may name. None: as `EVERY_NAMESPACE` has it, else as the policy's default.

    A Pod that names no account, QoS or partition gets the first of the list: else Slurm's own default would
    be a way round it. An empty list: none may be named.
    """

    user_ids: tuple[int, ...] | None = None
    """Besides the service user's."""
    group_ids: tuple[int, ...] | None = None
    accounts: Names | None = None
    qos: Names | None = None
    partitions: Names | None = None
    """A Pod that names several needs each of them."""
    reservations: Names | None = None
    """A Pod that names none gets none."""
    priority_max: int | None = None
    """A Pod that names none gets what Slurm computes."""


DefaultPolicy = Literal["deny", "allow"]
_BY_DEFAULT: Final[Mapping[DefaultPolicy, Grant]] = {
    "deny": Grant(
        user_ids=(), group_ids=(), accounts=(), qos=(), partitions=(), reservations=(), priority_max=0
    ),
    "allow": Grant(user_ids=(), group_ids=()),
}
_EMPTY_GRANT: Final = Grant()


def _set(grant: Grant) -> dict[str, Any]:
    """Return the fields that *grant* says something of; each has a type of its own, so ``Any``."""
    return {name: value for name, value in msgspec.structs.asdict(grant).items() if value is not None}


class PriorityClassTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a PriorityClass of Kubernetes means in Slurm."""

    qos: Annotated[str, Meta(pattern=r"^[^\s,]{1,255}$")]
    """Of the jobs of its Pods: by QoS Slurm ranks, limits and preempts."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service user, and what each namespace may use."""

    user_id: int = 64100
    group_id: int = 64100
    namespaces: dict[str, Grant] = {}
    default: DefaultPolicy = "deny"
    """What no grant says may not be named (``deny``), or may but for other users and groups (``allow``)."""
    priority_classes: dict[str, PriorityClassTerms] = msgspec.field(
        name="priorityClasses", default_factory=dict[str, PriorityClassTerms]
    )
    """By the name of the PriorityClass. An entry grants nothing: any tenant may name any PriorityClass."""

    def grant(self, namespace: str) -> Grant:
        """Return what holds for *namespace*, each field from its own grant, else everybody's, else ours."""
        found = _BY_DEFAULT[self.default]
        if not self.namespaces:  # Asked for at each look at each Pod.
            return found
        for key in (EVERY_NAMESPACE, namespace):
            granted = self.namespaces.get(key, _EMPTY_GRANT)
            found = msgspec.structs.replace(found, **_set(granted))
        return found


class Identity(msgspec.Struct, frozen=True):
    """The user, group and account that a placeholder runs as."""

    user_id: int
    group_id: int | None = None
    """Of the Pod's choice; None: the user's own."""
    is_own: bool = False
    """A user whose jobs are not only placeholders: a namespace's grant."""


def identity(policy: Policy, requested: JobOptions) -> Identity:
    """Return the identity of the placeholder of a Pod that may have what it *requested*."""
    is_own = requested.user_id not in {None, policy.user_id}
    return Identity(
        policy.user_id if requested.user_id is None else requested.user_id,
        requested.group_id if is_own or requested.group_id != policy.group_id else None,
        is_own=is_own,
    )


def refusals(policy: Policy, grant: Grant, namespace: str, requested: JobOptions) -> tuple[str, ...]:
    """Return what a Pod of *namespace* asks for and may not have, each with what to add to the policy."""
    users = (policy.user_id, *(grant.user_ids or ()))
    is_own = requested.user_id not in {None, policy.user_id}
    groups = (*(() if is_own else (policy.group_id,)), *(grant.group_ids or ()))
    refused = (
        *_id_refusals("user-id", requested.user_id, users, "userIds", namespace),
        *_id_refusals("group-id", requested.group_id, groups, "groupIds", namespace),
        *_name_refusals("account", requested.account, grant.accounts, "accounts", namespace),
        *_name_refusals("qos", requested.qos, grant.qos, "qos", namespace),
        *_name_refusals("partition", requested.partition, grant.partitions, "partitions", namespace),
        *_name_refusals("reservation", requested.reservation, grant.reservations, "reservations", namespace),
    )
    priority = requested.priority.value if requested.priority else None
    if priority is not None and grant.priority_max is not None and priority > grant.priority_max:
        field = f"scheduler.policyByNamespace.{namespace}.priorityMax"
        up_to = f", only up to {grant.priority_max}" if grant.priority_max else ""
        more = f"{PREFIX}priority: namespace {namespace} may not use {priority}{up_to}"
        return (*refused, f"{more}; an administrator may raise {field} of helm/slurm")
    return refused


def by_priority_class(
    policy: Policy, grant: Grant, namespace: str, priority_class: str, requested: JobOptions
) -> tuple[str, tuple[str, ...]]:
    """Return the QoS that a Pod has by its PriorityClass, and why it may not have that.

    It needs the same grant as the annotation, which goes first: then, and for a PriorityClass without an
    entry, the QoS is empty.
    """
    terms = policy.priority_classes.get(priority_class)
    if terms is None or requested.qos:
        return "", ()
    if grant.qos is None or terms.qos in grant.qos:
        return terms.qos, ()
    may = f"an administrator may add it to scheduler.policyByNamespace.{namespace}.qos of helm/slurm"
    means = f"scheduler.priorityClasses gives {priority_class} the QoS {terms.qos}"
    return "", (f"spec.priorityClassName: {means}, which namespace {namespace} may not use; {may}",)


def completed(grant: Grant, requested: JobOptions, qos: str = "") -> JobOptions:
    """Return *requested* with *qos*, else with the first of what is granted, where the Pod names nothing."""
    return msgspec.structs.replace(
        requested,
        account=requested.account or _first(grant.accounts),
        qos=requested.qos or qos or _first(grant.qos),
        partition=requested.partition or _first(grant.partitions),
    )


def _first(allowed: Names | None) -> str:
    return allowed[0] if allowed else ""


def _id_refusals(
    annotation: str, requested: int | None, allowed: Iterable[int], field: str, namespace: str
) -> Iterable[str]:
    if requested is None:
        return
    if requested == 0:
        yield f"{PREFIX}{annotation}: 0 is root and is always rejected"
    elif requested not in allowed:
        yield _refusal(annotation, str(requested), field, namespace)


def _name_refusals(
    annotation: str, requested: str, allowed: Names | None, field: str, namespace: str
) -> Iterable[str]:
    """Yield a refusal for each name that is not allowed; Slurm takes lists of them, with commas."""
    if allowed is None or not requested:
        return
    for name in requested.split(","):
        if name not in allowed:
            yield _refusal(annotation, name, field, namespace)


def _refusal(annotation: str, value: str, field: str, namespace: str) -> str:
    may = f"an administrator may add it to scheduler.policyByNamespace.{namespace}.{field} of helm/slurm"
    return f"{PREFIX}{annotation}: namespace {namespace} may not use {value}; {may}"
