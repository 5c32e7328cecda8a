"""Who may be whom: the Slurm user of a Pod's placeholder.

Without a word in the policy every placeholder belongs to one service user, which slurmctld must know.
Root is nobody's: a placeholder's script needs no rights, and a namespace is not to have Slurm's.
"""

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The default user, and who else a namespace may be."""

    user_id: int = 64100
    group_id: int = 64100
    users_by_namespace: dict[str, tuple[int, ...]] = {}
    """User ids that Pods of a namespace may name in ``user-id``."""
    groups_by_namespace: dict[str, tuple[int, ...]] = {}


class Identity(msgspec.Struct, frozen=True):
    """As whom a placeholder runs."""

    user_id: int
    group_id: int


def identity(
    policy: Policy, namespace: str, user_id: int | None, group_id: int | None
) -> Identity | tuple[str, ...]:
    """Return as whom a Pod of *namespace* runs its placeholder, or why it may not be who it asks for."""
    refused = [
        *_refused("user-id", user_id, policy.user_id, policy.users_by_namespace, namespace),
        *_refused("group-id", group_id, policy.group_id, policy.groups_by_namespace, namespace),
    ]
    if refused:
        return tuple(refused)
    return Identity(
        policy.user_id if user_id is None else user_id,
        policy.group_id if group_id is None else group_id,
    )


def _refused(
    annotation: str, asked: int | None, default: int, allowed: dict[str, tuple[int, ...]], namespace: str
) -> list[str]:
    if asked is None:
        return []
    if asked == 0:
        return [f"sunk.coreweave.com/{annotation}: 0 is root, which no Pod may be"]
    if asked == default or asked in allowed.get(namespace, ()):
        return []
    what = "users_by_namespace" if annotation == "user-id" else "groups_by_namespace"
    may = f"an administrator may add it to {what}.{namespace} of the scheduler's policy"
    return [f"sunk.coreweave.com/{annotation}: namespace {namespace} may not use {asked}; {may}"]
