"""Answers as HTTP has them; a refusal is a ``Status`` of Kubernetes, whose message kubectl shows. Pure."""

import math
from typing import Any, Final

import msgspec

from sunk_events.view import ROLE

JSON: Final = "application/json"
REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A status with its body."""

    status: int = 200
    body: Any
    """A struct or what JSON has."""
    retry_after_s: float = 0.0

    @property
    def headers(self) -> dict[str, str]:
        """Headers besides the usual ones."""
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))} if self.retry_after_s else {}


def refusal(status: int, message: str, *, retry_after_s: float = 0.0) -> Answer:
    """Return why there is no answer, in Kubernetes' form."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(status, ""),
        "code": status,
    }
    return Answer(status=status, body=body, retry_after_s=retry_after_s)


def forbidden(user: str, right: str, *, is_own: bool) -> Answer:
    """Return that *user* lacks *right*, and what to do about it.

    Args:
        user: As Kubernetes has it.
        right: Which right of Kubernetes is missing.
        is_own: It is one of our own group, which a ClusterRole of the chart grants.
    """
    remedy = (
        f"ask an administrator for the ClusterRole {ROLE} (kubectl create clusterrolebinding)"
        if is_own
        else "ask an administrator for that right, such as the ClusterRole view in that namespace"
        if "in namespace" in right
        else f"ask an administrator for that right; the ClusterRole {ROLE} has it"
    )
    return refusal(403, f"user {user} may not {right}: {remedy}")
