"""What refusals of the API server mean to the user, and what to do next. Pure."""

import re
from typing import Final

from sunk_events.view import GROUP, ROLE
from sunk_kube.errors import KubeBusyError, KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_runtime.errors import SunkError

REFUSED: Final = 3
"""Exit status: the user may not."""
NOT_FOUND: Final = 4
"""Exit status: there is no such thing."""
NOT_NOW: Final = 5
"""Exit status: no answer now; again later."""
_FORBIDDEN: Final = 403
_HEAD: Final = re.compile(r"^[a-z]+ \S+: HTTP (?P<status>\d+)(: )?")


class NoAnswerError(SunkError):
    """There is no answer; the text says why and what to do next, the status how the program ends."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


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
        case KubeUnavailableError():
            message = f"no answer: {text or error}. Try again; kubectl get apiservices shows {GROUP}"
            return NoAnswerError(message, NOT_NOW)
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
        case KubeUnavailableError():
            return NoAnswerError(f"no answer: {text or error}. It may have happened: try again", NOT_NOW)
        case _:
            return NoAnswerError(text or str(error), 1)


def of_reading(error: SunkError) -> NoAnswerError:
    """Return what *error* of the API server means to a user who wanted to read something."""
    if isinstance(error, KubeUnavailableError):
        return NoAnswerError(f"no answer: {_HEAD.sub('', str(error)) or error}", NOT_NOW)
    return of_kubernetes(error, "")


def _forbidden(text: str, path: str) -> str:
    if "ClusterRole" in text:
        return text  # sunk-view says what to do.
    if "/namespaces/" in path or path.startswith("/nodes"):
        return f"{text}. The ClusterRole {ROLE}-ask lets a user ask; the value view.groups says who has it"
    binding = f"kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user=USER"
    return f"{text}. Ask an administrator for the ClusterRole {ROLE}: {binding}"
