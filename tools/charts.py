"""Lines over time as SVG, two charts in a row: values in, text out."""

import math
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

import msgspec

WIDTH: Final = 520
HEIGHT: Final = 300
_LEFT: Final = 62
_TOP: Final = 34
_PLOT_WIDTH: Final = WIDTH - _LEFT - 16
_PLOT_HEIGHT: Final = 150
_COLUMNS: Final = 2
_GRID: Final = 4
_NAMED: Final = 10
_NAMES_PER_COLUMN: Final = 5
_COLOURS: Final = (
    *("#3274d9", "#e0752d", "#56a64b", "#e02f44", "#8f3bb8"),
    *("#1f9e9e", "#b7950b", "#7f8c8d", "#c2185b", "#5d4037"),
)
_SCALES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


class Line(msgspec.Struct, frozen=True):
    """One series: its name, and values by seconds since the beginning."""

    name: str
    points: tuple[tuple[float, float], ...]


class Chart(msgspec.Struct, frozen=True):
    """What one panel shows; *unit* is Grafana's word for it."""

    title: str
    unit: str
    lines: tuple[Line, ...]


def page(title: str, charts: Sequence[Chart], *, length_s: float) -> str:
    """Return an SVG document of *charts* over *length_s* seconds. A value that is no number is a gap."""
    rows = math.ceil(len(charts) / _COLUMNS)
    width, height = WIDTH * _COLUMNS, HEIGHT * rows + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(16, 28, title, size=18),
    ]
    for number, chart in enumerate(charts):
        x, y = number % _COLUMNS * WIDTH, 44 + number // _COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x},{y})">', *_chart(chart, length_s), "</g>"]
    return "\n".join((*parts, "</svg>", ""))


def _chart(chart: Chart, length_s: float) -> list[str]:
    values = [value for line in chart.lines for _, value in line.points if math.isfinite(value)]
    top = _round_up(max(values, default=1.0))
    parts = [_text(16, 20, chart.title, size=14)]
    for step in range(_GRID + 1):
        y = _TOP + _PLOT_HEIGHT * (1 - step / _GRID)
        x = _LEFT + _PLOT_WIDTH * step / _GRID
        parts += [
            f'<path d="M{_LEFT} {y:.1f}h{_PLOT_WIDTH}" stroke="#dddddd"/>',
            _text(_LEFT - 6, y + 4, spelled(top * step / _GRID, chart.unit), anchor="end"),
            _text(x, _TOP + _PLOT_HEIGHT + 16, f"{length_s * step / _GRID:.0f} s", anchor="middle"),
        ]
    for number, line in enumerate(chart.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            for points in _polylines(line, top, length_s)
        ]
    return [*parts, *_names(chart)]


def _polylines(line: Line, top: float, length_s: float) -> Iterable[str]:
    """Yield the points of each run without a gap."""
    run: list[str] = []
    for at, value in (*line.points, (length_s, math.nan)):
        if math.isfinite(value):
            x = _LEFT + _PLOT_WIDTH * at / length_s
            run.append(f"{x:.1f},{_TOP + _PLOT_HEIGHT * (1 - value / top):.1f}")
        elif run:
            yield " ".join(run if len(run) > 1 else run * 2)
            run = []


def _names(chart: Chart) -> Iterable[str]:
    if not chart.lines:
        yield _text(_LEFT + _PLOT_WIDTH / 2, _TOP + _PLOT_HEIGHT / 2, "no data", anchor="middle")
    for number, line in enumerate(chart.lines[:_NAMED]):
        x = _LEFT + number // _NAMES_PER_COLUMN * _PLOT_WIDTH / 2
        y = _TOP + _PLOT_HEIGHT + 34 + number % _NAMES_PER_COLUMN * 15
        colour = _COLOURS[number % len(_COLOURS)]
        name = f"{line.name}, and {len(chart.lines) - _NAMED} more" if _is_last(number, chart) else line.name
        yield f'<rect x="{x:.0f}" y="{y - 8:.0f}" width="12" height="4" fill="{colour}"/>'
        yield _text(x + 17, y, name)


def _is_last(number: int, chart: Chart) -> bool:
    return number == _NAMED - 1 and len(chart.lines) > _NAMED


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" fill="#333333">'
        f"{escape(text)}</text>"
    )


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 5 and 10 times a power of ten; what is shown begins at 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 10) if value <= step * power * (1 + 1e-9))


def spelled(value: float, unit: str) -> str:
    """Return *value* as an axis spells it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        if 0 < value < 1:
            return f"{value * 1000:.3g} ms"
        factor, word = next((one for one in _TIMES if value >= one[0]), (1.0, "s"))
        return f"{value / factor:.3g} {word}"
    factor, word = next((one for one in _SCALES if value >= one[0]), (1.0, ""))
    return f"{value / factor:.3g}{word}" + ("/s" if unit == "reqps" else "")
