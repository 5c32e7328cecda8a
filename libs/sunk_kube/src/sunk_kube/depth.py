"""Objects that are nested deeper than they can be read; pure.

An API server takes ten thousand levels where a definition lets fields be of any form, such as those of a
container in a NodeSet. Python gives up at a thousand: a list or watch with that object would be lost for all.
"""

import re
from typing import Final

MOST: Final = 200
"""Levels of a whole answer. A Pod has some twenty."""
_PART: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def cut_deep(data: bytes, most: int = MOST) -> bytes:
    """Return the JSON in *data* with ``null`` for each list and object below the level *most*."""
    kept, at, depth = list[bytes](), 0, 0
    for part in _PART.finditer(data):
        match part[0]:
            case b"[" | b"{":
                depth += 1
                if depth == most + 1:
                    kept += (data[at : part.start()], b"null")
            case b"]" | b"}":
                if depth == most + 1:
                    at = part.end()
                depth -= 1
            case _:
                pass
    return b"".join(kept) + data[at:] if depth <= most else data
