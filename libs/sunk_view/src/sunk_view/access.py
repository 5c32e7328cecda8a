"""Whether a caller may: the API server decides, by SubjectAccessReview; we remember it for seconds.

What must stay true: no answer of the API server is "no", never "yes"; what one caller may says nothing of
another, by all that the API server knows of them: name, uid, groups and extra.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import anyio
import msgspec

from sunk_events.view import GROUP, VERSION
from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject, KubeStruct
from sunk_kube.resources import Resource
from sunk_runtime.errors import SunkError
from sunk_view.callers import Caller
from sunk_view.metrics import REVIEWS

REMEMBERED_MAX: Final = 8192
NAMESPACES_MAX: Final = 64
"""Of which one answer may name Pods; in a namespace beyond that the caller is taken to read nothing."""


class _Allowed(KubeStruct, frozen=True):
    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(KubeObject, frozen=True):
    """What the API server decided."""

    status: _Allowed = _Allowed()


REVIEW: Final = Resource(
    group="authorization.k8s.io",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    is_namespaced=False,
    struct=SubjectAccessReview,
)


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A right of Kubernetes: what RBAC grants."""

    verb: str = "get"
    group: str = ""
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''} {where}"


def wide(resource: str) -> Right:
    """Return the right to see *resource* of our own group, which ClusterRole `sunk-view` grants."""
    return Right(group=GROUP, resource=resource)


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    """In which namespaces a caller may read Pods."""

    namespaces: frozenset[str] = frozenset()
    not_looked_up: int = 0
    """Of how many more that was not asked."""


class NotAllowedError(SunkError):
    """The caller lacks a right."""

    def __init__(self, caller: Caller, right: Right) -> None:
        super().__init__(f"user {caller.user} may not {right}")
        self.caller = caller
        self.right = right


class Access:
    """Decisions of one API server."""

    def __init__(self, kube: KubeClient, *, decisions_s: float) -> None:
        self._kube = kube
        self._decisions_s = decisions_s
        self._known: OrderedDict[tuple[Caller, Right], tuple[float, bool]] = OrderedDict()
        """Until when, and whether; the oldest first."""

    async def may(self, caller: Caller, right: Right) -> bool:
        """Return whether *caller* has *right*.

        Raises:
            KubeUnavailableError, KubeRejectedError: the API server decides nothing.
        """
        key = (caller, right)
        until, allowed = self._known.get(key, (0.0, False))
        if time.monotonic() < until:
            return allowed
        found = await self._kube.create(REVIEW, _body(caller, right))
        allowed = found.status.allowed and not found.status.denied
        REVIEWS.labels("allowed" if allowed else "denied").inc()
        self._known.pop(key, None)
        self._known[key] = (time.monotonic() + self._decisions_s, allowed)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return allowed

    async def require(self, caller: Caller, right: Right) -> None:
        """Raise `NotAllowedError` unless *caller* has *right*; else as `may`."""
        if not await self.may(caller, right):
            raise NotAllowedError(caller, right)

    async def readable(self, caller: Caller, namespaces: Iterable[str], first: str = "") -> Readable:
        """Return in which of *namespaces* *caller* may read Pods; an empty one stands for every one.

        Of more than `NAMESPACES_MAX` the *first* one is looked up, which the question names, and by name.
        """
        wanted = sorted(set(namespaces), key=lambda one: (one != first, one))
        if not wanted:
            return Readable()
        if await self.may(caller, Right(resource="pods")):
            return Readable(namespaces=frozenset(wanted))
        named, found = [one for one in wanted if one], set[str]()

        async def look(namespace: str) -> None:
            if await self.may(caller, Right(resource="pods", namespace=namespace)):
                found.add(namespace)

        async with anyio.create_task_group() as tasks:
            for namespace in named[:NAMESPACES_MAX]:
                tasks.start_soon(look, namespace)
        return Readable(namespaces=frozenset(found), not_looked_up=len(named[NAMESPACES_MAX:]))


def _body(caller: Caller, right: Right) -> dict[str, object]:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "version": VERSION if right.group == GROUP else "v1",
        "resource": right.resource,
        "namespace": right.namespace,
        "name": right.name,
    }
    return {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "spec": {
            "resourceAttributes": {name: value for name, value in attributes.items() if value},
            "user": caller.user,
            "uid": caller.uid,
            "groups": list(caller.groups),
            "extra": {name: list(values) for name, values in caller.extra},
        },
    }
