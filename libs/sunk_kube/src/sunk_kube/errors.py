"""What the API server can answer, named after what the caller should do next.

A ``409`` is `sunk_runtime.errors.ConflictError` itself, or one of its two kinds below.
"""

from sunk_runtime.errors import ConflictError, PermanentError, TransientError


class KubeUnavailableError(TransientError):
    """The API server is away, overloaded (429, 5xx) or too slow: try again. The write may have happened."""


class KubeBusyError(KubeUnavailableError):
    """The API server asks for quiet (429), or a disruption budget forbids an eviction: nothing was done."""


class KubeUnauthorizedError(KubeUnavailableError):
    """The API server does not know who asks (401): nothing was done. Credentials are read again meanwhile."""


class KubeRejectedError(PermanentError):
    """The API server refuses, and would again. The text holds its own message; *status* its HTTP status."""

    status: int

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class KubeNotFoundError(KubeRejectedError):
    """There is no such object."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class KubeExistsError(ConflictError):
    """An object of that name exists already."""


class KubeGoneError(ConflictError):
    """The resourceVersion that we go on from is too old: list again."""
