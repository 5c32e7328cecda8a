"""`sunkctl doctor`: what is wrong with an installed SUNK, or what would be in the way of an install."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from sunk_ctl.cluster import Cluster
from sunk_ctl.examining import Diagnosis, examined
from sunk_ctl.refusals import NOT_NOW, REFUSED, NoAnswerError, of_kubernetes
from sunk_ctl.running import Config, Context, Form, Output, answered, end, show, warn
from sunk_ctl.texts import shown
from sunk_kube.errors import KubeRejectedError, KubeUnauthorizedError

if TYPE_CHECKING:
    from sunk_ctl.doctor import Examined


def doctor(  # noqa: PLR0917 - typer takes arguments by position
    values: Annotated[
        Path | None,
        typer.Argument(
            metavar="VALUES",
            help="The values.yaml of helm/slurm, before an install; "
            "without it, doctor checks the installed releases",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="With VALUES: namespace of the install; default: slurm. "
            "Without VALUES: check this namespace only (repeatable); default: every namespace with a release",
        ),
    ] = None,
    release: Annotated[str, typer.Option("--release", help="Name of the release to install")] = "slurm",
    chart: Annotated[Path | None, typer.Option("--chart", help="Folder of helm/slurm")] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=600, help="How long to watch the installed releases")
    ] = 40,
    context: Context = "",
    kubeconfig: Config = None,
    output: Output = Form.TABLE,
) -> None:
    """Check the installed releases, or a cluster before an install; exit with 1 if anything is wrong."""
    if values is None:
        _examine(namespace or [], seconds, context, kubeconfig, output)
        return
    if len(namespace or []) > 1:
        end("--namespace: with VALUES give one namespace", 2)
    where = namespace[0] if namespace else "slurm"

    async def get(cluster: Cluster) -> "Examined":
        module = _module()
        folder = chart or module.CHART
        if not (folder / "Chart.yaml").is_file():
            raise NoAnswerError(f"--chart: {folder} is not a folder with helm/slurm", 2)
        given = module.Given(values=values, namespace=where, release=release, chart=folder)
        try:
            return await module.examined(cluster.api, given)
        except (KubeRejectedError, KubeUnauthorizedError) as error:
            raise of_kubernetes(error, "") from error

    found = answered(context, kubeconfig, get)
    count = len(found.findings)
    last = f"{count} findings" if count else "nothing found: you can install"
    lines: list[RenderableType] = [shown(line) for line in (*found.remarks, *found.findings, last)]
    show(found, output, lambda _found, _now: lines)
    if found.findings:
        raise typer.Exit(1)


def _examine(
    namespaces: Sequence[str], seconds: float, context: str, kubeconfig: Path | None, output: Form
) -> None:
    """Say what is wrong with what is installed."""

    async def get(cluster: Cluster) -> Diagnosis:
        return await examined(cluster, namespaces, seconds)

    found = answered(context, kubeconfig, get)
    for missing in found.not_seen:
        warn(f"not checked: {missing}")
    show(found, output, lambda found, _now: list(_lines(found)))
    if found.findings:
        raise typer.Exit(1)
    if found.not_seen:
        raise typer.Exit(REFUSED if found.is_refused else NOT_NOW)


def _lines(found: Diagnosis) -> Iterator[RenderableType]:
    for one in found.findings:
        page = f" (docs/runbooks/{one.runbook}.md)" if one.runbook else ""
        yield shown(f"{one.where}: {one.what}{page}")
        yield shown(f"    {one.fix}")
    count = len(found.findings)
    seen = f"read the metrics of {found.pods} Pods"
    yield f"{count} findings; {seen}" if count else f"nothing found; {seen}"


def _module() -> Any:  # noqa: ANN401 - a module
    """Return the part that needs Helm's engine, which no other command does."""
    try:
        return import_module("sunk_ctl.doctor")
    except ModuleNotFoundError as error:
        message = f"{error}: install helm-python-sdk too, as pip install 'libs/sunk_ctl[doctor]' does"
        raise NoAnswerError(message, 1) from error
