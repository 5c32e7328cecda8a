"""Kubernetes quantities to numbers: ``1500m`` is 1.5, ``4Gi`` is 4294967296.

Exact: a decimal, never a float, so that sums compare as the scheduler compares them.

Source: Kubernetes API, resource.Quantity, serialization format.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

Quantity = str | int | float
"""As it stands in JSON: text, or a bare number."""

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[A-Za-z]*)", re.ASCII)
_FACTOR: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}


def number(quantity: Quantity) -> Decimal:
    """Return the number that *quantity* stands for.

    Raises:
        ValueError: it is not a quantity; the text holds it.
    """
    found = _NUMBER.fullmatch(str(quantity).strip())
    if found is None:
        raise ValueError(f"{quantity!r} is not a quantity")
    digits, suffix = found.groups()
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return Decimal(digits + suffix)
    if suffix not in _FACTOR:
        raise ValueError(f"{quantity!r} is not a quantity: unknown suffix {suffix!r}")
    return Decimal(digits) * _FACTOR[suffix]


Resources = Mapping[str, Quantity]
"""Quantities by resource name, as in ``requests`` or ``allocatable``."""


def total(parts: Iterable[Resources]) -> dict[str, Decimal]:
    """Return the sum of *parts*, by resource name."""
    found: dict[str, Decimal] = {}
    for part in parts:
        for name, quantity in part.items():
            found[name] = found.get(name, Decimal(0)) + number(quantity)
    return found


def largest(parts: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """Return the largest of *parts*, resource by resource."""
    found: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = max(found.get(name, amount), amount)
    return found
