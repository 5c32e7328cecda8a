"""`sunkctl ui`: the live page of the view, on this machine only, with the user's own rights.

A browser has no kubeconfig. So this process asks in its place, as `sunkctl` asks for itself. It holds the
user's credentials and hands none of them to the browser.
"""

import secrets
import socket
import sys
from typing import Annotated, Final

import anyio
import typer
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from sunk_ctl.cluster import Cluster
from sunk_ctl.refusals import refusal
from sunk_ctl.running import Config, Context, answered
from sunk_ctl.ui_gate import START, Elsewhere, Refusal, Wanted, judged
from sunk_events.view import ROOT
from sunk_kube.errors import KubeBusyError, KubeRejectedError, KubeUnauthorizedError
from sunk_runtime.errors import SunkError, TransientError
from sunk_runtime.http import Health, serve_http
from sunk_runtime.http_pages import HEADERS

ADDRESS: Final = "127.0.0.1"
SECRET_BYTES: Final = 32
NAME_BYTES: Final = 16
LOOK_S: Final = 0.02


def ui(
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: any free port, which is safer"),
    ] = 0,
    context: Context = "",
    kubeconfig: Config = None,
) -> None:
    """Serve the live page to a browser on this machine, until Ctrl-C. It shows what your rights show."""

    async def get(cluster: Cluster) -> None:
        try:
            await cluster.api.send("GET", f"{ROOT}/{START}")
        except SunkError as error:
            raise refusal(error, "/nodes") from error  # Everybody who may ask about nodes may have the page.
        await serve(cluster, port or free_port())

    try:
        answered(context, kubeconfig, get)
    except KeyboardInterrupt as stopped:
        raise typer.Exit(0) from stopped


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as one:
        one.bind((ADDRESS, 0))
        return int(one.getsockname()[1])


async def serve(cluster: Cluster, port: int) -> None:
    """Serve until cancelled; print the address once it is there."""
    own = f"{secrets.token_hex(NAME_BYTES)}.localhost:{port}"
    forwarder, health = Forwarder(cluster, own, secrets.token_urlsafe(SECRET_BYTES)), Health()
    health.require("this server", lambda: False)
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            await serve_http(ADDRESS, port, health, forwarder.routes(), has_metrics=False)

        tasks.start_soon(listen)
        while health.missing() != ["this server"]:  # noqa: ASYNC110 - uvicorn tells nobody when it listens
            await anyio.sleep(LOOK_S)
        sys.stdout.write(f"{forwarder.address}\n")
        sys.stdout.flush()


class Forwarder:
    """Asks the view in a browser's place."""

    def __init__(self, cluster: Cluster, own: str, secret: str) -> None:
        self._cluster = cluster
        self._own = own
        self._secret = secret

    @property
    def address(self) -> str:
        """What the user opens; who has it asks with the user's rights."""
        return f"http://{self._own}/{self._secret}/{START}"

    def routes(self) -> list[BaseRoute]:
        """Return the one route: every path is judged, also those that a service has by itself."""
        return [Route("/{path:path}", self._answer, methods=["GET"])]

    async def _answer(self, request: Request) -> Response:
        found = judged(
            request.scope["raw_path"].decode("latin-1"),
            request.query_params.multi_items(),
            dict(request.headers),
            secret=self._secret,
            own=self._own,
        )
        match found:
            case Refusal():
                return _refused(found.status, found.text)
            case Elsewhere():
                return RedirectResponse(found.path, headers=HEADERS)
            case Wanted():
                return await self._response(found)

    async def _response(self, wanted: Wanted) -> Response:
        try:
            body = await self._cluster.api.send("GET", f"{ROOT}{wanted.path}", query=wanted.query)
        except KubeUnauthorizedError as error:
            return _refused(401, str(refusal(error, wanted.path)), error.retry_after_s)
        except TransientError as error:
            status = 429 if isinstance(error, KubeBusyError) else 503
            return _refused(status, str(error), error.retry_after_s)
        except SunkError as error:
            status = error.status if isinstance(error, KubeRejectedError) else 502
            return _refused(status, str(error))
        return Response(body, media_type=wanted.media_type, headers=HEADERS)


def _refused(status: int, text: str, retry_after_s: float = 0.0) -> Response:
    later = {"Retry-After": str(max(1, round(retry_after_s)))} if retry_after_s else {}
    return JSONResponse({"message": text}, status_code=status, headers={**HEADERS, **later})
