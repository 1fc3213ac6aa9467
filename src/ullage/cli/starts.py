"""`ullage queue --start`: when waiting sessions start, as far as that is foreseen."""

from __future__ import annotations

import argparse
import time

import msgspec

from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.cli.times import show_clock, show_span, show_time
from ullage.client.local import reach
from ullage.model.session_state import OPEN_ACTIVITIES, SessionState
from ullage.wire.history import StartBody


class StartLine(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting session with the estimate of its start; see `StartBody`."""

    session: str
    queue: str
    owner: str
    activity: str
    resreq: str
    at: float | None
    earliest: float | None
    latest: float | None
    confidence: float | None
    text: str


def _in(at: float | None) -> str | None:
    return None if at is None else show_span(at - time.time())


def _chance(confidence: float | None) -> str | None:
    return None if confidence is None else f"{10 * confidence:g} of 10"


def start_text(found: StartBody, now: float) -> str:
    """Return the sentence on an estimate."""
    if found.at is None or found.earliest is None or found.latest is None:
        return found.text
    earliest, latest, at = (show_clock(each, now) for each in (found.earliest, found.latest, found.at))
    times = _chance(found.confidence)
    likely = f"most likely at {at} (in {show_span(found.at - now)})"
    return f"between {earliest} and {latest}, {times} times; {likely}; {found.text}"


STARTS = Listing(
    kind="waiting session",
    columns=(
        Column("ID", lambda s: s.session),
        Column("QUEUE", lambda s: s.queue),
        Column("OWNER", lambda s: s.owner),
        Column("REQUEST", lambda s: s.resreq),
        Column("START", lambda s: show_time(s.at), key=lambda s: s.at),
        Column("IN", lambda s: _in(s.at), key=lambda s: s.at, moving=True),
        Column("EARLIEST", lambda s: _in(s.earliest), key=lambda s: s.earliest, moving=True),
        Column("LATEST", lambda s: _in(s.latest), key=lambda s: s.latest, moving=True),
        Column("CHANCE", lambda s: _chance(s.confidence), key=lambda s: s.confidence),
        Column("BASED ON", lambda s: s.text),
    ),
    body=StartLine,
    name=lambda line: line.session,
    known_states=OPEN_ACTIVITIES,
    states_of=lambda line: (line.activity,),
    users_of=lambda line: (line.owner,),
    queues_of=lambda line: (line.queue,),
)


def starts(_: argparse.Namespace) -> list[StartLine]:
    """Return the waiting sessions in the order of their estimated starts; those without one come last."""
    api = reach(start=False)
    estimates = {each.session: each for each in api.starts()}
    lines = [
        StartLine(
            session=session.id,
            queue=session.queue,
            owner=session.owner,
            activity=session.activity,
            resreq=session.resreq,
            at=found.at,
            earliest=found.earliest,
            latest=found.latest,
            confidence=found.confidence,
            text=found.text,
        )
        for session in api.sessions(SessionState.OPEN)
        if (found := estimates.get(session.id)) is not None
    ]
    return sorted(lines, key=lambda line: (line.at is None, line.at or 0.0))
