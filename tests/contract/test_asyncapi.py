"""The AsyncAPI document, as somebody sees it who generates a client from it.

AsyncAPI's own JSON Schema is in no package for Python; `asyncapi3` is an independent model of the same
specification, stricter where both were compared.

Source: AsyncAPI 3.0.0.
"""

import copy
import json
import re
import warnings
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from sunk_events import subjects
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES
from sunk_events.codec import tag_of
from sunk_events.dead import DeadLetter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It names fields as pydantic's own methods are named.
    from asyncapi3.models.asyncapi import AsyncAPI3

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs/asyncapi.json").read_bytes())
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
KINDS = (*EVENTS, *STATES, *REQUESTS, *REPLIES)


def values(document: Any, name: str) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    """Yield every value that stands under *name*, anywhere in *document* but in its examples."""
    if isinstance(document, dict):
        for key, value in cast("dict[str, Any]", document).items():
            if key == name and isinstance(value, str):
                yield value
            if key != "examples":
                yield from values(value, name)
    if isinstance(document, list):
        for value in cast("list[Any]", document):
            yield from values(value, name)


def resolved(reference: str) -> Any:  # noqa: ANN401 - any JSON
    parts = reference.removeprefix("#/").split("/")
    return reduce(
        lambda at, part: at[part.replace("~1", "/").replace("~0", "~")], parts, cast("Any", DOCUMENT)
    )


def test_it_is_an_asyncapi_document() -> None:
    AsyncAPI3.model_validate(DOCUMENT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("asyncapi", "2.6.0", id="another version"),
        pytest.param("info", {"version": "1"}, id="no title"),
        pytest.param("channels/NodeDrained/adress", "x", id="an unknown field"),
        pytest.param("channels/NodeDrained/parameters/cluster/schema", {}, id="a parameter of 2.x"),
        pytest.param("operations/syncer_answer_NudgeJob/action", "publish", id="an action of 2.x"),
        pytest.param("operations/syncer_answer_NudgeJob/channel", 7, id="no channel"),
    ],
)
def test_what_checks_it_would_see_a_mistake(path: str, value: object) -> None:
    document = copy.deepcopy(DOCUMENT)
    *parents, last = path.split("/")
    reduce(dict[str, Any].__getitem__, parents, document)[last] = value

    with pytest.raises(ValidationError):
        AsyncAPI3.model_validate(document)


def test_every_reference_leads_somewhere() -> None:
    references = sorted(set(values(DOCUMENT, "$ref")))

    assert len(references) > len(KINDS)
    assert [reference for reference in references if not resolved(reference)] == []


@pytest.mark.parametrize("kind", KINDS, ids=tag_of)
def test_every_type_is_a_message_by_its_name_on_the_wire(kind: type) -> None:
    assert DOCUMENT["components"]["messages"][kind.__name__]["name"] == tag_of(kind)


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind is not DeadLetter], ids=tag_of)
def test_an_address_with_its_parameters_filled_in_is_what_services_subscribe_to(kind: type) -> None:
    address = str(DOCUMENT["channels"][kind.__name__]["address"])

    assert address.format(cluster="c1", entity="*") == subjects.facts("c1", kind)


def test_every_parameter_of_an_address_is_explained() -> None:
    problems = [
        name
        for name, channel in DOCUMENT["channels"].items()
        if set(re.findall(r"{(\w+)}", channel["address"] or "")) != set(channel.get("parameters", {}))
    ]

    assert problems == []


def test_every_operation_belongs_to_the_owner_of_what_it_sends_or_answers() -> None:
    owners = {kind.__name__: owner for kind, owner in (*EVENTS.items(), *STATES.items())}
    owners |= {kind.__name__: owner for kind, (owner, _) in REQUESTS.items()}

    assert {f"{owner}_{name}" for name, owner in owners.items()} == {
        "_".join(name.split("_")[::2]) for name in DOCUMENT["operations"]
    }


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_was_once_written_fits_the_payload_of_its_message(path: Path) -> None:
    written = json.loads(path.read_bytes())
    message = next(m for m in DOCUMENT["components"]["messages"].values() if m["name"] == written["type"])
    payload = resolved(message["payload"]["$ref"])
    registry = Registry[Any]().with_resource(
        "urn:sunk", Resource(contents=DOCUMENT, specification=DRAFT202012)
    )
    validator = Draft202012Validator(
        {"$ref": f"urn:sunk{message['payload']['$ref']}/schema"}, registry=registry
    )

    assert payload["schemaFormat"] == "application/schema+json;version=draft-2020-12"
    assert [problem.message for problem in validator.iter_errors(written)] == []  # pyright: ignore[reportUnknownMemberType] - jsonschema is partly untyped
