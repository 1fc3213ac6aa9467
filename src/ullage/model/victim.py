"""Who gives way to a request of higher priority, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.rejection import Rejection


@dataclass(frozen=True, slots=True)
class Gives:
    """What a victim gives back on one card: GFLOPS and bytes, or millionths of a card of unknown capacity."""

    gpu: str
    compute: int
    vram: int


@dataclass(frozen=True, slots=True)
class Victim:
    """One that is evicted, what it gives, and why the request does not fit while it stays."""

    uid: str
    namespace: str
    workload: str
    priority: int
    gives: tuple[Gives, ...]
    reason: Rejection
