"""Drawings as SVG text: messages between actors, and states with what leads from one to another.

The same input gives the same bytes on every machine. Letters are of one width, so that the room for a text is
known without a font. A drawing has its own ground, light or dark as the reader's machine prefers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal
from xml.sax.saxutils import escape

import msgspec

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "ground": ("#ffffff", "#0d1117"),
    "box": ("#e7f0fd", "#1f3350"),
    "note": ("#fdf3d8", "#40351a"),
    "word": ("#1f2328", "#e6edf3"),
    "wire": ("#53595f", "#a5adb6"),
    "line": ("#57606a", "#8d96a0"),
    "life": ("#c3c9d0", "#3d444d"),
}
"""By what it is for: in light, in dark."""
FONT: Final = (
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
)
START: Final = "start"
END: Final = "end"
"""Two states that are drawn as dots: there is nothing yet, or nothing any more."""
_LETTER: Final = 7.3
"""The width of a letter, in pixels, at the size of 12."""
_ROW: Final = 15
_PAD: Final = 8
_LABEL: Final = 28
"""Letters in a line of a label, unless its arrow is longer."""
_COLUMN: Final = 124
"""Between two actors."""


class Message(msgspec.Struct, frozen=True):
    """A row of a sequence: from one actor to others, or a note at one."""

    sender: str
    receivers: tuple[str, ...]
    text: str
    wire: str = ""
    """How it is called where it passes: a subject, a path."""
    kind: Literal["call", "bus", "note"] = "call"


class Change(msgspec.Struct, frozen=True):
    """What leads from one state to another."""

    before: str
    after: str
    text: str


def sequence(title: str, actors: Sequence[str], messages: Sequence[Message]) -> str:
    """Return a sequence diagram; messages are numbered from 1."""
    names = {actor: _wrapped(actor, 13) for actor in actors}
    left = 44
    at = {actor: left + _COLUMN // 2 + _COLUMN * number for number, actor in enumerate(actors)}
    width = left + _COLUMN * len(actors) + _PAD
    head = _PAD + _ROW * max(len(lines) for lines in names.values()) + _PAD
    rows: list[str] = []
    y = head + 2 * _PAD
    for number, message in enumerate(messages, 1):
        drawn, height = _row(number, message, at, y, width)
        rows += drawn
        y += height
    lives = [f'<path class="life" d="M{x} {head}V{y}"/>' for x in at.values()]
    actor_boxes = [
        line
        for top in (_PAD, y)
        for actor, x in at.items()
        for line in _box(names[actor], x, top, _COLUMN - 2 * _PAD, head - _PAD)
    ]
    description = "; ".join(f"{number}. {spelled(message)}" for number, message in enumerate(messages, 1))
    return _document(title, description, width, y + head, [*lives, *rows, *actor_boxes])


def spelled(message: Message) -> str:
    """Return a message in words, for people who do not see the drawing."""
    wire = f" ({message.wire})" if message.wire else ""
    if message.kind == "note":
        return f"{message.sender} publishes {message.text}{wire}"
    return f"{message.sender} to {' and '.join(message.receivers)}: {message.text}{wire}"


def _row(number: int, message: Message, at: Mapping[str, int], y: int, width: int) -> tuple[list[str], int]:
    """Return the elements of a message and the height that it takes."""
    ends = [at[message.sender], *(at[receiver] for receiver in message.receivers)]
    room = max(_LABEL, int((max(ends) - min(ends) - 2 * _PAD) / _LETTER))
    words, wires = _wrapped(message.text, room), _wrapped(message.wire, room)
    block = _ROW * (len(words) + len(wires))
    half = max(len(line) for line in (*words, *wires)) * _LETTER / 2 + 4
    middle = min(max((max(ends) + min(ends)) / 2, 40 + half), width - 4 - half)
    back = _tag(
        "rect",
        "note" if message.kind == "note" else "ground",
        x=middle - half,
        y=y,
        width=2 * half,
        height=block + 4,
    )
    labels = _lines(words, wires, middle, y + 12)
    line_y = y + block + 9
    what = f'<text class="wire" x="{_PAD}" y="{y + 12}">{number}</text>'
    if message.kind == "note":
        return [back, *labels, what], block + 4 + _PAD + 4
    begin = ends[0]
    dashed = " bus" if message.kind == "bus" else ""
    if set(message.receivers) == {message.sender}:
        loop = f'<path class="line{dashed}" d="M{begin} {line_y}h28v10h-22"/>'
        return [back, *labels, what, loop, _head(begin, line_y + 10, -1)], block + 32
    far = dict.fromkeys((min(ends), max(ends)))
    lines = [f'<path class="line{dashed}" d="M{begin} {line_y}H{x}"/>' for x in far if x != begin]
    heads = [_head(x, line_y, 1 if x > begin else -1) for x in ends[1:]]
    return [back, *labels, what, *lines, *heads], block + 9 + 2 * _PAD


def ladder(title: str, states: Sequence[str], changes: Sequence[Change]) -> str:
    """Return a state diagram: states from top to bottom, ways down at the right, ways up at the left."""
    rank = {state: number for number, state in enumerate(states)}
    straight = {change.before: change for change in changes if rank[change.after] == rank[change.before] + 1}
    sides = {
        "right": _lanes(changes, rank, straight.values(), is_down=True),
        "left": _lanes(changes, rank, straight.values(), is_down=False),
    }
    reach = {side: _reach(lanes) for side, lanes in sides.items()}
    depth = {side: max((lane.number for lane in lanes), default=-1) + 1 for side, lanes in sides.items()}
    half = max(len(state) for state in states) * _LETTER / 2 + 2 * _PAD
    middle = _PAD + depth["left"] * 14 + reach["left"] + half
    width = middle + half + max(reach["right"], 10 * _LETTER) + depth["right"] * 14 + _PAD
    room = int((half + max(reach["right"], 10 * _LETTER) - _PAD) / _LETTER)
    beside = {state: _wrapped(change.text, room) for state, change in straight.items()}
    tops, ports, y = _heights(states, sides, beside)
    edges = {"right": middle + half, "left": middle - half}
    elements: list[str] = []
    for side, lanes in sides.items():
        sign = 1 if side == "right" else -1
        for lane in lanes:
            x = edges[side] + sign * (reach[side] + 14 * lane.number + 4)
            elements += _lane(lane, side, x, ports, {s: _edge(s, side, middle, half) for s in states})
    for state in states:
        top, height = tops[state]
        if change := straight.get(state):
            below = tops[change.after][0]
            foot = below + 7 if change.after in {START, END} else below
            begin = top + height / 2 + 7 if state in {START, END} else top + height
            if change.after in {START, END}:
                foot = below + tops[change.after][1] / 2 - 7
            elements += [
                f'<path class="line" d="M{_n(middle)} {_n(begin)}V{_n(foot)}"/>',
                _head_down(middle, foot),
                *_lines(beside[state], [], middle + _PAD, top + height + 16, anchor="start"),
            ]
        if state in {START, END}:
            elements.append(f'<circle class="dot" cx="{_n(middle)}" cy="{_n(top + height / 2)}" r="7"/>')
            if state == END:
                elements.append(
                    f'<circle class="ground" cx="{_n(middle)}" cy="{_n(top + height / 2)}" r="3"/>'
                )
        else:
            elements += _box([state], middle, top, 2 * half, height)
    description = "; ".join(f"{change.before} to {change.after}: {change.text}" for change in changes)
    return _document(title, description, width, y + _PAD, elements)


class _Lane(msgspec.Struct):
    """Ways with one end and one text, on one side: they share a line."""

    after: str
    text: str
    befores: list[str]
    number: int = 0


def _lanes(
    changes: Iterable[Change], rank: Mapping[str, int], straight: Iterable[Change], *, is_down: bool
) -> list[_Lane]:
    """Return the lanes of one side, the shortest nearest to the states."""
    near, lanes = list(straight), dict[tuple[str, str], _Lane]()
    for change in changes:
        if change not in near and (rank[change.after] > rank[change.before]) == is_down:
            lane = lanes.setdefault((change.after, change.text), _Lane(change.after, change.text, []))
            lane.befores.append(change.before)
    taken: list[list[tuple[int, int]]] = []
    for lane in sorted(lanes.values(), key=lambda lane: _length(lane, rank)):
        first, last = _span(lane, rank)
        lane.number = next(
            (
                number
                for number, spans in enumerate(taken)
                if all(last < other_first or first > other_last for other_first, other_last in spans)
            ),
            len(taken),
        )
        if lane.number == len(taken):
            taken.append([])
        taken[lane.number].append((first, last))
    return list(lanes.values())


def _span(lane: _Lane, rank: Mapping[str, int]) -> tuple[int, int]:
    ends = [rank[lane.after], *(rank[before] for before in lane.befores)]
    return min(ends), max(ends)


def _length(lane: _Lane, rank: Mapping[str, int]) -> int:
    first, last = _span(lane, rank)
    return last - first


def _reach(lanes: Iterable[_Lane]) -> float:
    """Return the room that the longest line of a label takes."""
    lines = [line for lane in lanes for line in _wrapped(lane.text, _LABEL)]
    return max((len(line) for line in lines), default=0) * _LETTER + 2 * _PAD if lines else 0.0


_Port = tuple[str, str, str, str, Literal["in", "out"]]
"""State, side, the lane's end and text, and whether the lane ends or begins there."""


def _heights(
    states: Sequence[str], sides: Mapping[str, list[_Lane]], beside: Mapping[str, Sequence[str]]
) -> tuple[dict[str, tuple[float, float]], dict[_Port, float], float]:
    """Return top and height of each state, where each lane touches it, and the end of all."""
    tops: dict[str, tuple[float, float]] = {}
    ports: dict[_Port, float] = {}
    y = float(_PAD)
    for state in states:
        heights: list[float] = []
        for side, lanes in sides.items():
            begins = [lane for lane in lanes if state in lane.befores]
            ends = [lane for lane in lanes if lane.after == state]
            at = y + 6
            order: list[tuple[Literal["in", "out"], list[_Lane]]] = [("in", ends), ("out", begins)]
            # Ways down arrive from above and go on below; ways up the other way round.
            for kind, some in order if side == "right" else order[::-1]:
                for lane in some:
                    rows = len(_wrapped(lane.text, _LABEL)) if kind == "out" else 0
                    at += _ROW * rows + 4
                    ports[state, side, lane.after, lane.text, kind] = at
                    at += 8
            heights.append(at - y + 2)
        height = max(28.0, *heights)
        tops[state] = (y, height)
        rows = len(beside.get(state, ()))
        y += height + (_ROW * rows + 16 if rows else 14)
    return tops, ports, y


def _edge(state: str, side: str, middle: float, half: float) -> float:
    reach = 7.0 if state in {START, END} else half
    return middle + reach if side == "right" else middle - reach


def _lane(
    lane: _Lane, side: str, x: float, ports: Mapping[_Port, float], edge: Mapping[str, float]
) -> Iterator[str]:
    sign = 1 if side == "right" else -1
    end_y = ports[lane.after, side, lane.after, lane.text, "in"]
    end_x = edge[lane.after]
    for before in lane.befores:
        y = ports[before, side, lane.after, lane.text, "out"]
        words = _wrapped(lane.text, _LABEL)
        yield f'<path class="line" d="M{_n(edge[before])} {_n(y)}H{_n(x)}V{_n(end_y)}H{_n(end_x)}"/>'
        anchor = "start" if side == "right" else "end"
        yield from _lines(
            words, [], edge[before] + sign * _PAD, y - 4 - _ROW * (len(words) - 1), anchor=anchor
        )
    yield _head(end_x, end_y, -sign)


def _box(lines: Sequence[str], middle: float, top: float, width: float, height: float) -> list[str]:
    first = top + height / 2 + 4 - (len(lines) - 1) * _ROW / 2
    return [
        _tag("rect", "box", x=middle - width / 2, y=top, width=width, height=height),
        *_lines(lines, [], middle, first),
    ]


def _lines(
    words: Sequence[str], wires: Sequence[str], x: float, y: float, *, anchor: str = "middle"
) -> list[str]:
    kinds = [*(("word", line) for line in words), *(("wire", line) for line in wires)]
    return [
        f'<text class="{kind}" x="{_n(x)}" y="{_n(y + _ROW * number)}" text-anchor="{anchor}">'
        f"{escape(line)}</text>"
        for number, (kind, line) in enumerate(kinds)
    ]


def _head(x: float, y: float, sign: int) -> str:
    return f'<path class="head" d="M{_n(x)} {_n(y)}l{-8 * sign} -4v8z"/>'


def _head_down(x: float, y: float) -> str:
    return f'<path class="head" d="M{_n(x)} {_n(y)}l-4 -8h8z"/>'


def _tag(name: str, kind: str, **numbers: float) -> str:
    given = " ".join(f'{key}="{_n(value)}"' for key, value in numbers.items())
    return f'<{name} class="{kind}" {given} rx="4"/>'


def _n(value: float) -> str:
    """Return a number with at most one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")


def _wrapped(text: str, room: int) -> list[str]:
    """Return *text* in lines of at most *room* letters, broken behind a blank, a dot, a slash or a hyphen."""
    parts: list[str] = [""]
    for before, letter in pairwise(f" {text}"):
        if before in " ./-" and parts[-1]:
            parts.append("")
        parts[-1] += letter
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return [line.strip() for line in lines if line.strip()]


def _document(title: str, description: str, width: float, height: float, elements: Iterable[str]) -> str:
    drawn = "\n".join(elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-labelledby="title said">\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="said">{escape(description)}</desc>\n'
        f"<style>\n{_style(0)}@media (prefers-color-scheme: dark) {{\n{_style(1)}}}\n</style>\n"
        f'<rect class="ground" width="100%" height="100%"/>\n'
        f'<g font-family="{FONT}" font-size="12">\n{drawn}\n</g>\n</svg>\n'
    )


def _style(scheme: int) -> str:
    colour = {name: pair[scheme] for name, pair in COLOURS.items()}
    rules = [f".{name} {{ fill: {colour[name]}; }}" for name in ("ground", "box", "note", "word", "wire")]
    rules += [
        f".line {{ fill: none; stroke: {colour['line']}; stroke-width: 1.5; }}",
        f".life {{ stroke: {colour['life']}; }}",
        f".head, .dot {{ fill: {colour['line']}; }}",
    ]
    if scheme == 0:
        rules.append(".bus { stroke-dasharray: 5 3; }")
    return "".join(f"{rule}\n" for rule in rules)
