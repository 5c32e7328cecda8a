"""The API server, by the user's kubeconfig: the view behind it, and Nodes."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sunk_ctl.refusals import NoAnswerError, refusal
from sunk_events.view import ROOT
from sunk_kube.api import Api, open_api
from sunk_runtime.errors import SunkError

T = TypeVar("T", bound=msgspec.Struct)

TIMEOUT_S: Final = 30.0


class Cluster:
    """The view behind one API server, and the API server itself."""

    def __init__(self, api: Api) -> None:
        self.api: Final = api
        self.namespace: Final = api.namespace
        """That of the kubeconfig's context."""

    async def get(self, kind: type[T], path: str, query: Mapping[str, str] | None = None) -> T:
        """Return the view's answer at *path*. Raises `NoAnswerError`."""
        try:
            data = await self.api.send("GET", f"{ROOT}{path}", query=query)
        except SunkError as error:
            raise refusal(error, path) from error
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the answer is not of this version: {error}. Install the sunkctl of the release"
            raise NoAnswerError(message, 1) from error


@asynccontextmanager
async def opened(context: str, kubeconfig: Path | None) -> AsyncGenerator[Cluster]:
    """Yield the cluster of the user's kubeconfig. Raises `ConfigError`."""
    async with open_api("sunkctl", kubeconfig=kubeconfig, context=context, timeout_s=TIMEOUT_S) as api:
        yield Cluster(api)
