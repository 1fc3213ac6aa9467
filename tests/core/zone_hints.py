"""Hints as values: what each resource of a container says of zones, and what comes of it.

The arithmetic is in `core/kernel/masks.py`; here it meets zone ids, lists and names. Source: the kubelet's
topology manager (pkg/kubelet/cm/topologymanager).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.core.kernel import masks as kernel
from ullage.core.kernel.columns import Rows
from ullage.core.topology.rules import WidthRule
from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import ZonePolicy


@dataclass(frozen=True, slots=True)
class Hint:
    """A set of zones (ids, ascending; None: any) that would do, and whether it is as narrow as can be."""

    zones: tuple[int, ...] | None
    preferred: bool

    def __str__(self) -> str:
        shown = "nil" if self.zones is None else "{" + ",".join(map(str, self.zones)) + "}"
        return shown + ("P" if self.preferred else "n")


@dataclass(frozen=True, slots=True)
class Merged:
    """The hint a container is aligned by, and whether the policy lets it start."""

    hint: Hint
    admitted: bool


NIL = Hint(None, True)
_NOWHERE = Hint(None, False)


def merge_hints(
    zones: Sequence[int],
    lists: Iterable[Sequence[Hint] | None],
    policy: ZonePolicy,
    distances: Sequence[Sequence[int]] = (),
) -> Merged:
    """Return what hints come to on a machine of these zones; a list of None is of a resource that says nothing.

    With `distances` (a row and a column per zone) equally wide masks are compared by them, as the kubelet's
    `prefer-closest-numa-nodes` does; not for a single zone.

    Raises:
        InvalidRequest: `zones-too-many` where a merge would go over more than 16 zones; a hint names a zone
            that the machine does not have.

    """
    if policy is ZonePolicy.NONE:
        return Merged(NIL, True)
    given = list(lists)
    rows = np.zeros((len(given), _masks(zones)), np.int64)
    for row, hints in zip(rows, given, strict=True):
        for hint in [NIL] if hints is None else hints or [_NOWHERE]:
            row[_mask(zones, hint.zones)] |= kernel.PREFERRED if hint.preferred else kernel.HINTED
    far = np.zeros((0, 0), np.int64)
    if distances and policy is not ZonePolicy.SINGLE_ZONE:
        far = np.array(distances, np.int64)
    mask, preferred = kernel.merge(rows, policy.rank, far, np.zeros(0, np.int64))
    return Merged(Hint(_zones(zones, mask), bool(preferred)), kernel.admits(policy.rank, preferred))


def device_hints(
    zones: Sequence[int],
    all_in: Sequence[Sequence[int]],
    free_in: Sequence[Sequence[int]],
    asked: int,
    rule: WidthRule = WidthRule.KUBELET,
    reused_in: Sequence[Sequence[int]] = (),
) -> list[Hint] | None:
    """Hints for so many devices of one resource, by width and then in lexicographic order.

    `all_in`, `free_in` and `reused_in` are the zones of each device of the machine, of those that are free, and of
    those that a finished init container held (they count as free too; every one must touch the mask). An
    empty list says that they are too few; None that no device has a zone.

    Raises:
        InvalidRequest: `zones-too-many`; `amount-out-of-range`.

    """
    if not 0 < asked <= MAX_INT32:
        raise InvalidRequest(
            invalid("amount", asked, f"a number from 1 to {MAX_INT32} is needed").message, code="amount-out-of-range"
        )
    total = _gathered(zones, all_in)
    if not total.any():
        return None
    free = _gathered(zones, (*free_in, *reused_in))
    row = np.zeros_like(total)
    kernel.hint(asked, total if rule is WidthRule.KUBELET else free, free, row)
    if reused_in:
        kernel.keep_masks(row, _gathered(zones, reused_in), len(reused_in))
    found = [(_zones(zones, mask) or (), row[mask]) for mask in range(1, len(row)) if row[mask]]
    return [
        Hint(at, kind == kernel.PREFERRED) for at, kind in sorted(found, key=lambda found: (len(found[0]), found[0]))
    ]


def _gathered(zones: Sequence[int], places: Iterable[Sequence[int]]) -> Rows:
    amounts = np.zeros(_masks(zones), np.int64)
    for place in places:
        amounts[_mask(zones, tuple(place))] += 1
    kernel.gather(amounts)
    return amounts


def _masks(zones: Sequence[int]) -> int:
    if len(zones) > kernel.MOST_ZONES:
        raise InvalidRequest(
            f"zones: {len(zones)} are more than the {kernel.MOST_ZONES} whose sets are enumerated",
            code="zones-too-many",
        )
    return 1 << len(zones)


def _mask(zones: Sequence[int], places: Iterable[int] | None) -> int:
    mask = 0
    for place in places or ():
        if place not in zones:
            raise invalid("zones", place, f"the machine has zones {', '.join(map(str, zones))}")
        mask |= 1 << zones.index(place)
    return mask


def _zones(zones: Sequence[int], mask: int) -> tuple[int, ...] | None:
    return None if mask == kernel.NIL else tuple(zone for bit, zone in enumerate(zones) if mask >> bit & 1)
