"""Sessions and their tasks: `queue`, `sessions`, `tasks`, `cancel`, `close`, `delete`."""

from __future__ import annotations

import argparse

from ullage.cli.output import Column, add_output, print_list
from ullage.cli.several import for_each
from ullage.cli.target import Target, parse_target
from ullage.cli.times import show_age, show_time
from ullage.client.api import PAGE
from ullage.client.local import reach
from ullage.client.spec import user_name
from ullage.model.error import NotFound
from ullage.model.nearest import did_you_mean
from ullage.model.session import SessionState
from ullage.wire.session import SessionBody, TaskBody


def activity(session: SessionBody) -> str:
    """Return the state of a session; of an open one `running`, `pending` or `idle`."""
    if session.state != SessionState.OPEN:
        return session.state
    if session.running:
        return "running"
    return "pending" if session.pending else "idle"


def _duration(task: TaskBody) -> str:
    return "-" if task.started_at is None else show_age(task.started_at, task.ended_at)


QUEUE = (
    Column("ID", lambda s: s.id),
    Column("QUEUE", lambda s: s.queue),
    Column("APP", lambda s: s.application),
    Column("OWNER", lambda s: s.owner),
    Column("STATE", activity),
    Column("PRIO", lambda s: s.priority),
    Column("PENDING", lambda s: s.pending),
    Column("RUNNING", lambda s: s.running),
    Column("HELD/DESERVED", lambda s: f"{s.held}/{s.deserved}"),
    Column("REQUEST", lambda s: s.resreq),
    Column("AGE", lambda s: show_age(s.created_at)),
    Column("SHARE", lambda s: s.share, wide=True),
    Column("WEIGHT", lambda s: s.weight, wide=True),
    Column("CREATED", lambda s: show_time(s.created_at), wide=True),
    Column("REASON", lambda s: s.reason),
    Column("MESSAGE", lambda s: s.message, wide=True),
)

SESSIONS = (
    Column("ID", lambda s: s.id),
    Column("STATE", lambda s: s.state),
    Column("APP", lambda s: s.application),
    Column("REQUEST", lambda s: s.resreq),
    Column("QUEUE", lambda s: s.queue, wide=True),
    Column("OWNER", lambda s: s.owner),
    Column("PRIO", lambda s: s.priority),
    Column("PENDING", lambda s: s.pending),
    Column("RUNNING", lambda s: s.running),
    Column("SUCCEED", lambda s: s.succeed),
    Column("FAILED", lambda s: s.failed),
    Column("CANCELLED", lambda s: s.cancelled),
    Column("HELD/DESERVED", lambda s: f"{s.held}/{s.deserved}"),
    Column("MIN", lambda s: s.min_instances, wide=True),
    Column("MAX", lambda s: s.max_instances, wide=True),
    Column("BATCH", lambda s: s.batch_size, wide=True),
    Column("CREATED", lambda s: show_time(s.created_at)),
    Column("CLOSED", lambda s: show_time(s.closed_at), wide=True),
)

TASKS = (
    Column("TASK", lambda t: f"{t.session}/{t.task}"),
    Column("STATE", lambda t: t.state),
    Column("CODE", lambda t: t.code),
    Column("EXECUTOR", lambda t: t.executor),
    Column("CREATED", lambda t: show_time(t.created_at)),
    Column("STARTED", lambda t: show_time(t.started_at), wide=True),
    Column("ENDED", lambda t: show_time(t.ended_at), wide=True),
    Column("TOOK", _duration),
    Column("LOSSES", lambda t: t.losses, wide=True),
    Column("MESSAGE", lambda t: t.message.partition("\n")[0]),
)


def configure_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--me", action="store_true", help="only my sessions")
    parser.add_argument("-q", "--queue", help="only this queue")
    add_output(parser)
    parser.set_defaults(act=_queue)


def configure_sessions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", choices=[str(state) for state in SessionState], help="only sessions of this state")
    parser.add_argument("--owner", help="only this owner's")
    add_output(parser)
    parser.set_defaults(act=_sessions)


def configure_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after task N")
    parser.add_argument("--limit", type=int, default=PAGE, metavar="N", help=f"at most N tasks (default: {PAGE})")
    add_output(parser)
    parser.set_defaults(act=_tasks)


def configure_cancel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="ID", help="a session, or a task as SESSION/N")
    parser.set_defaults(act=_cancel)


def configure_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
    parser.set_defaults(act=_close)


def configure_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
    parser.set_defaults(act=_delete)


def configure_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
    parser.set_defaults(act=_retry)


def _queue(arguments: argparse.Namespace) -> int:
    owner = user_name() if arguments.me else None
    api = reach(start=False)
    sessions = api.sessions(SessionState.OPEN, owner)
    if arguments.queue is not None:
        _require_queue(arguments.queue, [queue.name for queue in api.queues()])
        sessions = [session for session in sessions if session.queue == arguments.queue]
    print_list(sessions, QUEUE, arguments.output)
    return 0


def _require_queue(name: str, known: list[str]) -> None:
    """Refuse a queue that does not exist.

    Raises:
        NotFound: it does not exist; the message lists the queues that do.

    """
    if name not in known:
        text = f"queue {name!r} does not exist: {did_you_mean(name, known)}known are {', '.join(sorted(known))}"
        raise NotFound(text, field="queue")


def _sessions(arguments: argparse.Namespace) -> int:
    print_list(reach(start=False).sessions(arguments.state, arguments.owner), SESSIONS, arguments.output)
    return 0


def _tasks(arguments: argparse.Namespace) -> int:
    tasks = reach(start=False).tasks(arguments.session, arguments.after, arguments.limit)
    print_list(tasks, TASKS, arguments.output)
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    targets = [parse_target(text) for text in arguments.targets]
    api = reach(start=False)

    def cancel(target: Target) -> None:
        if target.task is None:
            api.cancel_session(target.session)
        else:
            api.cancel_task(target.session, target.task)

    return for_each(targets, cancel)[0]


def _retry(arguments: argparse.Namespace) -> int:
    return for_each(arguments.sessions, reach(start=False).clear_failures)[0]


def _close(arguments: argparse.Namespace) -> int:
    return for_each(arguments.sessions, reach(start=False).close_session)[0]


def _delete(arguments: argparse.Namespace) -> int:
    return for_each(arguments.sessions, reach(start=False).delete_session)[0]
