"""Nodes by the user's own rights: found by either name, and changed as `operations` decides.

What must stay true: a change holds for the version of the Node that was looked at; where another writer came
first, it is looked at and decided again.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from sunk_ctl import operations
from sunk_ctl.cluster import Cluster
from sunk_ctl.operations import Acted, Change
from sunk_ctl.refusals import NoAnswerError, of_kubernetes
from sunk_events.view import Nodes
from sunk_kube import wellknown as wk
from sunk_kube.errors import KubeNotFoundError, KubeRejectedError
from sunk_kube.objects import Node
from sunk_kube.pages import Page
from sunk_kube.pods import Pod
from sunk_kube.resources import NODES, PODS, is_name
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, SunkError

TRIES: Final = 5
"""Kubelets and controllers write Nodes too; each time we look again."""
PAGE: Final = 500
PAGES_MAX: Final = 4
"""Of Nodes whose names are compared with one that is unknown."""
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
Decide = Callable[[Node], Awaitable[Change | None]]
"""What to change of a Node; None: it is so already."""


async def drain(cluster: Cluster, name: str, reason: str, *, is_overwrite: bool, is_dry_run: bool) -> Acted:
    """Cordon the Node of *name*; the services then drain its Slurm node. Raises `NoAnswerError`."""
    wanted = operations.reason_of(reason)

    async def decide(node: Node) -> Change | None:
        return operations.drain(node, wanted, is_overwrite=is_overwrite)

    node, is_changed = await _change(cluster, name, decide, is_dry_run=is_dry_run)
    notes = (*operations.replaced(node, wanted), *operations.slurms_own(node, now()))
    return _acted("drain", node, wanted, is_changed=is_changed, is_dry_run=is_dry_run, notes=notes)


async def undrain(cluster: Cluster, name: str, reason: str, *, is_any: bool, is_dry_run: bool) -> Acted:
    """End the cordon of the Node of *name*: one for *reason*, or any one. Raises `NoAnswerError`."""
    wanted = operations.reason_of(reason) if reason else ""

    async def decide(node: Node) -> Change | None:
        return operations.undrain(node, wanted, is_any=is_any)

    node, is_changed = await _change(cluster, name, decide, is_dry_run=is_dry_run)
    before, notes = operations.cordon_reason(node), operations.slurms_own(node, now())
    return _acted("undrain", node, before, is_changed=is_changed, is_dry_run=is_dry_run, notes=notes)


async def reboot(
    cluster: Cluster, name: str, reason: str, condition: tuple[str, str], *, is_forced: bool, is_dry_run: bool
) -> Acted:
    """Ask the platform for a reboot of the Node of *name*, by the type and reason of a *condition*."""
    wanted = operations.reason_of(reason)

    async def decide(node: Node) -> Change | None:
        if not is_forced:
            operations.require_idle(node, await cluster.get(Nodes, "/nodes"))
            operations.require_no_pods(node, await _pods(cluster, node))
        return operations.reboot(node, wanted, *condition, now())

    resources = "nodes,nodes/status"
    node, is_changed = await _change(cluster, name, decide, is_dry_run=is_dry_run, resources=resources)
    return _acted("reboot", node, wanted, is_changed=is_changed, is_dry_run=is_dry_run)


def _acted(
    action: str, node: Node, reason: str, *, is_changed: bool, is_dry_run: bool, notes: tuple[str, ...] = ()
) -> Acted:
    return Acted(
        action=action,
        cluster=node.metadata.labels.get(wk.LABEL_CLUSTER, ""),
        node=operations.slurm_name(node),
        kube_node=node.metadata.name,
        is_changed=is_changed,
        is_dry_run=is_dry_run,
        reason=reason,
        notes=notes,
    )


async def _change(
    cluster: Cluster, name: str, decide: Decide, *, is_dry_run: bool, resources: str = "nodes"
) -> tuple[Node, bool]:
    """Return the Node as it was, and whether something of it was changed."""
    if not is_name(name):
        raise NoAnswerError(
            f"NODE: {name[: operations.NAME_CHARS]!r} is not a name of Kubernetes or Slurm", 2
        )
    for _ in range(TRIES):
        try:
            node = await _find(cluster, name)
            change = await decide(node)
            if change is None:
                return node, False
            await _patch(cluster, node.metadata.name, change, is_dry_run=is_dry_run)
        except ConflictError:
            continue
        except NoAnswerError:
            raise
        except SunkError as error:
            raise of_kubernetes(error, resources) from error
        return node, True
    raise NoAnswerError(f"other clients change {name} all the time: try again", 5)


async def _patch(cluster: Cluster, name: str, change: Change, *, is_dry_run: bool) -> None:
    query = {"fieldManager": "sunkctl", **({"dryRun": "All"} if is_dry_run else {})}
    kind = "strategic-merge-patch" if change.subresource else "merge-patch"  # Conditions merge by their type.
    await cluster.api.send(
        "PATCH",
        NODES.path(name=name, subresource=change.subresource),
        body=change.body,
        query=query,
        content_type=f"application/{kind}+json",
    )


async def _find(cluster: Cluster, name: str) -> Node:
    """Return the Node that *name* means. Raises `NoAnswerError`, and as `Api.send`."""
    try:
        by_name = msgspec.json.decode(await cluster.api.send("GET", NODES.path(name=name)), type=Node)
    except KubeNotFoundError:
        by_name = None
    by_label: list[Node] = []
    if _LABEL.fullmatch(name):
        by_label, _ = await _list(cluster, {"labelSelector": f"{wk.LABEL_POD}={name}"})
    found = operations.chosen(name, by_name, by_label)
    if found is None:
        raise operations.unknown(name, await _some(cluster))
    return found


async def _pods(cluster: Cluster, node: Node) -> list[Pod]:
    """Return all Pods on *node*. Raises `NoAnswerError` if they are not known, and as `Api.send`."""
    query = {"fieldSelector": f"spec.nodeName={node.metadata.name}", "limit": str(PAGE)}
    try:
        data = await cluster.api.send("GET", PODS.path(), query=query)
    except KubeRejectedError as error:
        raise operations.pods_unknown(node, of_kubernetes(error, "").args[0]) from error
    page = msgspec.json.decode(data, type=Page[Pod])
    if page.metadata.continue_:
        raise operations.pods_unknown(node, f"there are more than {PAGE}")
    return list(page.items or ())


async def _some(cluster: Cluster) -> list[Node]:
    found: list[Node] = []
    query = {"limit": str(PAGE), "labelSelector": wk.LABEL_POD}
    for _ in range(PAGES_MAX):
        page, query["continue"] = await _list(cluster, query)
        found += page
        if not query["continue"]:
            break
    return found


async def _list(cluster: Cluster, query: dict[str, str]) -> tuple[list[Node], str]:
    page = msgspec.json.decode(await cluster.api.send("GET", NODES.path(), query=query), type=Page[Node])
    return list(page.items or ()), page.metadata.continue_
