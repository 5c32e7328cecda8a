"""What a support bundle holds, and what was left out of it. Pure.

What must stay true: no object of kind Secret is in it; all of it went through `redaction`; it has a bounded
size, and says itself what it lacks.
"""

import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from sunk_ctl.redaction import DEPTH, REDACTED, is_secret, redacted, redacted_object
from sunk_kube import wellknown as wk

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
What this holds: states, logs, settings, versions and Events of SUNK, for support.

No object of kind Secret was read. Values whose names say that they are secret, keys, tokens and passwords in
addresses were replaced by "[redacted]". A password that stands alone in a sentence of a log is not
recognised. Names of users, jobs, Pods, nodes and addresses are still here. Read the files before you send
them.
"""


class Logs(msgspec.Struct, frozen=True):
    """One container whose log is wanted."""

    namespace: str
    pod: str
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
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []
        self._size = 0

    def add_object(self, name: str, value: object) -> None:
        """Add *value*, of dicts, lists and scalars, as JSON."""
        self._add(name, msgspec.json.format(msgspec.json.encode(redacted_object(value)), indent=2))

    def add_text(self, name: str, text: str, setting: str = "") -> None:
        """Add *text*, the value of a *setting*."""
        self._add(name, (REDACTED if is_secret(setting) else redacted(text)).encode())

    def leave_out(self, what: str, why: object) -> None:
        """Note that *what* is missing, because of an error or a bound."""
        self.left_out.append(redacted(f"{what}: {why}"))

    def packed(self, moment: datetime) -> bytes:
        """Return the archive (tar, gzip) of all files, in a folder that *moment* names."""
        folder = name_at(moment)
        missing = "\n".join(self.left_out) or "nothing"
        about = f"{_ABOUT}\nMissing:\n{missing}\n".encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, data in {"README.txt": about, **self.files}.items():
                entry = tarfile.TarInfo("/".join([folder, *map(_safe, name.split("/"))]))
                entry.size, entry.mtime, entry.mode = len(data), int(moment.timestamp()), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return packed.getvalue()

    def _add(self, name: str, data: bytes) -> None:
        if self._size + len(data) > BYTES_MAX:
            self.leave_out(name, f"the bundle has its {BYTES_MAX // 2**20} MiB")
            return
        self._size += len(data)
        self.files[name] = data


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
    """Return a field that holds an object; an empty one if it is not there."""
    return found.get(name) or {}


def namespaces(workloads: Iterable[Json]) -> list[str]:
    """Return the namespaces in which *workloads* of the charts are."""
    return sorted({found["metadata"]["namespace"] for found in workloads})


def ours(pods: Iterable[Json]) -> tuple[list[Json], list[Json]]:
    """Return the charts' own Pods, and those of NodeSets, broken ones first."""
    own: list[Json] = []
    compute: list[Json] = []
    for pod in pods:
        labels = part(part(pod, "metadata"), "labels")
        if wk.LABEL_NODESET in labels:
            compute.append(pod)
        elif labels.get(PART_OF) == "sunk":
            own.append(pod)
    return own, sorted(compute, key=lambda pod: (_is_ready(pod), pod["metadata"]["name"]))


def row(pod: Json) -> Json:
    """Return a Pod in a line."""
    return {
        "name": pod["metadata"]["name"],
        "node": part(pod, "spec").get("nodeName", ""),
        "phase": part(pod, "status").get("phase", ""),
        "ready": _is_ready(pod),
        "restarts": sum(one.get("restartCount", 0) for _, one in _containers(pod)),
    }


def logs(pod: Json) -> Iterator[Logs]:
    """Yield the logs of *pod*: of each container that has run, and of the one before it."""
    metadata = pod["metadata"]
    for name, status in _containers(pod):
        state, last = part(status, "state"), part(status, "lastState")
        if "running" in state or "terminated" in state or last:
            yield Logs(metadata["namespace"], metadata["name"], name)
        if "terminated" in last:
            yield Logs(metadata["namespace"], metadata["name"], name, is_previous=True)


def _containers(pod: Json) -> Iterator[tuple[str, Json]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in part(pod, "status").get(kind) or ():
            yield status["name"], status


def _is_ready(pod: Json) -> bool:
    conditions = part(pod, "status").get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _safe(part: str) -> str:
    """Return *part* of a path as one that stays where it is unpacked."""
    found = _UNSAFE.sub("_", part)[:200]
    return found if found.strip(".") else "_"
