"""`sunkctl drain`, `undrain` and `reboot`: changes of a Node, by the user's own rights."""

from typing import Annotated, Final

import typer
from rich.console import RenderableType

from sunk_ctl import operating
from sunk_ctl.cluster import Cluster
from sunk_ctl.operations import Acted
from sunk_ctl.running import Config, Context, Form, Output, answered, show, warn
from sunk_ctl.texts import shown
from sunk_kube.wellknown import CONDITION_PHASE_STATE

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the Slurm node or of its Node")]
Why = Annotated[str, typer.Option("--reason", help="The reason; one line of at most 200 characters")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; the API server only checks your rights")
]
Force = Annotated[bool, typer.Option("--force", help="Reboot even if jobs or Pods run there; they are lost")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the reason of a cordon")]
AnyReason = Annotated[bool, typer.Option("--any", help="End the cordon whatever its reason is")]
POWER_RESET: Final = "production-powerreset"


def drain(  # noqa: PLR0917 - typer takes arguments by position
    node: NodeArgument,
    reason: Why,
    overwrite: Overwrite = False,  # noqa: FBT002 - an option
    dry_run: DryRun = False,  # noqa: FBT002 - an option
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Cordon a Node, so that its Slurm node takes no more jobs. Needs the right to patch Nodes."""

    async def act(cluster: Cluster) -> Acted:
        return await operating.drain(cluster, node, reason, is_overwrite=overwrite, is_dry_run=dry_run)

    _print(answered(context, kubeconfig, act), output)


def undrain(  # noqa: PLR0917 - as above
    node: NodeArgument,
    reason: Annotated[str, typer.Option("--reason", help="The reason of the cordon to end")] = "",
    any_reason: AnyReason = False,  # noqa: FBT002 - an option
    dry_run: DryRun = False,  # noqa: FBT002 - an option
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Uncordon a Node, so that its Slurm node takes jobs again. Needs the right to patch Nodes."""

    async def act(cluster: Cluster) -> Acted:
        return await operating.undrain(cluster, node, reason, is_any=any_reason, is_dry_run=dry_run)

    _print(answered(context, kubeconfig, act), output)


def reboot(  # noqa: PLR0917 - as above
    node: NodeArgument,
    reason: Why,
    condition: Annotated[
        str,
        typer.Option("--condition", help="Type of the condition that requests a reboot from the platform"),
    ] = CONDITION_PHASE_STATE,
    condition_reason: Annotated[
        str, typer.Option("--condition-reason", help="Reason of that condition")
    ] = POWER_RESET,
    force: Force = False,  # noqa: FBT002 - an option
    dry_run: DryRun = False,  # noqa: FBT002 - an option
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Request a reboot of a Node that is drained and idle. Needs the right to patch nodes/status."""

    async def act(cluster: Cluster) -> Acted:
        requested = (condition, condition_reason)
        return await operating.reboot(cluster, node, reason, requested, is_forced=force, is_dry_run=dry_run)

    _print(answered(context, kubeconfig, act), output)


_DONE: Final = {
    "drain": ("cordoned", "cordoned already"),
    "undrain": ("uncordoned", "not cordoned"),
    "reboot": ("reboot requested", "reboot already requested"),
}


def sentence(done: Acted) -> str:
    """Return what was done, in a line."""
    word = _DONE[done.action][0 if done.is_changed else 1]
    why = f" ({done.reason})" if done.reason else ""
    tried = ", dry run: nothing was changed" if done.is_dry_run else ""
    return f"{done.cluster} {done.node}, Node {done.kube_node}: {word}{why}{tried}"


def _print(done: Acted, output: Form) -> None:
    lines: list[RenderableType] = [shown(sentence(done))]
    show(done, output, lambda _found, _now: lines)
    for note in done.notes:
        warn(note)
