"""Slurm's hostlist expressions: ``gpu-[01-04,07],login`` to names and back.

One pair of brackets may stand anywhere in a name and any number of pairs in one expression; widths are
kept (``01`` is not ``1``). `expand` of `compress` gives the same names, each once.

Source: SchedMD/slurm, src/common/hostlist.c; man page scontrol, "show hostnames", "show hostlistsorted".
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from typing import Final

MAX_NAMES: Final = 200_000
"""More than any cluster has: an expression that names more is a mistake or an attack."""

_LAST_NUMBER = re.compile(r"^(?P<prefix>.*?)(?P<number>[0-9]{1,15})(?P<suffix>[^0-9]*)$")
_RANGE = re.compile(r"^(?P<low>[0-9]{1,15})(?:-(?P<high>[0-9]{1,15}))?$")


def expand(expression: str) -> tuple[str, ...]:
    """Return the names that *expression* stands for, in its order, each once.

    Raises:
        ValueError: Brackets do not match, a range is no range, or it names more than `MAX_NAMES`.
    """
    names: dict[str, None] = {}
    for part in _parts(expression):
        for name in _expand_part(part, expression):
            names[name] = None
            if len(names) > MAX_NAMES:
                raise ValueError(f"hostlist {expression[:80]!r} names more than {MAX_NAMES} nodes")
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest usual expression for *names*: sorted, folded over each name's last number."""
    plain: set[str] = set()
    numbers: dict[tuple[str, str, int], set[int]] = {}
    for name in set(names):
        if found := _LAST_NUMBER.match(name):
            key = found["prefix"], found["suffix"], len(found["number"])
            numbers.setdefault(key, set()).add(int(found["number"]))
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


def _parts(expression: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, start = 0, 0
    for index, character in enumerate(expression):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            if part := expression[start:index].strip():
                yield part
            start = index + 1
        if depth not in {0, 1}:
            raise ValueError(f"brackets of hostlist {expression[:80]!r} do not match")
    if depth:
        raise ValueError(f"brackets of hostlist {expression[:80]!r} do not match")
    if part := expression[start:].strip():
        yield part


def _expand_part(part: str, expression: str) -> Iterator[str]:
    """Expand one name with any number of bracket pairs; the last pair runs fastest."""
    pieces = re.split(r"\[([^\]]*)\]", part)  # Text and the insides of brackets take turns.
    choices = [
        [piece] if index % 2 == 0 else list(_expand_ranges(piece, expression))
        for index, piece in enumerate(pieces)
    ]
    for chosen in product(*choices):
        yield "".join(chosen)


def _expand_ranges(ranges: str, expression: str) -> Iterator[str]:
    """Expand the inside of brackets: ``01-04,07``."""
    for item in ranges.split(","):
        found = _RANGE.match(item.strip())
        if found is None:
            raise ValueError(f"hostlist {expression[:80]!r}: {item!r} is no range of numbers")
        low = int(found["low"])
        high = int(found["high"] or found["low"])
        if high < low or high - low >= MAX_NAMES:
            raise ValueError(f"hostlist {expression[:80]!r}: {item!r} is no range of numbers")
        for number in range(low, high + 1):
            yield f"{number:0{len(found['low'])}d}"
