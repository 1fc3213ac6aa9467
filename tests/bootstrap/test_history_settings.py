"""The half-life of past use is read, from the file or the environment, and refused by name."""

from __future__ import annotations

import pytest

from ullage.bootstrap.settings import Settings, read_settings
from ullage.model.error import InvalidRequest
from ullage.model.past_use import HalfLife


def half_life(**environment: str) -> HalfLife | None:
    return read_settings(None, environment).service().half_life


def test_there_is_none_unless_it_is_set():
    assert Settings().service().half_life is None
    assert half_life(ULLAGE_FAIR_SHARE_HALF_LIFE="7d") == HalfLife(7 * 86400.0)
    assert half_life(ULLAGE_FAIR_SHARE_HALF_LIFE="60d", ULLAGE_HISTORY_DAYS="0") == HalfLife(60 * 86400.0)


@pytest.mark.parametrize(
    ("text", "days", "message"),
    [
        ("soon", "365", "fair_share.half_life: 'soon' is not valid: write seconds, or a duration"),
        ("30s", "365", "fair_share.half_life: '30s' is not valid: at least 60s is needed"),
        (
            "60d",
            "365",
            r"'60d' is not valid: the history is kept for 365d \(history.days\); 10 half-lives are needed",
        ),
    ],
)
def test_a_half_life_that_cannot_be_is_refused_by_name(text: str, days: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        half_life(ULLAGE_FAIR_SHARE_HALF_LIFE=text, ULLAGE_HISTORY_DAYS=days)
