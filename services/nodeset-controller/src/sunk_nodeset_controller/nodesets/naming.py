"""The name of a NodeSet Pod, which is its Slurm node's; pure.

``<prefix>-<suffix>``, the suffix being the last two octets of the Node's InternalIP, padded: all names
are of one width, and Slurm folds them into short ranges. What was chosen once stays while the Node does.

Source: SUNK's documents, NodeSet, "Naming" (10.174.12.2 is ``012-002``).
"""

import hashlib
import ipaddress
from collections.abc import Collection
from typing import Final

_HASH_LENGTH: Final = 8


def octets(address: str) -> str | None:
    """Return the last two octets of an IPv4 *address*, padded, or None where it is none."""
    try:
        found = ipaddress.IPv4Address(address)
    except ValueError:
        return None
    *_, third, fourth = found.packed
    return f"{third:03}-{fourth:03}"


def short_hash(kube_node: str) -> str:
    """Return eight hexadecimal digits for a Node's name."""
    return hashlib.sha256(kube_node.encode()).hexdigest()[:_HASH_LENGTH]


def pod_name(prefix: str, kube_node: str, address: str, taken: Collection[str]) -> str:
    """Return the name of the Pod on *kube_node*, which nobody else has.

    Args:
        prefix: The NodeSet's.
        kube_node: The Node's name.
        address: Its InternalIP; may be empty, or IPv6.
        taken: The names that others have, or may come back to.
    """
    suffix = octets(address)
    if suffix is not None and (name := f"{prefix}-{suffix}") not in taken:
        return name
    return f"{prefix}-{short_hash(kube_node)}"
