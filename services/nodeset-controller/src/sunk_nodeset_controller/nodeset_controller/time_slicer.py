"""Long work in strides: between two of them everybody else has as much time as the last one took.

A set of 5,000 Pods is looked at for 25 ms, planned for 40 and counted for 40: what Slurm says of a node
meanwhile would wait for all of it.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class TimeSlicer:
    """The strides of one piece of work."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        """Processor time: that a machine is busy is no reason to work more seldom."""

    async def take(self, work: Callable[[], T]) -> T:
        """Do *work*, which waits for nothing, then give way, and return what it came to."""
        began_s = time.thread_time()
        done = work()
        spent_s = time.thread_time() - began_s
        self.spent_s += spent_s
        await anyio.sleep(spent_s)
        return done
