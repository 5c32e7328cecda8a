"""Panels of a dashboard as SVG, drawn by pygal: values in, text out."""

import importlib
import math
from functools import partial
from typing import Any, Final
from xml.sax.saxutils import escape

import msgspec

WIDTH: Final = 640
HEIGHT: Final = 360
_SCALES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_PYGAL: Final[Any] = importlib.import_module("pygal")
"""It has no types."""


class Line(msgspec.Struct, frozen=True):
    """One series: its name, and values by seconds since the beginning."""

    name: str
    points: tuple[tuple[float, float], ...]


class Panel(msgspec.Struct, frozen=True):
    """What one panel shows; *unit* is Grafana's word for it."""

    title: str
    unit: str
    lines: tuple[Line, ...]


def svg(panel: Panel) -> str:
    """Return *panel* as an SVG document. A value that is no number is a gap."""
    drawn = _PYGAL.XY(
        title=panel.title,
        width=WIDTH,
        height=HEIGHT,
        show_dots=False,
        allow_interruptions=True,
        include_x_axis=True,
        no_data_text="no data",
        legend_at_bottom=True,
        truncate_legend=-1,
        value_formatter=partial(spelled, unit=panel.unit),
        x_value_formatter=partial(spelled, unit="s"),
        js=(),  # A picture asks nobody for a script.
    )
    for line in panel.lines:
        drawn.add(line.name, [(at, value if math.isfinite(value) else None) for at, value in line.points])
    text: str = drawn.render(is_unicode=True)
    return text


def page(title: str, files: dict[str, str]) -> str:
    """Return an HTML page of the pictures in *files*, by what they show."""
    pictures = "\n".join(
        f'<img src="{escape(file)}" alt="{escape(name)}" width="{WIDTH}">' for name, file in files.items()
    )
    return f'<!doctype html>\n<meta charset="utf-8">\n<h1>{escape(title)}</h1>\n{pictures}\n'


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
