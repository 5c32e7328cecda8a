"""Slurm's hostlist expressions: ``gpu-[01-04,07],login`` to names and back.

One pair of brackets may stand anywhere in a name and any number of pairs in one expression; widths are
kept (``01`` is not ``1``). `expand` of `compress` gives the same names, each once.

Source: SchedMD/slurm, src/common/hostlist.c; man page scontrol, "show hostnames", "show hostlistsorted".
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from math import prod
from typing import Final

MAX_NAMES: Final = 65_536
"""About as many nodes as Slurm itself takes: an expression that names more is a mistake or an attack."""
NAME_MAX: Final = 255
"""Characters of a name, as of a host's."""
NUMBER_MAX: Final = 15
"""Digits of a number."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_RANGE = re.compile(r"^(?P<low>[0-9]{1,15})(?:-(?P<high>[0-9]{1,15}))?$")
_PAIR = re.compile(r"\[([^\]]*)\]")
_SIGN = re.compile(r"[\[\],]")

_Ranges = list[tuple[range, int]]
"""The inside of a pair of brackets: numbers, and how many digits each has at least."""


def expand(expression: str, most: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names that *expression* stands for, in its order, each once.

    What it stands for is counted before any of it is made, each name as often as it is spelled: a short text
    may stand for more names than there is memory for.

    Raises:
        ValueError: Brackets do not match, a range is no range, a name is longer than `NAME_MAX`, or there are
            more than *most*.
    """
    left = most
    parts: list[tuple[list[str], list[_Ranges]]] = []
    for part in _parts(expression, most):
        if part.count("[") > NAME_MAX:
            raise _too_long(expression)
        pieces = _PAIR.split(part) if "[" in part else [part]  # Text and the insides of brackets take turns.
        texts, brackets = pieces[::2], [_ranges(inside, expression, left) for inside in pieces[1::2]]
        longest = (max(max(width, len(str(numbers[-1]))) for numbers, width in ranges) for ranges in brackets)
        if sum(map(len, texts)) + sum(longest) > NAME_MAX:
            raise _too_long(expression)
        left -= prod(sum(len(numbers) for numbers, _ in ranges) for ranges in brackets)
        if left < 0:
            raise _too_many(expression)
        parts.append((texts, brackets))
    return tuple(dict.fromkeys(name for texts, brackets in parts for name in _names(texts, brackets)))


def has(expression: str, name: str) -> bool:
    """Whether *expression* stands for *name*, as `expand` says; nothing is expanded.

    Raises:
        ValueError: Brackets do not match, or a range is no range.
    """
    if "[" not in expression and name not in expression:
        return False
    return any(_is_of(part, name) for part in _parts(expression, MAX_NAMES))


def compress(names: Iterable[str]) -> str:
    """Return the shortest usual expression for *names*: sorted, folded over each name's last number."""
    plain: set[str] = set()
    numbers: dict[tuple[str, str, int], set[int]] = {}
    for name in set(names):
        if found := _NUMBER.search(name[::-1]):  # From its end: a search for the last one tries each before.
            start, end = len(name) - found.end(), len(name) - found.start()
            numbers.setdefault((name[:start], name[end:], end - start), set()).add(int(name[start:end]))
        else:
            plain.add(name)
    folded = [
        f"{prefix}{_fold(sorted(group), width)}{suffix}"
        for (prefix, suffix, width), group in sorted(numbers.items())
    ]
    return ",".join([*sorted(plain), *folded])


def _fold(numbers: list[int], width: int) -> str:
    """Return ``07`` for one number, ``[01-04,07]`` for more."""
    ranges: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        values = [number for _, number in run]
        low, high = f"{values[0]:0{width}d}", f"{values[-1]:0{width}d}"
        ranges.append(low if low == high else f"{low}-{high}")
    return ranges[0] if len(numbers) == 1 else f"[{','.join(ranges)}]"


def _too_many(expression: str) -> ValueError:
    return ValueError(f"hostlist {expression[:80]!r} names more than it may: too many nodes")


def _too_long(expression: str) -> ValueError:
    return ValueError(f"hostlist {expression[:80]!r} has a name of more than {NAME_MAX} characters")


def _parts(expression: str, most: int) -> Iterator[str]:
    """Split at the commas outside brackets, of which there are no more than *most*."""
    depth, start, commas = 0, 0, 0
    for sign in _SIGN.finditer(expression):
        if sign[0] == "[":
            depth += 1
        elif sign[0] == "]":
            depth -= 1
        elif depth == 0:
            commas += 1
            if commas > most:
                raise _too_many(expression)
            if part := expression[start : sign.start()].strip():
                yield part
            start = sign.end()
        if depth not in {0, 1}:
            break
    if depth:
        raise ValueError(f"brackets of hostlist {expression[:80]!r} do not match")
    if part := expression[start:].strip():
        yield part


def _names(texts: list[str], brackets: list[_Ranges]) -> Iterator[str]:
    """Make the names of one part; its last pair of brackets runs fastest."""
    if not brackets:
        yield texts[0]
        return
    choices: list[list[str]] = [[texts[0]]]
    for ranges, text in zip(brackets, texts[1:], strict=True):
        choices.append([f"{number:0{width}d}{text}" for numbers, width in ranges for number in numbers])
    for chosen in product(*choices):
        yield "".join(chosen)


def _is_of(part: str, name: str) -> bool:
    """Whether *name* is one of those that *part* stands for."""
    first, *pieces = _PAIR.split(part)
    ends = {len(first)} if name.startswith(first) else set[int]()
    for inside, text in zip(pieces[::2], pieces[1::2], strict=True):
        if not ends:
            return False
        ranges = _ranges(inside, part, MAX_NAMES)
        after = {end for start in ends for end in _after_number(name, start, ranges)}
        ends = {end + len(text) for end in after if name.startswith(text, end)}
    return len(name) in ends


def _after_number(name: str, start: int, ranges: _Ranges) -> Iterator[int]:
    """Yield where in *name* each number ends that begins at *start* and is one of *ranges*."""
    for end in range(start + 1, min(len(name), start + NUMBER_MAX) + 1):
        digits = name[start:end]
        if not (digits.isascii() and digits.isdecimal()):
            return
        number = int(digits)
        if any(number in numbers and digits == f"{number:0{width}d}" for numbers, width in ranges):
            yield end


def _ranges(inside: str, expression: str, most: int) -> _Ranges:
    """Read the inside of brackets, ``01-04,07``: no more than *most* ranges."""
    items = inside.split(",", most)
    if len(items) > most:
        raise _too_many(expression)
    found: _Ranges = []
    for item in items:
        match = _RANGE.match(item.strip())
        if match is None:
            raise ValueError(f"hostlist {expression[:80]!r}: {item[:80]!r} is not a range of numbers")
        low, high = int(match["low"]), int(match["high"] or match["low"])
        if high < low:
            raise ValueError(f"hostlist {expression[:80]!r}: {item[:80]!r} is not a range of numbers")
        found.append((range(low, high + 1), len(match["low"])))
    return found
