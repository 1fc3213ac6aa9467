"""`ullage update`: change open sessions."""

from __future__ import annotations

import argparse
import time

from msgspec import UNSET

from ullage.cli.several import for_each
from ullage.cli.times import begin_at
from ullage.client.local import reach
from ullage.model.error import InvalidRequest, invalid
from ullage.wire.session import UpdateSession

_NO_LIMIT = "none"


def configure_update(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="ID")
    parser.add_argument("-p", "--priority", type=int, metavar="N", help="higher is scheduled first within the queue")
    parser.add_argument("--weight", type=int, metavar="N", help="its part of what its queue deserves")
    parser.add_argument(
        "--at-once", metavar="N", help=f"how many executors it has at most, as %%N of an array; {_NO_LIMIT}"
    )
    parser.add_argument(
        "--begin",
        metavar="TIME",
        help="start no further task before this time: as `run --begin`; now starts them, never holds them",
    )
    parser.set_defaults(act=_update)


def _update(arguments: argparse.Namespace) -> int:
    changes = UpdateSession(
        priority=UNSET if arguments.priority is None else arguments.priority,
        weight=UNSET if arguments.weight is None else arguments.weight,
        max_instances=UNSET if arguments.at_once is None else _count(arguments.at_once),
        begin_at=UNSET if arguments.begin is None else _begin(arguments.begin),
    )
    if changes == UpdateSession():
        raise InvalidRequest("nothing to change: give --priority, --weight, --at-once or --begin", field="arguments")
    api = reach(start=False)
    return for_each(arguments.sessions, lambda session: api.update_session(session, changes))[0]


def _count(text: str) -> int | None:
    if text == _NO_LIMIT:
        return None
    if not text.isdecimal():
        raise invalid("--at-once", text, f"write a number from 1, or {_NO_LIMIT}")
    return int(text)


def _begin(text: str) -> float | None:
    """Return the time of a begin; None for one that is not in the future."""
    now = time.time()
    at = begin_at(text, now)
    return at if at > now else None
