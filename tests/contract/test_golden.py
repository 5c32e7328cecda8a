# pyright: reportUnknownMemberType=false
"""What was once written can be read for ever: one golden file a type, written once and never edited.

The comment above: jsonschema is partly untyped.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from jsonschema import Draft202012Validator

from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import decode_event, decode_reply, decode_request, decode_state, encode, tag_of

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
SCHEMAS = ROOT / "libs/sunk_events/schemas"
KINDS: list[type[msgspec.Struct]] = [*EVENTS, *STATES, *REQUESTS, *REPLIES]
KIND_BY_TAG = {tag_of(kind): kind for kind in KINDS}

each_golden = pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=tag_of)


def decode(data: bytes) -> Event | State | Request | Reply:
    kind = KIND_BY_TAG[json.loads(data)["type"]]
    if issubclass(kind, Event):
        return decode_event(data)
    if issubclass(kind, State):
        return decode_state(kind, data)
    if issubclass(kind, Request):
        return decode_request(kind, data)
    return decode_reply(data)


def lost(before: object, after: object, at: str = "$") -> list[str]:
    """Return the places of *before* whose value *after* does not have."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, object]", before), cast("Mapping[str, object]", after)
        return [place for name in old for place in lost(old[name], new.get(name), f"{at}.{name}")]
    if isinstance(before, list) and isinstance(after, list):
        pairs = zip(cast("Sequence[object]", before), cast("Sequence[object]", after), strict=False)
        found = [place for i, (old, new) in enumerate(pairs) for place in lost(old, new, f"{at}[{i}]")]
        return found if len(cast("list[object]", before)) == len(cast("list[object]", after)) else [at]
    return [] if before == after else [at]


@each_golden
def test_what_was_once_written_can_still_be_read(path: Path) -> None:
    message = decode(path.read_bytes())

    assert decode(encode(message)) == message


@each_golden
def test_nothing_that_was_once_written_is_dropped_by_reading_it(path: Path) -> None:
    written: Any = json.loads(path.read_bytes())

    assert lost(written, json.loads(encode(decode(path.read_bytes())))) == []


@each_golden
def test_what_was_once_written_fits_the_schema_that_strangers_use(path: Path) -> None:
    document = json.loads(path.read_bytes())
    schema = json.loads((SCHEMAS / f"{document['type']}.json").read_bytes())

    Draft202012Validator.check_schema(schema)
    problems = Draft202012Validator(schema).iter_errors(document)

    assert [problem.message for problem in problems] == []


@each_golden
def test_the_schema_refuses_the_type_of_another(path: Path) -> None:
    document = json.loads(path.read_bytes())
    schema = json.loads((SCHEMAS / f"{document['type']}.json").read_bytes())

    assert not Draft202012Validator(schema).is_valid({**document, "type": "sunk.other.v1.thing"})


@each_golden
def test_a_golden_file_is_named_after_its_type(path: Path) -> None:
    tag = json.loads(path.read_bytes())["type"]

    assert path.stem == tag or path.stem.removeprefix(f"{tag}.").isdigit()


@each_kind
def test_every_type_has_a_schema(kind: type[msgspec.Struct]) -> None:
    assert (SCHEMAS / f"{tag_of(kind)}.json").exists(), "run ./task gen"


@each_kind
def test_every_type_says_what_it_means(kind: type[msgspec.Struct]) -> None:
    first = (kind.__doc__ or "").split("\n")[0]

    assert first.endswith((".", "?", ";", ":", ","))
    assert not first.startswith(kind.__name__)
