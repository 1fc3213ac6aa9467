"""An intact store is opened with all acknowledged records, whatever ended the process before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.histories import History


@pytest.mark.parametrize("seed", range(6))
def test_whatever_ends_a_store_its_next_start_has_all_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    History(tmp_path / "state.db", seed).run(6)
