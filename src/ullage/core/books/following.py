"""What becomes of the ledger when machines and cards change: nobody is evicted, and nothing held is forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.modes import conflicts
from ullage.core.books.places import check_places
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation, IsolationPolicy

_NO_INDEX = -1
"""Of a card that nobody ever reported."""


def remembering(fleet: Fleet, allocation: Allocation) -> Allocation:
    """Return the allocation with its cards as they are known now, and charged as they are now.

    The cards of an executor's allocation are not remembered: it does not outlive a restart.
    """
    last = fleet.last_known(allocation)
    allocation = as_they_are(allocation, last)
    if allocation.of_session:
        return allocation
    cards = tuple(gpu for gpu in last if gpu is not None)
    return allocation if cards == allocation.cards else replace(allocation, cards=cards)


def contradiction(fleet: Fleet, held: Allocation) -> Conflict | None:
    """Return what speaks against an allocation in the ledger that was found: its place, or how much a card has."""
    cards = [fleet.card_of[uuid] for uuid in held.gpus if uuid in fleet.card_of]
    try:
        check_places(fleet.profiles, (fleet.ledger[uid] for uid in fleet.card_holders(cards)))
    except Conflict as error:
        return error
    for card in cards:
        if fleet.compute_free[card] < 0 or fleet.vram_free[card] < 0:
            names = ", ".join(fleet.card_holders([card]))
            message = f"card {fleet.cards[card].uuid} has less than is held of it; it is held by {names}"
            return Conflict(message, code="card-held")
    return None


def found_mixed(fleet: Fleet, uids: Iterable[str]) -> list[Allocation]:
    """Return the allocations, newly marked, that share a dynamic card with users of another isolation.

    Looks at the cards of these allocations only. A mark stays with its holder, so the card is refused to everybody
    until the last of them is gone, in whatever order they leave.
    """
    dynamic = {
        card
        for uid in uids
        for card in map(fleet.card_of.get, fleet.ledger[uid].gpus)
        if card is not None and fleet.cards[card].isolation_policy is IsolationPolicy.DYNAMIC
    }
    mixed = {fleet.cards[card].uuid for card in dynamic if conflicts(fleet.card_modes.item(card))}
    marked = []
    for uid in fleet.card_holders([fleet.card_of[uuid] for uuid in mixed]):
        held = fleet.ledger[uid]
        charges = tuple(
            replace(charge, mixed=True) if uuid in mixed and not charge.mixed else charge
            for uuid, charge in zip(held.gpus, held.charges, strict=bool(held.charges))
        )
        if any(after is not before for after, before in zip(charges, held.charges, strict=True)):
            marked.append(replace(held, charges=charges))
    return marked


def still_mixed(found: Allocation, known: Allocation | None) -> Allocation:
    """Return what was found outside, with the marks of the same allocation in the books."""
    if known is None or not any(charge.mixed for charge in known.charges):
        return found
    marked = {uuid for uuid, charge in zip(known.gpus, known.charges, strict=True) if charge.mixed}
    charges = tuple(
        replace(charge, mixed=charge.mixed or uuid in marked)
        for uuid, charge in zip(found.gpus, found.charges, strict=bool(found.charges))
    )
    return replace(found, charges=charges)


def as_they_are(allocation: Allocation, now: Sequence[Gpu | None], then: Iterable[Gpu | None] = ()) -> Allocation:
    """Return the allocation charged on its cards as they are `now`, given as they were when it was charged last.

    Without `then` it is charged as it remembers its cards. A card that nobody knows now leaves its charge as it is.
    """
    if not allocation.charges:
        return allocation
    by_uuid = {gpu.uuid: gpu for gpu in allocation.cards}
    by_uuid |= {gpu.uuid: gpu for gpu in then if gpu is not None}
    asked = None if allocation.requirement.cards.isolation is Isolation.PARTITIONED else allocation.requirement.part
    charges = tuple(
        charge if gpu is None else charge.with_basis(by_uuid.get(uuid), asked).on(gpu)
        for uuid, charge, gpu in zip(allocation.gpus, allocation.charges, now, strict=True)
    )
    same = all(after is before for after, before in zip(charges, allocation.charges, strict=True))
    return allocation if same else replace(allocation, charges=charges)


def followed(fleet: Fleet, nodes: tuple[Node, ...]) -> tuple[list[Node], list[Allocation]]:
    """New inventory with the cards that are held and gone, and the ledger on the nodes where its cards are now.

    What lay in zones of one machine lies in none that are known of another. What is foreign stays with its node.
    """
    home = {gpu.uuid: node.name for node in nodes for gpu in node.gpus}
    reported = {gpu.uuid: gpu for node in nodes for gpu in node.gpus}
    missing: dict[str, list[Gpu]] = {node.name: [] for node in nodes}
    placed = set(home)
    ledger = []
    for held in _still_there(fleet, home, missing.keys()):
        node = next((home[uuid] for uuid in held.gpus if uuid in home), held.node)
        last = fleet.last_known(held)
        charged = as_they_are(held, [reported.get(uuid, gpu) for uuid, gpu in zip(held.gpus, last, strict=True)], last)
        ledger.append(charged if node == held.node else replace(charged, node=node, placement=None))
        for uuid, known in zip(held.gpus, last, strict=True):
            if uuid not in placed and node in missing:  # of several holders on different nodes the first has it
                placed.add(uuid)
                missing[node].append(replace(known or Gpu(uuid, _NO_INDEX), healthy=False))
    return [replace(node, gpus=(*node.gpus, *missing[node.name])) for node in nodes], ledger


def with_missing(fleet: Fleet, found: Iterable[Allocation]) -> list[Node]:
    """Return the machines with the cards that these hold and nobody reports: cards that vanished while held."""
    missing: dict[str, list[Gpu]] = {}
    placed: set[str] = set()
    for held in found:
        for uuid in held.gpus if held.node in fleet.row_of else ():
            if uuid not in fleet.card_of and uuid not in placed:
                placed.add(uuid)
                missing.setdefault(held.node, []).append(Gpu(uuid, _NO_INDEX, healthy=False))
    return [replace(node, gpus=(*node.gpus, *missing.get(node.name, ()))) for node in fleet.nodes] if missing else []


def _still_there(fleet: Fleet, home: Mapping[str, str], nodes: Collection[str]) -> Iterator[Allocation]:
    """Return the ledger by id; of foreign allocations only those on a known node that did not move to another."""
    for _, held in sorted(fleet.ledger.items()):
        if held.state is not AllocationState.FOREIGN:
            yield held
        elif held.node in nodes:
            yield replace(held, gpus=tuple(uuid for uuid in held.gpus if home.get(uuid, held.node) == held.node))
