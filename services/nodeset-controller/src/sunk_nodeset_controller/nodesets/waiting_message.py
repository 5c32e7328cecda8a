"""What an update, a smaller size or the end of a NodeSet waits for, in the words of its conditions; pure."""

from typing import Final

from sunk_kube import wellknown as wk
from sunk_nodeset_controller.metadata import cut
from sunk_nodeset_controller.nodesets.members import Member, members
from sunk_nodeset_controller.nodesets.model import Observed, Plan

NAMES_MAX: Final = 3
MESSAGE_MAX: Final = 512
"""Of what others say, in bytes."""
REASON_MAX: Final = 128
"""Of what Slurm says of a node, in bytes."""


def held_up(seen: Observed, found: Plan) -> str:
    """Say what an update waits for; nothing if it waits for nothing."""
    pods = members(seen)
    return f"{waits(seen)}{_not_usable(pods)}{_missed(seen, pods)}{_failed(seen, found)}{_stuck(found)}"


def waits(seen: Observed) -> str:
    """Say which condemned Pods are still waited for, and why, and why no other Pod is chosen."""
    names = condemned_names(seen)
    doubt = f"; no other Pod is chosen: {seen.doubt.message}" if seen.doubt is not None else ""
    if not names:
        return doubt
    shown = named(names)
    if seen.slurm is None:
        return f"; {shown}: what Slurm says of them is not known{doubt}"
    states = [seen.slurm.get(name) for name in names]
    busy = sum(state is not None and state.is_busy for state in states)
    unknown = sum(state is None for state in states)
    words = [f"jobs run on {busy} of them"] if busy else []
    words += [f"Slurm does not know {unknown} of them"] if unknown else []
    down = sum(state is not None and state.is_down and not state.is_drain for state in states)
    words += [f"{down} of them DOWN, which the syncer drains first"] if down else []
    empty = sum(state is not None and state.is_drain and not state.is_busy for state in states)
    words += [f"{empty} of them drained and idle"] if empty else []
    return f"; {shown}: {', '.join(words) or 'the syncer drains them'}{doubt}"


def _not_usable(pods: list[Member]) -> str:
    """Say which updated Pods the others wait for, because Slurm cannot use their nodes, and what to do."""
    found = sorted((one for one in pods if one.is_updated and one.unusable), key=_name_of)
    if not found:
        return ""
    found_names = named([f"{one.name} ({cut(one.unusable, REASON_MAX)})" for one in found])
    return (
        f"; Slurm cannot use the nodes of these updated Pods: {found_names}. The update waits. "
        "Fix them, change the template, or raise maxUnavailable"
    )


def _missed(seen: Observed, pods: list[Member]) -> str:
    """Say which other Pods count as away."""
    if not seen.nodeset.spec.is_rolling:
        return ""
    names = sorted(one.name for one in pods if one.is_missed and not (one.is_updated and one.unusable))
    return f"; other Pods that count as unavailable: {named(names)}" if names else ""


def _failed(seen: Observed, found: Plan) -> str:
    """Say which Nodes count as Pods that are away, and what to do."""
    if not found.failed or not seen.nodeset.spec.is_rolling:
        return ""
    return (
        "; Nodes that became not ready during the update count as unavailable: "
        f"{named(sorted(found.failed))}. Fix, relabel or delete them, or raise maxUnavailable"
    )


def named(names: list[str]) -> str:
    """Name the first, and count the rest."""
    more = f" and {len(names) - NAMES_MAX} more" if names[NAMES_MAX:] else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _name_of(member: Member) -> str:
    return member.name


def _stuck(found: Plan) -> str:
    """Say which Pods on those nodes cannot be evicted, and why."""
    pods = sorted(found.stuck.items())
    words = [f"; {name} cannot be evicted: {cut(why, MESSAGE_MAX)}" for name, why in pods[:NAMES_MAX]]
    if pods[NAMES_MAX:]:
        words.append(f"; {len(pods) - NAMES_MAX} more cannot be evicted either")
    return "".join(words)


def condemned_names(seen: Observed) -> list[str]:
    """Return the names of the Pods that are marked to go."""
    return sorted(
        pod.metadata.name for pod in seen.pods if wk.ANNOTATION_CONDEMNED in pod.metadata.annotations
    )
