"""In which namespaces a caller may read Pods, with a test's own decisions in place of the API server's."""

from typing import Any, cast

import msgspec
import pytest

from sunk_kube.client import KubeClient
from sunk_view.access import NAMESPACES_MAX, Access, Readable, SubjectAccessReview
from sunk_view.callers import Caller

pytestmark = pytest.mark.anyio
MANY = [f"team-{number:03}" for number in range(NAMESPACES_MAX + 6)]
ALICE = Caller(user="alice")


class Grants:
    """Grants the Pods of one namespace; counts the questions."""

    def __init__(self, namespace: str) -> None:
        self.asked = 0
        self._namespace = namespace

    async def create(self, _resource: object, body: dict[str, Any]) -> SubjectAccessReview:
        self.asked += 1
        granted = body["spec"]["resourceAttributes"].get("namespace") == self._namespace
        return msgspec.convert({"status": {"allowed": granted}}, SubjectAccessReview)


async def test_of_many_namespaces_the_one_that_the_question_names_is_looked_up_first() -> None:
    grants = Grants(MANY[-1])
    access = Access(cast("KubeClient", grants), decisions_s=60)
    named = await access.readable(ALICE, MANY, MANY[-1])
    asked = grants.asked

    assert named == Readable(namespaces=frozenset({MANY[-1]}), not_looked_up=6)
    assert asked == 1 + NAMESPACES_MAX


async def test_what_was_not_looked_up_is_counted() -> None:
    access = Access(cast("KubeClient", Grants(MANY[0])), decisions_s=60)

    assert await access.readable(ALICE, [*MANY, ""]) == Readable(
        namespaces=frozenset({MANY[0]}), not_looked_up=6
    )
    assert await access.readable(ALICE, MANY[:3]) == Readable(namespaces=frozenset({MANY[0]}))
    assert await access.readable(ALICE, []) == Readable()
