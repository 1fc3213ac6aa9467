"""Tasks: submitted, retried, ended.

A result with another claim than that of the present hand-out is dropped, so a task ends once. Results are published
only after they are durable.

A batch starts and ends as one: its results are stored together. If a member is lost or retried, all members are
retried. If a member is stopped (cancelled, past its time limit, lost too often), the running members are stopped.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from ullage.model.error import NotFound, invalid
from ullage.model.task import LOST, LOST_LIMIT, STOPPED, TIMED_OUT, Ending, TaskResult, TaskState
from ullage.service.context import ServiceContext
from ullage.service.dispatch import AHEAD_S, Dispatcher
from ullage.service.end_note import end_text
from ullage.service.engine_port import TaskOutcome
from ullage.service.journal import Callback, in_one_write
from ullage.service.state import ExecutorRecord, SessionRecord, Submission, TaskRecord
from ullage.service.store_port import AddResults, AddTasks, Page, PutAttempts, TaskView

MAX_TASKS_PER_SUBMISSION = 100_000
MESSAGE_LIMIT = 64 * 1024

MOST_PER_WRITE = 5_000
"""Pending tasks of a cancelled session that are ended in one write, for which every other caller waits."""


class Tasks:
    """Use cases of tasks."""

    def __init__(self, context: ServiceContext, dispatcher: Dispatcher) -> None:
        self._state, self._journal, self._store = context.state, context.journal, context.store
        self._engine, self._dispatcher, self._news = context.engine, dispatcher, context.news
        self._clock, self._changed, self._accounting = context.clock, context.changed, context.accounting

    # --- in ---

    def submit(
        self, session_id: str, key: str, inputs: Sequence[bytes], shared: bytes | None, done: Callable[[int, int], None]
    ) -> None:
        """Accept tasks; `done(first, count)` is called once they are stored, at once for a repeated key.

        Raises:
            NotFound: no such session. Conflict: it is closed. InvalidRequest: nothing, or too much, at once.

        """
        record = self._state.session(session_id)
        known = record.submission_keys.get(key)
        if known is not None:
            earlier = record.submissions[known]
            self._journal.write(then=lambda: done(earlier.first, earlier.count))
            return
        record.session.require_open()
        if not 1 <= len(inputs) <= MAX_TASKS_PER_SUBMISSION:
            raise invalid("inputs", len(inputs), f"send 1 to {MAX_TASKS_PER_SUBMISSION} tasks at a time")
        number, first, now = len(record.submissions) + 1, record.next_task, self._clock()
        record.next_task += len(inputs)
        record.submissions[number] = Submission(first, len(inputs), len(inputs), shared)
        record.submission_keys[key] = number
        self._journal.write(
            AddTasks(session_id, number, key, first, inputs=tuple(inputs), created_at=now, shared=shared),
            *self._accounting.asked(record, now),
            then=lambda: self._accept(record, number, first, inputs, now=now, done=done),
        )

    def _accept(
        self,
        record: SessionRecord,
        submission: int,
        first: int,
        inputs: Sequence[bytes],
        now: float,
        done: Callable[[int, int], None],
    ) -> None:
        if self._state.sessions.get(record.id) is not record:
            done(first, len(inputs))  # deleted meanwhile, and its tasks with it
            return
        tasks = [TaskRecord(record, first + i, submission, data, created_at=now) for i, data in enumerate(inputs)]
        record.add_pending(tasks)
        done(first, len(inputs))
        if not record.takes_tasks:
            self._cancel_pending(record, tasks, "cancelled: the session was closed")
            return
        self._dispatcher.dispatch(record)
        self._changed(True)

    # --- back ---

    def complete(self, executor: ExecutorRecord, outcomes: Iterable[TaskOutcome]) -> bool:
        """Accept results of an executor; those of another claim than the present one are dropped.

        Return whether a batch is queued again, so that the gang that ran it must end.
        """
        ended: list[TaskResult] = []
        record: SessionRecord | None = None
        broken = False
        for outcome in outcomes:
            task = executor.tasks.pop(outcome.claim, None)
            if task is None:
                continue
            record = task.session
            taken = max(0.0, outcome.ended_at - outcome.started_at)
            mean = record.mean_task_s
            record.mean_task_s = taken if mean is None else 0.8 * mean + 0.2 * taken
            if outcome.code and task.ending is not None:
                ended.append(self._stopped(task, task.ending))
            elif outcome.code and task.errors < self._state.retries_of(record):
                task.errors += 1
                self._journal.write(PutAttempts(record.id, task.id, task.losses, task.errors))
                broken |= self._send_back(task)
            else:
                ended.append(self._result(task, outcome, executor.id))
        if record is not None:
            if not executor.tasks:
                executor.since = self._clock()
            self._store_endings(record, ended)
            self._changed(False)
        return broken

    def give_back(self, executor: ExecutorRecord, claims: Iterable[int]) -> bool:
        """Queue tasks again that the worker never started, because tasks of this session run long.

        Return whether a batch is queued again, so that the gang that was to run it must end.
        """
        broken = False
        for claim in claims:
            task = executor.tasks.pop(claim, None)
            if task is None:
                continue
            record = task.session
            record.mean_task_s = max(record.mean_task_s or 0.0, 2 * AHEAD_S)
            if task.ending is not None:
                self._store_endings(record, [self._stopped(task, task.ending)])
            else:
                broken |= self._send_back(task)
        self._changed(False)
        return broken

    def lose(self, executor: ExecutorRecord, reason: str, *, counts: bool) -> None:
        """Retry the tasks of an executor that is gone, or end those that were being stopped or were lost too often.

        With `counts` the loss counts against the task in progress; the tasks queued behind it never started.
        """
        record: SessionRecord | None = None
        ended: list[TaskResult] = []
        lost = tuple(executor.tasks.values()) or self._finished_by(executor)
        executor.tasks.clear()
        for task in lost:
            record = task.session
            if task.ending is not None:
                ended.append(self._stopped(task, task.ending))
                continue
            if task.result is not None and any(member.ending is not None for member in task.batch):
                continue  # it is done, and the others are being stopped
            if counts:
                task.losses += 1
                counts = False
                self._journal.write(PutAttempts(record.id, task.id, task.losses, task.errors))
            if task.losses >= LOST_LIMIT:
                text = f"its executor was lost {task.losses} times, last: {reason}"
                ended.append(self._stopped(task, Ending(TaskState.FAILED, LOST, text)))
                others = f"task {task.id} of its batch failed: {text}"
                self._stop_others(task, Ending(TaskState.FAILED, LOST, others))
            else:
                self._send_back(task)
        if record is not None:
            self._store_endings(record, ended)

    def note_end(self, executor: ExecutorRecord, reason: str, *, counts: bool) -> None:
        """Say in the log of the task in progress why its run ended, once no process of the executor is left.

        The tasks queued behind it never started.
        """
        task = next(iter(executor.tasks.values()), None)
        if task is None or self._state.sessions.get(task.session.id) is not task.session:
            return
        text = end_text(task, reason, executor.eviction, last=counts and task.losses + 1 >= LOST_LIMIT)
        self._engine.note(task.session.session.logs, task.id, text)

    def _finished_by(self, executor: ExecutorRecord) -> tuple[TaskRecord, ...]:
        """Return the task of a running batch that this executor has finished."""
        record = self._state.sessions.get(executor.session or "")
        if record is None or executor.gang is None:
            return ()
        for mate in record.executors.values():
            if mate.gang is not None and mate.gang.id == executor.gang.id:
                for task in mate.tasks.values():
                    return tuple(member for member in task.batch if member.executor == executor.id)
        return ()

    def _send_back(self, task: TaskRecord) -> bool:
        """Queue a task again, with its whole batch, also ended members. Return whether it had a batch."""
        batch = task.batch
        for member in task.together():
            executor = self._state.executors.get(member.executor or "")
            if executor is not None:
                executor.tasks.pop(member.claim or 0, None)
            member.session.push_back(member)
        return bool(batch)

    # --- ends ---

    def cancel(self, session_id: str, task_id: int) -> None:
        """End a task: at once if pending, by ending its executor if running; no effect if it has ended.

        Raises:
            NotFound: no such session or task.

        """
        record = self._state.session(session_id)
        task = record.tasks.get(task_id)
        if task is None:
            if not 1 <= task_id < record.next_task:
                raise NotFound(f"task {task_id} of session {session_id} does not exist", field="task")
            return
        self._end(task, Ending(TaskState.CANCELLED, STOPPED, "cancelled"))

    @in_one_write
    def cancel_some(self, session_id: str, task_ids: Iterable[int], done: Callback) -> int:
        """End several tasks as `cancel` does, all or none. Return how many of them had not ended.

        Raises:
            NotFound: no such session, or one of the tasks does not exist.

        """
        record = self._state.session(session_id)
        numbers = sorted(set(task_ids))
        missing = [number for number in numbers if not 1 <= number < record.next_task]
        if missing:
            raise NotFound(f"task {missing[0]} of session {session_id} does not exist", field="tasks")
        tasks = [task for number in numbers if (task := record.tasks.get(number)) is not None]
        self._cancel_pending(record, [task for task in tasks if task.executor is None], "cancelled")
        for task in tasks:
            if task.executor is not None:
                self._end(task, Ending(TaskState.CANCELLED, STOPPED, "cancelled"))
        self._journal.write(then=done)
        return len(tasks)

    def cancel_all(self, record: SessionRecord) -> None:
        """End every task of a session now."""
        self.cancel_waiting(record, "", at_once=True)
        self._cancel_running(record, "")

    def cancel_with_session(self, record: SessionRecord) -> None:
        """End the running tasks of a session that is being cancelled, and its first pending ones.

        `cancel_waiting` is called until none is left.
        """
        self.cancel_waiting(record, record.session.cancel_reason)
        self._cancel_running(record, record.session.cancel_reason)

    def cancel_waiting(self, record: SessionRecord, reason: str, *, at_once: bool = False) -> None:
        """End the first pending tasks of a session, so many that no other caller waits for long; or all of them."""
        waiting = (task for task in record.tasks.values() if task.executor is None)
        at_once |= record.session.spec.batch_size > 1  # a batch ends as a whole
        some = list(islice(waiting, None if at_once else MOST_PER_WRITE))
        self._cancel_pending(record, some, _cancelled_by(reason))

    def _cancel_running(self, record: SessionRecord, reason: str) -> None:
        for task in [task for task in record.tasks.values() if task.executor is not None]:
            self._end_running(task, Ending(TaskState.CANCELLED, STOPPED, _cancelled_by(reason)))

    def expire(self, now: float) -> float | None:
        """End tasks past their time limit. Return when the next one is due."""
        due: list[float] = []
        for executor in tuple(self._state.executors.values()):
            for task in tuple(executor.tasks.values()):
                limit = self._state.timeout_of(task.session)
                if limit is None or task.ending is not None:
                    continue
                ends_at = task.handed_out_at + limit
                if ends_at <= now:
                    text = f"ran longer than its limit of {limit:g} s"
                    self._end(task, Ending(TaskState.FAILED, TIMED_OUT, text))
                else:
                    due.append(ends_at)
        return min(due, default=None)

    def _end(self, task: TaskRecord, ending: Ending) -> None:
        if task.executor is None:
            self._store_endings(task.session, [self._stopped(task, ending)])
            self._changed(False)
            return
        if task.result is None:
            self._end_running(task, ending)
            self._stop_others(task, ending._replace(message=f"{ending.message}, with task {task.id} of its batch"))

    def _stop_others(self, task: TaskRecord, ending: Ending) -> None:
        for member in task.batch:
            if member is not task:
                self._end_running(member, ending)

    def _end_running(self, task: TaskRecord, ending: Ending) -> None:
        if task.ending is None and task.result is None:
            task.ending = ending
            self._stop(self._state.executors[task.executor or ""], task.session)

    def _stop(self, executor: ExecutorRecord, record: SessionRecord) -> None:
        if not executor.stopping:
            executor.stopping = True
            self._engine.stop(executor.id, self._state.stops.of(record.session.spec))

    def _cancel_pending(self, record: SessionRecord, tasks: list[TaskRecord], message: str) -> None:
        if not tasks:
            return
        ending = Ending(TaskState.CANCELLED, STOPPED, message)
        self._store_endings(record, [self._stopped(task, ending) for task in tasks])
        self._changed(False)

    def _result(self, task: TaskRecord, outcome: TaskOutcome, executor: str) -> TaskResult:
        state = TaskState.FAILED if outcome.code else TaskState.SUCCEED
        return TaskResult(
            task.session.id,
            task.id,
            0,
            state,
            code=outcome.code,
            output=outcome.output,
            message=outcome.message[:MESSAGE_LIMIT],
            executor=executor,
            started_at=outcome.started_at,
            ended_at=outcome.ended_at,
        )

    def _stopped(self, task: TaskRecord, ending: Ending) -> TaskResult:
        started, now = task.handed_out_at if task.executor else None, self._clock()
        state, code, message = ending
        return TaskResult(
            task.session.id,
            task.id,
            0,
            state,
            code=code,
            output=None,
            message=message,
            executor=task.executor,
            started_at=started,
            ended_at=now,
        )

    def _store_endings(self, record: SessionRecord, ended: list[TaskResult]) -> None:
        """Number and store endings. Counts change now; endings are published once they are durable."""
        results = ended if record.session.spec.batch_size == 1 else self._whole_batches(record, ended)
        if not results:
            return
        results = [result._replace(sequence=record.sequence + i) for i, result in enumerate(results, 1)]
        record.sequence += len(results)
        for result in results:
            task = record.tasks.pop(result.task)
            record.counts[TaskState.RUNNING if task.executor else TaskState.PENDING] -= 1
            record.counts[result.state] += 1
            submission = record.submissions[task.submission]
            submission.left -= 1
            if not submission.left:
                submission.shared = None
        self._journal.write(AddResults(tuple(results)), then=lambda: self._publish(record, results))

    def _whole_batches(self, record: SessionRecord, ended: list[TaskResult]) -> list[TaskResult]:
        """Return the endings that can be stored now: of a batch that ran, all or none."""
        whole: list[TaskResult] = []
        for result in ended:
            task = record.tasks[result.task]
            task.result = result
            together = task.together()
            results = [member.result for member in together if member.result is not None]
            if len(results) == len(together):
                whole.extend(results)
        return whole

    def _publish(self, record: SessionRecord, results: list[TaskResult]) -> None:
        record.recent.extend(results)
        record.durable = next(reversed(results)).sequence
        self._news.publish(record.id)
        if not record.tasks:
            self._changed(False)  # it may have to close now

    # --- queries ---

    def when_stored(self, done: Callback) -> None:
        """Call `done` once everything decided so far is stored."""
        self._journal.write(then=done)

    def unfinished(self, session_id: str, task_id: int) -> bool:
        """Return whether a task has not ended."""
        record = self._state.sessions.get(session_id)
        return record is not None and task_id in record.tasks

    def recent_results(self, session_id: str, page: Page) -> builtins.list[TaskResult] | None:
        """Return endings after a sequence number, oldest first; None if only the store has them.

        Raises:
            NotFound: no such session.

        """
        record = self._state.session(session_id)
        recent = record.recent.after(page.after, page.limit)
        return [] if recent is None and record.durable <= page.after else recent

    def list(self, session_id: str, page: Page) -> builtins.list[tuple[TaskView, TaskState]]:
        """Return tasks by id with their present states. It reads the store on this thread: for short pages.

        Raises:
            NotFound: no such session.

        """
        self._state.session(session_id)
        return self.with_states(session_id, self._store.tasks(session_id, page))

    def with_states(self, session_id: str, views: builtins.list[TaskView]) -> builtins.list[tuple[TaskView, TaskState]]:
        """Return tasks that were read with their present state.

        Raises:
            NotFound: no such session.

        """
        record = self._state.session(session_id)
        return [(view, self._state_of(record, view)) for view in views]

    def _state_of(self, record: SessionRecord, view: TaskView) -> TaskState:
        if view.result is not None:
            return view.result.state
        task = record.tasks.get(view.task)
        return TaskState.RUNNING if task is not None and task.executor else TaskState.PENDING


def _cancelled_by(reason: str) -> str:
    return f"cancelled: {reason}" if reason else "cancelled with its session"
