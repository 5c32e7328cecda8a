"""The reasons that our Events and conditions give, each with what it tells its reader.

What must stay true: a reason is written nowhere else, so docs/kubernetes-events.md, which is made of these,
has them all. `EventText` takes no other, and a service makes its conditions by `Reason.condition`.
"""

from enum import StrEnum
from typing import Self

from sunk_kube.objects import Condition


class Reason(StrEnum):
    """One word. A service's own are the members of a subclass, whose docstring says on what they stand."""

    about: str
    """The kinds of objects that show it."""
    event: str
    """The types of the Events that give it; empty: none does."""
    conditions: str
    """The conditions that give it, with their status; empty: none does."""
    when: str
    what_to_do: str

    def __new__(  # noqa: PLR0917 - the columns of a table
        cls, word: str, about: str, event: str, conditions: str, when: str, what_to_do: str
    ) -> Self:
        """Make a member of the columns of its row."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.about, made.event, made.conditions = about, event, conditions
        made.when, made.what_to_do = when, what_to_do
        return made

    def condition(self, kind: str, status: str, message: str = "") -> Condition:
        """Return the condition *kind* that gives this reason."""
        return Condition(type=kind, status=status, reason=self, message=message)
