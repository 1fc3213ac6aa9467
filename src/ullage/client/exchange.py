"""The two threads of a session: one sends its tasks in batches, one collects their results."""

from __future__ import annotations

import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import Any

from ullage.client.api import Api, cancel_tasks, list_tasks
from ullage.client.future import TaskFuture
from ullage.client.log import TaskLog
from ullage.client.outstanding import Outstanding, OutstandingCall
from ullage.model.error import Conflict, UllageError
from ullage.model.rejection import NEVER_PLACED, Code
from ullage.model.task import TaskState
from ullage.wire.session import SubmitTasks

POLL_S = 20.0
"""Seconds that the server may hold a request for results."""

QUIET_S = 3.0
"""Seconds without a result after which a session that runs nothing gets an explanation."""

_LASTING = NEVER_PLACED | {Code.BIND_FAILURES}
"""Reasons that stay until somebody mends the cause, adds a node, or raises a limit."""

_JOIN_S = 1.0
"""Seconds to wait for a thread that only has to end; it is a daemon."""


class Exchange:
    """The threads of a session, which start with the first call.

    `cursor` is where the results of new tasks begin; `last_task` is the last task that the session has already.
    """

    def __init__(self, api: Api, session: str, cursor: int, last_task: int) -> None:
        self._api = api
        self._session = session
        self._cursor = cursor
        self._outstanding = Outstanding(last_task)
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._warned = ""

    def add(self, call: OutstandingCall, *, blocks: bool = True) -> None:
        """Send a call. Its future ends when its task does. Without `blocks` unsent calls may take any memory.

        Raises:
            Conflict: the session or the client was closed here, or was created before a fork.

        """
        self._api.transport.require_open()
        self._outstanding.add(call, blocks=blocks)
        if not self._threads:
            self._start()

    @property
    def is_of_this_process(self) -> bool:
        """Whether its threads run in this process, which they do not after a fork."""
        return self._api.transport.is_of_this_process

    def require_here(self) -> None:
        """Check that the threads run in this process.

        Raises:
            Conflict: it was created before a fork (`client-forked`).

        """
        self._api.transport.require_here()

    def cancel(self, future: TaskFuture[Any]) -> bool:
        """Cancel one task, sent or not. Return False if it has ended."""
        self.require_here()
        if self._outstanding.withdraw(future):
            return True
        task = self._outstanding.task_of(future)
        if task is None or future.done():
            return future.cancelled()
        if self._api.cancel_task(self._session, task).state in (TaskState.SUCCEED, TaskState.FAILED):
            return False  # its result arrives soon
        return future.become_cancelled()

    def is_running(self, future: TaskFuture[Any]) -> bool:
        """Return whether the task of a future runs."""
        task = future.task
        return task is not None and self._api.task(self._session, task).state == TaskState.RUNNING

    def log(self, future: TaskFuture[Any], *, follow: bool) -> TaskLog:
        """Return what the task of a future has printed; with `follow` until it ends.

        Raises:
            Conflict: the server did not accept it (`not-submitted`), or its client was created before a fork.

        """
        self.require_here()
        task = self._outstanding.task_of(future)
        if task is None:
            raise Conflict("the task was not submitted, so it has printed nothing", code="not-submitted")
        return TaskLog(self._api, self._session, task, follow=follow)

    def cancel_pending(self) -> None:
        """Cancel the tasks that do not run yet."""
        self.require_here()
        self._outstanding.withdraw_all()
        mine = {self._outstanding.task_of(future): future for future in self._outstanding.futures()}
        pending = [
            mine[task.task]
            for task in list_tasks(self._api, self._session)
            if task.state == TaskState.PENDING and task.task in mine
        ]
        self.cancel_many(pending)
        unwanted = {future.task for future in pending}
        for task in list_tasks(self._api, self._session) if pending else ():
            if task.task in unwanted and task.state not in (TaskState.SUCCEED, TaskState.FAILED):
                mine[task.task].become_cancelled()

    def adding(self) -> AbstractContextManager[None]:
        """Return a block that adds the calls of one map."""
        return self._outstanding.adding()

    def cancel_many(self, futures: Iterable[TaskFuture[Any]]) -> None:
        """Cancel futures in a few requests, the last ones first: the first ones run soon, or do already.

        Those that are sent end when their results arrive.

        Raises:
            UllageError: the server does not accept it.

        """
        self.require_here()
        wanted_less = [future for future in futures if not future.done()]
        for future in wanted_less:
            future.give_up()
        self._outstanding.withdraw_some(wanted_less)
        tasks = {task for future in wanted_less if (task := self._outstanding.task_of(future)) is not None}
        cancel_tasks(self._api, self._session, tasks)

    def cancel_soon(self, futures: list[Future[Any]]) -> None:
        """Cancel futures in a thread, so that many requests do not delay the exception of the caller.

        Calls that a later client may resume go on.
        """
        left = [each for each in futures if isinstance(each, TaskFuture) and not each.done() and not each.may_resume]
        if left and self.is_of_this_process:
            with suppress(RuntimeError):  # the interpreter ends
                threading.Thread(target=self._cancel_all, args=(left,), name="ullage-cancel").start()

    def _cancel_all(self, futures: list[TaskFuture[Any]]) -> None:
        with suppress(UllageError):  # no server answers, or the session is gone
            self.cancel_many(futures)
        self._api.transport.close_own()

    def cancel_each(self) -> None:
        """Cancel every task of this client, running ones too, but those that a later client may resume."""
        self._outstanding.withdraw_all()
        self.cancel_many(future for future in self._outstanding.futures() if not future.may_resume)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every future has ended. Return False after `timeout` seconds."""
        self.require_here()
        return self._outstanding.wait_until_none(timeout)

    def when_all_ended(self, call: Callable[[], object]) -> None:
        """Have `call` called once every future has ended, by any thread."""
        self.require_here()
        self._outstanding.when_none(call)

    def abandon(self) -> None:
        """Stop collecting results, and cancel the futures that have not ended."""
        self._outstanding.stop()
        for future in self._outstanding.drop_all():
            future.become_cancelled()

    def stop(self) -> None:
        """Abandon the remaining futures, and end the threads."""
        self.abandon()
        for thread in self._threads:
            if thread is not threading.current_thread():  # closed from the callback of a future
                thread.join(_JOIN_S)

    def _start(self) -> None:
        with self._starting:
            if self._threads:
                return
            for name, work in (("ullage-sender", self._send), ("ullage-collector", self._collect)):
                # Daemons: a program may end without its results.
                thread = threading.Thread(target=work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _send(self) -> None:
        while (calls := self._outstanding.take()) is not None:
            if not calls:
                self._collect_earlier()
                continue
            first = next(iter(calls))
            key = uuid.uuid4().hex if first.place is None else first.place.key
            tasks = SubmitTasks(inputs=[call.input for call in calls], key=key, shared=first.shared)
            try:
                answer = self._api.submit(self._session, tasks)
            except Exception as error:  # noqa: BLE001  # any error must end the futures
                self._outstanding.refused(error)
            else:
                self._outstanding.sent(answer.first, answer.count)
        self._api.transport.close_own()

    def _collect_earlier(self) -> None:
        """Collect the results before the cursor again, for calls that an earlier client, or map, has sent."""
        after, end = 0, self._cursor
        try:
            while after < end:
                page = self._api.results(self._session, after)
                self._outstanding.ended(page.results)
                if not page.results:  # deleted meanwhile
                    return
                after = page.next
        except Exception as error:  # noqa: BLE001  # any error must end the futures
            self._fail_all(error)

    def _collect(self) -> None:
        is_quiet = False
        while self._outstanding.wait_for_sent():
            try:
                wait_s = POLL_S if is_quiet else min(QUIET_S, POLL_S)
                page = self._api.results(self._session, self._cursor, wait_s=wait_s)
                is_quiet = not page.results
                if not page.results and not page.closed:
                    self._warn_of_reason()
            except Exception as error:  # noqa: BLE001  # as above
                self._fail_all(error)
                continue
            self._cursor = page.next
            self._outstanding.ended(page.results)
            if page.closed and not page.results:
                text = f"session {self._session} was closed before the task ended"
                self._fail_all(Conflict(text, code="session-closed"))
        self._api.transport.close_own()

    def _warn_of_reason(self) -> None:
        """Warn of why nothing runs, once, and of what time does not mend: who waits for a result sees nothing else."""
        body = self._api.session(self._session)
        if body.awaiting:
            self._warn_once("; ".join(self._api.why(self._session).warnings))
        lasts = body.reason in _LASTING
        if body.reason is None or not (lasts or (not body.running and not self._warned)):
            return
        why = self._api.why(self._session)
        if why.held and not lasts:
            return
        self._warn_once("; ".join((why.summary, *why.suggestions)))

    def _warn_once(self, reason: str) -> None:
        text = f"session {self._session} waits: {reason}"
        if reason and text != self._warned:
            self._warned = text
            _warn(text)

    def _fail_all(self, error: BaseException) -> None:
        for future in self._outstanding.drop_all():
            future.fail(error)


def _warn(text: str) -> None:
    """Warn from a thread, where nobody catches the exception that a program may make of warnings."""
    try:
        warnings.warn(text, stacklevel=1)
    except UserWarning:
        print(f"warning: {text}", file=sys.stderr)  # noqa: T201  # as a warning
