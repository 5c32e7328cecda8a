"""The files of the live page. It holds no data: what it shows it asks for, as the user."""

import math
import time
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sunk_events.view import ROOT
from sunk_runtime.call_rates import CallRates
from sunk_runtime.http_guard import line_of
from sunk_runtime.http_pages import HEADERS, KINDS
from sunk_view.callers import FrontProxy, UnknownCallerError, decoded

RATE_PER_S: Final = 10.0
BURST: Final = 60
"""Files that a caller may read in a second for long, and at once: the page has a dozen, and a browser that
does not get one of them shows nothing until it is loaded again."""


def names() -> tuple[str, ...]:
    """Return the names of the page's files."""
    found = (one.name for one in files("sunk_view").joinpath("page").iterdir())
    return tuple(sorted(name for name in found if name.rpartition(".")[2] in KINDS))


def routes(proxy: FrontProxy) -> list[BaseRoute]:
    """Return a route for each file, which is read once; only the API server's front proxy gets it."""
    rates = CallRates(RATE_PER_S, BURST)
    return [_route(proxy, rates, name) for name in names()]


def _route(proxy: FrontProxy, rates: CallRates, name: str) -> Route:
    body = files("sunk_view").joinpath("page", name).read_bytes()

    async def serve(request: Request) -> Response:
        try:
            caller = proxy.caller(line_of(request).common_name, decoded(request.headers.raw))
        except UnknownCallerError as error:
            return Response(str(error), status_code=401, media_type="text/plain", headers=HEADERS)
        if wait_s := rates.wait_s(caller.share, time.monotonic()):
            later = {"Retry-After": str(math.ceil(wait_s))}
            text = f"{caller.share} loads the page too often"
            return Response(text, status_code=429, media_type="text/plain", headers={**HEADERS, **later})
        return Response(body, media_type=KINDS[name.rpartition(".")[2]], headers=HEADERS)

    return Route(f"{ROOT}/page/{name}", serve, methods=["GET"])
