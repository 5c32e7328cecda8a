"""Which node each member of a gang gets: by rank, and neighbours in the network are neighbours in rank.

Slurm lists a job's nodes in the order of its node table, whatever the topology; so ranks are made here.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember
from sunk_pod_scheduler.placement.gang_membership import natural_order

T = TypeVar("T")


def ordered(nodes: Iterable[str], switches: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return *nodes* with those together that share the most.

    Args:
        nodes: Slurm nodes, in any order.
        switches: What each is below, from the top down; a node that is not named comes last.
    """
    known = sorted((node for node in nodes if node in switches), key=lambda node: _key(node, switches))
    return (*known, *sorted((node for node in nodes if node not in switches), key=natural_order))


def _key(node: str, switches: Mapping[str, tuple[str, ...]]) -> tuple[object, ...]:
    return tuple(natural_order(switch) for switch in switches[node]), natural_order(node)


def seated(gang: Gang, nodes: tuple[str, ...]) -> Gang | None:
    """Return *gang* with a node for each member, in the order of *nodes*; None where there are not enough.

    A member that has a node keeps it: its Pod may be there. One that is gone for good gets none.
    """
    places = dict.fromkeys(nodes, gang.members_per_node)
    for member in gang.members:
        if member.node and not places.get(member.node):
            return None
        if member.node:
            places[member.node] -= 1
    left = (node for node, count in places.items() for _ in range(count))
    members: list[GangMember] = []
    for member in gang.members:
        node = member.node or ("" if member.is_empty else next(left, ""))
        if not node and not member.is_empty:
            return None
        members.append(replace(member, node=node))
    return replace(gang, members=tuple(members))


def fitted(gang: Gang, nodes: tuple[str, ...]) -> Gang:
    """Return *gang* with as many members as *nodes* have places for, if it may run with so few; else all.

    Slurm may give a job of ``min-max`` nodes any number between. A member that has a node stays, then the
    first to come.
    """
    room = len(nodes) * gang.members_per_node
    needed = sum(bool(member.node) or not member.is_empty for member in gang.members)
    if not gang.min_available or room < gang.min_available or room >= needed:
        return gang
    known = frozenset(nodes)
    first = sorted(range(len(gang.members)), key=lambda rank: gang.members[rank].node not in known)[:room]
    return replace(gang, members=tuple(gang.members[rank] for rank in sorted(first)))


def distinct(gang: Gang) -> tuple[str, ...]:
    """Return the gang's nodes in the order of ranks."""
    return tuple(dict.fromkeys(member.node for member in gang.members if member.node))


def unseated(gang: Gang) -> Gang:
    """Return *gang* without nodes: another job will have others."""
    return replace(gang, members=tuple(replace(member, node="") for member in gang.members))
