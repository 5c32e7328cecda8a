"""Writes a golden file for each type of the contract that has none; one that exists is never touched.

A golden file is what some running version wrote once: every field that its type had then, filled with what
it would hold on a real cluster. A type that has grown since gets a second one, ``<type>.2.json``, and so on.
A field without an example here is an error, so a new one gets its own. ``--check`` writes nothing and fails
where something is missing.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from golden_examples import BY_EVENT, ENTITIES, EXAMPLES, SPECIAL
from golden_files import GOLDEN, written

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.dead import DeadLetter


def example(kind: type[msgspec.Struct], instead: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance of *kind*
    """Return an instance of *kind* with every field filled, *instead* going before the tables."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in instead:
            values[field.name] = instead[field.name]
        elif (kind.__name__, field.name) in SPECIAL:
            values[field.name] = SPECIAL[kind.__name__, field.name]
        elif struct := struct_of(field.type):
            one = example(struct, BY_EVENT.get(kind.__name__, {}))
            values[field.name] = (one,) if get_origin(bare(field.type)) is tuple else one
        elif field.name in EXAMPLES:
            values[field.name] = EXAMPLES[field.name]
        elif issubclass(kind, Event) and field.name in {"specversion", "datacontenttype"}:
            continue
        elif field.type is float or "ge=0" in repr(field.type):
            values[field.name] = 0.012 if field.type is float else 42
        else:
            raise SystemExit(
                f"no example for {kind.__name__}.{field.name}: add one to tools/golden_examples.py"
            )
    return kind(**values)


def bare(annotation: Any) -> Any:  # noqa: ANN401 - any annotation of a field
    """Return *annotation* without its limits."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - any annotation of a field
    """Return the struct in *annotation*, alone or in a tuple or union."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    annotation = bare(annotation)
    if get_origin(annotation) in {tuple, Union, UnionType}:
        return next(filter(None, map(struct_of, get_args(annotation))), None)
    return None


def event_example(kind: type[Event]) -> Event:
    """Return an event about the entity that its subject names."""
    owner, _, name = tag_of(kind).removeprefix("sunk.").partition(".v1.")
    if kind is DeadLetter:
        entity, owner = EXAMPLES["on"], "metrics_exporter"
    else:
        system, of = subjects.facts("lab", kind).split(".")[3:5]
        entity = EXAMPLES[ENTITIES.get((system, of), of)]
    return example(
        kind,
        {
            "id": f"{name}:{entity}:1718",
            "source": f"/lab/{owner.replace('_', '-')}",
            "subject": str(entity),
        },
    )


def places(document: Any, at: str = "$") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the path of every value in *document*, those in lists under the list's own."""
    yield at
    if isinstance(document, dict):
        for name, value in cast("dict[str, Any]", document).items():
            yield from places(value, f"{at}.{name}")
    if isinstance(document, list):
        for value in cast("list[Any]", document):
            yield from places(value, at)


def unwritten(tag: str, document: bytes) -> Path | None:
    """Return the golden file that *document* is to become; None where its fields stand in those there are."""
    there = written(tag)
    known = {place for path in there for place in places(json.loads(path.read_bytes()))}
    if set(places(json.loads(document))) <= known:
        return None
    return GOLDEN / (f"{tag}.{len(there) + 1}.json" if there else f"{tag}.json")


def main() -> None:
    """Write what is missing, or say that it is."""
    is_check = "--check" in sys.argv[1:]
    GOLDEN.mkdir(parents=True, exist_ok=True)
    makers: dict[type[msgspec.Struct], Callable[[], Any]] = {
        **{kind: partial(event_example, kind) for kind in EVENTS},
        **{kind: partial(example, kind, {}) for kind in (*STATES, *REQUESTS, *REPLIES)},
    }
    for kind, make in makers.items():
        document = msgspec.json.format(msgspec.json.encode(make())) + b"\n"
        if (path := unwritten(tag_of(kind), document)) is None:
            continue
        if is_check:
            raise SystemExit(f"{path.name} is missing: run ./task gen")
        path.write_bytes(document)
        print(f"wrote {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
