"""Logs of bounded size: their segments, writers and readers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.wire import output_log
from ullage.wire.output_log import SEGMENTS, LogReader, LogWriter, NotALog, log_bytes, read_tail, remove_log


def everything(reader: LogReader, most: int = 1 << 16) -> tuple[bytes, int]:
    """All that can be read now, and how many bytes were skipped."""
    data, skipped = b"", 0
    while (piece := reader.read(most)).data:
        data += piece.data
        skipped += piece.skipped
    return data, skipped


def size_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def numbered(start: int, end: int) -> bytes:
    """Bytes of a stream in which each one says where it is."""
    return bytes(position % 251 for position in range(start, end))


def test_a_small_log_is_one_plain_file(tmp_path):
    writer = LogWriter(tmp_path, "1.out")
    writer.write(b"one\n")
    writer.write(b"two\n")
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1.out"]
    assert (tmp_path / "1.out").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "1.out").stat().st_mode & 0o777 == 0o600


@given(
    limit=st.integers(SEGMENTS, 400),
    steps=st.lists(st.tuples(st.sampled_from(["write", "read", "reopen"]), st.integers(1, 150)), max_size=40),
)
def test_the_limit_holds_and_readers_get_every_kept_byte_once(tmp_path_factory, limit, steps):
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(folder, "1.out", limit)
    reader, written, seen = LogReader(folder, "1.out"), 0, 0

    def catch_up(most: int) -> int:
        piece = reader.read(most)
        start = seen + piece.skipped
        assert piece.data == numbered(start, start + len(piece.data))
        return start + len(piece.data)

    for step, size in steps:
        if step == "write":
            writer.write(numbered(written, written + size))
            written += size
        elif step == "read":
            seen = catch_up(size)
        else:
            writer.close()
            writer = LogWriter(folder, "1.out", limit)
            reader = LogReader(folder, "1.out", reader.position)
        assert size_on_disk(folder) <= limit
    while (now := catch_up(64)) != seen:
        seen = now
    assert seen == written
    kept, skipped = everything(LogReader(folder, "1.out"))
    assert kept == numbered(skipped, written)
    assert len(kept) >= min(written, limit // SEGMENTS * (SEGMENTS - 1))
    assert read_tail(folder / "1.out", 20) == kept[-20:]
    writer.close()
    remove_log(folder / "1.out")
    assert not list(folder.iterdir())


def test_a_reader_that_falls_behind_gets_the_size_of_the_gap(tmp_path):
    writer = LogWriter(tmp_path, "1.out", 400)
    writer.write(numbered(0, 50))
    reader = LogReader(tmp_path, "1.out")
    assert reader.read(10).data == numbered(0, 10)
    writer.write(numbered(50, 1020))
    piece = reader.read(100)
    assert piece.skipped == 690
    assert piece.data == numbered(700, 800)


def test_a_reader_that_stops_at_the_end_does_not_follow_a_writer(tmp_path):
    writer = LogWriter(tmp_path, "1.out", 400)
    writer.write(numbered(0, 130))
    reader = LogReader(tmp_path, "1.out")
    reader.stop_at_end()
    writer.write(numbered(130, 140))
    assert everything(reader) == (numbered(0, 130), 0)


def test_a_missing_log_is_empty(tmp_path):
    assert LogReader(tmp_path / "absent", "1.out").read(10).data == b""
    assert LogReader(tmp_path, "1.out", 7).read(10).data == b""
    assert read_tail(tmp_path / "absent" / "1.out", 10) == b""
    remove_log(tmp_path / "absent" / "1.out")


def put_in_place_of(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        (path.parent / "other").write_bytes(b"of somebody else")
        path.symlink_to(path.parent / "other")
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["fifo", "endless", "link", "directory"])
def test_a_reader_refuses_a_file_that_replaced_a_log(tmp_path, kind):
    LogWriter(tmp_path, "1.out").close()
    reader = LogReader(tmp_path, "1.out")
    put_in_place_of(tmp_path / "1.out", kind)
    with pytest.raises(NotALog, match="regular file"):
        reader.read(10)
    with pytest.raises(NotALog):
        LogReader(tmp_path, "1.out", 5).read(10)
    assert read_tail(tmp_path / "1.out", 10) == b""


def test_a_reader_refuses_a_link_in_place_of_the_directory(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotALog):
        LogReader(tmp_path / "link", "1.out").read(10)


@pytest.mark.parametrize("kind", ["fifo", "endless", "link"])
def test_a_second_writer_replaces_foreign_files(tmp_path, kind):
    LogWriter(tmp_path, "1.out").close()
    put_in_place_of(tmp_path / "1.out", kind)
    writer = LogWriter(tmp_path, "1.out")
    writer.write(b"ours")
    writer.close()
    assert everything(LogReader(tmp_path, "1.out")) == (b"ours", 0)
    if kind == "link":
        assert (tmp_path / "other").read_bytes() == b"of somebody else"


def test_a_log_states_how_many_bytes_are_lost(tmp_path, monkeypatch):
    writer = LogWriter(tmp_path, "1.out")
    writer.write(b"before\n")
    with monkeypatch.context() as full:

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "write", refuse)
        writer.write(b"12345")
        writer.write(b"678")
    writer.write(b"after\n")
    expected = b"before\n[ullage: 8 bytes are lost here: No space left on device]\nafter\n"
    assert (tmp_path / "1.out").read_bytes() == expected


def descriptors_into(folder):
    """Of this process; others come and go with what earlier tests left to the garbage collector."""
    return [name for name in map(target, Path("/proc/self/fd").iterdir()) if name.startswith(str(folder))]


def target(link):
    try:
        return str(link.readlink())
    except OSError:
        return ""


def test_readers_and_writers_leave_no_descriptor_open(tmp_path):
    writer = LogWriter(tmp_path, "1.out", 40)
    writer.write(b"x" * 500)
    assert descriptors_into(tmp_path)
    everything(LogReader(tmp_path, "1.out"))
    writer.close()
    assert descriptors_into(tmp_path) == []


def test_a_log_that_was_made_larger_than_a_log_is_not_read(tmp_path):
    os.truncate(write_log(tmp_path), 5 << 40)
    reader = LogReader(tmp_path, "log")
    for look in (reader.stop_at_end, lambda: reader.read(10)):
        with pytest.raises(NotALog, match=f"log has {5 << 40} bytes, more than a log has"):
            look()
    assert read_tail(tmp_path / "log", 10) == b""
    assert log_bytes(tmp_path / "log") < 1 << 30


def test_a_reader_that_stops_at_the_end_reads_no_more_than_the_limit_however_many_segments_there_are(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(output_log, "LIMIT", 400)
    write_log(tmp_path).chmod(0o400)
    for start in range(100, 10_000, 100):
        segment = tmp_path / f"log.{start}"
        segment.write_bytes(b"x" * 100)
        segment.chmod(0o400)
    reader = LogReader(tmp_path, "log")
    reader.stop_at_end()
    pieces = []
    while (piece := reader.read(64)).data:
        pieces.append(piece)
    assert sum(len(piece.data) for piece in pieces) == 400
    assert pieces[0].skipped == 9600


def write_log(directory):
    """A log of 100 bytes."""
    writer = LogWriter(directory, "log")
    writer.write(b"x" * 100)
    writer.close()
    return directory / "log"
