"""The victims of a request of higher priority, and what they free."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.rejection import Rejection


@dataclass(frozen=True, slots=True)
class FreedAmounts:
    """The amounts that a victim frees on one card: GFLOPS and bytes, or millionths of a card of unknown capacity."""

    gpu: str
    compute: int
    vram: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A victim of an eviction, what it frees, and why the request does not fit while it stays."""

    uid: str
    namespace: str
    workload: str
    priority: int
    gives: tuple[FreedAmounts, ...]
    reason: Rejection
