"""What the API server and kubectl ask first: which group and resources there are. Pure.

Only sub-resources and what has a name of its own are listed: a second `pods` or `nodes` would be one more
meaning of ``kubectl get pods``.
"""

from typing import Any, Final

from sunk_events.view import GROUP, VERSION

_VERSION: Final = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
GROUP_OBJECT: Final = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": GROUP,
    "versions": [_VERSION],
    "preferredVersion": _VERSION,
}
GROUPS_OBJECT: Final = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP_OBJECT]}
_RESOURCES: Final = (
    ("nodes/explain", False, "Explained"),
    ("jobs/explain", False, "Explained"),
    ("pods/explain", True, "Explained"),
    ("gangs/explain", True, "Explained"),
    ("nodes/events", False, "Events"),
    ("jobs/events", False, "Events"),
    ("pods/events", True, "Events"),
)
RESOURCES_OBJECT: Final[dict[str, Any]] = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]}
        for name, namespaced, kind in _RESOURCES
    ],
}
