"""Pairs: cards that are to be near to another resource, whatever else a container needs.

A pair is held where the cards and what the container has of the other resource lie in one mask that is as narrow as
the one of them that needs most zones allows. What is only to be near, and is not asked for, has to lie in each zone of
the mask. All pairs of a container are held together; where that cannot be, those that are required.
"""

from __future__ import annotations

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    AMOUNT,
    CARDS,
    FIRST_SUPPLY,
    LEVEL,
    NEEDED,
    RESOURCE,
    machines_in,
    supplies_in,
)
from ullage.core.kernel.board import ZONES as SUPPLY_ZONES
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import HINTED, NIL, PREFERRED, RESTRICTED, admits, fitter, merge

UNPAIRED, WISHED, BOUND = 0, 1, 2
"""Whether a need is in no pair, in a preferred one, or in a required one."""


@compiled
def level_of(needs: Rows) -> int:
    """The highest level of these needs."""
    level = UNPAIRED
    for k in range(len(needs)):
        level = max(level, needs[k, LEVEL])
    return int(level)


@compiled
def hint_nearby(store: Rows, machine: int, resource: int, hints: Rows) -> None:
    """The hints of what is not asked for: masks each of whose zones has some of it, held by somebody or not."""
    machines, supplies, there = machines_in(store), supplies_in(store), 0
    for at in range(machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]):
        if supplies[at, RESOURCE] == resource:
            there |= supplies[at, SUPPLY_ZONES]
    hints[NIL] = 0 if there else HINTED
    for mask in range(1, len(hints)):
        hints[mask] = 0 if mask & ~there else PREFERRED


@compiled
def merge_by_pairs(
    needs: Rows, hints: Rows, policy: int, distances: Rows, damage: Rows, binds: bool
) -> tuple[int, bool]:
    """The mask that a container is aligned by under its pairs and a policy, and whether it may have it.

    Where Ullage `binds`. A kubelet knows of no pairs: its mask is its own, and has to have what its cards are to be
    near to.
    """
    mask, cards, most = NIL, 0, level_of(needs)
    for k in range(len(needs)):
        cards = k if needs[k, NEEDED] == CARDS else cards
    level = WISHED if binds and most else BOUND
    while level <= BOUND:
        told, held, joins = hints, True, binds and most >= level
        if most:
            told = hints.copy()
            for k in range(len(needs)):
                if not needs[k, AMOUNT] and (needs[k, LEVEL] < level or not binds):
                    _silence(told[k])
        if joins:
            held = _join(needs, told, cards, level, policy)
        if held:
            mask, preferred = merge(told, policy, distances, damage)
            if admits(policy, preferred):
                if joins and policy < RESTRICTED:
                    mask = _around(mask, told[cards], distances, damage)
                return mask, binds or _has_all(needs, hints, mask)
        level += 1
    return mask, False


@compiled
def _has_all(needs: Rows, hints: Rows, mask: int) -> bool:
    """Whether a mask has, in each of its zones, what the cards of required pairs are to be near to."""
    at, lacks = len(hints[0]) - 1 if mask == NIL else mask, 0
    for k in range(len(needs)):
        lacks += needs[k, LEVEL] == BOUND and not needs[k, AMOUNT] and not hints[k, at]
    return lacks == 0


@compiled
def _silence(hints: Rows) -> None:
    """Turn the hints of a resource into those of one that has nothing to say."""
    hints[:] = 0
    hints[NIL] = PREFERRED


@compiled
def _join(needs: Rows, hints: Rows, cards: int, level: int, policy: int) -> bool:
    """Put one list of hints in the place of those of the pairs of a level. Whether there is a mask for all of them.

    Under a policy that demands equal masks anyway the lists stay as they are.
    """
    found = False
    for mask in range(1, hints.shape[1]):
        together, narrow = True, False
        for k in range(len(needs)):
            if needs[k, LEVEL] >= level:
                together = together and hints[k, mask] != 0
                narrow = narrow or (needs[k, AMOUNT] > 0 and (hints[k, mask] & PREFERRED) != 0)
        found = found or (together and narrow)
        if policy < RESTRICTED:
            hints[cards, mask] = PREFERRED if together and narrow else 0
    if policy < RESTRICTED:
        hints[cards, NIL] = 0
        for k in range(len(needs)):
            if k != cards and needs[k, LEVEL] >= level:
                _silence(hints[k])
    return found


@compiled
def _around(mask: int, joined: Rows, distances: Rows, damage: Rows) -> int:
    """The mask itself, or the fittest around it in which pairs are held."""
    best = NIL
    for wider in range(1, len(joined)):
        if joined[wider] and wider & mask == mask and (best == NIL or fitter(wider, best, distances, damage)):
            best = wider
    return mask if joined[mask] else best
