"""An answer of the API server that is no success, to the error that says what to do next; pure.

Source: Kubernetes API conventions, "HTTP Status codes" and "Error codes".
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from sunk_kube.errors import (
    KubeBusyError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    KubeRejectedError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)
from sunk_runtime.errors import ConflictError, SunkError

UNAUTHORIZED_RETRY_S: Final = 5.0
RETRY_LAST_S: Final = 30.0
"""A proxy that asks for an hour does not know what waits for us."""
_LATER: Final = frozenset({408})
_TOO_MANY: Final = 429
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_UID: Final = "metadata.uid"


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """What the API server answers instead of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def fields(self) -> frozenset[str]:
        """The fields that are to blame."""
        causes = (self.details and self.details.causes) or ()
        return frozenset(cause.field for cause in causes)


_decoder: Final = msgspec.json.Decoder(Status)


def refusal(doing: str, status: int, data: bytes, headers: Mapping[str, str]) -> SunkError:
    """Return the error for an answer with *status* that came when we were *doing* something."""
    answer = _read(data)
    text = f"{doing}: HTTP {status}" + (f": {answer.message}" if answer.message else "")
    if status == _TOO_MANY:
        return KubeBusyError(text, retry_after_s=_retry_after(headers))
    if status in _LATER or status >= _SERVER_ERROR or status < _REFUSED:  # A redirect is no API server.
        return KubeUnavailableError(text, retry_after_s=_retry_after(headers))
    match status:
        case 401:  # The token has just rotated, or will: a restart would not help either.
            error = KubeUnauthorizedError(text, retry_after_s=UNAUTHORIZED_RETRY_S)
        case 404:
            error = KubeNotFoundError(text)
        case 409 if answer.reason == "AlreadyExists":
            error = KubeExistsError(text)
        case 410:
            error = KubeGoneError(text)
        case 409:
            error = ConflictError(text)
        case 422 if _UID in answer.fields:  # A patch that named another object's uid.
            error = ConflictError(text)
        case _:
            error = KubeRejectedError(text, status=status)
    return error


def _read(data: bytes) -> Status:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status()  # A proxy's page, or nothing.


def _retry_after(headers: Mapping[str, str]) -> float:
    value = headers.get("Retry-After", "")
    return min(float(value), RETRY_LAST_S) if value.isascii() and value.isdigit() else 1.0
