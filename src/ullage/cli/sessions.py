"""Sessions and their tasks: `queue`, `sessions`, `tasks`, `close`."""

from __future__ import annotations

import argparse
from itertools import islice

from msgspec.structs import replace

from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.cli.several import for_each
from ullage.cli.times import seconds_between, show_age, show_span, show_time
from ullage.client.api import PAGE, list_tasks
from ullage.client.local import reach
from ullage.model.session_state import OPEN_ACTIVITIES, Activity, SessionState
from ullage.model.task import TaskState
from ullage.wire.session import SessionBody, TaskBody


def _states(session: SessionBody) -> tuple[str, str]:
    return session.state, session.activity


def _held(session: SessionBody) -> str:
    return f"{session.held}/{session.deserved}"


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else show_span(seconds)


def _runs(session: SessionBody) -> float | None:
    """Return for how long the task runs that has run longest."""
    return None if session.running_since is None else seconds_between(session.running_since)


def _left(session: SessionBody) -> float | None:
    """Return the seconds until the first running task is at its time limit; the whole limit if none runs."""
    return None if session.task_timeout_s is None else max(0.0, session.task_timeout_s - (_runs(session) or 0.0))


def _name(task: TaskBody) -> str:
    return f"{task.session}/{task.task}"


def _took(task: TaskBody) -> float | None:
    return None if task.started_at is None else seconds_between(task.started_at, task.ended_at)


_QUEUE = (
    Column("ID", lambda s: s.id),
    Column("QUEUE", lambda s: s.queue),
    Column("APP", lambda s: s.application, spared=6),
    Column("OWNER", lambda s: s.owner, spared=1),
    Column("STATE", lambda s: s.activity),
    Column("PRIO", lambda s: s.priority, spared=8),
    Column("PENDING", lambda s: s.pending),
    Column("RUNNING", lambda s: s.running),
    Column("HELD/DESERVED", _held, key=lambda s: s.held, spared=7),
    Column("REQUEST", lambda s: s.resreq, spared=4),
    Column("TIME", lambda s: _span(_runs(s)), key=_runs, moving=True, spared=2),
    Column("TIME-LIMIT", lambda s: _span(s.task_timeout_s), key=lambda s: s.task_timeout_s, spared=5),
    Column("TIME-LEFT", lambda s: _span(_left(s)), key=_left, moving=True, wide=True),
    Column("AGE", lambda s: show_age(s.created_at), key=lambda s: -s.created_at, moving=True, spared=3),
    Column("SHARE", lambda s: s.share, wide=True),
    Column("WEIGHT", lambda s: s.weight, wide=True),
    Column("CREATED", lambda s: show_time(s.created_at), wide=True),
    Column("REASON", lambda s: s.reason),
    Column("MESSAGE", lambda s: s.message, wide=True),
)

_SESSIONS = (
    Column("ID", lambda s: s.id),
    Column("STATE", lambda s: s.activity),
    Column("APP", lambda s: s.application, spared=4),
    Column("REQUEST", lambda s: s.resreq, spared=3),
    Column("QUEUE", lambda s: s.queue, wide=True),
    Column("OWNER", lambda s: s.owner, spared=1),
    Column("PRIO", lambda s: s.priority, spared=6),
    Column("PENDING", lambda s: s.pending),
    Column("RUNNING", lambda s: s.running),
    Column("SUCCEED", lambda s: s.succeed),
    Column("FAILED", lambda s: s.failed),
    Column("CANCELLED", lambda s: s.cancelled, spared=2),
    Column("HELD/DESERVED", _held, key=lambda s: s.held, spared=5),
    Column("MIN", lambda s: s.min_instances, wide=True),
    Column("MAX", lambda s: s.max_instances, wide=True),
    Column("BATCH", lambda s: s.batch_size, wide=True),
    Column("CREATED", lambda s: show_time(s.created_at)),
    Column("CLOSED", lambda s: show_time(s.closed_at), wide=True),
)

_TASKS = (
    Column("TASK", _name),
    Column("INDEX", lambda t: t.index),
    Column("STATE", lambda t: t.state),
    Column("CODE", lambda t: t.code),
    Column("EXECUTOR", lambda t: t.executor),
    Column("CREATED", lambda t: show_time(t.created_at)),
    Column("STARTED", lambda t: show_time(t.started_at), wide=True),
    Column("ENDED", lambda t: show_time(t.ended_at), wide=True),
    Column("TOOK", lambda t: _span(_took(t)), key=_took, moving=True),
    Column("LOSSES", lambda t: t.losses, wide=True),
    Column("MESSAGE", lambda t: t.message.partition("\n")[0]),
)


QUEUE = Listing(
    kind="session",
    columns=_QUEUE,
    body=SessionBody,
    name=lambda session: session.id,
    known_states=OPEN_ACTIVITIES,
    states_of=_states,
    users_of=lambda session: (session.owner,),
    queues_of=lambda session: (session.queue,),
)
SESSIONS = replace(QUEUE, columns=_SESSIONS, known_states=(SessionState.OPEN, *Activity))
TASKS = Listing(
    kind="task",
    columns=_TASKS,
    body=TaskBody,
    name=_name,
    known_states=tuple(TaskState),
    states_of=lambda task: (task.state,),
)


def configure_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start", action="store_true", help="estimate when waiting sessions start, and from what")
    QUEUE.add_options(parser)
    parser.set_defaults(act=_queue)


def configure_sessions(parser: argparse.ArgumentParser) -> None:
    SESSIONS.configure(parser, lambda _: reach(start=False).sessions())


def configure_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--after", type=int, default=0, metavar="N", help="begin after task N")
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"look at N tasks at most (default: {PAGE}; all with --state or --sort)"
    )
    TASKS.configure(parser, _tasks)


def configure_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
    parser.set_defaults(act=_close)


def configure_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
    parser.set_defaults(act=_retry)


def _queue(arguments: argparse.Namespace) -> int:
    if not arguments.start:
        return QUEUE.show(arguments, lambda _: reach(start=False).sessions(SessionState.OPEN))
    from ullage.cli.starts import STARTS, starts  # noqa: PLC0415  # needed only here

    return STARTS.show(arguments, starts)


def _tasks(arguments: argparse.Namespace) -> list[TaskBody]:
    limit = arguments.limit
    if limit is None and arguments.state is None and arguments.sort is None:
        limit = PAGE
    page = PAGE if limit is None else max(1, min(limit, PAGE))
    return list(islice(list_tasks(reach(start=False), arguments.session, arguments.after, page), limit))


def _retry(arguments: argparse.Namespace) -> int:
    return for_each(arguments.sessions, reach(start=False).clear_failures)[0]


def _close(arguments: argparse.Namespace) -> int:
    return for_each(arguments.sessions, reach(start=False).close_session)[0]
