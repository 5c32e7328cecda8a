"""A page of a list, as the API server sends it; pure."""

from typing import Final, Generic, TypeVar

import msgspec

from sunk_kube.objects import KubeObject

PAGE_SIZE: Final = 500
LIST_TIMEOUT_S: Final = 30.0
"""For one page: a busy API server takes its time over 500 objects."""
T = TypeVar("T", bound=KubeObject)


class PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some objects of a list."""

    metadata: PageMeta = PageMeta()
    items: list[T] | None = None
