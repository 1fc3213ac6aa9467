"""A few rounds of the loop that kills a live server; `python -m tests.system.kill_loop` makes hundreds."""

from __future__ import annotations

from pathlib import Path

from tests.system.kill_loop import run


def test_acknowledged_records_survive_every_kill(home: Path):
    counts = run(home, 3)
    assert counts["kills"] == 3
    assert counts["gangs taken"] > 0
    assert counts["allocations taken"] > 0
