"""The token of a server, and files that only their owner reads."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ullage.bootstrap.token import own_token
from ullage.engines.local.home import Home
from ullage.model.error import Unavailable
from ullage.wire.private_file import write_private


def test_the_first_start_makes_a_token_that_stays(tmp_path: Path) -> None:
    made = own_token(tmp_path / "token")
    assert len(made) == 64
    assert own_token(tmp_path / "token") == made
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize("content", ["", "\n", "short", "a token with spaces in it", "tökentökentökentöken"])
def test_a_token_that_lets_strangers_in_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(Unavailable, match="at least 16") as caught:
        own_token(tmp_path / "token")
    assert caught.value.code == "token-unusable"
    assert str(tmp_path / "token") in caught.value.message
    assert (tmp_path / "token").read_text() == content


def test_a_token_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(Unavailable, match="cannot be read") as caught:
        own_token(tmp_path / "token")
    assert caught.value.code == "token-unreadable"


def test_a_private_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), sync(file))[1])
    monkeypatch.setattr(Path, "replace", lambda old, new: (done.append("rename"), rename(old, new))[1])
    write_private(tmp_path / "file", b"content")
    assert done == ["sync", "rename", "sync"]


def test_the_recorded_roots_are_on_the_disk_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.open()
    home.record_roots((Path("/sys/fs/cgroup/a"),))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        home.record_roots((Path("/sys/fs/cgroup/b"),))
    assert home.recorded_roots() == [Path("/sys/fs/cgroup/a")]
    monkeypatch.undo()
    home.record_roots(())
    assert home.recorded_roots() == []
    home.close()


def test_a_private_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(tmp_path / "file", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]
