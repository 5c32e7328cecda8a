"""GRES and TRES strings to numbers and back.

GRES say what a node has or a job holds, ``gpu:h100:8(S:0-1),shard:16``; TRES say the same for the
scheduler, ``cpu=4,mem=16000M,gres/gpu:h100=8``. Both come as free text of several writers, so what cannot
be read counts as nothing and never raises: a strange GRES must not hide its node.

Source: man pages gres.conf and slurm.conf; SchedMD/slurm, src/interfaces/gres.c.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

_TEXT_MAX: Final = 64 * 1024
"""Characters of a text that is read."""
_NUMBER_MAX: Final = 2**53
"""What every reader of JSON takes for a number; Python itself reads no more than 4,300 digits."""
_COUNT = re.compile(r"^(?P<number>[0-9]{1,15})(?P<unit>[KMGTP]?)$", re.IGNORECASE)
_MEMORY = re.compile(r"^(?P<number>[0-9]{1,15}(\.[0-9]{1,15})?)(?P<unit>[KMGTP]?)$", re.IGNORECASE)
_PARENTHESES = re.compile(r"\([^()]*\)")
_NOT_IN_TYPES: Final = re.compile(r"[^a-z0-9.-]+")
_HYPHENS: Final = re.compile(
    r"(-(?:SXM[0-9]*|PCIE|DGXS|FHHL)(?:-[0-9]+GB)?|-?PG[0-9]+-[0-9]+|-(?:[0-9]+-)?[0-9]+(?:[ACQe]|CME|B[0-9]?)(?=-|$))|-"
)
"""Of a label; those of form factors, boards and vGPUs are in the driver's name too, others are spaces."""
_VENDOR: Final = re.compile(r"^(nvidia|amd|intel)[_-]+(?=.)")
_TYPE_MAX: Final = 63
_KIB: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


class Gres(msgspec.Struct, frozen=True):
    """One generic resource: ``gpu:h100:8``."""

    name: str
    kind: str = ""
    """The type, such as ``h100``; empty where none is given."""
    count: int = 1

    def __str__(self) -> str:
        """Return it as ``--gres`` and GRES strings spell it."""
        return ":".join(part for part in (self.name, self.kind, str(self.count)) if part)


def gpu_type(model: str, types: Mapping[str, str]) -> str:
    """Return the GRES type of GPUs that a Node's label calls *model*; empty where it has no such label.

    What *types* says of the model holds. Another model is spelled in small letters without the vendor, with
    ``_`` for what stands in no type: ``NVIDIA_H100`` is ``h100``, ``NVIDIA-H100-80GB-HBM3`` is
    ``h100_80gb_hbm3``: a part of what the driver and Slurm's detection call it. The code that gives nodes
    their GRES and the code that requests them call this with the same *types*.

    Example:
        >>> types = {"H100_NVLINK_80GB": "h100"}
        >>> gpu_type("NVIDIA_L40S", types), gpu_type("H100_NVLINK_80GB", types)
        ('l40s', 'h100')
    """
    if model in types:
        return types[model]
    spelled = _HYPHENS.sub(lambda found: found[1] or "_", model[:_TYPE_MAX]).lower()
    return _VENDOR.sub("", _NOT_IN_TYPES.sub("_", spelled)).strip("_.-")


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Return the resources of a GRES string, in its order; ``(null)`` and ``N/A`` are none."""
    if len(text) > _TEXT_MAX:
        return ()
    found: list[Gres] = []
    for part in _PARENTHESES.sub("", text).split(","):
        words = [word for word in part.strip().removeprefix("gres/").removeprefix("gres:").split(":") if word]
        if not words or words[0] in {"N/A", "null"}:
            continue
        count = _count(words[-1]) if len(words) > 1 else None
        kind = ":".join(words[1:] if count is None else words[1:-1])
        found.append(Gres(words[0], kind, 1 if count is None else count))
    return tuple(found)


def gpus(text: str) -> int:
    """Return how many GPUs a GRES string names, of all types."""
    return sum(gres.count for gres in parse_gres(text) if gres.name == "gpu")


def parse_tres(text: str) -> dict[str, str]:
    """Return the parts of a TRES string by name: ``{"cpu": "4", "mem": "16000M"}``."""
    if len(text) > _TEXT_MAX:
        return {}
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def tres_count(text: str, name: str) -> int | None:
    """Return how many of *name* a TRES string has; None where it does not say.

    ``gres/gpu`` is given by its own entry; where only typed entries stand, by their sum.
    """
    tres = parse_tres(text)
    if name in tres:
        return _count(tres[name])
    typed = [_count(value) or 0 for key, value in tres.items() if key.startswith(name + ":")]
    return sum(typed) if typed else None


def tres_memory_mib(text: str) -> int | None:
    """Return the memory of a TRES string in MiB; None where it does not say."""
    found = _MEMORY.match(parse_tres(text).get("mem", ""))
    return None if found is None else _bounded(float(found["number"]) * _MIB[found["unit"].upper()])


def _count(text: str) -> int | None:
    """Return a count that may end in K, M, G, T or P (1,024 each)."""
    found = _COUNT.match(text)
    return None if found is None else _bounded(int(found["number"]) * _KIB[found["unit"].upper()])


def _bounded(number: float) -> int | None:
    return int(number) if number <= _NUMBER_MAX else None
