"""When time alone changes a decision."""

from __future__ import annotations

from math import inf

from ullage.core.sharing.due import DueTimes


def test_the_next_cycle_is_due_at_the_first_time_that_has_not_come() -> None:
    times = DueTimes(100.0)
    assert times.next is None
    assert times.has_come(100.0)
    assert times.next is None
    assert not times.has_come(130.0)
    times.wake_at([50.0, 100.0, 120.0, inf])
    assert times.next == 120.0


def test_a_cycle_that_is_due_at_once_is_due_now() -> None:
    times = DueTimes(100.0)
    times.wake_after(0.0)
    assert times.next == 100.0
