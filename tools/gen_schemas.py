"""Writes what is generated from the contract: `libs/sunk_events/schemas/*.json` and `docs/events.md`.

With ``--check`` it writes nothing, names what is stale and ends with 1. The same contract always gives the
same bytes. Descriptions are the docstrings of classes and fields, so the code is the only place to edit.
"""

import json
import sys
from pathlib import Path
from typing import Final

import msgspec
from docstrings import describe
from events_page import SCHEMAS, events_page
from generated import settle

from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of

EVENTS_PAGE: Final = Path("docs/events.md")
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: type[msgspec.Struct]) -> str:
    """Return *kind*'s JSON Schema, keys sorted."""
    document = msgspec.json.schema(kind)
    describe(document["$defs"], kind)
    document = {"$schema": DIALECT, "title": tag_of(kind), **document}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def generated() -> dict[Path, str]:
    """Return every generated file, relative to the root, with what it has to hold."""
    kinds: list[type[msgspec.Struct]] = [*EVENTS, *STATES, *REQUESTS, *REPLIES]
    return {EVENTS_PAGE: events_page(), **{SCHEMAS / f"{tag_of(kind)}.json": schema(kind) for kind in kinds}}


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(generated(), arguments, SCHEMAS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
