from typing import Any, cast

import pytest

from sunk_kube.crds import crds, nodeset_crd


def _schemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema]
    nested = [
        *cast("dict[str, Any]", schema.get("properties", {})).values(),
        *(schema[name] for name in ("items", "additionalProperties") if name in schema),
    ]
    for child in nested:
        found.extend(_schemas(child))
    return found


def _root(crd: dict[str, Any]) -> dict[str, Any]:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("crd", crds(), ids=lambda crd: crd["metadata"]["name"])
def test_the_schema_is_structural_and_changes_nothing_that_is_stored(crd: dict[str, Any]) -> None:
    for schema in _schemas(_root(crd)):
        assert "type" in schema or schema["x-kubernetes-int-or-string"]
        assert not {"$ref", "default", "title"} & schema.keys()


def test_every_field_of_ours_is_explained() -> None:
    properties = _root(nodeset_crd())["properties"]
    fields = {**properties["spec"]["properties"], **properties["status"]["properties"]}

    assert [name for name, schema in fields.items() if not schema.get("description")] == []


def test_scaling_reads_and_writes_fields_that_exist() -> None:
    version = nodeset_crd()["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    scale = version["subresources"]["scale"]

    for path in scale.values():
        _, part, name = path.split(".")
        assert name in properties[part]["properties"]
    for column in version["additionalPrinterColumns"]:
        _, part, name = column["jsonPath"].split("[")[0].split(".")
        assert part == "metadata" or name in properties[part]["properties"]


def test_the_columns_are_those_of_the_documents() -> None:
    columns = nodeset_crd()["spec"]["versions"][0]["additionalPrinterColumns"]

    assert [column["name"].upper() for column in columns if not column["priority"]] == [
        "DESIRED",
        "FEASIBLE",
        "CURRENT",
        "READY",
        "RUNNING",
        "DRAIN",
        "UPDATED",
        "AGE",
    ]
