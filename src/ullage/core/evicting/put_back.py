"""The step that all evictions share: those who were released come back, as long as the winner fits with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation

Held = tuple[Allocation, ...]
"""The allocations that leave or stay together: one, or those of a whole gang."""


def put_back(fleet: Fleet, released: Iterable[Held], fits: Callable[[Held], bool]) -> list[Held]:
    """Charge these again, one after the other, while the winner `fits`; return those that cannot come back, in order.

    Released allocations never take room away, so none of those that are returned could stay. The caller takes back
    what is charged. `released` is read step by step: it may depend on who is back.
    """
    needed = []
    for held in released:
        for allocation in held:
            fleet.charge(allocation, force=True)
        if not fits(held):
            for allocation in held:
                fleet.release(allocation.id)
            needed.append(held)
    return needed
