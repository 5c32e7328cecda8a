"""What a server is set to, read from nats-server's configuration: users with their rights, and limits."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sunk_simulation.bus.interest import matches, overlap

_TOKEN: Final = re.compile(
    r"""\s*(?:\#[^\n]*|//[^\n]*)|\s*(?P<string>"(?:\\.|[^"])*"|'[^']*')|\s*(?P<mark>[{}\[\],:=])"""
    r"""|\s*(?P<word>[^\s{}\[\],:=\#"']+)|\s+""",
)
_SIZES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Rule(msgspec.Struct, frozen=True):
    """Which subjects; None: all."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def allows(self, subject: str) -> bool:
        """Whether *subject* may be published to."""
        if self.allow is not None and not any(matches(one, subject) for one in self.allow):
            return False
        return not any(matches(one, subject) for one in self.deny)

    def allows_all_of(self, pattern: str) -> bool:
        """Whether *pattern* may be subscribed to."""
        if self.allow is not None and not any(matches(one, pattern) for one in self.allow):
            return False
        return not any(overlap(one, pattern) and matches(one, pattern) for one in self.deny)


class User(msgspec.Struct, frozen=True):
    """Somebody who may connect."""

    name: str
    password: str
    publish: Rule = Rule()
    subscribe: Rule = Rule()
    has_rules: bool = False


class Settings(msgspec.Struct, frozen=True):
    """Those of one server."""

    users: tuple[User, ...] = ()
    """None: everybody may do everything."""
    max_payload: int = 1 << 20
    max_store: int | None = None
    """What all streams may take; None: what the disk holds."""


def read(text: str, *, max_store: int | None = None) -> Settings:
    """Return what *text*, in the language of nats-server's configuration, says."""
    found = _map(_tokens(text), is_top=True)
    users = found.get("authorization", {}).get("users", [])
    payload = found.get("max_payload", 1 << 20)
    return Settings(tuple(map(_user, users)), _size(payload), max_store)


def _user(said: Mapping[str, Any]) -> User:
    rules: dict[str, Any] = said.get("permissions") or {}
    return User(
        name=str(said["user"]),
        password=str(said.get("password", "")),
        publish=_rule(rules.get("publish")),
        subscribe=_rule(rules.get("subscribe")),
        has_rules=bool(rules),
    )


def _rule(said: Any) -> Rule:
    match said:
        case None:
            return Rule()
        case dict():
            allow, deny = said.get("allow"), said.get("deny")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - what was read
            return Rule(None if allow is None else _several(allow), _several(deny or []))
        case _:
            return Rule(_several(said))


def _several(said: Any) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _size(said: Any) -> int:
    text = str(said).upper().removesuffix("B")
    return int(text[:-1]) * _SIZES[text[-1]] if text[-1] in _SIZES else int(text)


def _tokens(text: str) -> list[str]:
    found = [one["string"] or one["mark"] or one["word"] for one in _TOKEN.finditer(text)]
    return [one for one in reversed(found) if one]


def _map(tokens: list[str], *, is_top: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while tokens:
        name = tokens.pop()
        if name == "}" and not is_top:
            break
        if name == ",":
            continue
        if tokens and tokens[-1] in ":=":
            tokens.pop()
        found[_bare(name)] = _value(tokens)
    return found


def _value(tokens: list[str]) -> Any:
    first = tokens.pop()
    if first == "{":
        return _map(tokens)
    if first == "[":
        items: list[Any] = []
        while tokens[-1] != "]":
            if tokens[-1] == ",":
                tokens.pop()
            else:
                items.append(_value(tokens))
        tokens.pop()
        return items
    return _bare(first)


def _bare(word: str) -> str:
    return word[1:-1] if word[0] in "\"'" else word
