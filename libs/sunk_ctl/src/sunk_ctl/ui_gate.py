"""Which requests of a browser `sunkctl ui` hands on, with the user's credentials. Pure.

What must stay true: only who knows the secret in the address gets anything, and only by that address, so that
neither another user of this machine nor a page of another site gets in; a request reads the view or the
page's files, and nothing else of the API server.

The secret is in the path and in no cookie: cookies are sent to each port of 127.0.0.1, also to another
user's. The name is another one each time: a browser keeps what a server has stored in it, service workers
among that, by name and port, and whoever had the port before would be asked in our place.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sunk_runtime.http_pages import KINDS

PATH_CHARS: Final = 600
QUERY_CHARS: Final = 32_000
PARAMETERS: Final = frozenset({"last", "since", "after", "key", "nodes", "jobs", "placements"})
"""Those of the view's questions."""
START: Final = "page/index.html"
_PATH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_FILE: Final = re.compile(r"page/[a-z0-9-]+\.(?P<kind>html|css|js|svg)")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask of the view."""

    path: str
    """Below the view's root."""
    query: dict[str, str] = {}
    media_type: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing is handed on."""

    status: int
    text: str


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page is."""

    path: str


def judged(
    path: str,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    *,
    secret: str,
    own: str,
) -> Wanted | Elsewhere | Refusal:
    """Return what a ``GET`` of *path* is.

    Args:
        path: Before anything in it is decoded.
        query: Decoded.
        headers: Names in lower case.
        secret: What the address begins with.
        own: Our name and port.
    """
    given, _, rest = path.removeprefix("/").partition("/")
    if problem := _not_ours(headers, own):
        return Refusal(status=403, text=problem)
    if not hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode()):
        return Refusal(status=404, text="open the whole address that sunkctl ui printed")
    if rest in {"", "page", "page/"}:
        return Elsewhere(path=f"/{secret}/{START}")
    if len(rest) > PATH_CHARS or not _PATH.fullmatch(rest):
        return Refusal(status=404, text="the view has no such path")
    if wrong := _wrong(query):
        return Refusal(status=400, text=wrong)
    file = _FILE.fullmatch(rest)
    media_type = KINDS[file["kind"]] if file else "application/json"
    return Wanted(path=f"/{rest}", query={} if file else dict(query), media_type=media_type)


def _not_ours(headers: Mapping[str, str], own: str) -> str:
    """Return why a request is not from our page at *own*; empty: it is, or its user typed the address."""
    if headers.get("host", "") != own:
        return "open the whole address that sunkctl ui printed"  # The name is told to who has it only.
    if headers.get("origin", f"http://{own}") != f"http://{own}":
        return "requests from a page of another site are refused"
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return "requests from a page of another site are refused"
    return ""


def _wrong(query: Sequence[tuple[str, str]]) -> str:
    if sum(len(name) + len(value) for name, value in query) > QUERY_CHARS:
        return "the query is too long"
    unknown = next((name for name, _ in query if name not in PARAMETERS), "")
    return f"the view has no parameter {unknown[:40]!r}" if unknown else ""
