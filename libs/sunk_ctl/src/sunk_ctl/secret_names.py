"""Which settings, fields and options have values that are secret, by their names. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|pw|secret|token|authtok|jwt|credential|cred|bindpw|authorization|auth"
    r"|cookie|nkey|seed|(?:api|access|private|secret|signing|auth|encryption|hmac|slurm|munge)[_.-]?key)s?"
)
_AFTER: Final = (
    r"FILE|PATH|DIR|NAME|REF|URL|URI|TYPE|TTL|MODE|SECONDS|S|MS|ID|SIZE|LENGTH|COUNT|LIFETIME"
    r"|REQUIRED|ENABLED"
)
"""What makes a name one of something else: ``TOKEN_FILE`` is a path."""
_SECRET: Final = re.compile(
    rf"(?:\A|(?<=[^a-zA-Z])|(?-i:(?<=[a-z])(?=[A-Z]))|(?<=[a-z])(?!auth|pw|cred|seed)){_WORDS}"
    rf"(?-i:_(?!(?:{_AFTER})\b)[A-Z0-9]+)?\Z",
    re.IGNORECASE,
)
_NAME_MAX: Final = 128
"""Longer names are judged by their ends."""
_FILES: Final = frozenset({"passwd"})
"""Named like a secret, and none: the accounts of passwd(5)."""
REFERENCES: Final = frozenset(
    {
        *("name", "namespace", "key", "secretName", "items", "path", "optional", "defaultMode", "mode"),
        *("audience", "expirationSeconds", "readOnly", "kind", "apiVersion", "apiGroup", "uid"),
    }
)
"""Fields of Kubernetes that say where a secret is, below a field that is named like one."""


def is_secret(name: str) -> bool:
    """Whether a setting of *name* has a value that is secret: ``StoragePass``, ``PASSWORD_SYNCER``."""
    return name not in _FILES and _SECRET.search(name[-_NAME_MAX:]) is not None


def name_of(fields: Mapping[str, object], key: str) -> str:
    """Return what the value under *key* is called.

    In a list of settings, such as ``env``, that is its ``name``; in a key of a JWKS ``k`` is the key itself.
    """
    if key == "value" and isinstance(named := fields.get("name"), str):
        return named
    return "secret" if key == "k" and "kty" in fields else key
