"""What a support bundle holds, and what was left out of it. Pure.

What must stay true: all of it went through `redaction`; it has a bounded size, and says itself what it lacks.
"""

import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from sunk_bus.words import safe
from sunk_ctl.redaction import DEPTH, Redactor
from sunk_ctl.refusals import REFUSED, NoAnswerError
from sunk_ctl.secret_names import is_secret
from sunk_ctl.secret_words import REDACTED

Json = Mapping[str, Any]
"""An object as JSON has it: support reads fields that no struct of ours knows."""

BYTES_MAX: Final = 100 * 2**20
"""Of all files, before they are packed."""
COMPUTE_PODS: Final = 50
"""Of NodeSets: so many have their logs in the bundle, the broken ones first."""
PART_OF: Final = "app.kubernetes.io/part-of"
_ANNOTATIONS: Final = re.compile(
    r"((.*\.)?(coreweave\.com|coreweave\.cloud)|(deployment|kubectl)\.kubernetes\.io)/"
)
"""Of ours, and revisions and restarts. Others may hold anything."""
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_ABOUT: Final = """\
Contents: states, logs, settings, versions and Events of SUNK, for support.

"[redacted]" replaces:
- the values of those Secrets of these namespaces that the command could read when it began. A value counts if
  it has 8 characters or more and is not a plain word;
- values whose names say that they are secret;
- keys, tokens and passwords in addresses.
The command may not recognise a short password in a sentence of a log. Names of users, jobs, Pods and nodes,
and addresses, are still here. Read the files before you send them.
"""


class Logs(msgspec.Struct, frozen=True):
    """One container whose log is wanted."""

    namespace: str
    pod: str
    node: str
    container: str
    is_previous: bool = False
    """Of the container that ended before the present one."""

    @property
    def file(self) -> str:
        """Where the log stands in the bundle."""
        end = ".previous.log" if self.is_previous else ".log"
        return f"namespaces/{self.namespace}/logs/{self.pod}/{self.container}{end}"


class Bundle:
    """Files by name, and what is missing. Further files are left out once there is too much."""

    def __init__(self) -> None:
        self.redactor = Redactor()
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []
        self.is_refused = False
        """Something is missing because the user may not read it."""
        self._size = 0

    def add_object(self, name: str, value: object) -> None:
        """Add *value*, of dicts, lists and scalars, as JSON."""
        found = msgspec.json.encode(self.redactor.value(value))
        self._add(name, msgspec.json.format(found, indent=2))

    def add_text(self, name: str, text: str, setting: str = "") -> None:
        """Add *text*, the value of a *setting*."""
        self._add(name, (REDACTED if is_secret(setting) else self.redactor.text(text)).encode())

    def leave_out(self, what: str, why: object) -> None:
        """Note that *what* is missing, because of an error or a bound."""
        self.is_refused |= isinstance(why, NoAnswerError) and why.status == REFUSED
        self.left_out.append(safe(self.redactor.text(f"{what}: {why}")))

    def packed(self, moment: datetime) -> bytes:
        """Return the archive (tar, gzip) of all files, in a folder that *moment* names."""
        folder = name_at(moment)
        missing = "\n".join(self.left_out) or "nothing"
        about = f"{_ABOUT}\nMissing:\n{missing}\n".encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, data in {"README.txt": about, **self.files}.items():
                entry = tarfile.TarInfo("/".join([folder, *map(_path, name.split("/"))]))
                entry.size, entry.mtime, entry.mode = len(data), int(moment.timestamp()), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return packed.getvalue()

    def _add(self, name: str, data: bytes) -> None:
        if self._size + len(data) > BYTES_MAX:
            self.leave_out(name, f"the bundle has reached its limit of {BYTES_MAX // 2**20} MiB")
            return
        self._size += len(data)
        self.files[self.redactor.text(name)] = data


def name_at(moment: datetime) -> str:
    """Return what a bundle of *moment* is called."""
    return f"sunk-support-{moment:%Y%m%dT%H%M%SZ}"


def manifest(found: Json) -> Json:
    """Return an object without managed fields, annotations of others, and a Node's list of images."""
    status = {key: value for key, value in part(found, "status").items() if key != "images"}
    return {**{key: _pruned(value) for key, value in found.items()}, "status": status}


def _pruned(value: object, depth: int = 0) -> object:
    if depth > DEPTH:
        return REDACTED
    if isinstance(value, list):
        return [_pruned(one, depth + 1) for one in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    return {
        key: _annotations(one) if key == "annotations" else _pruned(one, depth + 1)
        for key, one in fields.items()
        if key != "managedFields"
    }


def _annotations(found: object) -> object:
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, object]", found)
    return {key: value for key, value in fields.items() if _ANNOTATIONS.match(key) and key != _APPLIED}


def part(found: Json, name: str) -> Json:
    """Return a field that holds an object; an empty one if there is none."""
    value = found.get(name)
    return cast("Json", value) if isinstance(value, dict) else {}


def parts(found: Json, name: str) -> list[Json]:
    """Return the objects in a field that holds a list."""
    value = found.get(name)
    return (
        [cast("Json", one) for one in cast("list[object]", value) if isinstance(one, dict)]
        if isinstance(value, list)
        else []
    )


def namespaces(workloads: Iterable[Json]) -> list[str]:
    """Return the namespaces in which *workloads* of the charts are."""
    return sorted({part(found, "metadata").get("namespace", "") for found in workloads} - {""})


def time_of_event(event: Json) -> str:
    """Return when an Event was seen last, for sorting."""
    series, metadata = part(event, "series"), part(event, "metadata")
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(one) for one in (*times, metadata.get("creationTimestamp")) if one), "")


def broken_first(pods: Iterable[Json]) -> list[Json]:
    """Return *pods*, those that are not ready first."""
    return sorted(pods, key=lambda pod: (_is_ready(pod), part(pod, "metadata").get("name", "")))


def row(pod: Json) -> Json:
    """Return a Pod in a line."""
    return {
        "name": part(pod, "metadata").get("name", ""),
        "node": part(pod, "spec").get("nodeName", ""),
        "phase": part(pod, "status").get("phase", ""),
        "ready": _is_ready(pod),
        "restarts": sum(one.get("restartCount") or 0 for _, one in _containers(pod)),
    }


def logs(pod: Json) -> Iterator[Logs]:
    """Yield the logs of *pod*: of each container that has run, and of the one before it."""
    metadata = part(pod, "metadata")
    where = (metadata.get("namespace", ""), metadata.get("name", ""), part(pod, "spec").get("nodeName", ""))
    for name, status in _containers(pod):
        state, last = part(status, "state"), part(status, "lastState")
        if "running" in state or "terminated" in state or last:
            yield Logs(*where, name)
        if "terminated" in last:
            yield Logs(*where, name, is_previous=True)


def _containers(pod: Json) -> Iterator[tuple[str, Json]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in parts(part(pod, "status"), kind):
            yield status.get("name", ""), status


def _is_ready(pod: Json) -> bool:
    conditions = parts(part(pod, "status"), "conditions")
    return any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)


def _path(part: str) -> str:
    """Return *part* of a path as one that stays where it is unpacked."""
    found = _UNSAFE.sub("_", part)[:255]
    return found if found.strip(".") else "_"
