"""Nobody is evicted in vain for a request: on random days, with sessions on the same nodes."""

from __future__ import annotations

import pytest
from tests.service.request_days import run_request_days


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 4, 1010])
def test_each_winner_of_a_day_gets_its_cards_and_keeps_them(seed):
    outcome, tally = run_request_days([seed], 700.0)
    assert outcome.violations == []
    assert tally.violations == []
    assert outcome.winners
