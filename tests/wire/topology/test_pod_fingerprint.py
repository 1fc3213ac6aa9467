"""Fingerprints of pod sets, compared with values that other programs computed."""

import pytest

from ullage.wire.topology.pod_fingerprint import fingerprint_of, is_comparable
from ullage.wire.xxhash64 import xxhash64


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_has_its_published_values(data, seed, expected):
    assert xxhash64(data, seed) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([("default", "test-pod-0")], "pfp0v001fe53c4dbd2c5f4a0"),
        ([("namespace1", "pod1")], "pfp0v0019e0420efb37746c6"),
    ],
)
def test_fingerprints_are_those_of_exporters_and_schedulers(pods, expected):
    assert fingerprint_of(pods) == expected


def test_the_order_of_pods_does_not_count_and_each_pod_does():
    pods = [("a", "x"), ("a", "y"), ("b", "x")]
    assert fingerprint_of(pods) == fingerprint_of(reversed(pods))
    assert len({fingerprint_of(pods[:count]) for count in range(4)}) == 4


@pytest.mark.parametrize(
    ("text", "expected"), [("pfp0v0019e0420efb37746c6", True), ("pfp0v0029e04", False), ("", False)]
)
def test_only_one_version_is_compared(text, expected):
    assert is_comparable(text) is expected
