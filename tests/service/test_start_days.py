"""How often estimates of starts hold on days that are replayed, beside the rule that every task runs to its limit."""

from __future__ import annotations

import pytest
from tests.service.start_days import Figures, ForetoldDay, JobDay
from tests.service.start_plans import SHAPES, plan_of

from ullage.service.foresight import Estimate

DAY_S = 2.5 * 3600.0
DAYS = (("one queue", 0), ("one queue", 3), ("fair shares", 0), ("gangs", 1), ("few limits", 0), ("arrays", 1))


@pytest.mark.long
def test_starts_lie_in_the_range_as_often_as_it_says_and_the_error_is_below_that_of_limits() -> None:
    found = Figures()
    for name, seed in DAYS:
        found.add(JobDay(plan_of(SHAPES[name], seed, DAY_S), seed, each=3).foretold(0.3 * DAY_S, DAY_S, DAY_S / 10))
    assert len(found.judged) >= 50, found
    assert 0.75 <= found.inside <= 0.98, found
    assert found.unknown <= 0.1 * found.asked, found
    assert found.error < 0.2 * found.limits_error, found
    assert found.inside > 4 * found.limits_inside, found


@pytest.mark.long
def test_an_estimate_on_any_day_is_a_range_with_its_chance_or_a_reason() -> None:
    for seed in range(2):
        found = ForetoldDay(seed, quiet=False).foretold(1250.0)
        assert found
        for judged in found:
            _check(judged.estimate, judged.asked_at)


def _check(found: Estimate, now: float) -> None:
    if found.at is None:
        assert (found.earliest, found.latest, found.confidence) == (None, None, None)
        assert found.text.startswith("no estimate: ")
    else:
        assert found.earliest is not None
        assert found.latest is not None
        assert now <= found.earliest <= found.at <= found.latest
        assert found.confidence is not None
