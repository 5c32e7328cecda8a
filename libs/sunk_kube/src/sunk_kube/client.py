"""Calls of the API server: our structs in and out, our errors, one deadline each.

What must stay true: a write names who writes (field manager); a delete, a binding, an eviction can name
the one object that is meant (uid), so that a Pod of the same name that came after is never hit.

Source: Kubernetes API conventions; API Concepts, "Server-side pagination", "Update mechanisms".
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from sunk_kube import bodies
from sunk_kube.api import Api, open_api
from sunk_kube.bodies import EventText
from sunk_kube.depth import cut_deep
from sunk_kube.errors import KubeExistsError, KubeNotFoundError, KubeUnavailableError
from sunk_kube.objects import KubeObject
from sunk_kube.paced_calls import JSON, Body, PacedCalls
from sunk_kube.pacing import Pace
from sunk_kube.pages import LIST_TIMEOUT_S, PAGE_SIZE, Page
from sunk_kube.pods import Pod
from sunk_kube.resources import EVENTS, PODS, Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)
_YAML: Final = "application/yaml"
PatchKind = Literal["merge", "strategic", "apply", "json"]
_PATCH_TYPE: Final[Mapping[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml; charset=utf-8",
    "json": "application/json-patch+json",
}
"""With a charset the library sends an ``apply`` as it is; else as JSON with escapes that YAML has not."""


class KubeClient:
    """Calls of one API server. Make it with `connect`."""

    def __init__(self, api: Api, *, name: str, pace: Pace | None = None) -> None:
        self._calls = PacedCalls(api, pace or Pace())
        self.name = name
        """Who writes: the field manager, and the reporter of Events."""
        self._decoders: dict[object, msgspec.json.Decoder[Any]] = {}

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object, consistently read.

        Raises:
            KubeNotFoundError: there is none of that name.
            KubeUnavailableError: the API server does not answer, or not in time.
            KubeRejectedError: it refuses.
        """
        data = await self._calls.send("GET", resource, resource.path(namespace, name))
        return self._decode(resource.struct, data, f"get {resource.plural} {name}")

    async def find(self, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
        """Return one object, or None where the API server says that there is none. Raises as `get`."""
        try:
            return await self.get(resource, name, namespace)
        except KubeNotFoundError:
            return None

    async def list_all(
        self, resource: Resource[T], namespace: str | None = None, *, fields: str = "", labels: str = ""
    ) -> list[T]:
        """Return every object that fits the selectors, consistently read, page by page."""
        return (await self.list_with_version(resource, namespace, fields=fields, labels=labels))[0]

    async def list_with_version(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        fields: str = "",
        labels: str = "",
        page_size: int = PAGE_SIZE,
    ) -> tuple[list[T], str]:
        """Return every object that fits, and the resourceVersion to watch from.

        Raises:
            KubeGoneError: the list took so long that its next page is gone: begin again.
        """
        kind = Page[resource.struct]
        query = {"limit": str(page_size), **bodies.selectors(fields, labels)}
        found: list[T] = []
        while True:
            data = await self._calls.send(
                "GET", resource, resource.path(namespace), query=query, verb="LIST", timeout_s=LIST_TIMEOUT_S
            )
            page = self._decode(kind, data, f"list {resource.plural}")
            found.extend(page.items or ())
            if not page.metadata.continue_:
                return found, page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def version(self, resource: Resource[T], namespace: str | None = None) -> str:
        """Return the resourceVersion to watch from, to hear of whatever changes from now on."""
        data = await self._calls.send(
            "GET", resource, resource.path(namespace), query={"limit": "1"}, verb="LIST"
        )
        return self._decode(Page[KubeObject], data, f"list {resource.plural}").metadata.resource_version

    async def create(self, resource: Resource[T], body: Body, namespace: str | None = None) -> T:
        """Create an object and return it.

        Raises:
            KubeExistsError: one of that name exists.
            KubeRejectedError: it is not valid, or not allowed.
        """
        sent, content_type = (bodies.yaml(body), _YAML) if resource.keeps_json else (body, JSON)
        path = resource.path(namespace)
        data = await self._calls.send(
            "POST", resource, path, body=sent, query=self._manager(), content_type=content_type
        )
        return self._decode(resource.struct, data, f"create {resource.plural}")

    async def replace(self, resource: Resource[T], name: str, body: Body, namespace: str | None = None) -> T:
        """Put *body* in the object's place.

        Raises:
            ConflictError: the resourceVersion in *body* is no longer the object's.
        """
        path = resource.path(namespace, name)
        data = await self._calls.send("PUT", resource, path, body=body, query=self._manager())
        return self._decode(resource.struct, data, f"replace {resource.plural} {name}")

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        uid: str = "",
        is_forced: bool = True,
    ) -> T:
        """Change an object and return it.

        Args:
            resource: The kind of object.
            name: Its name.
            body: The patch. With ``metadata.resourceVersion`` in it, it holds for that version only.
            namespace: Its namespace.
            kind: How *body* is to be read.
            subresource: Such as ``status``.
            uid: Refuse where the object is another one by now; not for JSON patches, which have ``test``.
            is_forced: ``apply`` takes over the fields that other managers have set; else it is refused.

        Raises:
            ConflictError: the object has another resourceVersion or uid, or fields of another manager.
            KubeNotFoundError: there is none of that name.
        """
        query = self._manager() | ({"force": "true"} if kind == "apply" and is_forced else {})
        whole = bodies.with_uid(body, uid) if uid else body
        data = await self._calls.send(
            "PATCH",
            resource,
            resource.path(namespace, name, subresource),
            body=bodies.yaml(whole) if kind == "apply" else whole,
            query=query,
            content_type=_PATCH_TYPE[kind],
        )
        return self._decode(resource.struct, data, f"patch {resource.plural} {name}")

    async def patch_status(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        uid: str = "",
    ) -> T:
        """Change an object's status, as `patch` does the object. Conditions merge with ``strategic``."""
        return await self.patch(resource, name, body, namespace, kind=kind, subresource="status", uid=uid)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        """Ask for an object's end; it being gone is success. `ConflictError` where *uid* is not its."""
        body = bodies.deletion(uid, grace_period_s)
        try:
            await self._calls.send("DELETE", resource, resource.path(namespace, name), body=body)
        except KubeNotFoundError:
            log.debug("deleted already", extra={"resource": resource.plural, "object": name})

    async def bind_pod(self, pod: Pod, node: str) -> None:
        """Bind *pod*, and no other of its name, to the Node *node*.

        A call that arrives late binds nothing: what is done instead meanwhile is written on the Pod.

        Raises:
            ConflictError: it is bound already, was changed, or is another Pod by now: read it again.
            KubeNotFoundError: it is gone.
        """
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "binding")
        body = bodies.binding(pod, node)
        await self._calls.send("POST", PODS, path, body=body, query=self._manager(), verb="BIND")

    async def evict(self, pod: Pod, *, is_dry_run: bool = False) -> None:
        """Ask for *pod*'s eviction, which its disruption budgets may forbid; it being gone is success.

        A dry run is answered as the eviction would be, and nothing is done.

        Raises:
            KubeUnavailableError: a budget forbids it now (429), or the API server is away.
            ConflictError: another Pod has its name by now.
        """
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "eviction")
        try:
            await self._calls.send(
                "POST", PODS, path, body=bodies.eviction(pod, is_dry_run=is_dry_run), verb="EVICT"
            )
        except KubeNotFoundError:
            log.debug("evicted already", extra={"pod": pod.key})

    async def record(
        self, resource: Resource[T], about: KubeObject, text: EventText, *, at: datetime | None = None
    ) -> None:
        """Say *text* about an object, as an Event of *at* or now; having said it in that hour is success."""
        moment = at or datetime.now(UTC)
        body = bodies.event(resource, about, text, reporter=self.name, now=moment)
        try:
            await self.create(EVENTS, body, body["metadata"]["namespace"])
        except KubeExistsError:
            log.debug("event said already", extra={"object": about.key, "reason": text.reason})

    async def get_raw(self, path: str) -> bytes:
        """Return what the API server has at *path*, such as ``/openid/v1/jwks``."""
        return await self._calls.api.send("GET", path)

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], namespace: str | None, query: Mapping[str, str], *, silence_s: float
    ) -> AsyncGenerator[AsyncIterable[bytes]]:
        """Yield the chunks of a watch, as `Api.stream`. For `Following`."""
        params = {**query, "watch": "true"}
        async with self._calls.stream(resource.path(namespace), params, silence_s=silence_s) as chunks:
            yield chunks

    def _manager(self) -> dict[str, str]:
        return {"fieldManager": self.name}

    def _decode(self, kind: type[Any], data: bytes, doing: str) -> Any:  # noqa: ANN401 - the caller's own type, which a cache of decoders loses
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        try:
            try:
                return decoder.decode(data)
            except RecursionError:
                return decoder.decode(cut_deep(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise KubeUnavailableError(f"{doing}: not what an API server answers: {error}") from error


@asynccontextmanager
async def connect(
    name: str, *, kubeconfig: Path | None = None, timeout_s: float = 10.0, pace: Pace | None = None
) -> AsyncGenerator[KubeClient]:
    """Yield a client: by *kubeconfig*, or as the Pod that we are.

    Args:
        name: Who we are: field manager and reporter of Events.
        kubeconfig: A kubeconfig; None inside a cluster, where token and address are mounted.
        timeout_s: How long one call may take, from its connection to its last byte.
        pace: How fast calls may follow each other; renewals of leases do not count.

    Raises:
        ConfigError: neither works; the text says why. No call is made here.
    """
    async with open_api(f"sunk/{name}", kubeconfig=kubeconfig, timeout_s=timeout_s) as api:
        yield KubeClient(api, name=name, pace=pace)
