"""`sunk-bus dead-letters`: what could not be handled, why, and once more."""

import sys
from collections import deque
from typing import Final

import anyio
import msgspec
from rich.text import Text

from sunk_bus import letters
from sunk_bus.letters import Letter, Plan, Replay, letter_of
from sunk_bus.reading import EVERYTHING, last_seq, reading, start_at
from sunk_bus.session import Session
from sunk_bus.streams import consumers_of
from sunk_bus.tables import letters_table
from sunk_bus.words import age, clock, safe
from sunk_events import subjects
from sunk_runtime.clock import now
from sunk_runtime.errors import ConfigError, PermanentError

_LOOK_S: Final = 0.1


class DeadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters, and what about them."""

    show: str = ""
    """The id of the one to show whole."""
    replay: str = ""
    """The id of the one to replay, or ``all``."""
    by: str = ""
    """A glob on the service that wrote it."""
    on: str = ""
    """A glob on the subject that the message came on."""
    limit: int = 50
    is_confirmed: bool = False
    wait_s: float = 5.0
    """How long to look what comes of a replay."""


async def dead_letters(session: Session, options: DeadOptions) -> None:
    """List, show or replay."""
    await session.require_dead_letters()
    if options.show:
        _show(session, await _find(session, options.show))
    elif options.replay == letters.ALL:
        await _replay(session, options, await _read(session, options, None))
    elif options.replay:
        await _replay(session, options, [await _find(session, options.replay)])
    else:
        found = await _read(session, options, options.limit)
        session.out.show(letters_table(reversed(found), now()))


async def _read(session: Session, options: DeadOptions, limit: int | None) -> list[Letter]:
    """Return the newest letters that are meant, oldest first."""
    found: deque[Letter] = deque(maxlen=limit)
    async with reading(session.bus, subjects.DEAD_LETTER_STREAM, EVERYTHING, _filter(session)) as reader:
        async for record in reader.rest():
            letter = letter_of(record)
            if letters.is_meant(letter, by=options.by, on=options.on):
                found.append(letter)
    return list(found)


def _filter(session: Session) -> str:
    return subjects.DEAD_LETTERS.replace(">", f"{session.cluster}.>" if session.cluster else ">")


async def _find(session: Session, name: str) -> Letter:
    start = start_at(int(name)) if name.isdecimal() else EVERYTHING
    async with reading(session.bus, subjects.DEAD_LETTER_STREAM, start, _filter(session)) as reader:
        async for record in reader.rest():
            letter = letter_of(record)
            if str(letter.seq) == name or (letter.letter is not None and letter.letter.id == name):
                return letter
            if name.isdecimal():
                break
    raise PermanentError(f"there is no dead letter {name!r}: `sunk-bus dead-letters` lists them")


def _show(session: Session, letter: Letter) -> None:
    out = session.out
    out.line(
        Text(f"dead letter {letter.seq}, {clock(letter.stored)}, {age(letter.stored, now())} ago", "bold")
    )
    out.line(f"by      {safe(letter.who)}")
    out.line(f"on      {safe(letter.on)}")
    out.line(f"reason  {safe(letter.reason)}")
    if letter.letter is None:
        return
    refusal = letters.why_not(letter.letter)
    out.line(f"id      {safe(letter.letter.id)}")
    out.line(f"replay  {f'no: {safe(refusal)}' if refusal else 'possible'}")
    for line in letters.payload_lines(letter.letter):
        out.line(safe(line))


async def _replay(session: Session, options: DeadOptions, chosen: list[Letter]) -> None:
    plan = letters.plan(chosen)
    for refusal in plan.refusals:
        session.out.line(Text(f"{refusal.letter}: not replayed: {safe(refusal.reason)}", "yellow"))
    if not plan.replays:
        raise PermanentError("nothing to replay")
    if options.replay == letters.ALL and not options.is_confirmed:
        await _confirm(session, plan)
    for replay in plan.replays:
        await _publish(session, replay, options.wait_s)


async def _confirm(session: Session, plan: Plan) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(f"{len(plan.replays)} messages would be published: confirm with --yes")
    for replay in plan.replays:
        session.out.line(f"{safe(replay.subject)}  (letter {', '.join(map(str, replay.letters))})")
    question = f"Publish these {len(plan.replays)} to every service again? Type yes: "
    answer = await anyio.to_thread.run_sync(input, question, abandon_on_cancel=True)
    if answer.strip().lower() != "yes":
        raise ConfigError("not confirmed: nothing was published")


async def _publish(session: Session, replay: Replay, wait_s: float) -> None:
    stream = subjects.fact_stream(replay.cluster)
    before = await last_seq(session.bus, stream)
    letters_before = await last_seq(session.bus, subjects.DEAD_LETTER_STREAM)
    seq = await session.bus.publish(replay.subject, replay.payload, msg_id=replay.msg_id)
    name = ", ".join(map(str, replay.letters))
    if seq <= before:
        session.out.line(
            f"{name}: already replayed within the last minutes, as {seq} of {stream}; not published again"
        )
        return
    note = "" if letters.is_known(replay.payload) else ", of a type that this version does not know"
    session.out.line(f"{name}: published on {safe(replay.subject)}, as {seq} of {stream}{note}")
    session.out.line("Every service receives it again. Services that had handled it ignore it")
    with anyio.move_on_after(wait_s):
        await _settled(session, stream, seq)
    for row in await consumers_of(session.bus, stream):
        verdict = "has handled it" if row.handled >= seq else f"has not handled it yet: lag {row.lag}"
        session.out.line(f"  {row.name} {verdict}")
    await _print_refusals(session, replay, letters_before + 1)


async def _settled(session: Session, stream: str, seq: int) -> None:
    """Return when every consumer has settled everything up to *seq*."""
    while True:
        if all(row.handled >= seq for row in await consumers_of(session.bus, stream)):
            return
        await anyio.sleep(_LOOK_S)


async def _print_refusals(session: Session, replay: Replay, since: int) -> None:
    start = start_at(since)
    async with reading(session.bus, subjects.DEAD_LETTER_STREAM, start, _filter(session)) as reader:
        async for record in reader.rest():
            letter = letter_of(record)
            if letter.letter and (letter.on, letter.letter.data.payload) == (replay.subject, replay.payload):
                text = (
                    f"  {safe(letter.who)} made it a dead letter again, {letter.seq}: {safe(letter.reason)}"
                )
                session.out.line(Text(text, "red"))
