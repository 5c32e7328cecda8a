"""Samples to lines of Prometheus' text format and of OpenMetrics: in both a sample reads the same.

Only the heads differ: OpenMetrics wants each counter's name to end in ``_total``, and the documents' names
do not all do that; those are declared as of unknown type there.

Source: Prometheus, "Exposition formats", text format 0.0.4; OpenMetrics 1.0.0.
"""

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

from sunk_metrics_exporter.slurm_metrics.table import BY_NAME, Series

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_TOTAL: Final = "_total"


def head(series: Series, *, is_open: bool) -> str:
    """Return the lines that declare *series*; *is_open* is OpenMetrics' form."""
    name, kind = series.name, str(series.kind)
    if is_open and kind == "counter":
        name, kind = (name.removesuffix(_TOTAL), kind) if name.endswith(_TOTAL) else (name, "unknown")
    return f"# HELP {name} {series.help}\n# TYPE {name} {kind}\n"


def line(metric: str, values: Sequence[str], value: float, left_out: Collection[str] = ()) -> str:
    """Return one sample, with its end of line."""
    return f"{prefix(metric, values, left_out)} {number(value)}\n"


def prefix(metric: str, values: Sequence[str], left_out: Collection[str] = ()) -> str:
    """Return one sample without its value: *values* are those of all the labels, in the table's order."""
    if not values:
        return metric
    if left_out:
        labels = zip(BY_NAME[metric].labels, values, strict=True)
        values = [value for label, value in labels if label not in left_out]
    return _pattern(metric, frozenset(left_out)) % tuple(map(_escaped, values))


@lru_cache(maxsize=256)
def _pattern(metric: str, left_out: frozenset[str]) -> str:
    """Return what the values are filled into: the names of a metric's labels never change."""
    labels = ",".join(label + '="%s"' for label in BY_NAME[metric].labels if label not in left_out)
    return f"{metric}{{{labels}}}"


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES) if "\\" in value or '"' in value or "\n" in value else value


def number(value: float) -> str:
    """Return *value* as both formats spell it."""
    return repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
