"""The futures of a session that have not ended.

This module only keeps state under one lock. The threads that send requests are in `exchange.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from ullage.client.future import TaskFuture
from ullage.client.resume import KeyedMap, MapPlace
from ullage.model.error import Conflict
from ullage.wire.session import Result

BATCH_TASKS = 1000
"""Tasks in one submission."""

BATCH_BYTES = 1 << 20
"""Bytes of input above which a submission gets no further task."""

UNSENT_BYTES = 64 << 20
"""Bytes of unsent input above which `add` blocks."""


class OutstandingCall(NamedTuple):
    """One call that becomes a task. `shared` is data that it has in common with other calls.

    A call with a `place` may be a task already, of an earlier client.
    """

    shared: bytes | None
    input: bytes
    future: TaskFuture[Any]
    place: MapPlace | None = None

    def is_followed_by(self, other: OutstandingCall) -> bool:
        """Return whether `other` may be in the same submission, directly after this call."""
        if self.shared != other.shared:
            return False
        if self.place is None or other.place is None:
            return self.place is other.place
        return self.place.is_followed_by(other.place)


class Outstanding:
    """The calls of a session: unsent, then in flight in one batch at a time, then at the server, then ended."""

    def __init__(self, last_task: int = 0) -> None:
        """`last_task` is the last task that the session has already."""
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
        self._also: dict[int, list[TaskFuture[Any]]] = {}
        self._early: dict[int, Result] = {}
        self._maps: weakref.WeakSet[KeyedMap] = weakref.WeakSet()
        self._count = 0
        self._last_task = last_task
        self._adding = 0
        self._behind = False
        self._when_none: list[Callable[[], object]] = []
        self._sender_waits = False
        self._stopped = False

    # --- callers ---

    def add(self, call: OutstandingCall, *, blocks: bool = True) -> None:
        """Queue a call. Block while too many bytes are unsent, unless `blocks` is False.

        Raises:
            Conflict: the session was closed here.

        """
        with self._lock:
            while blocks and self._unsent_bytes > UNSENT_BYTES and not self._stopped:
                self._room.wait()
            if self._stopped:
                raise Conflict("the session is closed; open a new one", code="session-closed")
            self._unsent.append(call)
            self._unsent_bytes += len(call.input)
            self._count += 1
            if self._sender_waits:
                self._to_send.notify()

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Add calls of one map in the block. Earlier results are looked for after its end, not once for each batch."""
        with self._lock:
            self._adding += 1
        try:
            yield
        finally:
            with self._lock:
                self._adding -= 1
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
            self._end_unsent([call])
        future.become_cancelled()
        self._count_ended(1)
        return True

    def withdraw_some(self, futures: Iterable[TaskFuture[Any]]) -> None:
        """Cancel those of these calls that are not sent."""
        unwanted = set(futures)
        with self._lock:
            mine = [call for call in self._unsent if call.future in unwanted]
            self._unsent = deque(call for call in self._unsent if call.future not in unwanted)
            self._end_unsent(mine)
        for call in mine:
            call.future.become_cancelled()
        self._count_ended(len(mine))

    def _end_unsent(self, calls: Iterable[OutstandingCall]) -> None:
        """Count calls as not waiting to be sent any more, and wake who waits for that."""
        self._unsent_bytes -= sum(len(call.input) for call in calls)
        self._room.notify_all()
        self._answered.notify_all()

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

    def when_none(self, call: Callable[[], object]) -> None:
        """Have `call` called once every call has ended: at once, or by the thread that ends the last one."""
        with self._lock:
            if self._count:
                self._when_none.append(call)
                return
        call()

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
            futures += self._at_the_server()
            self._unsent.clear()
            self._unsent_bytes = 0
            self._sent.clear()
            self._also.clear()
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
            return [*(call.future for call in calls), *self._at_the_server()]

    def _at_the_server(self) -> Iterator[TaskFuture[Any]]:
        return chain(self._sent.values(), *self._also.values())

    # --- the sender ---

    def take(self) -> Sequence[OutstandingCall] | None:
        """Wait for a call and return the next batch; None when stopped. `sent` or `refused` follows.

        An empty batch asks for the earlier results of the session: calls of a map with a key may have ended before.
        """
        while True:
            with self._lock:
                ended = self._wait_for_call()
                if not ended:
                    return self._next_batch()
            self._finish(ended)

    def _wait_for_call(self) -> list[tuple[TaskFuture[Any], Result]]:
        """Wait until there is something to do for the sender. Return calls that are tasks which have ended already."""
        ended: list[tuple[TaskFuture[Any], Result]] = []
        self._sender_waits = True
        while not self._stopped and not self._is_behind:
            ended = self._adopt_known()
            if ended or self._unsent:
                break
            if not self._is_behind:
                self._to_send.wait()
        self._sender_waits = False
        return ended

    def _next_batch(self) -> Sequence[OutstandingCall] | None:
        if not self._unsent:
            if self._stopped:
                return None
            self._behind &= not self._is_behind
            return ()
        call = self._unsent.popleft()
        batch, size = [call], len(call.input)
        while self._unsent and len(batch) < BATCH_TASKS and size < BATCH_BYTES:
            if not call.is_followed_by(self._unsent[0]):
                break
            call = self._unsent.popleft()
            batch.append(call)
            size += len(call.input)
        self._unsent_bytes -= size
        self._in_flight = batch
        self._room.notify_all()
        return batch

    @property
    def _is_behind(self) -> bool:
        return self._behind and not self._unsent and not self._adding

    def _adopt_known(self) -> list[tuple[TaskFuture[Any], Result]]:
        """Take calls that are known to be tasks already as sent. Return those whose results are known too."""
        ended: list[tuple[TaskFuture[Any], Result]] = []
        while self._unsent and (place := self._unsent[0].place) is not None and not place.attempt:
            known = place.map.take(place.number)
            if known is None:
                break
            call = self._unsent.popleft()
            self._unsent_bytes -= len(call.input)
            if known.result is None:
                self._put_at_server(known.task, call)
            else:
                call.future.task = known.task
                ended.append((call.future, known.result))
        self._room.notify_all()
        self._answered.notify_all()
        return ended

    def sent(self, first: int, count: int) -> None:
        """Record that the server has accepted the batch, as `count` tasks numbered from `first`.

        They are more or less than the calls of the batch if an earlier client has sent them.
        """
        early: list[tuple[TaskFuture[Any], Result]] = []
        with self._lock:
            stopped, batch = self._stopped, self._in_flight
            for task, call in enumerate(batch[:count], first):
                result = self._early.get(task)
                if result is not None:
                    call.future.task = task
                    early.append((call.future, result))
                elif stopped:
                    call.future.task = task
                else:
                    self._put_at_server(task, call)
            self._note_earlier(batch, first, count)
            self._clear_flight()
        self._finish(early)
        if stopped:  # no more results are collected
            self._abandon(batch, len(early))

    def _put_at_server(self, task: int, call: OutstandingCall) -> None:
        call.future.task = task
        if task in self._sent:  # two maps with the same key
            self._also.setdefault(task, []).append(call.future)
        else:
            self._sent[task] = call.future
        self._at_server.notify_all()

    def _note_earlier(self, batch: Sequence[OutstandingCall], first: int, count: int) -> None:
        """Record what the answer says about calls that were sent before."""
        place = next(iter(batch)).place
        if place is not None and first <= self._last_task:
            self._behind = True
        self._last_task = max(self._last_task, first + count - 1)
        rest = batch[count:]
        if rest and not self._stopped:
            self._unsent.extendleft(reversed(rest))
            self._unsent_bytes += sum(len(call.input) for call in rest)
        if place is not None and count > len(batch):
            sent = len(batch)
            place.map.record(place.number + sent, first + sent, count - sent)
            self._maps.add(place.map)

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
                self._last_task = max(self._last_task, result.task)
                future = self._sent.pop(result.task, None)
                if future is not None:
                    mine += ((each, result) for each in (future, *self._also.pop(result.task, ())))
                    continue
                if self._in_flight:  # possibly a task of the batch whose numbers are not known yet
                    self._early[result.task] = result
                for each in self._maps:  # possibly a task of a call that is not read from its iterable yet
                    each.keep(result)
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
        waiting: list[Callable[[], object]] = []
        with self._lock:
            self._count -= count
            if not self._count:
                self._none_left.notify_all()
                waiting, self._when_none = self._when_none, waiting
        for call in waiting:
            call()
