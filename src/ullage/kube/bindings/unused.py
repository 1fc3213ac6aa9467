"""Bindings that were created after the pods of their application: such a pod keeps the cards it started with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ullage.binding.permit import BindingClaims
from ullage.binding.room import BindingRejection
from ullage.kube.bindings.occupants import Occupant, identity
from ullage.model.binding import Consume
from ullage.model.error import InvalidRequest
from ullage.wire.gpubinding import consume_of


def unused(
    claims: BindingClaims, occupants: Mapping[str, Occupant], cards_of: Callable[[str], Iterable[str]]
) -> dict[str, str]:
    """Return why bindings in force give their card to no pod yet, by the name of the binding.

    `occupants` are pods by uid. `cards_of` returns the cards that a pod holds. A pod of the application runs on the
    node of the card and takes all cards bound to it. Neither this pod nor another pod of the application holds this
    card.
    """
    there = {uid: each for uid, each in occupants.items() if each.node and each.tenant.app}
    taken: defaultdict[tuple[object, str], set[str]] = defaultdict(set)
    for uid, each in there.items():
        taken[identity(each.tenant), each.node].update(cards_of(uid))
    found: dict[str, str] = {}
    for uid, each in there.items():
        if not set(cards_of(uid)) or not _takes_all(each):
            continue
        bound_cards = claims.bound(each.tenant)
        for bound in () if isinstance(bound_cards, BindingRejection) else bound_cards:
            held = taken[identity(each.tenant), each.node]
            if bound.card.node == each.node and held.isdisjoint(bound.card.uuids):
                pod = f"{each.tenant.namespace}/{each.name}"
                why = f"pod {pod} has run since before it was in force, and keeps the cards that it started with"
                found.setdefault(bound.binding.name, f"{why}: delete the pod, and the next one has this card too")
    return found


def _takes_all(occupant: Occupant) -> bool:
    try:
        return consume_of(occupant.tenant) is Consume.ALL
    except InvalidRequest:
        return False
