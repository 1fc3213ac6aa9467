"""`ullage history` and `ullage usage`: what ran, and who used how much of what there was."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

import msgspec

from ullage.cli.exits import caution
from ullage.cli.fair_share import SHARES, fair_shares
from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.cli.size import show_size
from ullage.cli.times import parse_past, show_span, show_time
from ullage.client.api import HistoryOptions, list_history
from ullage.client.local import reach
from ullage.model.counted import counted
from ullage.model.duration import parse_duration
from ullage.model.error import invalid
from ullage.model.nearest import did_you_mean
from ullage.model.past_state import DIMENSIONS, PastState
from ullage.wire.history import HistoryBody, OfferedBody, UsageBody, UsedBody

_HOUR, _GIB = 3600.0, 2**30
_IDLE, _OTHERS = "(idle)", "(others)"
_SPELT = {"user": "owner", "users": "owner", "app": "application"}


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.2f}"


_COLUMNS = (
    Column("ID", lambda s: s.session),
    Column("OWNER", lambda s: s.owner),
    Column("QUEUE", lambda s: s.queue, spared=1),
    Column("APP", lambda s: s.application, spared=6),
    Column("STATE", lambda s: s.state),
    Column("REQUEST", lambda s: s.resreq, spared=5),
    Column("WAITED", lambda s: show_span(s.waited_s), key=lambda s: s.waited_s, spared=2),
    Column("RAN", lambda s: show_span(s.ran_s), key=lambda s: s.ran_s),
    Column("CARD-HOURS", lambda s: _hours(s.card_s), key=lambda s: s.card_s, spared=3),
    Column("CORE-HOURS", lambda s: _hours(s.core_s), key=lambda s: s.core_s, spared=4),
    Column(
        "PEAK",
        lambda s: None if s.memory_peak_bytes is None else show_size(s.memory_peak_bytes),
        key=lambda s: s.memory_peak_bytes,
    ),
    Column("SUCCEED", lambda s: s.succeed, wide=True),
    Column("FAILED", lambda s: s.failed, wide=True),
    Column("CANCELLED", lambda s: s.cancelled, wide=True),
    Column("CREATED", lambda s: show_time(s.created_at), wide=True, key=lambda s: s.created_at),
    Column("STARTED", lambda s: show_time(s.started_at), wide=True, key=lambda s: s.started_at),
    Column("ENDED", lambda s: show_time(s.ended_at), key=lambda s: s.ended_at),
)

HISTORY = Listing(
    kind="past session",
    columns=_COLUMNS,
    body=HistoryBody,
    name=lambda row: row.session,
    known_states=tuple(PastState),
    states_of=lambda row: (row.state,),
    users_of=lambda row: (row.owner,),
    queues_of=lambda row: (row.queue,),
)


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the report: hours of cards and cores, and GiB-hours; percentages are of what was offered.

    The line of the user `(idle)` is what was offered and not used; sessions and waiting are not known of it. The line
    of `(others)` is that of all who have no line.
    """

    at: float
    user: str
    queue: str
    application: str
    card_hours: float
    card_percent: float | None
    core_hours: float
    core_percent: float | None
    memory_gib_hours: float
    waited_hours: float | None
    sessions: int | None


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}%"


def _exact(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


_FROM = Column("FROM", lambda u: show_time(u.at), key=lambda u: u.at)
_USAGE = (
    Column("USER", lambda u: u.user),
    Column("QUEUE", lambda u: u.queue),
    Column("APP", lambda u: u.application),
    Column("CARD-HOURS", lambda u: _exact(u.card_hours), key=lambda u: u.card_hours),
    Column("CARDS", lambda u: _percent(u.card_percent), key=lambda u: u.card_percent),
    Column("CORE-HOURS", lambda u: _exact(u.core_hours), key=lambda u: u.core_hours),
    Column("CORES", lambda u: _percent(u.core_percent), key=lambda u: u.core_percent),
    Column("GIB-HOURS", lambda u: _exact(u.memory_gib_hours), key=lambda u: u.memory_gib_hours, wide=True),
    Column("WAITED-HOURS", lambda u: _exact(u.waited_hours), key=lambda u: u.waited_hours),
    Column("SESSIONS", lambda u: u.sessions),
)


def _usage_listing(first: Column) -> Listing:
    columns = (first, *_USAGE)
    return Listing(kind="line of usage", columns=columns, body=UsageLine, name=lambda line: line.user or line.queue)


USAGE = _usage_listing(_FROM._replace(wide=True))
USAGE_BY_STEP = _usage_listing(_FROM)


def configure_history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="ID", help="only of these sessions")
    _add_period(parser, "1d")
    HISTORY.configure(parser, _history)


def configure_usage(parser: argparse.ArgumentParser) -> None:
    _add_period(parser, "30d")
    parser.add_argument("--by", default="user", metavar="LIST", help="some of user, queue, application (default: user)")
    parser.add_argument("--step", metavar="TIME", help="a line for each 1h, 1d or so (default: the whole period)")
    some = "users, or other groups, that used most (default: 1000); the others are one line. Of --fair-share: lines"
    parser.add_argument("--limit", type=int, metavar="N", help=some)
    help_text = "past use by its half-life, and what weights count as by that, for each queue and user"
    parser.add_argument("--fair-share", action="store_true", help=help_text)
    USAGE.configure(parser, _usage)
    parser.set_defaults(act=_show_usage)


def _add_period(parser: argparse.ArgumentParser, since: str) -> None:
    when = "2d ago as 2d, a day as 2026-12-01, or 2026-12-01T08:00"
    parser.add_argument("--since", default=since, metavar="TIME", help=f"the begin: {when} (default: {since})")
    parser.add_argument("--until", metavar="TIME", help="the end, as --since (default: now)")


def _period(arguments: argparse.Namespace) -> HistoryOptions:
    now = time.time()
    since = parse_past(arguments.since, now, "--since")
    until = None if arguments.until is None else parse_past(arguments.until, now, "--until")
    if since >= (now if until is None else until):
        end = "now" if until is None else f"--until {arguments.until}"
        raise invalid("--since", arguments.since, f"the begin is not before the end ({end}); write an earlier one")
    return {"since": since, "until": until}


def _history(arguments: argparse.Namespace) -> list[HistoryBody]:
    owner = arguments.user if arguments.user and "," not in arguments.user else None
    wanted: HistoryOptions = {**_period(arguments), "owner": owner}
    found = list(list_history(reach(start=False), **wanted))
    if not arguments.sessions:
        return found
    missing = sorted({*arguments.sessions}.difference(row.session for row in found))
    caution([f"session {name} was not open in this period; --since 30d looks further back" for name in missing])
    return [row for row in found if row.session in arguments.sessions]


def _show_usage(arguments: argparse.Namespace) -> int:
    if arguments.fair_share:
        return SHARES.show(arguments, fair_shares)
    listing = USAGE if arguments.step is None else USAGE_BY_STEP  # the lines of several steps say of which they are
    return listing.show(arguments, _usage)


def _usage(arguments: argparse.Namespace) -> list[UsageLine]:
    step = None if arguments.step is None else parse_duration(arguments.step, "--step")
    by = [_dimension(name.strip()) for name in arguments.by.split(",")]
    report = reach(start=False).usage(by, step=step, limit=arguments.limit, **_period(arguments))
    if report.left_out:
        least = f"{counted(report.left_out, 'group')} that used least"
        caution([f"the line {_OTHERS} is the sum of {least}; a larger --limit shows more"])
    return list(_lines(report))


def _dimension(name: str) -> str:
    known = ("user", *DIMENSIONS[1:])
    found = _SPELT.get(name, name)
    if found not in DIMENSIONS:
        raise invalid("--by", name, f"{did_you_mean(name, known)}write some of {', '.join(known)}, with commas")
    return found


def _lines(report: UsageBody) -> Iterator[UsageLine]:
    """Yield the lines of each step, and then what was idle in it."""
    offered = {each.at: each for each in report.offered}
    used = {at: list(rows) for at, rows in groupby(report.rows, key=lambda row: row.at)}
    rest = {each.at: msgspec.structs.replace(each, owner=_OTHERS) for each in report.rest}
    for at in sorted({*offered, *used, *rest}):
        rows, there = [*used.get(at, []), *([rest[at]] if at in rest else [])], offered.get(at)
        yield from map(partial(_line, there), rows)
        if there is not None:
            yield _idle(there, rows)


def _line(offered: OfferedBody | None, row: UsedBody) -> UsageLine:
    return UsageLine(
        at=row.at,
        user=row.owner,
        queue=row.queue,
        application=row.application,
        card_hours=row.card_s / _HOUR,
        card_percent=_of(offered, row.card_s, lambda there: there.card_s),
        core_hours=row.core_s / _HOUR,
        core_percent=_of(offered, row.core_s, lambda there: there.core_s),
        memory_gib_hours=row.memory_byte_s / _GIB / _HOUR,
        waited_hours=row.waited_s / _HOUR,
        sessions=row.sessions,
    )


def _idle(offered: OfferedBody, rows: list[UsedBody]) -> UsageLine:
    cards = max(0.0, offered.card_s - sum(row.card_s for row in rows))
    cores = max(0.0, offered.core_s - sum(row.core_s for row in rows))
    memory = max(0.0, offered.memory_byte_s - sum(row.memory_byte_s for row in rows))
    return UsageLine(
        at=offered.at,
        user=_IDLE,
        queue="",
        application="",
        card_hours=cards / _HOUR,
        card_percent=_of(offered, cards, lambda there: there.card_s),
        core_hours=cores / _HOUR,
        core_percent=_of(offered, cores, lambda there: there.core_s),
        memory_gib_hours=memory / _GIB / _HOUR,
        waited_hours=None,
        sessions=None,
    )


def _of(offered: OfferedBody | None, amount: float, total: Callable[[OfferedBody], float]) -> float | None:
    """Return how many percent of what was offered an amount is; None if nothing was."""
    there = 0.0 if offered is None else total(offered)
    return 100 * amount / there if there else None
