"""No place is given twice: what holds of any set of allocations, whatever is free by the columns.

Placement slots of a partition are its alone. An isolation group holds partitions of one template, as
many as the profile of the card allows. A card that is held whole has one holder. A partition whose
place is not recorded is not judged here, nor is what a node has shown: it is so.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ullage.model.allocation import Allocation, Slot
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.profile import Profiles
from ullage.model.template import name_key


def share_a_place(profiles: Profiles, gpu: Gpu | None, slots: Iterable[Slot | None]) -> bool:
    """Return whether two of these partitions of one card lie where only one can; `gpu` is what is known of it."""
    runs: list[tuple[int, int]] = []
    groups: dict[int, list[str]] = {}
    for slot in slots:
        if slot is not None and slot.start is not None and slot.end is not None:
            runs.append((slot.start, slot.end))
        elif slot is not None and slot.group is not None:
            groups.setdefault(slot.group, []).append(name_key(slot.template))
    profile = None if gpu is None else profiles.of(gpu)
    for inside in groups.values():
        template = None if profile is None else profile.template(inside[0])
        most = len(inside) if template is None else template.per_group
        if len(set(inside)) > 1 or len(inside) > most:
            return True
    return any(start < end for (_, end), (start, _) in pairwise(sorted(runs)))


def check_places(profiles: Profiles, allocations: Iterable[Allocation]) -> None:
    """Refuse allocations of which two have the same place.

    Raises:
        Conflict: they do; the message names the card and its holders.

    """
    on_card: dict[str, list[tuple[Allocation, Slot | None]]] = {}
    known: dict[str, Gpu] = {}
    for held in (held for held in allocations if not held.observed):
        known |= {gpu.uuid: gpu for gpu in held.cards}
        slots: list[tuple[Slot | None, ...]] = [charge.slots or (None,) for charge in held.charges]
        for uuid, there in zip(held.gpus, slots or [(None,)] * len(held.gpus), strict=True):
            on_card.setdefault(uuid, []).extend((held, slot) for slot in there)
    for uuid, holders in on_card.items():
        whole = len(holders) > 1 and any(not held.charges for held, _ in holders)
        if whole or share_a_place(profiles, known.get(uuid), (slot for _, slot in holders)):
            names = ", ".join(sorted(held.id for held, _ in holders))
            raise Conflict(f"a place on card {uuid} is given twice; it is held by {names}", code="card-held")
