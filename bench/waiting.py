"""Waiting in benchmarks: at one pace, as what they time must not be coarser the longer it takes."""

from functools import partial
from typing import Final

from sunk_runtime.testing import until as _until

until: Final = partial(_until, pause_s=0.02)
