"""Nobody is evicted in vain for a request: on random days, with sessions on the same nodes."""

from __future__ import annotations

import pytest
from tests.service.days import Tally
from tests.service.mixed_days import MixedDay
from tests.service.request_days import run_request_days
from tests.service.request_watch import Outcome


@pytest.mark.long
def test_each_winner_of_a_day_gets_its_cards_and_keeps_them():
    outcome, tally = run_request_days([1, 4, 5, 7, 1010], 700.0)
    assert outcome.violations == []
    assert tally.violations == []
    assert outcome.winners


@pytest.mark.long
def test_each_winner_gets_its_cards_for_all_kinds_of_cards_and_moves():
    outcome, tally = Outcome(), Tally()
    for seed in (6, 14, 22, 30):
        MixedDay(seed, tally, outcome).run(600.0)
    assert outcome.violations == []
    assert tally.violations == []
    assert outcome.winners
