"""The zones of the memory of a worker and of its children, as the kernel shows them."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.engines.recorder import opened
from ullage.model.zone_placement import ZonePlacement

POLICIES = Path("/proc/self/numa_maps")
pytestmark = pytest.mark.skipif(not POLICIES.exists(), reason="this kernel knows no zones")
GONE = 1000  # a zone that no machine has


def policy() -> set[str]:
    """Return the policy and zones of each part of a child's memory: numa(7)."""
    shown = subprocess.run(["cat", POLICIES], capture_output=True, text=True, check=True)
    return {line.replace(" (many)", "").split()[1] for line in shown.stdout.splitlines()} - {"default"}


@pytest.mark.parametrize(
    ("placement", "then"),
    [
        (None, set()),
        (ZonePlacement((0,)), {"prefer:0"}),
        (ZonePlacement((GONE,)), set()),
    ],
    ids=["nowhere", "near", "not-there"],
)
def test_memory_comes_from_the_zones_of_the_placement(
    tmp_path: Path, placement: ZonePlacement | None, then: set[str]
) -> None:
    async def main() -> set[str]:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter(placement=placement)
            found: set[str] = await recorder.run(0, policy)
            return found

    assert asyncio.run(main()) == then
