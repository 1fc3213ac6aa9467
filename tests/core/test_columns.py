"""Columns: no two of one kind of row are the same, and what is derived from others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.kernel import board, columns
from ullage.core.kernel import columns as at
from ullage.core.kernel.charge import follow_all

NEED = ("SCOPE", "CONTAINER", "STAGE", "NEEDED", "AMOUNT", "LEVEL")
FIRST_NEED = (*NEED, "CLOSENESS", "OWN_PICK", "WIDEST", "ALONE", "SEATED")
SHARE = ("COMPUTE", "VRAM", "MOST", "MIXED", "EXCLUDED", "KEPT_APART", "PENDING", "USERS_MOST")


def test_columns_of_a_shape_are_apart_and_within_it():
    for names, module in ((FIRST_NEED, board), (SHARE, columns)):
        places = [getattr(module, name) for name in names]
        assert len(set(places)) == len(places)
        assert max(places) < columns.SHAPE_COLUMNS


amounts = st.sampled_from([0, 1, 3, 100_000, 80 << 30, 1 << 45])


@given(st.tuples(amounts, amounts, st.floats(-0.5, 1), st.floats(-0.5, 1)))
def test_what_is_left_of_a_card_is_the_sum_of_both_fractions_and_its_share_the_smaller_one(card):
    """In the units of the columns, rounded down; what a card does not have counts nothing."""
    compute, vram, *parts = card
    totals, rows = (compute, vram), np.zeros((1, at.CARD_COLUMNS), np.int64)
    free = [int(total * part) for total, part in zip(totals, parts, strict=True)]
    rows[0, [at.COMPUTE_TOTAL, at.VRAM_TOTAL, at.COMPUTE_FREE, at.VRAM_FREE]] = *totals, *free
    follow_all(rows)
    has = [(left, total) for left, total in zip(free, totals, strict=True) if total]
    assert rows[0, at.SHARE] == max(0, min([1000, *(left * 1000 // total for left, total in has)]))
    assert rows[0, at.LEFT] == sum(left * at.FULL // (2 * total) for left, total in has)
