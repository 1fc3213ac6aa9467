"""The futures of a session that have not ended.

This module only keeps state under one lock. The threads that send requests are in `exchange.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ullage.client.future import TaskFuture
from ullage.model.error import Conflict
from ullage.wire.session import Result

BATCH_TASKS = 1000
"""Tasks in one submission."""

BATCH_BYTES = 1 << 20
"""Bytes of input above which a submission gets no further task."""

UNSENT_BYTES = 64 << 20
"""Bytes of unsent input above which `add` blocks."""


class OutstandingCall(NamedTuple):
    """One call that becomes a task. `shared` is data that it has in common with other calls."""

    shared: bytes | None
    input: bytes
    future: TaskFuture[Any]


class Outstanding:
    """The calls of a session: unsent, then in flight in one batch at a time, then at the server, then ended."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._lock = lock
        self._to_send = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._at_server = threading.Condition(lock)
        self._answered = threading.Condition(lock)
        self._none_left = threading.Condition(lock)
        self._unsent: deque[OutstandingCall] = deque()
        self._unsent_bytes = 0
        self._in_flight: Sequence[OutstandingCall] = ()
        self._sent: dict[int, TaskFuture[Any]] = {}
        self._early: dict[int, Result] = {}
        self._count = 0
        self._sender_waits = False
        self._stopped = False

    # --- callers ---

    def add(self, call: OutstandingCall) -> None:
        """Queue a call. Block while too many bytes are unsent.

        Raises:
            Conflict: the session was closed here.

        """
        with self._lock:
            while self._unsent_bytes > UNSENT_BYTES and not self._stopped:
                self._room.wait()
            if self._stopped:
                raise Conflict("the session is closed; open a new one", code="session-closed")
            self._unsent.append(call)
            self._unsent_bytes += len(call.input)
            self._count += 1
            if self._sender_waits:
                self._to_send.notify()

    def withdraw(self, future: TaskFuture[Any]) -> bool:
        """Cancel an unsent call. Return False if it is sent."""
        if future.task is not None:
            return False
        with self._lock:
            call = next((call for call in self._unsent if call.future is future), None)
            if call is None:
                return False
            self._unsent.remove(call)
            self._unsent_bytes -= len(call.input)
        future.become_cancelled()
        self._count_ended(1)
        return True

    def task_of(self, future: TaskFuture[Any]) -> int | None:
        """Wait for the task id of a sent call and return it; None if the server did not accept it."""
        with self._lock:
            while future.task is None and self._is_under_way(future):
                self._answered.wait()
        return future.task

    def wait_until_none(self, timeout: float | None = None) -> bool:
        """Wait until every call has ended. Return False after `timeout` seconds."""
        with self._lock:
            return self._none_left.wait_for(lambda: not self._count, timeout)

    def stop(self) -> None:
        """Accept no more calls, and end the two threads."""
        with self._lock:
            self._stopped = True
            self._to_send.notify_all()
            self._room.notify_all()
            self._at_server.notify_all()

    def drop_all(self) -> list[TaskFuture[Any]]:
        """Remove every call that is not in flight, and return their futures for the caller to end."""
        with self._lock:
            futures = [call.future for call in self._unsent]
            futures += self._sent.values()
            self._unsent.clear()
            self._unsent_bytes = 0
            self._sent.clear()
            self._room.notify_all()
            self._answered.notify_all()
        self._count_ended(len(futures))
        return futures

    def withdraw_all(self) -> None:
        """Cancel every unsent call."""
        with self._lock:
            futures = [call.future for call in self._unsent]
            self._unsent.clear()
            self._unsent_bytes = 0
            self._room.notify_all()
            self._answered.notify_all()
        for future in futures:
            future.become_cancelled()
        self._count_ended(len(futures))

    def futures(self) -> list[TaskFuture[Any]]:
        """Return all futures that have not ended, the unsent ones first."""
        with self._lock:
            calls = (*self._unsent, *self._in_flight)
            return [*(call.future for call in calls), *self._sent.values()]

    # --- the sender ---

    def take(self) -> Sequence[OutstandingCall] | None:
        """Wait for a call and return the next batch; None when stopped. `sent` or `refused` follows."""
        with self._lock:
            self._sender_waits = True
            self._to_send.wait_for(lambda: self._unsent or self._stopped)
            self._sender_waits = False
            if not self._unsent:
                return None
            batch: list[OutstandingCall] = []
            size, shared = 0, self._unsent[0].shared
            while self._unsent and len(batch) < BATCH_TASKS and size < BATCH_BYTES:
                if self._unsent[0].shared != shared:
                    break
                call = self._unsent.popleft()
                batch.append(call)
                size += len(call.input)
            self._unsent_bytes -= size
            self._in_flight = batch
            self._room.notify_all()
            return batch

    def sent(self, first: int) -> None:
        """Record that the server has accepted the batch. Its tasks are numbered from `first`."""
        early: list[tuple[TaskFuture[Any], Result]] = []
        with self._lock:
            stopped, batch = self._stopped, self._in_flight
            for task, call in enumerate(batch, first):
                call.future.task = task
                result = self._early.get(task)
                if result is None:
                    if not stopped:
                        self._sent[task] = call.future
                else:
                    early.append((call.future, result))
            self._clear_flight()
            self._at_server.notify_all()
        self._finish(early)
        if stopped:  # no more results are collected
            self._abandon(batch, len(early))

    def refused(self, error: BaseException) -> None:
        """Fail the calls of the batch, which the server has refused."""
        with self._lock:
            stopped, batch = self._stopped, self._in_flight
            self._clear_flight()
        if stopped:  # refused because the session was cancelled here
            self._abandon(batch, 0)
            return
        for call in batch:
            call.future.fail(error)
        self._count_ended(len(batch))

    # --- the collector ---

    def wait_for_sent(self) -> bool:
        """Wait until a task is at the server. Return False when stopped."""
        with self._lock:
            self._at_server.wait_for(lambda: self._sent or self._stopped)
            return not self._stopped

    def ended(self, results: Iterable[Result]) -> None:
        """Finish the futures of ended tasks. Tasks of other clients of the session are ignored."""
        mine: list[tuple[TaskFuture[Any], Result]] = []
        with self._lock:
            for result in results:
                future = self._sent.pop(result.task, None)
                if future is not None:
                    mine.append((future, result))
                elif self._in_flight:  # possibly a task of the batch whose numbers are not known yet
                    self._early[result.task] = result
        self._finish(mine)

    def _is_under_way(self, future: TaskFuture[Any]) -> bool:
        return any(call.future is future for call in (*self._in_flight, *self._unsent))

    def _abandon(self, batch: Sequence[OutstandingCall], ended: int) -> None:
        for call in batch:
            call.future.become_cancelled()  # ended futures do not change
        self._count_ended(len(batch) - ended)

    def _clear_flight(self) -> None:
        """Record that no batch is in flight."""
        self._in_flight = ()
        self._early.clear()
        self._answered.notify_all()

    def _finish(self, ended: list[tuple[TaskFuture[Any], Result]]) -> None:
        for future, result in ended:  # without the lock: callbacks of futures may do anything
            future.finish(result)
        self._count_ended(len(ended))

    def _count_ended(self, count: int) -> None:
        with self._lock:
            self._count -= count
            if not self._count:
                self._none_left.notify_all()
