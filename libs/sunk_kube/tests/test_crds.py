from typing import Any, cast

from sunk_kube.crds import nodeset_crd


def _schemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema]
    nested = [
        *cast("dict[str, Any]", schema.get("properties", {})).values(),
        *(schema[name] for name in ("items", "additionalProperties") if name in schema),
    ]
    for child in nested:
        found.extend(_schemas(child))
    return found


def test_the_schema_is_structural() -> None:
    root = nodeset_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    for schema in _schemas(root):
        assert "type" in schema
        assert not {"$ref", "anyOf", "default", "title"} & schema.keys()


def test_scaling_reads_and_writes_fields_that_exist() -> None:
    version = nodeset_crd()["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    scale = version["subresources"]["scale"]

    for path in scale.values():
        _, part, name = path.split(".")
        assert name in properties[part]["properties"]
    for column in version["additionalPrinterColumns"]:
        _, part, name = column["jsonPath"].split(".")
        assert part == "metadata" or name in properties[part]["properties"]
