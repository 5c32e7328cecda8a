"""Errors, named after what the caller should do about them.

SunkError
├── TransientError        the other side may recover: try again later
│   ├── BusUnavailableError
│   │   └── FullError
│   ├── NoAnswerError
│   ├── SlurmUnavailableError (sunk_slurm)
│   └── KubeUnavailableError  (sunk_kube)
│       └── KubeUnauthorizedError
├── ConflictError         we acted on a stale view: look and decide again now
└── PermanentError        no retry can help: dead-letter it, or stop
    ├── ConfigError
    ├── JetStreamRejectedError
    ├── SlurmRejectedError (sunk_slurm)
    └── KubeRejectedError  (sunk_kube)
"""


class SunkError(Exception):
    """Anything that this project raises on purpose."""


class TransientError(SunkError):
    """The other side may recover. ``retry_after_s`` is how long it asked, or is worth, to wait."""

    retry_after_s: float

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConflictError(SunkError):
    """Somebody wrote in between: what was decided was decided on a stale view."""


class PermanentError(SunkError):
    """The same call would be refused for ever."""


class ConfigError(PermanentError):
    """A setting is wrong; the text names it and says what is allowed."""


class JetStreamRejectedError(PermanentError):
    """JetStream refused a call of its API; ``err_code`` is its own number for the reason."""

    err_code: int

    def __init__(self, message: str, *, err_code: int) -> None:
        super().__init__(message)
        self.err_code = err_code


class BusUnavailableError(TransientError):
    """NATS did not answer, or not in time. What was sent may still have been stored."""


class FullError(BusUnavailableError):
    """NATS has no space for it: nothing was stored, and nothing will be until somebody makes room."""


class NoAnswerError(TransientError):
    """Nobody answered a question: no leader yet, or it is busy. Never a "no"."""


class NoResponderError(NoAnswerError):
    """Nobody answers such questions: there is no leader, or it is of a version that does not know them."""


class LostLeadershipError(TransientError):
    """The lease ended, or may end before a write would."""
