"""slurmrestd's answers made ours: understood, or an error that says what to do next.

What must stay true: an answer is either understood or an error; a refusal is told from a failure by Slurm's
error number, never by the HTTP status, because 24.11 answers 500 to both.

Source: slurmrestd 24.11 and 26.05, measured; slurm.schedmd.com/rest.html.
"""

from typing import Final, TypeVar

import msgspec

from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError, classified
from sunk_slurm.wire import VERSIONS, Answer

T = TypeVar("T", bound=Answer)
Part = TypeVar("Part")

_SERVER_ERROR: Final = 500
_REFUSED: Final = 400
_SHOWN: Final = 120


class Reply(msgspec.Struct, frozen=True):
    """What came back over HTTP."""

    status: int
    content: bytes

    @property
    def is_object(self) -> bool:
        """Whether it begins as a JSON object does; slurmrestd's own words on bad URLs do not."""
        return self.content.lstrip()[:1] == b"{"

    @property
    def shown(self) -> str:
        """What came, in a line: it may be anything, and it may be long."""
        start = " ".join(self.content[:_SHOWN].decode("utf-8", "replace").split())
        return f"HTTP {self.status}, {len(self.content)} bytes of {start!r}"


class _Paths(msgspec.Struct, frozen=True):
    """The part of slurmrestd's OpenAPI document that says which versions it has."""

    paths: dict[str, msgspec.Raw] = {}


def understood(doing: str, kind: type[T], reply: Reply) -> T:
    """Return the answer, or raise what Slurm's errors in it mean."""
    try:
        answer = decoded(reply.content, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmUnavailableError(f"{doing}: {reply.shown}: {error}") from error
    if problems := [problem for problem in answer.errors if problem.error_number != 0]:
        words = "; ".join(str(problem) for problem in problems)
        text = f"{doing}: HTTP {reply.status}: {words}"
        raise classified(text, [problem.error_number for problem in problems])
    if reply.status >= _SERVER_ERROR:
        raise SlurmUnavailableError(f"{doing}: {reply.shown}")
    if reply.status >= _REFUSED:
        raise SlurmRejectedError(f"{doing}: {reply.shown}")
    return answer


def decoded(content: bytes, kind: type[Part]) -> Part:
    """Decode an answer, or a part of one; bytes that are no UTF-8 are replaced.

    Slurm takes any bytes for a job's name or a node's reason, and slurmrestd passes them on: one user's job
    must not keep everybody from being told of all the others.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except UnicodeDecodeError:
        return msgspec.json.decode(content.decode("utf-8", "replace").encode(), type=kind)


def best_version(doing: str, reply: Reply) -> str:
    """Return the best API version that slurmrestd's OpenAPI document and we both speak.

    Raises:
        SlurmUnavailableError: that is no such document.
        SlurmRejectedError: there is none.
    """
    if reply.status >= _SERVER_ERROR or not reply.is_object:
        raise SlurmUnavailableError(f"{doing}: {reply.shown}")
    try:
        paths = msgspec.json.decode(reply.content, type=_Paths).paths
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmUnavailableError(f"{doing}: {reply.shown}") from error
    served = {words[2] for path in paths if len(words := path.split("/")) > 2 and words[1] == "slurm"}  # noqa: PLR2004 - "", "slurm", version
    if (best := next((version for version in VERSIONS if version in served), None)) is not None:
        return best
    raise SlurmRejectedError(
        f"slurmrestd serves {', '.join(sorted(served)) or 'no API of slurmctld'}; needed is one of "
        f"{', '.join(VERSIONS)}"
    )
