"""A quick proof that no victims of a claim suffice: in all, less could be free than its unit needs.

The search tries one way after the other. Where a claim has no chance, that takes hundreds of times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.sharing.world import ExecutorView
from ullage.model.request import ResourceRequirement


class Sums(NamedTuple):
    """Thousandths of a CPU, bytes of memory, and cards."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    cards: int = 0

    @classmethod
    def of(cls, asked: ResourceRequirement) -> Self:
        """Return what a request needs. A part of a card counts as the card."""
        return cls(asked.cpu_milli, asked.memory_bytes, asked.gpu_count)

    @classmethod
    def free(cls, fleet: Fleet) -> Self:
        """Return what all nodes have free."""
        columns = fleet.cpu_free, fleet.memory_free, fleet.gpu_free
        return cls(*(sum(np.maximum(column, 0).tolist()) for column in columns))

    def plus(self, other: Sums, times: int = 1) -> Sums:
        return Sums(*(mine + times * more for mine, more in zip(self, other, strict=True)))

    def most(self, other: Sums) -> Sums:
        return Sums(*map(max, self, other))


def largest(fleet: Fleet, executors: Iterable[ExecutorView]) -> Sums:
    """Return the most that one of these executors holds, each amount for itself; in a trial also if it has left."""
    found, ledger = Sums(), fleet.ledger
    held = (ledger[each.id].requirement if each.id in ledger else each.requirement for each in executors)
    for requirement in {id(each): each for each in held}.values():
        found = found.most(Sums.of(requirement))
    return found


def may_suffice(
    fleet: Fleet, asked: ResourceRequirement, count: int, losses: Mapping[str, int], each: Mapping[str, Sums]
) -> bool:
    """Return whether `count` units may fit where each session loses so many executors, `each` of so much at most.

    It does not say that they fit. Free parts of cards are not counted, so cards count for whole ones only.
    """
    there = Sums.free(fleet)
    for session, lost in losses.items():
        there = there.plus(each[session], lost)
    needed = Sums().plus(Sums.of(asked), count)
    short = [have < need for have, need in zip(there, needed, strict=True)]
    return not any(short if asked.whole else short[:2])
