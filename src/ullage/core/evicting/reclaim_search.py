"""Which victims a claim asks, in which order: one way after the other, until the victims of one make a unit fit.

The order: executors that leave their session anyway, those without a task, then running ones of the session furthest
above what it deserves in the lowest priority; newest first. Gangs go whole.

Where the first ones use up what their session may lose and do not help, the claim looks at whole cards, then at one
node after the other, then at one card after the other, and last at one victim after the other with those near it. A
node or a card is skipped only if no victims there could suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import groupby, islice
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.placing.placement import Placer
from ullage.core.sharing.shares import Leaf, ShareTree, Vector
from ullage.core.sharing.world import Demand

_AROUND = 64
"""Victims around which a claim looks, one after the other, where no other way makes room."""

Asked = Callable[[ExecutorVictim], bool]
"""Which victims a way asks."""


@dataclass(frozen=True, slots=True)
class RoomClaim:
    """A session that has no room for a unit in the outlook; the places of the unit are called by a `name`.

    `vacant` is the fleet with nothing allocated. `now` is when protections are looked at. With `displace` sessions of
    no higher priority give way down to their minimum.
    """

    claimant: Demand
    outlook: Placer
    vacant: Placer
    now: float
    name: str
    displace: bool = False


class Loser(NamedTuple):
    """A session that may lose executors to a claim: how many it holds, and how many of them it may lose.

    `deserves` is the share that it deserves. `guarded` if the guarantee of its queue stands in the way.
    """

    held: int
    left: int
    demand: Demand | None = None
    leaf: Leaf | None = None
    deserves: int = 0
    guarded: bool = False


_Turn = tuple[bool, int, int, int, str, ExecutorVictim, Iterator[ExecutorVictim]]
"""When a session's next victim has its turn: vacant, of low priority, far above what it deserves first.

Then the victim, and those that follow it; no two turns are of one session.
"""


class Losses:
    """What sessions lose to a claim in one way of asking them."""

    def __init__(self, tree: ShareTree, losers: Mapping[str, Loser]) -> None:
        self._tree, self._losers = tree, losers
        self._lost: dict[str, int] = {}
        self._of_queues: dict[str, Vector] = {}
        self._spent = {session for session, loser in losers.items() if loser.left <= 0}
        """Sessions that may lose no more."""

    def pay(self, victim: ExecutorVictim) -> bool:
        """Return whether its session may lose this victim too, and note the loss."""
        if victim.session is None:
            return True
        loser, lost = self._losers[victim.session], self._lost.get(victim.session, 0) + len(victim.members)
        if lost > loser.left or (loser.guarded and not self._spares(loser)):
            return False
        self._lost[victim.session] = lost
        if lost == loser.left:
            self._spent.add(victim.session)
        return True

    def payable(self, runs: Iterable[Iterable[ExecutorVictim]]) -> Iterator[ExecutorVictim]:
        """Yield the victims that their sessions may lose, and note the losses. Each run is of one session."""
        for run in runs:
            for victim in run:
                if victim.session in self._spent:
                    break
                if self.pay(victim):
                    yield victim

    def pay_all(self, victims: Collection[ExecutorVictim]) -> bool:
        """Return whether sessions may lose all of these, and note it; else nothing is noted."""
        before = dict(self._lost), dict(self._of_queues), set(self._spent)
        paid = all(map(self.pay, victims))
        if not paid:
            self._lost, self._of_queues, self._spent = before
        return paid

    def _spares(self, loser: Loser) -> bool:
        """Return whether one victim more, a unit or a part of one, breaks no guarantee, and note the loss of a unit."""
        assert loser.leaf is not None
        assert loser.demand is not None
        return self._tree.lose(loser.demand.queue, loser.leaf.unit, self._of_queues)

    def turn(self, session: str, victims: Iterator[ExecutorVictim]) -> _Turn | None:
        """Return when the next of these victims of a session has its turn; None if it may lose no more."""
        loser, lost = self._losers[session], self._lost.get(session, 0)
        victim = next(victims, None) if loser.left > lost else None
        if victim is None:
            return None
        priority, below, number, demand = -1, 0, 0, loser.demand
        if demand is not None and loser.leaf is not None:
            share = self._tree.leaf_share(loser.leaf, (loser.held - lost) // demand.batch_size)
            priority, below, number = demand.priority, loser.deserves - share, demand.number
        return victim.busy, priority, below, number, session, victim, victims


class Ways:
    """The ways to ask victims for one claim; each way is a sequence of victims that their sessions may lose."""

    def __init__(self, claim: RoomClaim, tree: ShareTree, losers: Mapping[str, Loser]) -> None:
        self._claim, self._tree, self._losers = claim, tree, losers
        self._fleet, self._claimant = claim.outlook.fleet, claim.claimant

    def in_order(
        self, alone: Iterable[ExecutorVictim], by_session: Mapping[str, Iterable[ExecutorVictim]], asked: Asked
    ) -> Iterator[ExecutorVictim]:
        """Yield victims one after the other, as far as their sessions may lose them; those `alone` have none."""
        yield from filter(asked, alone)
        losses, now = Losses(self._tree, self._losers), self._claim.now
        sessions = ((session, filter(asked, by_session[session])) for session in by_session if session in self._losers)
        queue = [turn for each in sessions if (turn := losses.turn(*each)) is not None]
        heapify(queue)
        while queue:
            cheapest, *_ = queue
            *_, victim, following = cheapest
            if victim.protected_until <= now and losses.pay(victim):
                yield victim
            turn = losses.turn(victim.session or "", following)
            if turn is not None:
                heapreplace(queue, turn)
            else:
                heappop(queue)

    def card_by_card(self, victims: Iterable[ExecutorVictim], rows: Iterable[int]) -> Iterator[ExecutorVictim]:
        """Yield victims that hold a card together, if all of them may go; then those of the next. Few holders first."""
        fleet, losses, gone = self._fleet, Losses(self._tree, self._losers), set[str]()
        of = {member.id: victim for victim in victims for member in victim.members}
        there = {card for row in rows for card in fleet.cards_on(row)}
        uuids = dict.fromkeys(uuid for executor in of for uuid in fleet.ledger[executor].gpus)
        held = [fleet.card_of[uuid] for uuid in uuids if uuid in fleet.card_of]
        may_go = [card for card in held if card in there and fleet.holders[card].keys() <= of.keys()]
        for card in sorted(may_go, key=lambda card: len(fleet.holders[card])):
            group = {of[holder].members[0].id: of[holder] for holder in sorted(fleet.holders[card])}
            group = {first: victim for first, victim in group.items() if first not in gone}
            if losses.pay_all(group.values()):
                gone.update(group)
                yield from group.values()

    def around(self, near: Iterable[list[ExecutorVictim]]) -> Iterator[Iterator[ExecutorVictim]]:
        """Yield the victims of each list, one after the other, with those near it; some of them at most."""
        orders = (order for victims in near for order in _Nearest(self._fleet, victims).orders())
        return (Losses(self._tree, self._losers).payable(runs) for runs in islice(orders, _AROUND))


def may_do(claim: RoomClaim, row: int, victims: list[ExecutorVictim], losers: Mapping[str, Loser]) -> bool:
    """Return whether a node can have enough room if each session loses as many of these as it may."""
    fleet, asked, lost = claim.outlook.fleet, claim.claimant.requirement, Counter[str]()
    if claim.claimant.batch_size > 1:
        return True  # other nodes have the rest
    cpu, memory, cards = fleet.cpu_free.item(row), fleet.memory_free.item(row), fleet.gpu_free.item(row)
    for victim in victims:
        size, one = len(victim.members), victim.members[0].requirement
        if victim.session is not None:
            if lost[victim.session] + size > losers[victim.session].left:
                continue
            lost[victim.session] += size
        cpu, memory, cards = cpu + size * one.cpu_milli, memory + size * one.memory_bytes, cards + size * one.gpu_count
    if cpu < asked.cpu_milli or memory < asked.memory_bytes:
        return False
    if not asked.whole or not asked.gpu_count:
        return True
    return cards >= asked.gpu_count <= sum(1 for _ in cards_to_free(claim, row, victims, losers))


def cards_to_free(
    claim: RoomClaim, row: int, victims: Iterable[ExecutorVictim], losers: Mapping[str, Loser]
) -> Iterator[int]:
    """Yield cards of a node that some of their holders may leave; for whole cards, only those that all may leave."""
    fleet = claim.outlook.fleet
    of = {member.id: victim.session for victim in victims for member in victim.members}
    for card in fleet.cards_on(row):
        holders = fleet.holders[card].keys()
        if not claim.claimant.requirement.whole:
            if not holders.isdisjoint(of):
                yield card
        elif holders <= of.keys():
            counts = Counter(session for holder in holders if (session := of[holder]) is not None)
            if all(count <= losers[session].left for session, count in counts.items()):
                yield card


def shared(fleet: Fleet, row: int) -> bool:
    """Return whether any card of a node is held in parts."""
    return any(charge is not None for card in fleet.cards_on(row) for charge in fleet.holders[card].values())


class _Nearest:
    """Orders of victims, each around one of them: those that share a card with it, those on its nodes, the others."""

    def __init__(self, fleet: Fleet, victims: list[ExecutorVictim]) -> None:
        self._fleet, self._victims = fleet, victims
        self._runs = [list(run) for _, run in groupby(range(len(victims)), key=lambda at: victims[at].session)]
        self._on_node: dict[str, list[int]] = {}
        for number, victim in enumerate(victims):
            for node in {fleet.ledger[each].node for each in victim.ids}:
                self._on_node.setdefault(node, []).append(number)

    def orders(self) -> Iterator[Iterator[Iterable[ExecutorVictim]]]:
        """Yield the order around each victim that differs: in its session, its nodes, or who shares its cards.

        An order is a sequence of runs of victims of one session.
        """
        ledger, known = self._fleet.ledger, set[tuple[object, ...]]()
        for number, victim in enumerate(self._victims):
            places = [ledger[member.id] for member in victim.members]
            sizes = tuple(sorted((place.node, hash(place.requirement)) for place in places))
            sharing = frozenset(_with_it(victim, self._fleet))
            kind = victim.session, sizes, sharing
            if kind not in known:
                known.add(kind)
                yield self._around(number, sharing, {place.node for place in places})

    def _around(self, one: int, sharing: Collection[str], nodes: set[str]) -> Iterator[Iterable[ExecutorVictim]]:
        victims = self._victims
        here = sorted({number for node in nodes for number in self._on_node[node]} - {one})
        shares = [number for number in here if not victims[number].ids.isdisjoint(sharing)]
        first = dict.fromkeys((one, *shares, *here))
        yield from ([victims[number]] for number in first)
        for run in self._runs:
            yield (victims[number] for number in run if number not in first)


def _with_it(victim: ExecutorVictim, fleet: Fleet) -> set[str]:
    """Return who holds a card together with this victim."""
    uuids = (uuid for each in victim.ids for uuid in fleet.ledger[each].gpus)
    holders = {holder for uuid in uuids if uuid in fleet.card_of for holder in fleet.holders[fleet.card_of[uuid]]}
    return holders - victim.ids
