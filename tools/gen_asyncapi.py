"""Writes `docs/asyncapi.json`: the contract as an AsyncAPI 3.0 document.

Every fact, state and question is a channel of its own with its subject as address, and an operation of the
service that owns it. ``--check`` as in `gen_schemas.py`. Payloads are JSON Schema 2020-12, which AsyncAPI's
own schema format is not, so each says its ``schemaFormat``, and references point to the schema inside.

Source: AsyncAPI 3.0.0, "Channel Object", "Operation Object", "Multi Format Schema Object".
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from docstrings import describe, meaning
from generated import settle
from golden_files import latest

from sunk_events import subjects
from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import ANY_REPLY, EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import MAX_BYTES, tag_of
from sunk_events.dead import DeadLetter

DOCUMENT: Final = Path("docs/asyncapi.json")
SCHEMA_FORMAT: Final = "application/schema+json;version=draft-2020-12"
CLUSTER: Final = "{cluster}"
Json = dict[str, Any]

PARAMETERS: Final[Json] = {
    "cluster": {"description": "The Slurm cluster's name: lower-case letters, digits and hyphens."},
    "entity": {
        "description": "What it is about: a node, a job's id, a Pod, its uid. Every byte outside "
        "`A-Z a-z 0-9 _ -` is written `=XX`.",
        "examples": ["gpu-000-012", "4711", "ip-10=2Eec2"],
    },
    "service": {"description": "The service that could not handle it."},
}
HEADERS: Final[Json] = {
    "type": "object",
    "properties": {
        "Nats-Msg-Id": {
            "type": "string",
            "description": "The id again: within ten minutes the stream keeps one message of it.",
        },
        "traceparent": {"type": "string", "description": "W3C trace context, where there is a trace."},
    },
}


def reference(*path: str) -> Json:
    """Return a reference to a place of this document."""
    return {"$ref": "#/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)}


def address(kind: type[msgspec.Struct]) -> str:
    """Return the subject of *kind* with its parameters in braces."""
    if kind is DeadLetter:
        return subjects.DEAD_LETTERS.replace(">", f"{CLUSTER}.{{service}}.message.{{entity}}")
    if issubclass(kind, Event):
        return subjects.facts(CLUSTER, kind).replace("*", "{entity}")
    if issubclass(kind, State):
        return subjects.bucket_keys(subjects.bucket(CLUSTER, kind)).replace(">", "{entity}")
    if issubclass(kind, Request):
        return subjects.questions(CLUSTER, kind).replace("*", "{entity}")
    raise TypeError(f"{kind.__name__} has no subject of its own")


def channel(kind: type[msgspec.Struct]) -> Json:
    """Return where *kind* is to be met."""
    where = address(kind)
    return {
        "address": where,
        "description": meaning(kind),
        "parameters": {name: PARAMETERS[name] for name in PARAMETERS if f"{{{name}}}" in where},
        "messages": {kind.__name__: reference("components", "messages", kind.__name__)},
    }


def replies(kind: type[Request]) -> tuple[type[Reply], ...]:
    """Return every answer that *kind* may get."""
    return (*REQUESTS[kind][1], *ANY_REPLY)


def reply_channel(kind: type[Request]) -> Json:
    """Return where answers to *kind* are to be met: wherever the asker says."""
    messages = {
        reply.__name__: reference("components", "messages", reply.__name__) for reply in replies(kind)
    }
    return {"address": None, "description": "The reply subject of the question.", "messages": messages}


def channels() -> Json:
    """Return every channel, by the name of what is met there."""
    found = {kind.__name__: channel(kind) for kind in (*EVENTS, *STATES, *REQUESTS)}
    return found | {f"{kind.__name__}Reply": reply_channel(kind) for kind in REQUESTS}


def operation(action: str, owner: str, kind: type[msgspec.Struct]) -> Json:
    """Return what *owner* does with messages of *kind*."""
    found: Json = {
        "action": action,
        "channel": reference("channels", kind.__name__),
        "messages": [reference("channels", kind.__name__, "messages", kind.__name__)],
        "summary": meaning(kind),
        "tags": [{"name": owner}],
    }
    if issubclass(kind, Request):
        answers = f"{kind.__name__}Reply"
        found["reply"] = {
            "channel": reference("channels", answers),
            "messages": [
                reference("channels", answers, "messages", reply.__name__) for reply in replies(kind)
            ],
        }
    return found


def operations() -> Json:
    """Return what each service does, by ``<service>_<verb>_<type's name>``."""
    found: Json = {}
    for kind, owner in (*EVENTS.items(), *STATES.items()):
        verb = "publish" if issubclass(kind, Event) else "store"
        found[f"{owner}_{verb}_{kind.__name__}"] = operation("send", owner, kind)
    for kind, (owner, _) in REQUESTS.items():
        found[f"{owner}_answer_{kind.__name__}"] = operation("receive", owner, kind)
    return found


def message(kind: type[msgspec.Struct]) -> Json:
    """Return *kind* as a message, with what a golden file holds as its example."""
    is_fact = issubclass(kind, Event)
    found: Json = {
        "name": tag_of(kind),
        "title": kind.__name__,
        "summary": meaning(kind),
        "contentType": "application/cloudevents+json" if is_fact else "application/json",
        "payload": reference("components", "schemas", kind.__name__),
        "examples": [{"name": kind.__name__, "payload": json.loads(latest(tag_of(kind)).read_bytes())}],
    }
    return {**found, "headers": reference("components", "schemas", "FactHeaders")} if is_fact else found


def schemas(kinds: list[type[msgspec.Struct]]) -> Json:
    """Return the schema of *kinds* and of what they hold."""
    _, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}/schema")
    for kind in kinds:
        describe(found, kind)
    framed = {name: {"schemaFormat": SCHEMA_FORMAT, "schema": schema} for name, schema in found.items()}
    return {**framed, "FactHeaders": HEADERS}


def document() -> Json:
    """Return the whole document."""
    kinds: list[type[msgspec.Struct]] = [*EVENTS, *STATES, *REQUESTS, *REPLIES]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "SUNK: Slurm on Kubernetes, on NATS",
            "version": "0.1.0",
            "description": "Facts, states and questions of the services; `docs/events.md` tells how to use "
            f"them. Types only grow. A message has at most {MAX_BYTES} bytes.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"nats": {"host": "nats:4222", "protocol": "nats", "description": "The cluster's NATS."}},
        "channels": channels(),
        "operations": operations(),
        "components": {
            "messages": {kind.__name__: message(kind) for kind in kinds},
            "schemas": schemas(kinds),
        },
    }


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    text = json.dumps(document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return settle({DOCUMENT: text}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
