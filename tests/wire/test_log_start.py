"""Where a reader of a log starts: at its last lines, or at a time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.wire import log_times, output_log
from ullage.wire.log_start import LogStart
from ullage.wire.output_log import LogReader, LogWriter


class SetClock:
    """The module `time` of the writer, with a time that the test sets."""

    def __init__(self) -> None:
        self.now = time.time()  # that of the files

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    found = SetClock()
    monkeypatch.setattr(output_log, "time", found)
    return found


def read(folder: Path, start: LogStart) -> bytes:
    reader = LogReader(folder, "1.out", start.position(folder, "1.out"))
    data = b""
    while piece := reader.read(1 << 16).data:
        data += piece
    return data


@given(
    text=st.text(alphabet="ab\n", max_size=300), lines=st.integers(0, 20), limit=st.integers(output_log.SEGMENTS, 400)
)
def test_the_last_lines_are_those_of_the_kept_text(tmp_path_factory, text, lines, limit):
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(folder, "1.out", limit)
    for at in range(0, len(text), 7):
        writer.write(text[at : at + 7].encode())
    kept = read(folder, LogStart()).decode()
    last = kept.splitlines(keepends=True)[-lines:] if lines else []
    assert read(folder, LogStart(lines)).decode() == "".join(last)


@given(steps=st.lists(st.floats(0, 5), max_size=60), since=st.floats(-2, 100), reopen=st.integers(1, 20))
def test_all_since_a_time_is_shown_and_little_before(tmp_path_factory, steps, since, reopen):
    folder, clock = tmp_path_factory.mktemp("log"), SetClock()
    begin = clock.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_log, "time", clock)
        writer = LogWriter(folder, "1.out", timed=True)
        written = []
        for number, step in enumerate(steps):
            clock.now += step
            if number % reopen == reopen - 1:
                writer.close()
                writer = LogWriter(folder, "1.out", timed=True)
            writer.write(b"%d\n" % number)
            written.append(clock.now)
    if not (folder / "1.out.times").exists():
        return  # the time of the file itself counts, which this clock does not set
    shown = read(folder, LogStart(since=begin + since)).split()
    wanted = [number for number, at in enumerate(written) if at >= begin + since]
    assert [int(number) for number in shown][-len(wanted) or len(shown) :] == wanted
    early = [written[int(number)] for number in shown[: len(shown) - len(wanted)]]
    assert all(at > begin + since - 2 * log_times.INTERVAL_S for at in early)


def test_an_index_stays_small_and_becomes_coarser(tmp_path: Path, clock: SetClock) -> None:
    writer = LogWriter(tmp_path, "1.out", timed=True)
    begin = clock.now
    for number in range(5 * log_times.MOST):
        clock.now += 1
        writer.write(b"%6d\n" % number)
    assert (tmp_path / "1.out.times").stat().st_size <= 8 + 16 * log_times.MOST
    for age in (10, 1000, 20_000):
        first = int(read(tmp_path, LogStart(since=clock.now - age)).split()[0])
        assert 0 <= (clock.now - age) - (begin + 1 + first) <= (clock.now - begin) / (log_times.MOST / 2)


def test_an_index_that_something_replaced_is_not_read(tmp_path: Path, clock: SetClock) -> None:
    writer = LogWriter(tmp_path, "1.out", timed=True)
    (tmp_path / "1.out.times").symlink_to("/dev/zero")
    for _ in range(3):
        writer.write(b"x\n")
        clock.now += 2
    assert read(tmp_path, LogStart(since=0)) == b"x\nx\nx\n"
