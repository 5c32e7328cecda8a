"""Which replicas lead, and the last error in the log of one: one line, bounded, without secrets. Pure.

Services write JSON lines with ``time``, ``level``, ``message``, and often ``error`` (`sunk_runtime.logging`).
What a line says may hold texts that users wrote.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from sunk_ctl.redaction import Redactor
from sunk_events.base import Moment
from sunk_events.view import Status
from sunk_kube.resources import is_name

ERROR_CHARS: Final = 300
LINE_CHARS: Final = 64 * 1024
"""A longer line is no line of a service."""
_LEVELS: Final = frozenset({"error", "critical"})


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The replica of a service that leads."""

    service: str
    pod: str
    """Its Pod's name; sunk-view does not say in which namespace."""
    cluster: str = ""
    """Its Slurm cluster; empty: it serves several."""


class LastError(msgspec.Struct, frozen=True, kw_only=True):
    """The newest error in the log of a leader's Pod."""

    service: str
    cluster: str = ""
    """Its Slurm cluster; empty: it serves several."""
    pod: str
    """``namespace/name``."""
    at: Moment
    error: str


class LastErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The last errors, and of which Pods they are not known."""

    found: tuple[LastError, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be read, and why."""


class StatusReport(Status, frozen=True, kw_only=True):
    """What `sunkctl status -o json` prints: the answer of sunk-view, and what its users read themselves."""

    last_errors: LastErrors = LastErrors()


class _Line(msgspec.Struct, frozen=True):
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    level: str
    message: str
    error: Any = ""


def last_error(text: str) -> tuple[datetime, str] | None:
    """Return when a service has logged its last error, and which; None: there is none in *text*.

    Args:
        text: The log, each line behind the time at which Kubernetes took it, and a space.
    """
    for whole in reversed(text.split("\n")):
        written = whole.partition(" ")[2]
        if not written.startswith("{") or len(written) > LINE_CHARS:
            continue
        try:
            line = msgspec.json.decode(written, type=_Line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if line.level in _LEVELS:
            words = f"{line.message}: {line.error}" if line.error else line.message
            return line.time, Redactor().text(words.replace("\n", " "))[:ERROR_CHARS]
    return None


def leaders(found: Status) -> tuple[Leader, ...]:
    """Return the replicas that lead, each once: the nodeset-controller serves several Slurm clusters.

    A replica is named ``SERVICE-POD-PID`` (`sunk_runtime.lifecycle.identity`).
    """
    clusters: dict[tuple[str, str], list[str]] = {}
    for one in found.clusters:
        for row in one.services:
            pod = row.leader.removeprefix(f"{row.service}-").rpartition("-")[0]
            if is_name(pod):
                clusters.setdefault((row.service, pod), []).append(one.cluster)
    return tuple(
        Leader(service=service, pod=pod, cluster=served[0] if len(served) == 1 else "")
        for (service, pod), served in sorted(clusters.items())
    )


def without_leader(found: Status) -> tuple[str, ...]:
    """Return the services that no replica leads, each with its Slurm cluster."""
    rows = ((one.cluster, row) for one in found.clusters for row in one.services)
    return tuple(f"{row.service} of {cluster}" for cluster, row in rows if not row.leader)
