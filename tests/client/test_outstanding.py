"""The calls of a session that have not ended: who waits for one goes on when another caller changes it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from tests.system.live_server import wait_until
from ullage.client.future import TaskFuture
from ullage.client.outstanding import Outstanding, OutstandingCall
from ullage.client.resume import KeyedMap, MapPlace


def square(number: int) -> int:
    return number * number


def test_a_call_that_is_withdrawn_keeps_nobody_who_asks_for_its_task() -> None:
    outstanding = Outstanding()
    future: TaskFuture[int] = TaskFuture(int, SimpleNamespace())  # type: ignore[arg-type]  # nothing is asked of it
    place = MapPlace(KeyedMap("k", square, 1), 0)
    outstanding.add(OutstandingCall(None, b"", future, place))
    assert outstanding.take() is not None
    found: list[int | None] = []
    asking = threading.Thread(target=lambda: found.append(outstanding.task_of(future)))
    asking.start()
    waits = outstanding._answered._waiters  # type: ignore[attr-defined]
    wait_until(lambda: bool(waits), "the caller waits for the answer")
    outstanding.sent(1, 0)  # an earlier client has sent fewer calls than this batch has
    wait_until(lambda: bool(waits), "the caller waits for the next answer")
    assert outstanding.withdraw(future)
    asking.join(60)
    assert found == [None]
