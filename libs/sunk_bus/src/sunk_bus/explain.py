"""`sunk-bus explain`: the services say why a node, a job or a Pod is as it is, and what would change it."""

from collections.abc import Iterable
from typing import Final

import anyio

from sunk_bus.session import Session
from sunk_bus.tables import findings_table
from sunk_events.base import Request
from sunk_events.requests import (
    ExplainJob,
    ExplainKubeNode,
    ExplainPlacement,
    ExplainSlurmNode,
    Explanation,
    Later,
    Refused,
)
from sunk_runtime.clock import now
from sunk_runtime.errors import ConfigError, NoAnswerError, PermanentError
from sunk_runtime.requests import ask_until

WHAT: Final = ("node", "job", "pod")


def questions(what: str, name: str) -> tuple[tuple[str, Request], ...]:
    """Return which services to ask which questions.

    Raises:
        ConfigError: *name* is not what such a thing is called.
    """
    match what:
        case "job" if name.isdecimal():
            return (("syncer", ExplainJob(job=int(name))),)
        case "job":
            raise ConfigError(f"explain job: {name!r} is not a number")
        case "pod" if len([part for part in name.split("/") if part]) == 2:  # noqa: PLR2004 - of two parts
            return (("pod-scheduler", ExplainPlacement(pod=name)),)
        case "pod":
            raise ConfigError(f"explain pod: give NAMESPACE/NAME, not {name!r}")
        case _:
            return (
                ("syncer", ExplainSlurmNode(node=name)),
                ("nodeset-controller", ExplainKubeNode(node=name)),
            )


async def explain(session: Session, what: str, name: str) -> None:
    """Ask, and show what is answered.

    Raises:
        PermanentError: nobody could say anything of it.
    """
    to_ask = questions(what, name)
    problems: list[str] = []
    is_answered = False
    for cluster in await session.clusters():
        for service, question in to_ask:
            problem = await _explained(session, cluster, service, question)
            is_answered |= not problem
            problems += [problem] if problem else []
    if not is_answered:
        raise PermanentError("; ".join(_unique(problems)))
    for problem in problems:
        session.out.note(problem)


async def _explained(session: Session, cluster: str, service: str, question: Request) -> str:
    """Show the answer; return why there is none, else nothing."""
    deadline = anyio.current_time() + session.timeout_s
    try:
        reply = await ask_until(session.bus, cluster, question, deadline=deadline)
    except NoAnswerError:
        return f"no {service} of {cluster} answers"
    match reply:
        case Explanation(findings=()):
            session.out.line(f"{cluster}, {service}: nothing to report")
        case Explanation(findings=findings):
            session.out.show(findings_table(f"{cluster}, {service}", findings, now()))
        case Later(reason=reason) | Refused(reason=reason):
            return f"{service} of {cluster}: {reason}"
        case _:
            return f"{service} of {cluster} answered {type(reply).__name__}"
    return ""


def _unique(problems: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(problems))
