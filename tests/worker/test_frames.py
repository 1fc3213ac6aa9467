"""Frames survive the stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.wire import frames

FRAMES: list[frames.FromWorker] = [
    frames.Hello(1, "e", "secret", 7),
    frames.Entered(12, "no"),
    frames.Done([frames.Outcome(1, 2, 0, b"out" * 500, "", 1.0, 2.5), frames.Outcome(2, 3, 1, None, "é🦀", 2.5, 3.0)]),
    frames.GaveBack([4, 5]),
    frames.Left(),
]
ORDERS: list[frames.ToWorker] = [
    frames.Enter("s", b"common", frames.Membership("g", 1, 2)),
    frames.Enter("s"),
    frames.Run([frames.HandOut(1, 2, b"in"), frames.HandOut(2, 3, b"", 4, b"shared")]),
    frames.Leave(),
]


@given(st.lists(st.integers(1, 700), max_size=30))
def test_any_cut_gives_the_same_frames(cuts: list[int]) -> None:
    stream = b"".join(bytes(frames.encode(frame)) for frame in FRAMES * 2)
    reader = frames.FrameReader.from_worker()
    found, start = [], 0
    for cut in cuts:
        found += reader.feed(stream[start : start + cut])
        start += cut
    assert found + reader.feed(stream[start:]) == FRAMES * 2


def test_byte_by_byte() -> None:
    reader = frames.FrameReader.to_worker()
    stream = b"".join(bytes(frames.encode(frame)) for frame in ORDERS)
    assert [frame for byte in stream for frame in reader.feed(bytes([byte]))] == ORDERS


def test_a_frame_above_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(frames.FrameError, match="a frame of 5000 bytes is larger than the 4096 that are allowed"):
        frames.FrameReader.from_worker().feed((5000).to_bytes(4, "big"))
    with pytest.raises(frames.FrameError, match="1073741825 bytes"):
        frames.FrameReader.to_worker().feed((frames.MAX_FRAME + 1).to_bytes(4, "big"))


def test_a_frame_too_large_to_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME", 100)
    with pytest.raises(frames.FrameError, match="larger than the 100"):
        frames.encode(frames.Entered(0, "x" * 100))


@pytest.mark.parametrize("body", [b"\xc1", b"\x91\x63", b"", b"\x93\x01\x02\x03"])
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(frames.FrameError, match="cannot be read"):
        frames.FrameReader.from_worker().feed(len(body).to_bytes(4, "big") + body)
