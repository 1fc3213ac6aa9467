"""`ullage events`: list or follow events."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import msgspec

from ullage.cli.listing import Form, Listing
from ullage.cli.output import Column, cells, data_text
from ullage.cli.table import one_line
from ullage.cli.times import show_time
from ullage.client.api import list_events
from ullage.client.local import reach
from ullage.model.error import InvalidRequest
from ullage.wire.event import EventBody


def _about(event: EventBody) -> object:
    """Return the session of an event, else its request or gang, else None."""
    return event.session or event.data.get("uid") or event.data.get("gang")


def _data(event: EventBody) -> str:
    return ",".join(f"{key}={value}" for key, value in event.data.items())


_EVENTS = (
    Column("NUMBER", lambda e: e.number),
    Column("TIME", lambda e: show_time(e.at)),
    Column("KIND", lambda e: e.kind),
    Column("ABOUT", _about),
    Column("CODE", lambda e: e.code),
    Column("MESSAGE", lambda e: e.message),
    Column("DATA", _data, wide=True),
)


EVENTS = Listing(kind="event", columns=_EVENTS, body=EventBody, name=lambda event: str(event.number))


def configure_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after event number N")
    parser.add_argument("--session", help="only of this session")
    parser.add_argument(
        "-f", "--follow", "-w", "--watch", action="store_true", help="go on until Ctrl-C; json is then one line each"
    )
    EVENTS.add_options(parser, watch=False)
    parser.set_defaults(act=_events, watch=False)


def _events(arguments: argparse.Namespace) -> int:
    if not arguments.follow:
        return EVENTS.show(arguments, lambda _: list(_found(arguments)))
    if arguments.sort is not None:
        raise InvalidRequest("--sort needs all events, and --follow has no end: leave one out", field="sort")
    form = EVENTS.form(arguments)
    for event in _found(arguments):
        sys.stdout.write(_line(event, form))
        sys.stdout.flush()
    return 0


def _found(arguments: argparse.Namespace) -> Iterator[EventBody]:
    api = reach(start=False)
    if arguments.session is not None:
        api.session(arguments.session)  # refuses an unknown session
    return list_events(api, arguments.after, session=arguments.session, follow=arguments.follow)


def _line(event: EventBody, form: Form) -> str:
    """Return one event as text to which others are added."""
    if form.output == "json":
        return f"{msgspec.json.encode(event).decode()}\n"
    if form.output == "yaml":
        return f"---\n{data_text(event, 'yaml')}"
    if form.output == "table":
        return f"{'  '.join(map(one_line, *cells([event], form.columns))).rstrip()}\n"
    return EVENTS.text([event], form._replace(header=False))
