"""The owner of a pod, its priority and its protection."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.wire.pod.pods import pod
from ullage.model.claim import Qos
from ullage.model.error import InvalidRequest
from ullage.wire.pod import compose_request


@pytest.mark.parametrize(
    ("keys", "qos"),
    [
        ({}, Qos.MEDIUM),
        ({"tflops_request": "5", "tflops_limit": "5"}, Qos.HIGH),
        ({"tflops_limit": "5", "vram_limit": "1Gi"}, Qos.HIGH),
        ({"tflops_request": "5"}, Qos.MEDIUM),
        ({"tflops_request": "5", "tflops_limit": "6"}, Qos.MEDIUM),
        ({"tflops_limit": "5", "vram_request": "1Gi"}, Qos.MEDIUM),
        ({"tflops_request": "0", "tflops_limit": "0"}, Qos.MEDIUM),
        ({"tflops_limit": "5", "qos": "low"}, Qos.LOW),
    ],
)
def test_equal_requests_and_limits_are_of_high_quality(keys, qos):
    assert compose_request(pod(**keys)).claim.qos is qos


@pytest.mark.parametrize(
    ("spec", "qos", "priority"),
    [
        ({}, "low", 0),
        ({}, "high", 10_000),
        ({}, "critical", 100_000),
        ({"priority": 7}, "critical", 7),
        ({"priority": -5}, "high", -5),
        ({"priority": 0}, "high", 10_000),
        ({"priority": 0, "priorityClassName": "batch"}, "high", 0),
    ],
)
def test_the_priority_is_that_of_the_pod_else_of_its_quality(spec, qos, priority):
    assert compose_request(pod(spec=spec, qos=qos)).claim.priority == priority


@pytest.mark.parametrize("spec", [{}, {"priority": 0}])
def test_a_quality_that_is_only_inferred_gives_no_priority(spec):
    """Else a scheduler would offer such a pod for eviction, and nobody could evict it."""
    claim = compose_request(pod(spec=spec, tflops_limit="5")).claim
    assert (claim.qos, claim.priority) == (Qos.HIGH, 0)


@pytest.mark.parametrize("priority", ["5", True, 2**31])
def test_a_priority_is_a_32_bit_integer(priority):
    with pytest.raises(InvalidRequest, match=r"spec\.priority"):
        compose_request(pod(spec={"priority": priority}))


def protected(value, created="1970-01-01T00:01:40Z", **options):
    request = compose_request(pod(eviction_protection=value, metadata={"creationTimestamp": created}), **options)
    return request.claim.protected_until, request.warnings


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30m", 1800),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (".5h", 1800),
        ("100ms", 0.1),
        ("+2us3ns", 2.003e-6),
        ("1µs", 1e-6),
    ],
)
def test_protection_runs_from_creation(value, seconds):
    assert protected(value) == (100 + seconds, ())
    assert protected(value, created=None, now=50.0) == (50 + seconds, ())


@pytest.mark.parametrize("value", ["soon", "5", "-5m", "5m ago", "m", "1d", "9999999h", "1" * 200 + "s"])
def test_unreadable_protection_protects_nothing_and_is_a_warning(value):
    until, warnings = protected(value)
    assert until == 0.0
    assert "ullage.io/eviction-protection" in warnings[0]
    assert value in warnings[0]


@pytest.mark.parametrize("value", ["0", "0s", ""])
def test_without_protection_there_is_no_warning(value):
    assert protected(value) == (0.0, ())


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=2))])
def test_a_creation_time_may_be_a_datetime(zone, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    created = datetime(1970, 1, 1, 2, 0, 0, tzinfo=zone)
    assert protected("1s", created=created) == (7201.0 if zone in (None, UTC) else 1.0, ())
    monkeypatch.undo()
    time.tzset()


def test_a_malformed_creation_time_is_refused():
    with pytest.raises(InvalidRequest, match="creationTimestamp"):
        protected("5m", created="yesterday")


def test_a_duration_of_many_digits_is_read_in_one_pass():
    found = compose_request(pod(eviction_protection="9" * 250_000))
    assert not found.claim.protected_until
    assert "is not a duration" in found.warnings[0]
