# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What an API server looks at in an object before it stores it: names, labels, structural schemas; pure.

Rules in CEL are not evaluated.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sunk_simulation.kubernetes.kinds import Kind, Object

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_FINALIZER: Final = _KEY
_ANNOTATIONS_MAX: Final = 256 << 10
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}
Schema = Mapping[str, Any]


def wrong_meta(kind: Kind, meta: Object) -> dict[str, str]:
    """Return what is wrong with an object's metadata, by field."""
    found: dict[str, str] = {}
    name = meta["name"]
    pattern = re.compile(r"[^/%]+") if kind.resource == "events" else _NAME
    if not pattern.fullmatch(name):
        found["metadata.name"] = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of …'
    for label, value in (meta.get("labels") or {}).items():
        if not _KEY.fullmatch(label):
            found["metadata.labels"] = f'Invalid value: "{label}": name part must consist of alphanumeric …'
        elif not isinstance(value, str) or not _VALUE.fullmatch(value):
            found["metadata.labels"] = f'Invalid value: "{value}": a valid label must be an empty string or …'
    annotations = meta.get("annotations") or {}
    if sum(len(one.encode()) + len(text.encode()) for one, text in annotations.items()) > _ANNOTATIONS_MAX:
        found["metadata.annotations"] = f"Too long: may not be more than {_ANNOTATIONS_MAX} bytes"
    for annotation in annotations:
        if not _KEY.fullmatch(annotation):
            found["metadata.annotations"] = f'Invalid value: "{annotation}": name part must consist of …'
    for finalizer in meta.get("finalizers") or []:
        if not _FINALIZER.fullmatch(finalizer):
            found["metadata.finalizers"] = f'Invalid value: "{finalizer}": name part must consist of …'
    return found


def wrong(value: Any, schema: Schema, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a custom object, each with its field."""
    wanted = schema.get("type")
    if wanted and not _is_of(value, wanted):
        yield field, f'Invalid value: "{type(value).__name__}": must be of type {wanted}'
        return
    match value:
        case dict():
            yield from _wrong_table(value, schema, field)
        case list():
            yield from _wrong_size(len(value), schema, field, "Items")
            for index, one in enumerate(value):
                yield from wrong(one, schema.get("items") or {}, f"{field}[{index}]")
        case str():
            yield from _wrong_text(value, schema, field)
        case int() | float():
            least, most = schema.get("minimum", value), schema.get("maximum", value)
            if value < least:
                yield field, f"Invalid value: {value}: should be greater than or equal to {least}"
            if value > most:
                yield field, f"Invalid value: {value}: should be less than or equal to {most}"
        case _:
            return


def _wrong_text(value: str, schema: Schema, field: str) -> Iterator[tuple[str, str]]:
    yield from _wrong_size(len(value), schema, field, "Length")
    pattern = schema.get("pattern")
    if pattern and not re.search(pattern, value):
        yield field, f"Invalid value: \"{value}\": should match '{pattern}'"
    if value not in schema.get("enum", [value]):
        yield field, f'Unsupported value: "{value}"'


def _is_of(value: Any, wanted: str) -> bool:
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _wrong_table(value: Object, schema: Schema, field: str) -> Iterator[tuple[str, str]]:
    known: Schema = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            yield _inside(field, name), "Required value"
    for name, part in value.items():
        if name in known:
            yield from wrong(part, known[name], _inside(field, name))
        elif isinstance(others, dict):
            yield from wrong(part, others, _inside(field, name))


def _wrong_size(size: int, schema: Schema, field: str, of: str) -> Iterator[tuple[str, str]]:
    what = {"Items": "items", "Length": "chars long"}[of]
    least, most = schema.get(f"min{of}", 0), schema.get(f"max{of}", size)
    if size < least:
        yield field, f"Invalid value: {size}: should be at least {least} {what}"
    if size > most:
        yield field, f"Too many: {size}: may not be more than {most} {what}"


def _inside(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def pruned(value: Any, schema: Schema, *, is_root: bool = True) -> Any:
    """Return a custom object without nulls, and without what its schema does not know."""
    if isinstance(value, list):
        return [pruned(one, schema.get("items") or {}, is_root=False) for one in value]
    if not isinstance(value, dict):
        return value
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    known: Schema = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    found: Object = {}
    for name, part in value.items():
        if is_root and name in {"apiVersion", "kind", "metadata"}:
            found[name] = part
        elif part is None:
            continue
        elif name in known:
            found[name] = pruned(part, known[name], is_root=False)
        elif others:
            found[name] = pruned(part, others if isinstance(others, dict) else {}, is_root=False)
    return found
