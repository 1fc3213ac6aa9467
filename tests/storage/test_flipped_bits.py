"""Every flipped bit of a stored byte is detected."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.storage.flips import FILES, content, copied, flip
from tests.storage.stored import refusal


@pytest.mark.parametrize("seed", range(10))
def test_every_flipped_bit_is_found_or_harmless(left: Path, tmp_path: Path, seed: int) -> None:
    seeded, expected = random.Random(seed), content(copied(left, tmp_path / "copy"))
    found = {flip(left, tmp_path / "copy", seeded, expected)[1] for _ in range(20)}
    assert found <= {"storage-damaged", "harmless"}
    assert "storage-damaged" in found


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_truncated_log_is_refused_and_the_missing_commits_are_named(left: Path, tmp_path: Path, part: float) -> None:
    copy = copied(left, tmp_path / "copy")
    log = Path(f"{copy}-wal")
    os.truncate(log, int(log.stat().st_size * part))
    assert "is changed or truncated: commits" in refusal(copy).message


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_is_refused(left: Path, tmp_path: Path, missing: str) -> None:
    copy = copied(left, tmp_path / "copy")
    Path(f"{copy}{missing}").unlink()
    assert refusal(copy).code == "storage-damaged"


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal"), ("-wal",)])
def test_an_older_copy_is_refused(left: Path, tmp_path: Path, suffixes: tuple[str, ...]) -> None:
    copy, newer = copied(left, tmp_path / "copy"), copied(left, tmp_path / "newer")
    content(newer)
    for suffix in suffixes:
        shutil.copy(f"{copy}{suffix}", f"{newer}{suffix}")
    assert refusal(newer).code == "storage-damaged"


def test_an_intact_store_is_opened_with_all_records(left: Path, tmp_path: Path) -> None:
    copy = copied(left, tmp_path / "copy")
    assert content(copy) == content(copy)
