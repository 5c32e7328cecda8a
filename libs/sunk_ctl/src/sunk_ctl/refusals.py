"""What refusals of the API server mean to the user, and what to do next. Pure."""

import re
from typing import Final

from sunk_events.view import GROUP, ROLE
from sunk_kube.errors import (
    KubeBusyError,
    KubeNotFoundError,
    KubeRejectedError,
    KubeUnauthorizedError,
    KubeUnavailableError,
)
from sunk_runtime.errors import SunkError

REFUSED: Final = 3
"""Exit status: the user may not, or is not known."""
NOT_FOUND: Final = 4
"""Exit status: there is no such thing."""
NOT_NOW: Final = 5
"""Exit status: no answer now; again later."""
_FORBIDDEN: Final = 403
_OF_FRONT_PROXY: Final = re.compile(r"\bfront proxy\b|\bKubernetes API server\b")
"""In a 401 of the view, which knows no user: the API server did not say who asks."""
_OF_VIEW: Final = ("not now: ", "too many questions ")
"""So a 503 of the view begins: the API server reaches it."""
_SILENT: Final = "not now: the bus has been silent "
_NATS: Final = "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=sunk-nats"
_HEAD: Final = re.compile(r"^[a-z]+ \S+: HTTP (?P<status>\d+)(: )?")


class NoAnswerError(SunkError):
    """There is no answer; the text says why and what to do next, the status how the program ends."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def may_pass(self) -> bool:
        """Whether the same question may have an answer later."""
        return self.status == NOT_NOW


class LoggedOutError(NoAnswerError):
    """The API server does not know the user: nothing was read or changed."""

    def __init__(self) -> None:
        message = "the API server does not know you: log in again, or name another --context"
        super().__init__(message, REFUSED)

    @property
    def may_pass(self) -> bool:
        """Credentials are read again, for a token that a plugin renews."""
        return True


def refusal(error: SunkError, path: str) -> NoAnswerError:
    """Return what *error* of the view means to the user, and what to do next."""
    text = _HEAD.sub("", str(error))
    match error:
        case KubeNotFoundError():
            message = (
                f"this Kubernetes cluster has no API {GROUP}, or an older one: an administrator "
                "sets view.enabled in helm/sunk (docs/sunkctl.md), or the kubeconfig names another cluster "
                "(--context)"
            )
            return NoAnswerError(message, NOT_NOW)
        case KubeRejectedError(status=status) if status == _FORBIDDEN:
            return NoAnswerError(_forbidden(text, path), REFUSED)
        case KubeBusyError():
            return NoAnswerError(f"{text}. Wait {error.retry_after_s:.0f} s", NOT_NOW)
        case KubeUnauthorizedError() if not _OF_FRONT_PROXY.search(text):
            return LoggedOutError()
        case KubeUnavailableError():
            return NoAnswerError(f"no answer: {text or error}. {_next_step(text)}", NOT_NOW)
        case _:
            return NoAnswerError(text or str(error), 1)


def of_kubernetes(error: SunkError, resources: str = "nodes") -> NoAnswerError:
    """Return what *error* of the API server itself means.

    Args:
        error: What the API server answered.
        resources: Those that the command needs, as kubectl has them; empty: many.
    """
    text = _HEAD.sub("", str(error))
    match error:
        case KubeRejectedError(status=status) if status == _FORBIDDEN:
            role = f"kubectl create clusterrole NAME --verb=get,list,patch --resource={resources}"
            hint = f". A ClusterRole that has it: {role}" if resources else ""
            return NoAnswerError(f"{text}{hint}", REFUSED)
        case KubeUnauthorizedError():
            return LoggedOutError()
        case KubeUnavailableError():
            return NoAnswerError(f"no answer: {text or error}. It may have happened: try again", NOT_NOW)
        case _:
            return NoAnswerError(text or str(error), 1)


def of_reading(error: SunkError) -> NoAnswerError:
    """Return what *error* of the API server means to a user who wanted to read something."""
    if isinstance(error, KubeUnavailableError) and not isinstance(error, KubeUnauthorizedError):
        return NoAnswerError(f"no answer: {_HEAD.sub('', str(error)) or error}", NOT_NOW)
    return of_kubernetes(error, "")


def _next_step(text: str) -> str:
    """Return what to do about an answer 503 with *text*, which the view itself may have given."""
    if text.startswith(_SILENT):
        return f"sunkctl doctor says what is wrong; the Pods of NATS: {_NATS}"
    if text.startswith(_OF_VIEW):
        return "Try again; sunkctl doctor says what is wrong"
    return f"Try again; kubectl get apiservices shows {GROUP}"


def _forbidden(text: str, path: str) -> str:
    if "ClusterRole" in text:
        return text  # sunk-view says what to do.
    if "/namespaces/" in path or path.startswith("/nodes"):
        return f"{text}. The ClusterRole {ROLE}-ask lets a user ask; the value view.groups says who has it"
    binding = f"kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user=USER"
    return f"{text}. Ask an administrator for the ClusterRole {ROLE}: {binding}"
