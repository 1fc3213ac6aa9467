"""Pairs: cards that have to be near another resource, whatever else a container needs.

A pair holds if the cards and what the container takes of the other resource lie in one mask, as narrow as the one of
them that needs more zones allows. A resource that is not requested has to lie in each zone of the mask. All pairs of
a container hold together, or else the required ones.
"""

from __future__ import annotations

from ullage.core.kernel import board as b
from ullage.core.kernel.board import supplies_in
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.masks import HINTED, NIL, PREFERRED, RESTRICTED, admits, fitter, merge
from ullage.core.kernel.site import MachineRow, supplies_of

UNPAIRED, WISHED, BOUND = 0, 1, 2
"""The level of a need: in no pair, in a preferred one, in a required one."""


@compiled
def level_of(needs: Rows) -> int:
    """Return the highest level of these needs."""
    level = UNPAIRED
    for k in range(len(needs)):
        level = max(level, needs[k, b.LEVEL])
    return int(level)


@compiled
def hint_nearby(machine: MachineRow, resource: int, hints: Rows) -> None:
    """Write the hints of a resource that is not requested: masks each of whose zones has some, free or not."""
    supplies, zones = supplies_in(machine.arena), 0
    first, after = supplies_of(machine)
    for at in range(first, after):
        if supplies[at, b.RESOURCE] == resource:
            zones |= supplies[at, b.ZONES]
    hints[NIL] = 0 if zones else HINTED
    for mask in range(1, len(hints)):
        hints[mask] = 0 if mask & ~zones else PREFERRED


@compiled
def merge_by_pairs(
    needs: Rows, hints: Rows, policy: int, distances: Rows, damage: Rows, binds: bool
) -> tuple[int, bool]:
    """Return the mask that a container is aligned by under its pairs and a policy, and whether it is admitted.

    Pairs decide where Ullage `binds`. A kubelet knows no pairs: its own mask must contain what the cards have to be
    near to.
    """
    mask, cards, most = NIL, 0, level_of(needs)
    for k in range(len(needs)):
        cards = k if needs[k, b.NEEDED] == b.CARDS else cards
    level = WISHED if binds and most else BOUND
    while level <= BOUND:
        found, held, joins = hints, True, binds and most >= level
        if most:
            found = hints.copy()
            for k in range(len(needs)):
                if not needs[k, b.AMOUNT] and (needs[k, b.LEVEL] < level or not binds):
                    _silence(found[k])
        if joins:
            held = _join(needs, found, cards, level, policy)
        if held:
            mask, preferred = merge(found, policy, distances, damage)
            if admits(policy, preferred):
                if joins and policy < RESTRICTED:
                    mask = _around(mask, found[cards], distances, damage)
                return mask, binds or _has_all(needs, hints, mask)
        level += 1
    return mask, False


@compiled
def _has_all(needs: Rows, hints: Rows, mask: int) -> bool:
    """Return whether each zone of a mask has what the cards of required pairs have to be near to."""
    at, lacks = hints.shape[1] - 1 if mask == NIL else mask, 0
    for k in range(len(needs)):
        lacks += needs[k, b.LEVEL] == BOUND and not needs[k, b.AMOUNT] and not hints[k, at]
    return lacks == 0


@compiled
def _silence(hints: Rows) -> None:
    """Turn the hints of a resource into those of one without zones."""
    hints[:] = 0
    hints[NIL] = PREFERRED


@compiled
def _join(needs: Rows, hints: Rows, cards: int, level: int, policy: int) -> bool:
    """Replace the hints of the pairs of a level by one list. Return whether some mask is in all of them.

    Under a policy that demands equal masks anyway the lists stay as they are.
    """
    found = False
    for mask in range(1, hints.shape[1]):
        together, narrow = True, False
        for k in range(len(needs)):
            if needs[k, b.LEVEL] >= level:
                together = together and hints[k, mask] != 0
                narrow = narrow or (needs[k, b.AMOUNT] > 0 and (hints[k, mask] & PREFERRED) != 0)
        found = found or (together and narrow)
        if policy < RESTRICTED:
            hints[cards, mask] = PREFERRED if together and narrow else 0
    if policy < RESTRICTED:
        hints[cards, NIL] = 0
        for k in range(len(needs)):
            if k != cards and needs[k, b.LEVEL] >= level:
                _silence(hints[k])
    return found


@compiled
def _around(mask: int, joined: Rows, distances: Rows, damage: Rows) -> int:
    """Return the mask if the pairs hold in it, else the fittest mask around it in which they do."""
    best = NIL
    for wider in range(1, len(joined)):
        if joined[wider] and wider & mask == mask and (best == NIL or fitter(wider, best, distances, damage)):
            best = wider
    return mask if joined[mask] else best
