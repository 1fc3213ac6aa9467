"""Hints over sets of zones, and their merge: the arithmetic of the kubelet's topology manager.

A mask is a number with bit z set for zone z of a machine; zones are numbered from 0 in the order of their ids. The
hints of one resource are a row with a number per mask: `HINTED` if the mask is a hint that is not preferred,
`PREFERRED` if it is a preferred one. Mask 0 stands for nil: any zone will do.

Source: Kubernetes 1.34, pkg/kubelet/cm/topologymanager (policy.go, bitmask, numa_info.go). The kubelet goes
through every choice of one hint per resource; here that product is never formed.
"""

from __future__ import annotations

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled

HINTED, PREFERRED = 1, 2
NIL = 0
"""The mask that stands for any zone."""

MOST_ZONES = 16
"""Masks of a machine with more zones are not enumerated; 16 zones have 2^16 - 1 masks."""

NONE, BEST_EFFORT, RESTRICTED, SINGLE_ZONE = 0, 1, 2, 3
"""Policies, in rising strictness."""


@compiled
def width_of(mask: int) -> int:
    """Return the number of zones of a mask."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


# --- hints of one resource ---


@compiled
def gather(amounts: Rows) -> None:
    """Turn amounts by the exact set of zones they lie in into amounts by mask: of all that touches a zone of it.

    Before, `amounts[s]` lies in exactly the zones s. Entry 0, of unknown zones, counts in no mask.
    """
    masks = len(amounts)
    total = 0
    amounts[NIL] = 0
    for mask in range(masks):
        total += amounts[mask]
    step = 1
    while step < masks:  # turns them into amounts of what lies within each mask
        for mask in range(masks):
            if mask & step:
                amounts[mask] += amounts[mask ^ step]
        step *= 2
    full = masks - 1
    for mask in range(masks // 2):  # what touches a mask is all but what lies within the zones outside it
        within, without = amounts[mask], amounts[full ^ mask]
        amounts[mask], amounts[full ^ mask] = total - without, total - within


@compiled
def hint(asked: int, width_by: Rows, free: Rows, hints: Rows) -> None:
    """Write the hints for an amount: each mask with as much `free`, preferred if no narrower one has it in `width_by`.

    Both are amounts by mask, as `gather` leaves them. If no mask has the amount, the hint is nil, not preferred, as
    the kubelet treats an empty list.
    """
    masks = len(hints)
    narrowest = masks
    for mask in range(1, masks):
        if width_by[mask] >= asked:
            narrowest = min(narrowest, width_of(mask))
    if narrowest == masks:
        narrowest = width_of(masks - 1)
    hints[NIL] = HINTED
    for mask in range(1, masks):
        hints[mask] = 0
        if free[mask] >= asked:
            hints[mask] = PREFERRED if width_of(mask) == narrowest else HINTED
            hints[NIL] = 0


@compiled
def keep_masks(hints: Rows, reuse: Rows, returned: int) -> None:
    """Keep only masks that touch all that init containers returned: `returned` in all, `reuse` by mask."""
    hints[NIL] = HINTED
    for mask in range(1, len(hints)):
        if reuse[mask] != returned:
            hints[mask] = 0
        if hints[mask]:
            hints[NIL] = 0


# --- the merge ---


@compiled
def spread_of(mask: int, distances: Rows) -> int:
    """Return the sum of distances over all ordered pairs of a mask's zones, including each with itself."""
    total = 0
    for a in range(len(distances)):
        if mask >> a & 1:
            for b in range(len(distances)):
                if mask >> b & 1:
                    total += distances[a, b]
    return total


@compiled
def fitter(mask: int, than: int, distances: Rows, damage: Rows) -> bool:
    """Return whether a mask is fitter than another: narrower, closer (if there are distances), less damage, smaller.

    `damage` is by mask and breaks ties where Ullage binds; it may be empty.
    """
    width, other = width_of(mask), width_of(than)
    if width != other:
        return bool(width < other)
    if len(distances):
        spread, wider = spread_of(mask, distances), spread_of(than, distances)
        if spread != wider:
            return bool(spread < wider)
    if len(damage) and damage[mask] != damage[than]:
        return bool(damage[mask] < damage[than])
    return mask < than


@compiled
def merge(hints: Rows, policy: int, distances: Rows, damage: Rows) -> tuple[int, bool]:
    """Return the mask that a machine would align by, and whether it is preferred.

    `hints` has a row per resource. Under the policy of a single zone a mask of all zones becomes nil. The other
    policies merge in the same way and differ in what they admit (`admits`).
    """
    if policy == SINGLE_ZONE:
        return _merge_single(hints, damage)
    found = _preferred_by_all(hints, distances, damage)
    if found != NIL:
        return found, True
    return _best_of(_reached(hints), _widest_need(hints), distances, damage), False


@compiled
def _best_of(reached: Rows, most: int, distances: Rows, damage: Rows) -> int:
    """Return the mask if none is preferred: the fittest of width `most`, else of the widest below, else of all."""
    best = NIL
    for mask in range(1, len(reached)):
        if not reached[mask] or best == NIL:
            best = mask if reached[mask] else best
            continue
        width, at_best = width_of(mask), width_of(best)
        if width == at_best:
            better = fitter(mask, best, distances, damage)
        elif max(width, at_best) <= most:
            better = width > at_best
        else:
            better = width < at_best
        if better:
            best = mask
    return best if best != NIL else len(reached) - 1


@compiled
def admits(policy: int, preferred: bool) -> bool:
    """Return whether a policy lets a container start with a merged hint."""
    return policy < RESTRICTED or preferred


@compiled
def _preferred_by_all(hints: Rows, distances: Rows, damage: Rows) -> int:
    """Return the fittest mask that every resource prefers (nil prefers any); all zones if all are nil; else nil."""
    masks = hints.shape[1]
    best, all_nil = NIL, True
    for resource in range(len(hints)):
        all_nil = all_nil and (hints[resource, NIL] & PREFERRED) != 0
    for mask in range(1, masks):
        joined = named = 0
        for resource in range(len(hints)):
            here = (hints[resource, mask] & PREFERRED) != 0
            named += here
            joined += here or (hints[resource, NIL] & PREFERRED) != 0
        candidate = (joined == len(hints) and named > 0) or (all_nil and mask == masks - 1)
        if candidate and (best == NIL or fitter(mask, best, distances, damage)):
            best = mask
    return best


@compiled
def _merge_single(hints: Rows, damage: Rows) -> tuple[int, bool]:
    """Merge preferred masks of one zone, and nil where it is preferred: all agree on a zone, or it is refused."""
    masks = hints.shape[1]
    one_zone = np.zeros_like(hints)
    for resource in range(len(hints)):
        one_zone[resource, NIL] = hints[resource, NIL] & PREFERRED
        mask = 1
        while mask < masks:
            one_zone[resource, mask] = hints[resource, mask] & PREFERRED
            mask *= 2
    found = _preferred_by_all(one_zone, hints[:0], damage)  # without distances
    return (NIL if found == masks - 1 else found), found != NIL


@compiled
def _widest_need(hints: Rows) -> int:
    """Return the largest, over resources, of the width of their narrowest hint; 0 if all hints are nil."""
    most = 0
    for resource in range(len(hints)):
        narrowest = 0
        for mask in range(1, hints.shape[1]):
            if hints[resource, mask] and (narrowest == 0 or width_of(mask) < narrowest):
                narrowest = width_of(mask)
        most = max(most, narrowest)
    return most


@compiled
def _reached(hints: Rows) -> Rows:
    """Return, per mask, whether some choice of one hint per resource has exactly this mask in common.

    The number of choices that have at least a mask in common is a product over resources. The number that have
    exactly it follows by Moebius inversion over supersets.
    """
    masks = hints.shape[1]
    reached = np.zeros(masks, np.int64)
    reached[masks - 1] = 1
    for resource in range(len(hints)):
        one = np.zeros(masks, np.int64)
        for mask in range(1, masks):
            one[mask] = hints[resource, mask] != 0
        one[masks - 1] |= hints[resource, NIL] != 0
        _over_supersets(reached, 1)
        _over_supersets(one, 1)
        reached *= one
        _over_supersets(reached, -1)
        for mask in range(masks):
            reached[mask] = reached[mask] != 0
    return reached


@compiled
def _over_supersets(counts: Rows, sign: int) -> None:
    """Add to each mask the counts of its supersets (1), or undo that (-1)."""
    step = 1
    while step < len(counts):
        for mask in range(len(counts)):
            if not mask & step:
                counts[mask] += sign * counts[mask | step]
        step *= 2
