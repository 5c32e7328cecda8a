"""The lab's exceptions.

Whoever reads them sits before a terminal, so their text is one sentence that says what to do, with the path
of the log where there is one.
"""


class LabError(Exception):
    """Something an operator can act on; its text is meant to be printed as it is."""


class GivenUpError(LabError):
    """What is waited for cannot come any more: raised by a test to end `wait_for` early."""
