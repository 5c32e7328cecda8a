"""The guide for Pods (docs/pods.md): its examples are valid, its messages are the code's."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sunk_kube.pods import Pod
from sunk_kube.wellknown import PREFIX
from sunk_lab.pages import fenced, table_rows
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec import annotations
from sunk_pod_scheduler.podspec.namespace_policy import Grant, Policy
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import KEY

PAGE = (Path(__file__).parents[4] / "docs/pods.md").read_text()
BLOCKS: list[dict[str, Any]] = [yaml.safe_load(text) for text in fenced(PAGE, "yaml")]
(FIRST,) = (block for block in BLOCKS if "kind" in block)
(VALUES,) = (block for block in BLOCKS if "scheduler" in block)
EXAMPLES = [block for block in BLOCKS if "annotations" in block.get("metadata", {})]
GRANTS = msgspec.convert(VALUES["scheduler"]["policyByNamespace"], dict[str, Grant])
RULES = Rules(policy=Policy(namespaces=GRANTS))
MADE = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)
SECTIONS = {
    name: text for name in annotations.RULES for text in re.findall(rf"(?ms)^### {name}\n(.*?)(?=^##)", PAGE)
}
REFUSED = [
    (name, written.replace("⏎", "\n"), message)
    for name, text in SECTIONS.items()
    for written, reason, message in table_rows(text, "You write")
    if reason == "ValidationFailed"
]
BROKEN: dict[str, dict[str, Any]] = {
    "no CPU request": {"containers": [{"name": "a", "resources": {"requests": {"memory": "1Gi"}}}]},
    "no memory request": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
    "the grace period is too long": {"terminationGracePeriodSeconds": 25},
    "the grace period is 0": {"terminationGracePeriodSeconds": 0},
    "claimed devices": {"resourceClaims": [{"name": "gpu"}]},
    "a resource that Slurm does not count": {
        "containers": [
            {
                "name": "a",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/fpga": "1"}},
            }
        ]
    },
}


def pod(written: dict[str, str], **spec: object) -> Pod:
    """Return the guide's first Pod with annotations, which must be strings as for the API server."""
    metadata = FIRST["metadata"] | {"annotations": written, "uid": "some-uid"}
    return msgspec.convert(FIRST | {"metadata": metadata, "spec": FIRST["spec"] | spec}, Pod)


def test_each_annotation_has_a_section_with_meaning_format_default_option_example_and_failures() -> None:
    assert SECTIONS.keys() == annotations.RULES.keys()
    parts = (
        "- **Meaning:** ",
        "- **Format:** ",
        "- **Default:** ",
        "- **Slurm's option:** ",
        "| You write |",
    )
    for name, text in SECTIONS.items():
        assert [part for part in parts if part not in text] == [], name
        (example,) = fenced(text, "yaml")
        assert list(yaml.safe_load(example)["metadata"]["annotations"]) == [PREFIX + name]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda found: "+".join(found["metadata"]["annotations"]))
def test_each_example_is_accepted_and_becomes_a_job(example: dict[str, Any]) -> None:
    found = pod(example["metadata"]["annotations"])

    wanted = validate(found, RULES)

    assert isinstance(wanted, ValidatedPod), wanted
    assert describe(found, wanted, NodeChoice(), 0, MADE).name == "ml/infer"


def test_the_first_pod_is_accepted_as_it_stands() -> None:
    assert isinstance(validate(pod({}), RULES), ValidatedPod)


@pytest.mark.parametrize(("name", "written", "message"), REFUSED)
def test_each_message_of_the_guide_is_the_codes(name: str, written: str, message: str) -> None:
    assert validate(pod({PREFIX + name: written}), RULES) == (message,)


def test_the_other_errors_of_the_guide_have_the_codes_messages() -> None:
    rows = {what: (message,) for what, message in table_rows(PAGE, "What is wrong")}

    assert {what: validate(pod({}, **spec), RULES) for what, spec in BROKEN.items()} == rows
