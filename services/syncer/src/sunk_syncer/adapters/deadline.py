"""A deadline whose end is an error of ours: Slurm did not answer in time."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from sunk_slurm.errors import SlurmUnavailableError


@contextmanager
def within(timeout_s: float, doing: str) -> Generator[None]:
    """Give what is inside *timeout_s* seconds.

    Raises:
        SlurmUnavailableError: that was not enough; a write may have been carried out all the same.
    """
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise SlurmUnavailableError(f"{doing}: no answer within {timeout_s:g} s") from error
