"""`sunkctl doctor`: what would keep a Slurm cluster from working on this Kubernetes cluster."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from sunk_ctl.cluster import Cluster
from sunk_ctl.refusals import NoAnswerError, of_kubernetes
from sunk_ctl.running import Config, Context, Form, Output, answered, show
from sunk_ctl.texts import shown
from sunk_kube.errors import KubeRejectedError

if TYPE_CHECKING:
    from sunk_ctl.doctor import Examined


def doctor(  # noqa: PLR0917 - typer takes arguments by position
    values: Annotated[Path, typer.Argument(metavar="VALUES", help="The values.yaml of helm/slurm")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where to install it")] = "slurm",
    release: Annotated[str, typer.Option("--release", help="Name of the release")] = "slurm",
    chart: Annotated[Path | None, typer.Option("--chart", help="Folder of helm/slurm")] = None,
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Look at a cluster before helm/slurm is installed; end with 1 if something is in the way."""

    async def get(cluster: Cluster) -> "Examined":
        module = _module()
        folder = chart or module.CHART
        if not (folder / "Chart.yaml").is_file():
            raise NoAnswerError(f"--chart: {folder} is no folder of helm/slurm", 2)
        given = module.Given(values=values, namespace=namespace, release=release, chart=folder)
        try:
            return await module.examined(cluster.api, given)
        except KubeRejectedError as error:
            raise of_kubernetes(error, "") from error

    found = answered(context, kubeconfig, get)
    count = len(found.findings)
    last = f"{count} findings" if count else "nothing found: install"
    lines: list[RenderableType] = [shown(line) for line in (*found.remarks, *found.findings, last)]
    show(found, output, lambda _found, _now: lines)
    if found.findings:
        raise typer.Exit(1)


def _module() -> Any:  # noqa: ANN401 - a module
    """Return the part that needs Helm's engine, which no other command does."""
    try:
        return import_module("sunk_ctl.doctor")
    except ModuleNotFoundError as error:
        message = f"{error}: install helm-python-sdk too, as pip install 'libs/sunk_ctl[doctor]' does"
        raise NoAnswerError(message, 1) from error
