"""Facts as somebody sees them who knows CloudEvents 1.0.2 and nothing of us.

Source: CloudEvents 1.0.2, "Context Attributes" and "JSON Event Format".
"""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from sunk_events.catalog import EVENTS
from sunk_events.codec import tag_of
from sunk_events.nodes import NodeDrained

GOLDEN = Path(__file__).parent / "golden"
REQUIRED = {"id", "source", "specversion", "type"}
OPTIONAL = {"datacontenttype", "dataschema", "subject", "time"}
EXTENSIONS = {"cause"}


@pytest.fixture(params=sorted(tag_of(kind) for kind in EVENTS))
def event(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{request.param}.json").read_bytes())


def test_the_required_attributes_are_there_and_are_text(event: dict[str, Any]) -> None:
    assert [name for name in REQUIRED if not isinstance(event.get(name), str) or not event[name]] == []
    assert event["specversion"] == "1.0"


def test_nothing_stands_beside_attributes_known_extensions_and_data(event: dict[str, Any]) -> None:
    assert event.keys() - REQUIRED - OPTIONAL - {"data"} <= EXTENSIONS


def test_attribute_names_are_lower_case_letters_and_digits(event: dict[str, Any]) -> None:
    assert [name for name in event if not re.fullmatch(r"[a-z0-9]{1,20}", name)] == []


def test_the_source_is_a_uri_reference_that_names_cluster_and_service(event: dict[str, Any]) -> None:
    parts = urlsplit(str(event["source"]))

    assert re.fullmatch(r"/[a-z0-9-]+/[a-z0-9-]+", parts.path)
    assert parts.path == event["source"]


def test_the_time_is_rfc_3339_in_utc(event: dict[str, Any]) -> None:
    assert event["time"].endswith("Z")
    assert datetime.fromisoformat(event["time"]).tzinfo is not None


def test_data_is_a_json_object_and_says_so(event: dict[str, Any]) -> None:
    assert event["datacontenttype"] == "application/json"
    assert isinstance(event["data"], dict)


def test_the_subject_is_the_entity_and_is_text(event: dict[str, Any]) -> None:
    assert isinstance(event["subject"], str)
    assert event["subject"]


def test_the_sdk_of_cloudevents_reads_the_same_attributes_and_data(event: dict[str, Any]) -> None:
    read = JSONFormat().read(CloudEvent, json.dumps(event))
    attributes = {name: value for name, value in event.items() if name != "data"}

    assert {**read.get_attributes(), "time": event["time"]} == attributes
    assert read.get_time() == datetime.fromisoformat(event["time"])
    assert read.get_extension("cause") == event["cause"]
    assert read.get_data() == event["data"]


def test_the_sdk_of_cloudevents_takes_it_over_http_in_structured_mode(event: dict[str, Any]) -> None:
    headers = {"content-type": "application/cloudevents+json"}
    read = from_http_event(HTTPMessage(headers, json.dumps(event).encode()))

    assert (read.get_id(), read.get_type()) == (event["id"], event["type"])


@pytest.mark.parametrize("name", ["source", "type"])
def test_the_sdk_of_cloudevents_would_see_an_attribute_missing(name: str) -> None:
    event = json.loads((GOLDEN / f"{tag_of(NodeDrained)}.json").read_bytes())
    del event[name]

    with pytest.raises(CloudEventValidationError, match=name):
        JSONFormat().read(CloudEvent, json.dumps(event))
