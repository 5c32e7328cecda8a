"""Writes the custom resource definitions of the charts, and their page, from the structs that our code reads.

``--check`` writes nothing and fails if a file is not what the code says.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from generated import settle

from sunk_kube.crds import crds
from sunk_kube.templates import Schema

CRDS: Final = Path("helm/sunk/files/crds")
PAGE: Final = Path("docs/nodesets.md")
AS_KUBERNETES_HAS_IT: Final = frozenset(
    {"spec.template.metadata", "spec.template.spec", "status.conditions[]"}
)
"""Fields whose own fields are Kubernetes', and are not listed."""
INTRO: Final = """# NodeSets and NodeSlices

`./task gen` writes this page from the custom resource definitions; do not edit it by hand.
`kubectl explain nodeset.spec` shows the same for the cluster that you use.

helm/slurm makes a NodeSet of each set in `compute.nodes`
([sets of nodes](../helm/slurm/README.md#sets-of-nodes)), so most administrators never write one.
[kubernetes-events.md](kubernetes-events.md) lists the conditions and Events of NodeSets.
"""
HEAD: Final = "# Generated from the structs of sunk_kube by ./task gen; not edited by hand.\n"


class _Dumper(yaml.SafeDumper):
    """Writes what stands in two places twice: no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    @classmethod
    def text(cls, crd: Schema) -> str:
        return yaml.dump(crd, Dumper=cls, sort_keys=False, width=110)


def page() -> str:
    """Return the page with each field of each kind."""
    return INTRO + "".join(_kind(crd) for crd in crds())


def _kind(crd: Schema) -> str:
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    rows = "".join(
        f"| `{name}` | {kind} | {text} |\n"
        for name, kind, text in _fields(schema, "")
        if kind != "object" or text
    )
    names = crd["spec"]["names"]
    return f"""
## {names["kind"]}

{schema["description"]} `{crd["spec"]["group"]}/{version["name"]}`; short name `{names["shortNames"][0]}`.

| field | type | meaning |
| --- | --- | --- |
{rows}"""


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, type and meaning of each field below *schema*."""
    for name, field in schema.get("properties", {}).items():
        yield from _field(field, f"{path}.{name}" if path else name)


def _field(field: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    values = ", ".join(f"`{value}`" for value in field.get("enum", ()))
    kind = "integer or string" if field.get("x-kubernetes-int-or-string") else str(field.get("type", ""))
    items = field.get("items", {})
    if kind == "array":
        kind = f"list of {items.get('type', 'object')}s"
    yield path, values or kind, " ".join(str(field.get("description", "")).split())
    if path in AS_KUBERNETES_HAS_IT:
        return
    yield from _fields(field, path)
    if f"{path}[]" not in AS_KUBERNETES_HAS_IT:
        yield from _fields(items, f"{path}[]")
    values_of: Schema | bool | None = field.get("additionalProperties")
    if values_of and not isinstance(values_of, bool):
        yield from _fields(values_of, f"{path}.*")


def files() -> dict[Path, str]:
    """Return what each file must hold."""
    made = {CRDS / f"{crd['spec']['names']['singular']}.yaml": HEAD + _Dumper.text(crd) for crd in crds()}
    return made | {PAGE: page()}


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(files(), arguments, CRDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
