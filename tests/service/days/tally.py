"""What came of some days."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self


@dataclass
class Counts:
    """Figures that are added up, but for the longest wait."""

    def add(self, other: Self) -> None:
        for each in fields(self):
            mine, more = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, max(mine, more) if each.name == "longest_wait_s" else mine + more)


@dataclass
class Tally(Counts):
    """Counts of all steps and events, the longest wait in seconds, and what must not have happened."""

    days: int = 0
    steps: int = 0
    restarts: int = 0
    starts: int = 0
    vacant: int = 0
    claimed: int = 0
    for_gangs: int = 0
    of_gangs: int = 0
    of_other_queues: int = 0
    kept: int = 0
    taken: int = 0
    ended: int = 0
    excused: int = 0
    waits: int = 0
    longest_wait_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.days} days, {self.steps} steps, {self.restarts} restarts, {self.starts} starts; "
            f"{self.vacant} vacant executors left; {self.claimed} at work claimed ({self.for_gangs} for gangs, "
            f"{self.of_gangs} of gangs, {self.of_other_queues} of other queues), {self.kept} kept, {self.taken} left, "
            f"{self.ended} ended with their task; {self.excused} winners had no use for the room any more; "
            f"{self.waits} waits, the longest {self.longest_wait_s:.1f} s"
        )
