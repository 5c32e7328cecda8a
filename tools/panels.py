"""Panels of a dashboard as one SVG document, drawn by matplotlib: values in, text out."""

import io
import math
from collections.abc import Callable
from typing import Any, Final

import matplotlib as mpl
import msgspec
from matplotlib.figure import Figure

COLUMNS: Final = 2
NAMED: Final = 10
"""So many series a panel are in its legend."""
_SIZE: Final = (7.0, 3.6)
"""Of a panel, in inches."""
_SCALES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


class Line(msgspec.Struct, frozen=True):
    """One series: its name, and values by seconds since the beginning."""

    name: str
    points: tuple[tuple[float, float], ...]


class Panel(msgspec.Struct, frozen=True):
    """What one panel shows; *unit* is Grafana's word for it."""

    title: str
    unit: str
    lines: tuple[Line, ...]


def page(title: str, panels: tuple[Panel, ...]) -> str:
    """Return an SVG document of *panels*. A value that is no number is a gap."""
    rows = math.ceil(len(panels) / COLUMNS)
    drawing: Any = mpl  # Its own types are only half there.
    with drawing.rc_context({"svg.fonttype": "none", "text.parse_math": False}):
        figure: Any = Figure(figsize=(_SIZE[0] * COLUMNS, _SIZE[1] * rows), layout="constrained")
        figure.suptitle(title)
        every = figure.subplots(rows, COLUMNS, squeeze=False).flat
        for axes, panel in zip(every, panels, strict=False):
            _draw(axes, panel)
        for axes in list(every)[len(panels) :]:
            axes.set_axis_off()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw(axes: Any, panel: Panel) -> None:  # noqa: ANN401 - matplotlib's own types are only half there
    axes.set_title(panel.title)
    for number, line in enumerate(panel.lines):
        values = [value if math.isfinite(value) else math.nan for _, value in line.points]
        rest = len(panel.lines) - NAMED
        more = f", and {rest} more" if number == NAMED - 1 and rest > 0 else ""
        # A name that begins with an underscore is left out of the legend.
        label = line.name + more if number < NAMED else f"_{number}"
        axes.plot([at for at, _ in line.points], values, label=label, gid=f"line-{number}")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(_speller("s"))
    axes.yaxis.set_major_formatter(_speller(panel.unit))
    if panel.lines:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=2, fontsize="x-small", frameon=False)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center")


def _speller(unit: str) -> Callable[[float, int | None], str]:
    return lambda value, _place: spelled(value, unit)


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
