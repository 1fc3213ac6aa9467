"""`ullage delete`: sessions by name, or all closed ones of a kind."""

from __future__ import annotations

import argparse
import sys
import time

from ullage.cli.several import for_each
from ullage.cli.times import parse_past
from ullage.client.api import Api, delete_closed
from ullage.client.local import reach
from ullage.model.error import InvalidRequest
from ullage.model.nearest import Missing


def configure_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION")
    parser.add_argument("--closed", action="store_true", help="all closed sessions, by the options below")
    parser.add_argument("--older-than", metavar="TIME", help="closed that long ago, such as 30d, or before a day")
    parser.add_argument("-q", "--queue", help="only of this queue")
    parser.add_argument("-u", "--user", "--owner", metavar="USER", help="only of this user")
    parser.add_argument("--dry-run", action="store_true", help="show which, and delete none")
    parser.set_defaults(act=_delete)


def _delete(arguments: argparse.Namespace) -> int:
    chosen = [
        name for name in ("older_than", "queue", "user", "dry_run") if getattr(arguments, name) not in (None, False)
    ]
    if arguments.closed and arguments.sessions:
        raise InvalidRequest("give sessions, or --closed with its options", field="--closed")
    if not arguments.closed and chosen:
        option = next(iter(chosen)).replace("_", "-")
        raise InvalidRequest(f"--{option} needs --closed: it selects closed sessions", field=f"--{option}")
    if not arguments.closed and not arguments.sessions:
        raise InvalidRequest("name sessions, or give --closed", field="session")
    api = reach(start=False)
    if arguments.sessions:
        return for_each(arguments.sessions, api.delete_session)[0]
    return _delete_closed(api, arguments)


def _delete_closed(api: Api, arguments: argparse.Namespace) -> int:
    older = arguments.older_than
    before = None if older is None else parse_past(older, time.time(), "--older-than")
    count = 0
    found = delete_closed(api, before=before, queue=arguments.queue, owner=arguments.user, dry_run=arguments.dry_run)
    for session in found:
        print(session)
        count += 1
    if not count and arguments.queue is not None:
        known = [queue.name for queue in api.queues()]
        if arguments.queue not in known:  # closed sessions may be of a queue that is gone
            raise Missing("queue", arguments.queue, known)
    done = "would be deleted" if arguments.dry_run else "deleted"
    print(f"{count} closed session{'' if count == 1 else 's'} {done}", file=sys.stderr)
    return 0
