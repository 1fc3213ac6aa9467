"""What places inherit from allocations that leave for them, so that nothing is charged twice.

That is cpu and memory of a node, one of its slots, amounts of cards, and one user of a card.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.model.allocation import Allocation, Charge
from ullage.model.part import Isolation


@dataclass(slots=True)
class Spare:
    """What is charged twice while places and leaving allocations are in the books: slots by row, and quota usage."""

    slots: Counter[int] = field(default_factory=Counter)
    usage: list[tuple[str, Usage]] = field(default_factory=list)


def charge_beyond(fleet: Fleet, places: Iterable[Allocation], leaving: Iterable[str], spare: Spare) -> None:
    """Charge what those who leave for these places do not hold of them, within the caller's trial."""
    held = _Held(fleet.ledger[uid] for uid in leaving if uid in fleet.ledger)
    for place in places:
        left, has_slot = held.take_off(place), held.leaves_slot(place.node)
        if left is not None:
            fleet.charge(left, force=True)
            spare.slots[fleet.row_of[place.node]] += has_slot
    for uid, more in held.grown.items():
        before = fleet.ledger[uid]
        pairs = zip(before.gpus, before.charges, strict=True)
        grown = replace(before, charges=tuple(_grown(charge, more.get(gpu)) for gpu, charge in pairs))
        fleet.replace(grown)
        if before.claim is not None:
            spare.usage.append((before.claim.quota_name, fleet.usage_of(before).minus(fleet.usage_of(grown))))


def _grown(charge: Charge, more: Charge | None) -> Charge:
    if more is None:
        return charge
    return replace(charge, compute=charge.compute + more.compute, vram=charge.vram + more.vram)


class _Held:
    """What leaving allocations hold of nodes and cards, and no place has inherited yet.

    `grown` is, by uid and card, the amount by which a leaving allocation grows where a place inherits only a part: the
    place comes instead of that user, and is no further one.
    """

    def __init__(self, allocations: Iterable[Allocation]) -> None:
        self.grown: dict[str, dict[str, Charge]] = defaultdict(dict)
        self._cpu, self._memory = Counter[str](), Counter[str]()
        self._compute, self._vram = Counter[str](), Counter[str]()
        self._users: dict[tuple[str, Isolation], list[str]] = defaultdict(list)
        self._whole: set[str] = set()
        self._slots = Counter[str]()
        for held in allocations:
            self._slots[held.node] += 1
            self._cpu[held.node] += held.requirement.cpu_milli
            self._memory[held.node] += held.requirement.memory_bytes
            self._whole.update(() if held.charges else held.gpus)
            for gpu, charge in zip(held.gpus, held.charges, strict=bool(held.charges)):
                self._compute[gpu] += charge.compute
                self._vram[gpu] += charge.vram
                self._users[gpu, charge.isolation].append(held.id)

    def take_off(self, place: Allocation) -> Allocation | None:
        """Return the place without what it inherits; None if it requests no cards and inherits all."""
        asked, node = place.requirement, place.node
        cpu, memory = _take(self._cpu, node, asked.cpu_milli), _take(self._memory, node, asked.memory_bytes)
        cards = list(self._cards_of(place))
        if not (asked.gpu_count or cpu or memory):
            return None
        left = replace(asked, cpu_milli=cpu, memory_bytes=memory)
        charges = tuple(charge for _, charge in cards if charge is not None)
        return replace(place, requirement=left, gpus=tuple(gpu for gpu, _ in cards), charges=charges)

    def leaves_slot(self, node: str) -> bool:
        """Return whether a leaving allocation gives its slot on a node to a place; each gives it once."""
        self._slots[node] -= 1
        return self._slots[node] >= 0

    def _cards_of(self, place: Allocation) -> Iterator[tuple[str, Charge | None]]:
        """Yield its cards that are not held altogether with what is left of each, None for one that it has whole."""
        charges: Sequence[Charge | None] = place.charges or [None] * len(place.gpus)
        for gpu, charge in zip(place.gpus, charges, strict=True):
            if gpu not in self._whole:
                left = self._left_on(gpu, charge)
                if not self._succeeds(gpu, left):
                    yield gpu, left

    def _succeeds(self, gpu: str, left: Charge | None) -> bool:
        """Return whether a place replaces one leaving user of a card with the same isolation that also holds the rest.

        Otherwise users with another isolation could come to the card, and a partition needs a slot of its own.
        """
        if left is None or left.isolation is Isolation.PARTITIONED or not self._users[gpu, left.isolation]:
            return False
        uid = self._users[gpu, left.isolation].pop(0)
        if left.compute or left.vram:
            self.grown[uid][gpu] = left
        return True

    def _left_on(self, gpu: str, charge: Charge | None) -> Charge | None:
        if charge is None:
            return None
        return replace(
            charge, compute=_take(self._compute, gpu, charge.compute), vram=_take(self._vram, gpu, charge.vram)
        )


def _take(held: Counter[str], key: str, amount: int) -> int:
    """Return the part of an amount that exceeds what is held, and use up what is held."""
    covered = min(amount, held[key])
    held[key] -= covered
    return amount - covered
