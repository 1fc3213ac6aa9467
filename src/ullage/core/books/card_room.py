"""Whether a card takes one more part, apart from the amounts that are free on it."""

from __future__ import annotations

from collections.abc import Collection

from ullage.core.books.places import share_a_place
from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.profile import Profiles


def takes_part(profiles: Profiles, gpu: Gpu, users: Collection[Charge | None], charge: Charge) -> bool:
    """Return whether nobody has the card whole, it has fewer users than it may, and no slice has the same place.

    `users` have what they are charged of the card; None has all of it.
    """
    if None in users or _is_full(gpu, charge, len(users)):
        return False
    if charge.slot is None:
        return True
    others = (slot for user in users if user is not None for slot in user.slots)
    return not share_a_place(profiles, gpu, (*charge.slots, *others))


def _is_full(gpu: Gpu, charge: Charge, users: int) -> bool:
    """Return whether so many users are all that may have parts of a card."""
    parts = charge.isolation is not Isolation.PARTITIONED
    return parts and gpu.max_users is not None and users >= gpu.max_users
