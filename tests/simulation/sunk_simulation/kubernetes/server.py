# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""An API server's HTTP: paths, verbs, lists by pages, watches; on the objects of its registry.

Source: Kubernetes, "API Concepts".
"""

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from sunk_simulation.http import Reply, Request
from sunk_simulation.kubernetes import pods
from sunk_simulation.kubernetes.errors import StatusError, invalid
from sunk_simulation.kubernetes.evictions import evict
from sunk_simulation.kubernetes.fields import managed_fields
from sunk_simulation.kubernetes.kinds import NAMESPACES, PODS, Kind, Object, key_of
from sunk_simulation.kubernetes.patches import json_patch, merge, strategic
from sunk_simulation.kubernetes.registry import Registry
from sunk_simulation.kubernetes.selectors import Matches, by_query
from sunk_simulation.kubernetes.store import Change, ForgottenError, Stored

BOOKMARK_S: Final = 60.0
"""How often a watch is told where it is, though nothing happens."""
BEFORE_END_S: Final = 2.0
"""How long before its end it is told once more."""
_PATCHES: Final = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic,
    "application/json-patch+json": json_patch,
}
_APPLY: Final = "application/apply-patch+yaml"
_NO_YAML: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
"""An escape that JSON knows and YAML does not: half of a character beyond U+FFFF."""
_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter."
)


class Asked(NamedTuple):
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str
    subresource: str
    request: Request

    @property
    def key(self) -> str:
        """Of the object."""
        return f"{self.namespace}/{self.name}" if self.namespace and self.kind.is_namespaced else self.name

    @property
    def manager(self) -> str:
        """Who asks."""
        agent = self.request.headers.get("user-agent", "").partition("/")[0]
        return self.request.query.get("fieldManager") or agent or "unknown"

    @property
    def content(self) -> str:
        """What it is said to hold."""
        return self.request.headers.get("content-type", "").partition(";")[0]

    def body(self) -> Any:
        """Return what was sent."""
        is_yaml = self.content.endswith("yaml")
        if is_yaml and _NO_YAML.search(self.request.body):
            text = "error converting YAML to JSON: yaml: found invalid Unicode character escape code"
            raise StatusError("BadRequest", text)
        try:
            return msgspec.json.decode(self.request.body) if self.request.body else {}
        except msgspec.DecodeError as error:
            raise StatusError("BadRequest", f"the object provided is unrecognized: {error}") from error


class ApiServer:
    """Answers requests, for as long as its process lives."""

    def __init__(self, registry: Registry, random: Random) -> None:
        self.registry: Final = registry
        self._random: Final = random
        self.version_seen: Callable[[], int] = lambda: registry.store.version
        """Up to which version lists and watches tell what happened: a replica may be behind."""
        self.watches: dict[int, asyncio.Event] = {}
        """Those that are open: set, one looks whether there is more."""
        self.is_stalled = False
        """Whether watches say nothing, and do not end."""
        self._watched = 0
        self._ended: set[int] = set()

    async def answer(self, request: Request) -> Reply:
        """Return what is answered."""
        try:
            return self._answered(request)
        except StatusError as error:
            return refused(error)

    def end_watches(self) -> None:
        """End every watch, in order, as an API server that is stopped does."""
        self._ended |= self.watches.keys()
        self.wake()

    def wake(self) -> None:
        """Have every watch look whether there is more to tell."""
        for woken in self.watches.values():
            woken.set()

    def _answered(self, request: Request) -> Reply:
        parts = [part for part in request.path.split("/") if part]
        if parts == ["apis"]:
            return _reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        asked = self._asked(parts, request)
        how = self._how(asked)
        if how is None:
            text = "the server does not allow this method on the requested resource"
            raise StatusError("MethodNotAllowed", text)
        return how(asked)

    def _how(self, asked: Asked) -> Callable[[Asked], Reply] | None:
        """Return what answers it; None: it is nothing that may be asked."""
        request, is_whole = asked.request, asked.subresource in ("", "status")
        if not asked.name:
            listed = self._watch if request.query.get("watch") in ("true", "1") else self._list
            return {"GET": listed, "POST": self._create}.get(request.method)
        if request.method == "PATCH" and asked.subresource == "scale":
            return self._scale
        if request.method == "POST" and asked.subresource in ("binding", "eviction"):
            return self._done
        by_method = {"GET": self._get, "PUT": self._put, "PATCH": self._patch}
        if not asked.subresource:
            by_method["DELETE"] = self._delete
        return by_method.get(request.method) if is_whole else None

    def _asked(self, parts: list[str], request: Request) -> Asked:
        group, version, rest = ("", parts[1], parts[2:]) if parts[:1] == ["api"] else ("", "", [])
        if parts[:1] == ["apis"]:
            group, version, rest = parts[1], parts[2], parts[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self.registry.kind(group, version, rest[0]) if rest else None
        if kind is None:
            raise StatusError("NotFound", "the server could not find the requested resource")
        name, subresource = (*rest[1:], "", "")[:2]
        if subresource == "status" and not kind.has_status:
            raise StatusError("NotFound", "the server could not find the requested resource")
        return Asked(kind, namespace, name, subresource, request)

    def _get(self, asked: Asked) -> Reply:
        found = self.registry.get(asked.kind, asked.key)
        managed = managed_fields(found.managers, asked.kind.api_version)
        body = {**found.object, "metadata": {**found.meta, "managedFields": managed}}
        return _reply(body)

    def _create(self, asked: Asked) -> Reply:
        is_dry_run = asked.request.query.get("dryRun") == "All"
        made = self.registry.create(
            asked.kind, asked.body(), asked.namespace, manager=asked.manager, is_dry_run=is_dry_run
        )
        return _sent(made, 201)

    def _done(self, asked: Asked) -> Reply:
        if asked.kind is not PODS:
            raise StatusError("NotFound", "the server could not find the requested resource")
        body = asked.body()
        if asked.subresource == "eviction":
            evict(self.registry, asked.key, body)
        else:
            self.registry.update(
                PODS,
                asked.key,
                lambda pod: pods.bound(pod, body),
                manager=asked.manager,
                subresource="binding",
            )
        return _reply(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    def _put(self, asked: Asked) -> Reply:
        body = asked.body()
        found = self.registry.update(
            asked.kind,
            asked.key,
            lambda _: _named(body, asked),
            manager=asked.manager,
            subresource=asked.subresource,
        )
        return _sent(found)

    def _patch(self, asked: Asked) -> Reply:
        content, body = asked.content, asked.body()
        if content == _APPLY:
            is_forced = asked.request.query.get("force") == "true"
            made, is_new = self.registry.apply(
                asked.kind,
                asked.key,
                _named(body, asked),
                manager=asked.manager,
                subresource=asked.subresource,
                is_forced=is_forced,
            )
            return _sent(made, 201 if is_new else 200)
        patched = _PATCHES.get(content)
        if patched is None or (patched is strategic and asked.kind.is_custom):
            raise StatusError("UnsupportedMediaType", "the body of the request was in an unknown format")
        found = self.registry.update(
            asked.kind,
            asked.key,
            lambda live: patched(live, body),
            manager=asked.manager,
            subresource=asked.subresource,
            is_patch=True,
        )
        return _sent(found)

    def _scale(self, asked: Asked) -> Reply:
        if not asked.kind.scale:
            raise StatusError("NotFound", "the server could not find the requested resource")
        wanted = asked.body()["spec"]["replicas"]
        if wanted < 0:
            raise invalid(asked.kind, asked.name, {"spec.replicas": "must be greater than or equal to 0"})

        def change(live: Object) -> Object:
            live["spec"]["replicas"] = wanted
            return live

        found = self.registry.update(
            asked.kind, asked.key, change, manager=asked.manager, subresource="scale", is_patch=True
        )
        return _reply(
            {
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": found.meta,
                "spec": {"replicas": wanted},
                "status": {"replicas": (found.object.get("status") or {}).get("replicas", 0)},
            }
        )

    def _delete(self, asked: Asked) -> Reply:
        options, query = asked.body(), asked.request.query
        preconditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        found, is_gone = self.registry.delete(
            asked.kind,
            asked.key,
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            grace_s=None if grace is None else int(grace),
            propagation=options.get("propagationPolicy") or query.get("propagationPolicy") or "",
        )
        if is_gone and asked.kind is not PODS:
            return _reply(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}
            )
        return _sent(found)

    def _matches(self, asked: Asked) -> Matches:
        query = asked.request.query
        return by_query(asked.kind.resource, query.get("fieldSelector", ""), query.get("labelSelector", ""))

    def _list(self, asked: Asked) -> Reply:
        query, store = asked.request.query, self.registry.store
        version, after = self.version_seen(), ""
        if token := query.get("continue", ""):
            version, after = _continued(token)
        elif int(query.get("resourceVersion") or 0) > store.version:
            raise StatusError("Timeout", "Too large resource version", retry_after_s=1)
        try:
            is_present = version == store.version
            found = store.of(asked.kind.resource) if is_present else store.at(asked.kind.resource, version)
        except ForgottenError as error:
            raise StatusError("Expired", _TOO_OLD) from error
        keys = sorted(self._within(found, asked, after))
        limit = int(query.get("limit") or 0) or len(keys)
        matches = self._matches(asked)
        page: list[Stored] = []
        more = ""
        for key in keys:
            if len(page) == limit:  # Whether one of those that are left fits is not looked at.
                more = _token(version, key_of(page[-1].object))
                break
            if matches(found[key].object):
                page.append(found[key])
        meta = {"resourceVersion": str(version), **({"continue": more} if more else {})}
        return _listed(asked.kind, meta, page)

    def _within(self, found: dict[str, Stored], asked: Asked, after: str) -> Iterable[str]:
        prefix = f"{asked.namespace}/" if asked.namespace and asked.kind is not NAMESPACES else ""
        return (key for key in found if key.startswith(prefix) and key > after)

    def _watch(self, asked: Asked) -> Reply:
        query = asked.request.query
        lasts_s = float(query.get("timeoutSeconds") or self._random.uniform(1800, 3600))
        headers = {"Content-Type": "application/json"}
        has_bookmarks = query.get("allowWatchBookmarks") == "true"
        body = self._events(asked, self._matches(asked), lasts_s, has_bookmarks=has_bookmarks)
        return Reply(body=body, headers=headers)

    async def _events(
        self, asked: Asked, matches: Matches, lasts_s: float, *, has_bookmarks: bool
    ) -> AsyncGenerator[bytes, None]:
        store, loop = self.registry.store, asyncio.get_running_loop()
        at = int(asked.request.query.get("resourceVersion") or 0)
        self._watched += 1
        number = self._watched
        self.watches[number] = woken = asyncio.Event()
        ends = loop.time() + lasts_s
        marks = _next_mark(loop.time(), ends)
        try:
            if not at:
                at = self.version_seen()
                yield b"".join(self._all(asked, matches, at))
            while number not in self._ended and (self.is_stalled or loop.time() < ends):
                if not self.is_stalled:
                    seen = max(at, self.version_seen())
                    told = [change for change in store.since(at) if change.version <= seen]
                    at = max(at, min(seen, store.version))
                    yield b"".join(self._lines(asked, matches, told))
                    if loop.time() >= marks:
                        marks = _next_mark(loop.time(), ends)
                        yield _event("BOOKMARK", _bookmark(asked.kind, at)) if has_bookmarks else b""
                woken.clear()
                timer = loop.call_at(min(ends, marks), woken.set)
                if self.is_stalled:
                    timer.cancel()
                await woken.wait()
                timer.cancel()
        except ForgottenError:
            error = StatusError("Expired", f"too old resource version: {at} ({store.forgotten})")
            yield _event("ERROR", msgspec.json.encode(error.status()))
        finally:
            del self.watches[number]
            self._ended.discard(number)

    def _all(self, asked: Asked, matches: Matches, version: int) -> Iterable[bytes]:
        found = self.registry.store.at(asked.kind.resource, version)
        for key in sorted(self._within(found, asked, "")):
            if matches(found[key].object):
                yield _event("ADDED", found[key].data)

    def _lines(self, asked: Asked, matches: Matches, changes: list[Change]) -> Iterable[bytes]:
        prefix = f"{asked.namespace}/" if asked.namespace and asked.kind is not NAMESPACES else ""
        resource, name = asked.kind.resource, asked.name
        for change in changes:
            if change.resource != resource or not change.key.startswith(prefix):
                continue
            if name and change.key.rpartition("/")[2] != name:
                continue
            was = change.before is not None and matches(change.before.object)
            fits = change.type != "DELETED" and matches(change.after.object)
            if fits:
                yield _event("MODIFIED" if was else "ADDED", change.after.data)
            elif was and change.before is not None:
                yield _event("DELETED", _last(change))


def refused(error: StatusError) -> Reply:
    """Return the answer that refuses."""
    headers = {"Content-Type": "application/json"}
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    return Reply(error.code, msgspec.json.encode(error.status()), headers)


def _next_mark(now: float, ends: float) -> float:
    """Return when a watch is told next where it is: each minute, and once more before it ends."""
    last = max(ends - BEFORE_END_S, now + 1.0)
    return min(now + BOOKMARK_S, last)


def _last(change: Change) -> bytes:
    """Return an object as it was last, under the version of its going."""
    if change.type == "DELETED":
        return change.after.data
    assert change.before is not None
    found = change.before.copy()
    found["metadata"]["resourceVersion"] = str(change.version)
    return msgspec.json.encode(found)


def _named(body: Any, asked: Asked) -> Object:
    """Return *body* with the name and namespace that its path says."""
    if not isinstance(body, dict):
        raise StatusError("BadRequest", "the object provided is unrecognized")
    meta: Object = {"name": asked.name, **(body.get("metadata") or {})}
    if asked.kind.is_namespaced:
        meta.setdefault("namespace", asked.namespace)
    return {**body, "metadata": meta}


def _token(version: int, after: str) -> str:
    return base64.urlsafe_b64encode(
        msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": after})
    ).decode()


def _continued(token: str) -> tuple[int, str]:
    try:
        said = msgspec.json.decode(base64.urlsafe_b64decode(token))
        return int(said["rv"]), str(said["start"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise StatusError("BadRequest", "continue key is not valid") from error


def _listed(kind: Kind, meta: Object, page: list[Stored]) -> Reply:
    head = msgspec.json.encode({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta})
    items = b",".join(one.data for one in page)
    return Reply(body=head[:-1] + b',"items":[' + items + b"]}", headers={"Content-Type": "application/json"})


def _event(kind: str, data: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), data)


def _bookmark(kind: Kind, version: int) -> bytes:
    meta = {"resourceVersion": str(version), "creationTimestamp": None}
    return msgspec.json.encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})


def _sent(found: Stored, status: int = 200) -> Reply:
    return Reply(status, found.data, {"Content-Type": "application/json"})


def _reply(body: Object, status: int = 200) -> Reply:
    return Reply(status, msgspec.json.encode(body), {"Content-Type": "application/json"})
