"""The API server, by the user's kubeconfig; and what to do about its refusals."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sunk_events.view import GROUP, ROLE, ROOT
from sunk_kube.api import Api, open_api
from sunk_kube.errors import KubeBusyError, KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_runtime.errors import SunkError

T = TypeVar("T", bound=msgspec.Struct)

TIMEOUT_S: Final = 30.0
_FORBIDDEN: Final = 403
_HEAD: Final = re.compile(r"^get \S+: HTTP (?P<status>\d+)(: )?")


class NoAnswerError(SunkError):
    """There is no answer; the text says why and what to do next, the status how the program ends."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


REFUSED: Final = 3
"""Exit status: the user may not."""
NOT_FOUND: Final = 4
"""Exit status: there is no such thing."""
NOT_NOW: Final = 5
"""Exit status: no answer now; again later."""


class Cluster:
    """The view behind one API server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.namespace: Final = api.namespace
        """That of the kubeconfig's context."""

    async def get(self, kind: type[T], path: str) -> T:
        """Return the answer at *path*. Raises `NoAnswerError`."""
        try:
            data = await self._api.send("GET", f"{ROOT}{path}")
        except SunkError as error:
            raise refusal(error, path) from error
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the answer is not of this version: {error}. Install the sunkctl of the release"
            raise NoAnswerError(message, 1) from error


def refusal(error: SunkError, path: str) -> NoAnswerError:
    """Return what *error* means to the user, and what to do next. Pure."""
    text = _HEAD.sub("", str(error))
    match error:
        case KubeNotFoundError():
            message = (
                f"this Kubernetes cluster has no API {GROUP}: an administrator sets view.enabled in "
                "helm/sunk (docs/sunkctl.md), or the kubeconfig names another cluster (--context)"
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


def _forbidden(text: str, path: str) -> str:
    if "ClusterRole" in text:
        return text  # sunk-view says what to do.
    if "/namespaces/" in path or path.startswith("/nodes"):
        return f"{text}. The ClusterRole {ROLE}-ask lets a user ask; the value view.groups says who has it"
    binding = f"kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user=USER"
    return f"{text}. Ask an administrator for the ClusterRole {ROLE}: {binding}"


@asynccontextmanager
async def opened(context: str, kubeconfig: Path | None) -> AsyncGenerator[Cluster]:
    """Yield the cluster of the user's kubeconfig. Raises `ConfigError`."""
    async with open_api("sunkctl", kubeconfig=kubeconfig, context=context, timeout_s=TIMEOUT_S) as api:
        yield Cluster(api)
