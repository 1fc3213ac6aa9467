"""The lock of a node and the handshake with its agent, as annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.wire.hami.lock import NodeLock, read_lock
from ullage.wire.hami.node import Handshake, read_handshake

NOON = 1769860800.0  # 2026-01-31T12:00:00Z
_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-01-31T12:00:00Z,team,train-1", NodeLock(NOON, "team", "train-1")),
        ("2026-01-31T13:00:00+01:00,team,train-1", NodeLock(NOON, "team", "train-1")),
        ("2026-01-31T12:00:00Z", NodeLock(NOON)),
        ("2026-01-31T12:00:00Z,team", NodeLock(None)),
        ("2026-01-31T12:00:00Z,team,train-1,more", NodeLock(None)),
        ("soon,team,train-1", NodeLock(None)),
        ("", NodeLock(None)),
    ],
)
def test_objects_of_other_writers_are_read(text: str, found: NodeLock) -> None:
    assert read_lock(text) == found


def test_written_annotations() -> None:
    assert NodeLock(NOON + 0.7, "team", "train-1").encode() == "2026-01-31T12:00:00Z,team,train-1"
    assert Handshake.request(NOON + 0.7).encode() == "Requesting_2026-01-31 12:00:00"


@given(st.integers(0, 2**32), _NAMES, _NAMES)
def test_a_lock_is_read_as_it_was_written(at: int, namespace: str, pod: str) -> None:
    lock = NodeLock(float(at), namespace, pod)
    assert read_lock(lock.encode()) == lock
    assert read_handshake(Handshake.request(float(at)).encode()) == Handshake.request(float(at))


@given(st.text())
def test_any_text_is_a_lock_or_none(text: str) -> None:
    lock = read_lock(text)
    assert lock.at is not None or lock.expired(NOON)


def test_when_a_lock_expires() -> None:
    lock = NodeLock(NOON, "team", "train-1")
    assert not lock.expired(NOON + 300)
    assert lock.expired(NOON + 301)
    assert lock.expired(NOON + 11, 10)
