"""Where evictions could make room: a quick check of a node before the search for the fewest victims.

A node or a card is skipped only if no victims there could suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.yielding import ExecutorVictim
from ullage.core.sharing.shares import Leaf
from ullage.core.sharing.world import Demand


@dataclass(slots=True)
class VictimLine:
    """A session as one claim asks it: its victims, the next one first, what it holds, and how many it may still lose.

    `guarded` if the guarantee of its queue stands in the way.
    """

    session: str
    victims: Iterator[ExecutorVictim]
    held: int
    left: int
    demand: Demand | None
    leaf: Leaf | None = None
    entitled: int = 0
    guarded: bool = False


Willing = tuple[VictimLine | None, ExecutorVictim]
"""A victim and its session as this claim asks it; None if it has none."""


def may_do(claimant: Demand, fleet: Fleet, row: int, willing: list[Willing]) -> bool:
    """Return whether a node can have enough room if each session loses as many of these as it may."""
    asked, left = claimant.requirement, dict[str, int]()
    if claimant.batch_size > 1:
        return True  # other nodes have the rest
    cpu, memory, cards = fleet.cpu_free.item(row), fleet.memory_free.item(row), fleet.gpu_free.item(row)
    for line, victim in willing:
        size, one = len(victim.members), victim.members[0].requirement
        if line is not None:
            may = left.get(line.session, line.left)
            if may < size:
                continue
            left[line.session] = may - size
        cpu, memory, cards = cpu + size * one.cpu_milli, memory + size * one.memory_bytes, cards + size * one.gpu_count
    if cpu < asked.cpu_milli or memory < asked.memory_bytes:
        return False
    if not asked.whole or not asked.gpu_count:
        return True
    return cards >= asked.gpu_count <= sum(1 for _ in cards_to_free(claimant, fleet, row, willing))


def cards_to_free(claimant: Demand, fleet: Fleet, row: int, willing: Iterable[Willing]) -> Iterator[int]:
    """Cards of a node that some of their holders may leave; for whole cards, only those that all may leave."""
    of = {member.id: line for line, victim in willing for member in victim.members}
    for card in fleet.cards_on(row):
        holders = fleet.holders[card]
        if not claimant.requirement.whole:
            if not holders.keys().isdisjoint(of):
                yield card
        elif len(holders) == 1:
            (holder,) = holders
            if holder in of and ((line := of[holder]) is None or line.left):
                yield card
        elif holders.keys() <= of.keys():
            lines = {line.session: line for holder in holders if (line := of[holder]) is not None}
            counts = Counter(line.session for holder in holders if (line := of[holder]) is not None)
            if all(count <= lines[session].left for session, count in counts.items()):
                yield card


def one_of_each(willing: Iterable[Willing], fleet: Fleet) -> Iterator[ExecutorVictim]:
    """Yield victims that differ: in their session, their nodes, what they hold there, or who shares their cards."""
    known = set[tuple[object, ...]]()
    for _, victim in willing:
        places = [fleet.ledger[member.id] for member in victim.members]
        sizes = tuple(sorted((place.node, hash(place.requirement)) for place in places))
        kind = victim.session, sizes, frozenset(_with_it(victim, fleet))
        if kind not in known:
            known.add(kind)
            yield victim


def nearest_first(one: ExecutorVictim, willing: list[Willing], fleet: Fleet) -> list[Willing]:
    """Return this victim, those who share a card with it, those on its nodes, and then the others, each in order."""
    ids = {member.id for member in one.members}
    near, nodes = _with_it(one, fleet), {fleet.ledger[member.id].node for member in one.members}

    def distance(pair: Willing) -> int:
        _, victim = pair
        members = {member.id for member in victim.members}
        if not members.isdisjoint(ids):
            return 0
        return 1 if not members.isdisjoint(near) else 3 - any(fleet.ledger[each].node in nodes for each in members)

    return sorted(willing, key=distance)


def _with_it(victim: ExecutorVictim, fleet: Fleet) -> set[str]:
    """Return who holds a card together with this victim."""
    uuids = (uuid for member in victim.members for uuid in fleet.ledger[member.id].gpus)
    holders = {holder for uuid in uuids if uuid in fleet.card_of for holder in fleet.holders[fleet.card_of[uuid]]}
    return holders - {member.id for member in victim.members}


def shared(fleet: Fleet, row: int) -> bool:
    """Return whether any card of a node is held in parts."""
    return any(charge is not None for card in fleet.cards_on(row) for charge in fleet.holders[card].values())
