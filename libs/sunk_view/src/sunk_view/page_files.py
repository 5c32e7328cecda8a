"""The files of the live page. It holds no data: what it shows it asks for, as the user."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sunk_events.view import ROOT
from sunk_runtime.http_guard import line_of
from sunk_runtime.http_pages import HEADERS, KINDS
from sunk_view.callers import FrontProxy, UnknownCallerError, decoded


def names() -> tuple[str, ...]:
    """Return the names of the page's files."""
    found = (one.name for one in files("sunk_view").joinpath("page").iterdir())
    return tuple(sorted(name for name in found if name.rpartition(".")[2] in KINDS))


def routes(proxy: FrontProxy) -> list[BaseRoute]:
    """Return a route for each file, which is read once; only the API server's front proxy gets it."""
    return [_route(proxy, name) for name in names()]


def _route(proxy: FrontProxy, name: str) -> Route:
    body = files("sunk_view").joinpath("page", name).read_bytes()

    async def serve(request: Request) -> Response:
        try:
            proxy.caller(line_of(request).common_name, decoded(request.headers.raw))
        except UnknownCallerError as error:
            return Response(str(error), status_code=401, media_type="text/plain", headers=HEADERS)
        return Response(body, media_type=KINDS[name.rpartition(".")[2]], headers=HEADERS)

    return Route(f"{ROOT}/page/{name}", serve, methods=["GET"])
