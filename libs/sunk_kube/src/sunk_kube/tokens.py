"""A token in a file that somebody else rotates.

What must stay true: a token that was replaced is used from the next call on, without a restart.

Source: Kubernetes, projected ServiceAccount tokens; kubeconfig, ``users[].user.tokenFile``, which
kubernetes_asyncio reads once.
"""

from pathlib import Path
from typing import Any, cast

import yaml


class TokenFile:
    """Reads *path* again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token. Raises `OSError` where it cannot be read, or is empty."""
        found = self._path.stat()
        stamp = found.st_mtime_ns, found.st_ino, found.st_size  # Two files in one tick have the same time.
        if stamp != self._stamp:
            token = self._path.read_text().strip()
            if not token:
                raise OSError(f"{self._path} is empty")
            self._token, self._stamp = token, stamp
        return self._token


def token_file(kubeconfig: Path) -> TokenFile | None:
    """Return the token file that the current context of *kubeconfig* names, if it names one."""
    config = _table(yaml.safe_load(kubeconfig.read_text()))
    context = _named(config, "contexts", "context", str(config.get("current-context", "")))
    user = _named(config, "users", "user", str(context.get("user", "")))
    path = user.get("tokenFile")
    return TokenFile(kubeconfig.parent / str(path)) if path else None


def _named(config: dict[str, Any], kinds: str, kind: str, name: str) -> dict[str, Any]:
    entries = cast("list[Any]", config.get(kinds) or [])
    found = (_table(one) for one in entries)
    return next((_table(one.get(kind)) for one in found if one.get("name") == name), _table(None))


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else dict[str, Any]()
