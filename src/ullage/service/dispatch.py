"""Handing tasks to executors.

A task is handed out under a claim number that is never used again. Several short tasks are handed out at a time, so
that an executor never waits for the next one. Their number follows from the durations of earlier tasks of the session.
A worker returns the tasks that it has not started when one runs long.
"""

from __future__ import annotations

from ullage.model.executor import ExecutorOperation, apply
from ullage.model.task import TaskState
from ullage.service.context import ServiceContext
from ullage.service.engine_port import TaskOrder
from ullage.service.state import ExecutorRecord, SessionRecord, TaskRecord
from ullage.service.store_port import AddClaims

AHEAD_S = 0.005
"""Seconds of work that an executor may have beyond its present task."""

MAX_AHEAD = 64


class Dispatcher:
    """Gives pending tasks to the executors of their session."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._journal = context.state, context.journal
        self._engine, self._clock = context.engine, context.clock

    def dispatch(self, record: SessionRecord) -> None:
        """Hand pending tasks to the executors of a session that can take more."""
        if not record.pending or not record.takes_tasks or self._journal.no_room is not None:
            return
        if record.session.spec.batch_size > 1:
            self._dispatch_gangs(record)
            return
        for executor in tuple(record.executors.values()):
            if executor.takes_tasks:
                self._feed(record, executor)
            if not record.pending:
                return

    def _feed(self, record: SessionRecord, executor: ExecutorRecord) -> None:
        ahead = self._ahead(record)
        if executor.tasks and (ahead == 1 or len(executor.tasks) > ahead):
            return
        most = ahead if ahead == 1 else 2 * ahead - len(executor.tasks)
        fair = -(-record.pending // max(1, len(record.executors)))
        tasks = [record.pop_pending() for _ in range(min(most, fair, record.pending))]
        if tasks:
            self._hand_out(record, executor, tasks)

    def _ahead(self, record: SessionRecord) -> int:
        """Return how many tasks of this session fit in `AHEAD_S`; one until durations are known."""
        if record.mean_task_s is None or self._state.timeout_of(record) is not None:
            return 1
        return max(1, min(MAX_AHEAD, int(AHEAD_S / max(record.mean_task_s, 1e-6))))

    def _dispatch_gangs(self, record: SessionRecord) -> None:
        gangs: dict[str, list[ExecutorRecord]] = {}
        for executor in record.executors.values():
            if executor.gang and executor.takes_tasks and not executor.tasks:
                gangs.setdefault(executor.gang.id, []).append(executor)
        for members in gangs.values():
            size = record.session.spec.batch_size
            if len(members) == size and record.pending >= size:
                batch = tuple(record.pop_pending() for _ in range(size))
                for task, executor in zip(
                    batch, sorted(members, key=lambda m: m.gang.rank if m.gang else 0), strict=True
                ):
                    task.batch = batch
                    self._hand_out(record, executor, [task])

    def _hand_out(self, record: SessionRecord, executor: ExecutorRecord, tasks: list[TaskRecord]) -> None:
        executor.state = apply(executor.state, ExecutorOperation.LAUNCH_TASK)
        now, orders = self._clock(), []
        for task in tasks:
            task.claim, task.executor, task.handed_out_at = self._state.next_claim(), executor.id, now
            executor.tasks[task.claim], task.signalled = task, ""
            shared = record.submissions[task.submission].shared
            unseen = shared is not None and task.submission not in executor.shared_sent
            orders.append(
                TaskOrder(
                    record.id,
                    task.id,
                    task.claim,
                    task.input,
                    shared_id=None if shared is None else task.submission,
                    shared=shared if unseen else None,
                )
            )
            if unseen:
                executor.shared_sent.append(task.submission)
        record.counts[TaskState.RUNNING] += len(tasks)
        claims = tuple(order.claim for order in orders)
        self._journal.write(AddClaims(record.id, tuple(task.id for task in tasks), claims, executor.id, at=now))
        self._engine.hand_out(executor.id, orders)
