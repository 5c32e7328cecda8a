"""A scrape of /metrics, read with Prometheus' own rules as far as the story needs them."""

import re
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


class Series:
    """All samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples = [
            Sample(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))
            for line in text.splitlines()
            if not line.startswith("#") and (found := _LINE.match(line))
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one sample that has *labels*; None if there is none or more than one."""
        found = [sample.value for sample in self.samples if sample.name == name and _has(sample, labels)]
        return found[0] if len(found) == 1 else None

    def labels(self, name: str, wanted: str, **labels: str) -> list[str]:
        """Return the values of the label *wanted* of the samples of *name* that are not 0."""
        return [
            sample.labels.get(wanted, "")
            for sample in self.samples
            if sample.name == name and sample.value and _has(sample, labels)
        ]


def _has(sample: Sample, labels: dict[str, str]) -> bool:
    return all(sample.labels.get(name) == value for name, value in labels.items())
