"""`ullage events`: list or follow events."""

from __future__ import annotations

import argparse
import sys

import msgspec

from ullage.cli.output import Column, add_output, print_list
from ullage.cli.times import show_time
from ullage.client.client import Client
from ullage.client.local import reach
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


def configure_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after event number N")
    parser.add_argument("--session", help="only of this session")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C; json is then one line each")
    add_output(parser)
    parser.set_defaults(act=_events)


def _events(arguments: argparse.Namespace) -> int:
    api = reach(start=False)
    if arguments.session is not None:
        api.session(arguments.session)  # refuses an unknown session
    client = Client(api)
    events = client.events(arguments.after, session=arguments.session, follow=arguments.follow)
    if not arguments.follow:
        print_list(list(events), _EVENTS, arguments.output)
        return 0
    for event in events:
        line = msgspec.json.encode(event).decode() if arguments.output == "json" else _line(event)
        print(line)
        sys.stdout.flush()
    return 0


def _line(event: EventBody) -> str:
    return f"{event.number}  {show_time(event.at)}  {event.kind}  {_about(event) or '-'}  {event.message}".rstrip()
