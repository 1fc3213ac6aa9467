"""`ullage cancel` and `ullage requeue`: end sessions or tasks, or run them again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from ullage.cli.exits import NO, caution, complain
from ullage.cli.several import for_each
from ullage.cli.target import Target, parse_target
from ullage.client.api import Api, cancel_tasks
from ullage.client.local import reach
from ullage.client.own_name import own_name
from ullage.model.counted import counted
from ullage.model.error import InvalidRequest, NotFound
from ullage.model.nearest import did_you_mean
from ullage.model.session_state import OPEN_ACTIVITIES, SessionState
from ullage.wire.session import RequeueSession, SessionBody

_TARGETS = "a session, a task as SESSION/N, or SESSION:INDEX, several as SESSION:50-99 and SESSION:3,7,10-12"
_FILTERS = ("queue", "user", "state", "app")


def configure_cancel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", metavar="ID", help=_TARGETS)
    parser.add_argument("-q", "--queue", help="all open sessions of this queue")
    owners = parser.add_mutually_exclusive_group()
    owners.add_argument("-u", "--user", "--owner", metavar="USER", help="all of this user")
    owners.add_argument("--me", action="store_true", help="all of mine")
    parser.add_argument("--state", type=_state, choices=OPEN_ACTIVITIES, help="all of this state; filters are combined")
    parser.add_argument("--app", metavar="NAME", help="all of this application, such as command or function")
    parser.add_argument("--dry-run", action="store_true", help="list what would be cancelled, and cancel nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="cancel what a filter finds without a question")
    parser.set_defaults(act=_cancel)


def _state(text: str) -> str:
    from ullage.cli.slurm import state_of  # noqa: PLC0415  # needed only here

    return state_of(text.lower(), OPEN_ACTIVITIES)


def configure_requeue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="ID", help=_TARGETS)
    parser.add_argument("--cancelled", action="store_true", help="of a closed session also the cancelled tasks")
    parser.set_defaults(act=_requeue)


def _cancel(arguments: argparse.Namespace) -> int:
    targets = [parse_target(text) for text in arguments.targets]
    filters = {name: getattr(arguments, name) for name in _FILTERS if getattr(arguments, name) is not None}
    selects = bool(filters) or arguments.me
    if bool(targets) == selects:
        both = ", not both" if targets else ""
        text = f"name sessions, or select them by --queue, --user, --me, --state or --app{both}"
        raise InvalidRequest(text, field="targets")
    api = reach(start=False)
    if arguments.me:
        filters["user"] = own_name(api)
    if selects:
        found = _find(api, filters)
        if not found:
            caution([f"no open session has {', '.join(f'{name}={value}' for name, value in filters.items())}"])
            return 0
        targets = [Target(session.id) for session in found]
        is_certain = arguments.yes and not arguments.dry_run
        _show(found, "cancels" if is_certain else "would cancel")
        if arguments.dry_run:
            return 0
        if not arguments.yes and not _is_confirmed(len(found)):
            return NO
    return _cancel_each(api, targets, is_dry=arguments.dry_run)


def _cancel_each(api: Api, targets: Sequence[Target], *, is_dry: bool) -> int:
    numbers = numbers_of(api, targets)
    if is_dry:
        print("".join(f"would cancel {target}\n" for target in targets), end="")
        return 0

    def cancel(target: Target) -> None:
        tasks = numbers[target]
        if not tasks:
            api.cancel_session(target.session)
        elif len(tasks) == 1:
            api.cancel_task(target.session, *tasks)
        else:
            cancel_tasks(api, target.session, tasks)

    return for_each(targets, cancel)[0]


def numbers_of(api: Api, targets: Iterable[Target]) -> dict[Target, tuple[int, ...]]:
    """Return the numbers of the tasks of each target, none for a whole session, before anything is done.

    Raises:
        InvalidRequest: one of them does not exist.

    """
    sessions = {target.session: api.session(target.session) for target in targets if target.parts}
    return {target: target.numbers_in(sessions[target.session]) if target.parts else () for target in targets}


def _find(api: Api, filters: dict[str, str]) -> list[SessionBody]:
    """Return the open sessions that all filters select.

    Raises:
        NotFound: there is no such queue or application.

    """
    if "queue" in filters:
        _require("queue", filters["queue"], [queue.name for queue in api.queues()])
    if "app" in filters:
        _require("application", filters["app"], [application.name for application in api.applications()])
    return [
        session
        for session in api.sessions(SessionState.OPEN, filters.get("user"))
        if filters.get("queue", session.queue) == session.queue
        and filters.get("app", session.application) == session.application
        and filters.get("state") in (None, session.activity)
    ]


def _require(kind: str, name: str, known: list[str]) -> None:
    if name not in known:
        text = f"{kind} {name!r} does not exist: {did_you_mean(name, known)}known are {', '.join(sorted(known))}"
        raise NotFound(text, field=kind)


def _show(found: list[SessionBody], verb: str) -> None:
    for session in found:
        print(f"{verb} {session.id}: {session.activity}, of {session.owner or 'nobody'}, in queue {session.queue}")
    sys.stdout.flush()


def _is_confirmed(count: int) -> bool:
    """Ask whether to cancel sessions.

    Raises:
        InvalidRequest: there is no terminal to ask on.

    """
    if not (sys.stdin and sys.stdin.isatty()):
        text = "nothing is cancelled: there is no terminal to ask on; --yes cancels without a question"
        raise InvalidRequest(text, field="yes")
    print(f"Cancel {counted(count, 'session')}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    complain("nothing is cancelled")
    return False


def _requeue(arguments: argparse.Namespace) -> int:
    targets = [parse_target(text) for text in arguments.targets]
    api = reach(start=False)

    numbers = numbers_of(api, targets)

    def requeue(target: Target) -> None:
        which = RequeueSession(tasks=list(numbers[target]), cancelled=arguments.cancelled)
        done = api.requeue(target.session, which)
        if done.session == target.session:
            print(f"{target}: {counted(done.tasks, 'running task')} will wait again")
        else:
            print(f"{target}: {counted(done.tasks, 'task')} will run again in {done.session}")

    return for_each(targets, requeue)[0]
