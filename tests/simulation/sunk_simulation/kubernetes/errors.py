# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What an API server refuses: the Status that it answers instead of an object."""

from collections.abc import Mapping
from typing import Any, Final

from sunk_simulation.kubernetes.kinds import Kind

_CODES: Final[Mapping[str, int]] = {
    "BadRequest": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Expired": 410,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}


class StatusError(Exception):
    """It refuses, for a *reason* that Kubernetes has a word for."""

    def __init__(
        self, reason: str, message: str, *, fields: Mapping[str, str] | None = None, retry_after_s: int = 0
    ) -> None:
        """Describe it; *fields*: what is wrong with each."""
        super().__init__(message)
        self.code: Final = _CODES[reason]
        self.reason: Final = reason
        self.message: Final = message
        self.fields: Final = dict(fields or {})
        self.retry_after_s: Final = retry_after_s

    def status(self) -> dict[str, Any]:
        """Return the answer."""
        causes = [{"field": field, "message": text} for field, text in self.fields.items()]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"causes": causes, "retryAfterSeconds": self.retry_after_s},
            "code": self.code,
        }


def not_found(kind: Kind, name: str) -> StatusError:
    """Return that there is none of that name."""
    return StatusError("NotFound", f'{kind.resource} "{name}" not found')


def conflict(kind: Kind, name: str, why: str) -> StatusError:
    """Return that it is not as it was thought to be."""
    return StatusError("Conflict", f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}')


def stale(kind: Kind, name: str) -> StatusError:
    """Return that it has another resourceVersion by now."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: Kind, name: str, fields: Mapping[str, str]) -> StatusError:
    """Return that it would not be valid: what is wrong with each of *fields*."""
    text = ", ".join(f"{field}: {wrong}" for field, wrong in fields.items())
    word = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return StatusError("Invalid", f'{word} "{name}" is invalid: {text}', fields=fields)


def forbidden(kind: Kind, name: str, why: str) -> StatusError:
    """Return that it is not allowed."""
    return StatusError("Forbidden", f'{kind.resource} "{name}" is forbidden: {why}')
