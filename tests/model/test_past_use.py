"""Decayed use: exact for any span, and the same whatever the pieces it is summed from."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.history import Stay
from ullage.model.past_use import DecayedUse, HalfLife, used_by
from ullage.model.resources import Resources

DAY = HalfLife(86400.0)


def stay(started_at: float, ended_at: float | None = None, cards: float = 1.0) -> Stay:
    return Stay(
        1,
        "e",
        1,
        "ann",
        "lab",
        "function",
        "n",
        (),
        cards=cards,
        cores=2.0,
        memory_bytes=8,
        started_at=started_at,
        ended_at=ended_at,
    )


@given(lasted=st.floats(0, 1e7), age=st.floats(0, 1e6))
def test_the_use_of_a_span_is_the_integral_of_what_is_left(lasted, age):
    pieces = 2000
    width = lasted / pieces
    slow = sum(DAY.left(age + (piece + 0.5) * width) * width for piece in range(pieces))
    assert DAY.of_span(lasted, age) == pytest.approx(slow, rel=2e-3, abs=1e-9)


@given(begin=st.floats(0, 1e6), cuts=st.lists(st.floats(0, 1e6), max_size=5), later=st.floats(0, 1e6))
def test_pieces_of_a_stay_leave_together_what_the_whole_leaves(begin, cuts, later):
    times = sorted([begin, *cuts, 1e6])
    whole = used_by(stay(times[0], times[-1]), DAY, 1e6 + later)
    parts = [used_by(stay(a, b), DAY, 1e6 + later) for a, b in itertools.pairwise(times)]
    total = DecayedUse()
    for part in parts:
        total = total.plus(part)
    assert tuple(total) == pytest.approx(tuple(whole), rel=1e-9, abs=1e-6)


def test_what_is_always_used_leaves_the_steady_amount_and_half_of_it_after_one_half_life():
    assert DAY.of_span(100 * DAY.seconds, 0.0) == pytest.approx(DAY.steady_s)
    assert DAY.of_span(DAY.seconds, 0.0) == pytest.approx(DAY.steady_s / 2)
    assert used_by(stay(0.0, 3600.0), DAY, 3600.0 + DAY.seconds).card_s == pytest.approx(
        used_by(stay(0.0, 3600.0), DAY, 3600.0).card_s / 2
    )
    assert used_by(stay(0.0), DAY, 60.0).core_s == pytest.approx(120.0, rel=1e-3)


def test_the_dominant_part_leaves_out_what_no_node_has():
    used = DecayedUse(card_s=10.0, core_s=40.0, memory_byte_s=100.0)
    assert used.dominant_s(Resources(4000, 1000, 2000)) == 10.0
    assert used.dominant_s(Resources(4000, 1, 1000)) == 100.0
    assert used.dominant_s(Resources(8000, 0, 0)) == 5.0
    assert used.dominant_s(Resources()) == 0.0


def test_a_half_life_of_seconds_is_refused_by_name():
    with pytest.raises(InvalidRequest, match=r"fair_share.half_life: '30s' is not valid: at least 60s is needed"):
        HalfLife(30.0)
