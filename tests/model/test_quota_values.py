"""Quotas as values: contradictions, and defaults of requests."""

from __future__ import annotations

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.part import Part
from ullage.model.quota import Caps, Quota


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"total_requests": Caps(-1)}, "total_requests.compute_gflops"),
        ({"total_limits": Caps(0, -1)}, "total_limits.vram_bytes"),
        ({"max_requests": Caps(1.5)}, "max_requests.compute_gflops"),
        ({"max_limits": Caps(True)}, "max_limits.compute_gflops"),
        ({"max_workers": -1}, "max_workers"),
        ({"max_gpu_count": 2**63}, "max_gpu_count"),
        ({"alert_threshold_percent": -1}, "alert_threshold_percent"),
        ({"alert_threshold_percent": 101}, "alert_threshold_percent"),
        ({"alert_threshold_percent": True}, "alert_threshold_percent"),
        ({"total_requests": Caps(100), "total_limits": Caps(50)}, "total_limits.compute_gflops"),
        ({"max_requests": Caps(0, 2), "max_limits": Caps(0, 1)}, "max_limits.vram_bytes"),
        ({"default_requests": Part(2), "default_limits": Part(1)}, "default_limits.compute_gflops"),
    ],
)
def test_an_invalid_quota_names_field_value_and_fix(facts, field):
    with pytest.raises(InvalidRequest) as refusal:
        Quota(**facts)
    assert refusal.value.field == field
    assert "is not valid" in refusal.value.message


@pytest.mark.parametrize(
    "facts",
    [
        {"total_requests": Caps(100), "total_limits": Caps(vram_bytes=1)},
        {"total_requests": Caps(100), "total_limits": Caps(100)},
        {"max_limits": Caps(0)},
        {"default_requests": Part(100, 5), "default_limits": Part(vram_bytes=5)},
        {"default_requests": Part(100), "default_limits": Part(compute_ppm=1)},
    ],
)
def test_limits_bind_requests_only_where_both_are_set(facts):
    Quota(**facts)


DEFAULTS = Quota(default_requests=Part(10, 100), default_limits=Part(20, 200))


@pytest.mark.parametrize(
    ("request_", "limit", "admitted"),
    [
        pytest.param(Part(), None, (Part(10, 100), Part(20, 200)), id="nothing said"),
        pytest.param(Part(5, 0), None, (Part(5, 100), Part(20, 200)), id="one field said"),
        pytest.param(Part(30, 300), None, (Part(30, 300), Part(30, 300)), id="above the default limit"),
        pytest.param(Part(0, 0), Part(5, 50), (Part(5, 50), Part(5, 50)), id="below the default request"),
        pytest.param(Part(1, 1), Part(2, 2), (Part(1, 1), Part(2, 2)), id="all said"),
        pytest.param(Part(0, 0, 7), None, (Part(0, 100, 7), Part(0, 200, 7)), id="percent said"),
        pytest.param(Part(), Part(0, 0, 7), (Part(0, 100, 7), Part(0, 200, 7)), id="percent of the limit said"),
    ],
)
def test_defaults_fill_zero_fields_and_contradict_nothing(request_, limit, admitted):
    assert DEFAULTS.with_defaults(request_, limit) == admitted


def test_defaults_of_one_kind_alone():
    assert Quota().with_defaults(Part(), None) == (Part(), None)
    requests = Quota(default_requests=Part(10))
    assert requests.with_defaults(Part(), None) == (Part(10), None)
    limits = Quota(default_limits=Part(vram_bytes=9))
    assert limits.with_defaults(Part(10), None) == (Part(10), Part(10, 9))
