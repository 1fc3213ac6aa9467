"""Whose turn it is, among requests that wait for others to place them: those that may go now, each with its place.

The order is that of sessions: progressive filling over the tree of queues (`core/sharing/shares.py`), guarantees
first, the smallest dominant share next, inside a queue by priority and then by age. A unit, one request or all that a
gang needs, goes only if it fits whole; one that does not fit keeps nobody else from going. For one that has waited too
long when its turn comes, and could be placed if others left, the room of the nodes is kept on which the least is
missing, one unit of each priority: so smaller ones do not pass it for ever, and go beside it meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import compress, groupby

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.kernel.queues import MOST
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, by_size, enter, fit_together
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.policy import Order
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.sharing.entitlement import shortage
from ullage.core.sharing.shares import Leaf, ShareTree, Vector, dominant_share
from ullage.core.sharing.world import Demand
from ullage.core.verdict.cards import refusal_of
from ullage.model.allocation import AllocationState
from ullage.model.claim import Request
from ullage.model.nomination import Nomination
from ullage.model.queue import ROOT, Queue
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

Held = Mapping[tuple[str, Resources], int]
"""How many of which amount each queue holds."""

_HELD_BACK = Refusal((Rejection(Code.RESERVED, Cure.CAPACITY),))
_TOO_LARGE = Refusal((Rejection(Code.TOO_LARGE, Cure.NODE_CHANGE),))


@dataclass(frozen=True, slots=True)
class Unit:
    """Requests that go together or not at all. `since` is when the wait began, in seconds of the caller's clock.

    One is `begun` if others of its gang have gone: their turn was that of all.
    """

    key: str
    queue: str
    requests: tuple[Request, ...]
    since: float
    begun: bool = False

    @property
    def priority(self) -> int:
        """That of the member with the highest."""
        if len(self.requests) == 1:
            return self.requests[0].claim.priority
        return max(request.claim.priority for request in self.requests)

    @property
    def uids(self) -> tuple[str, ...]:
        """Of all of them."""
        return tuple(request.uid for request in self.requests)


@dataclass(slots=True)
class Turns:
    """What was decided: who goes where, in the order of their turns, and why each other one does not, by its key.

    Of units whose turn would be after `most` others nothing is said. `reserved` is room that is kept for units
    that wait, on the cards that have it now (on some nodes none yet), `shares` the dominant share of each queue
    afterwards, not divided by its weight, and `due` when the next unit will have waited too long.
    """

    granted: list[tuple[Unit, dict[str, Choice]]] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)
    reserved: dict[str, list[Nomination]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    due: float | None = None


@dataclass(frozen=True, slots=True)
class AdmissionBoard:
    """What turns are decided on. The books are as before afterwards.

    `held` is what queues have in the books, whatever they do with it: who leaves has not left yet. `promised` are
    places that were given, by queue, and are not taken yet: they count as held too, in queues and quotas.
    `nominations` keep room for others; `before` says where room was reserved the last time.
    """

    fleet: Fleet
    rules: Rules
    queues: Sequence[Queue]
    held: Held
    promised: Sequence[tuple[str, Nomination]] = ()
    nominations: Nominations = NO_NOMINATIONS
    before: frozenset[str] = frozenset()


def next_turns(
    board: AdmissionBoard, units: Iterable[Unit], now: float, *, reserve_after_s: float, most: int | None = None
) -> Turns:
    """Return who goes now; `most` requests at most, and at least one unit."""
    with ExitStack() as stack:
        fleet = board.fleet
        stack.enter_context(trial(fleet))
        stack.enter_context(reserving(fleet, board.nominations.waiting(fleet)))
        promised = [each for _, each in board.promised]
        enter(fleet, [each.request for each in promised], map(_choice_of, promised), now)
        return _Round(board, units, now, reserve_after_s, most, stack).run()


def in_order(board: AdmissionBoard, units: Iterable[Unit], now: float) -> list[Unit]:
    """Units in the order of their turns, as if all found room; those that a limit stops come last, the oldest first."""
    waiting = list(units)
    with ExitStack() as stack:
        turns = _Order(board, waiting, now, 0.0, None, stack).run()
    placed = {unit.key: place for place, (unit, _) in enumerate(turns.granted)}
    return sorted(waiting, key=lambda unit: (placed.get(unit.key, len(placed)), -unit.priority, *_age(unit)))


def _age(unit: Unit) -> tuple[float, str, str]:
    return unit.since, unit.requests[0].claim.pod, unit.key


def _choice_of(promised: Nomination) -> Choice:
    return Choice(promised.node, promised.gpus, promised.charges)


class _Round:
    """One filling; `stack` takes back at its end what was done to the books."""

    def __init__(
        self,
        board: AdmissionBoard,
        units: Iterable[Unit],
        now: float,
        reserve_after_s: float,
        most: int | None,
        stack: ExitStack,
    ) -> None:
        self._board, self._fleet, self._now, self._stack = board, board.fleet, now, stack
        self._reserve_after_s, self._left = reserve_after_s, most
        self._turns = Turns()
        self._why: dict[object, Refusal] = {}
        self._kept: dict[int, list[str]] = {}
        """Uids that room is reserved for, by priority: one unit of each."""
        self._waiting: dict[Leaf, deque[Unit]] = {}
        self._count(units)
        leaves = [*self._waiting, *self._held()]
        self._queues = self._named(leaves)
        self._tree = ShareTree(self._fleet.total, self._queues, leaves, Order.FIFO)

    def run(self) -> Turns:
        for leaf in [leaf for leaf, waiting in self._waiting.items() if waiting[0].begun]:
            while self._waiting[leaf] and self._tree.give(leaf, self._grant, same_shape=True) is None:
                pass
        self._tree.fill_guarantees(self._grant, same_shape=True)
        self._tree.fill(self._grant, same_shape=True)
        refused = self._turns.refused
        for leaf, waiting in self._waiting.items():
            said = self._said(leaf)
            if said is not None:
                refused.update((unit.key, said) for unit in waiting if unit.key not in refused)
        self._turns.shares = self._shares()
        return self._turns

    def _said(self, leaf: Leaf) -> Refusal | None:
        """Return why those of a leaf do not go that were not asked: a limit, or what was said to one like it."""
        code = leaf.stopped
        if code in (Code.QUEUE_LIMIT, Code.APPLICATION_LIMIT):
            return Refusal((Rejection(code, Cure.QUOTA),))
        return None if code in (None, Code.STARTING) else self._why.get(leaf.shape)

    # --- the tree ---

    def _count(self, units: Iterable[Unit]) -> None:
        """Units that are alike are one leaf, the oldest first."""
        found: dict[tuple[str, int, bool, object], list[Unit]] = {}
        numbered = _Numbers()
        ordered = sorted(units, key=_age)
        numbers = {unit.key: number for number, unit in enumerate(ordered)}
        for unit in ordered:
            shape = _shape_of(self._board.rules, unit, numbered)
            found.setdefault((unit.queue, unit.priority, unit.begun, shape), []).append(unit)
        self._numbers = numbers
        for place, ((queue, priority, _, shape), alike) in enumerate(found.items()):
            leaf = Leaf(
                f"unit/{place}",
                queue,
                self._vector(alike[0].requests),
                priority=priority,
                number=numbers[alike[0].key],
                target=len(alike),
                shape=shape,
                apart=True,
            )
            self._waiting[leaf] = deque(alike)

    def _held(self) -> list[Leaf]:
        """Return what each queue has, in the books or by promise."""
        held = Counter(self._board.held)
        held.update((queue, self._fleet.resources(each.request.requirement)) for queue, each in self._board.promised)
        return [
            Leaf(f"held/{place}", queue, _capped(amount), held=count, target=count, shape="held")
            for place, ((queue, amount), count) in enumerate(held.items())
        ]

    def _named(self, leaves: Iterable[Leaf]) -> list[Queue]:
        """Return those that were configured, and those that are named only: of weight 1, below the root."""
        known = {queue.name: queue for queue in self._board.queues}
        named = {leaf.queue for leaf in leaves} - known.keys() - {ROOT}
        return [*known.values(), *map(Queue, sorted(named))]

    def _vector(self, requests: Iterable[Request]) -> Vector:
        total = Resources()
        for request in requests:
            total += self._fleet.resources(request.requirement)
        return _capped(total)

    def _shares(self) -> dict[str, float]:
        usage = {queue.name: Resources(*self._tree.usage(queue.name)) for queue in self._queues}
        return {name: dominant_share(held, self._fleet.total) for name, held in usage.items()}

    # --- one unit ---

    def _grant(self, leaf: Leaf) -> Code | None:
        if self._left is not None and self._left <= 0:
            return Code.STARTING  # the next round goes on
        waiting = self._waiting[leaf]
        unit = waiting[0]
        found = self._fit(unit)
        if isinstance(found, Misfit):
            return self._refuse(leaf, unit, found.refusal)
        enter(self._fleet, unit.requests, [found[uid] for uid in unit.uids], self._now)
        self._go(leaf, found)
        return None

    def _go(self, leaf: Leaf, found: dict[str, Choice]) -> None:
        """The first unit of a leaf goes."""
        waiting = self._waiting[leaf]
        unit = waiting.popleft()
        self._turns.granted.append((unit, found))
        if self._left is not None:
            self._left -= len(unit.requests)
        if waiting:
            leaf.number = self._numbers[waiting[0].key]

    def _fit(self, unit: Unit) -> dict[str, Choice] | Misfit:
        return fit(self._fleet, self._board.rules, unit, self._now)

    def _refuse(self, leaf: Leaf, unit: Unit, refusal: Refusal) -> Code:
        """Return why it does not fit, as a person is told; and whether that is for want of room, as the tree is."""
        of_room = not refusal.rejections or refusal.rejections[0].cure in (Cure.CAPACITY, Cure.NODE_CHANGE)
        if of_room and refusal.curable:
            refusal = self._look_ahead(unit, self._short_of(unit, refusal))
        self._why[leaf.shape] = self._turns.refused[unit.key] = refusal
        return Code.GPU if of_room else refusal.code

    def _short_of(self, unit: Unit, refusal: Refusal) -> Refusal:
        """Return what is short in the fleet as a whole, where the refusal names one card or one node only."""
        told = refusal.rejections[0] if refusal.rejections else None
        if told is not None and told.gpu is None and told.node is None:
            return refusal
        code = shortage(self._fleet, Demand(unit.key, 0, unit.requests[0].requirement))
        return Refusal((Rejection(code, Cure.CAPACITY),))

    def _look_ahead(self, unit: Unit, refusal: Refusal) -> Refusal:
        """Reserve room for a unit that has waited too long, if any room could do; why it waits then."""
        if any(self._kept.values()) and self._fits_without_reserves(unit):
            refusal = _HELD_BACK
        if unit.priority in self._kept:
            return refusal
        due = unit.since + self._reserve_after_s
        if due > self._now:
            self._turns.due = due if self._turns.due is None else min(self._turns.due, due)
            return refusal
        if isinstance(fit(self._fleet.emptied(), self._board.rules, unit, self._now), Misfit):
            return _TOO_LARGE
        nodes = self._nearest(unit)
        if nodes is not None:
            entries = [Nomination(each, nodes[each.uid], self._now, hold=True) for each in unit.requests]
            self._stack.enter_context(reserving(self._fleet, entries))
            self._kept[unit.priority] = [uid for uid in unit.uids if uid in self._fleet.ledger]
            self._turns.reserved[unit.key] = [self._free_part(entry) for entry in entries]
        return refusal

    def _free_part(self, entry: Nomination) -> Nomination:
        """Return what is reserved, on those cards alone that have room now; none of them if none has."""
        held = self._fleet.ledger.get(entry.request.uid)
        if held is None:
            return entry
        with trial(self._fleet):
            self._fleet.release(held.id)
            cards = [self._fleet.card_of[uuid] for uuid in held.gpus]
            fits = [refusal_of(self._fleet, card, held.requirement) is None for card in cards]
        charges = tuple(compress(held.charges, fits))
        return replace(entry, gpus=tuple(compress(held.gpus, fits)), charges=charges)

    def _fits_without_reserves(self, unit: Unit) -> bool:
        with trial(self._fleet):
            for uid in (uid for uids in self._kept.values() for uid in uids):
                self._fleet.release(uid)
            return isinstance(self._fit(unit), dict)

    def _nearest(self, unit: Unit) -> dict[str, str] | None:
        """Return a node for each request if as few nodes as possible were emptied, the idlest first."""
        holders = self._holders()
        order = sorted(holders, key=lambda node: (self._busy(holders[node]), node not in self._board.before, node))
        leaving = [uid for uids in holders.values() for uid in uids if self._leaves(uid)]

        def cleared(count: int) -> dict[str, str] | None:
            with trial(self._fleet):
                for uid in {*leaving, *(uid for node in order[:count] for uid in holders[node])}:
                    self._fleet.release(uid)
                found = self._fit(unit)
            return None if isinstance(found, Misfit) else {uid: choice.node for uid, choice in found.items()}

        low, high = -1, 1  # nothing is known of more than `high`; up to `low` it does not fit
        while high < len(order) and cleared(high) is None:
            low, high = high, 2 * high
        high = min(high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cleared(middle) is None else (low, middle)
        return cleared(high)

    def _holders(self) -> dict[str, list[str]]:
        """Return who holds what on each node, but those that room is reserved for."""
        found: dict[str, list[str]] = {}
        reserved = {uid for uids in self._kept.values() for uid in uids}
        for uid, allocation in self._fleet.ledger.items():
            if uid not in reserved and allocation.node in self._fleet.row_of:
                found.setdefault(allocation.node, []).append(uid)
        return found

    def _busy(self, uids: Iterable[str]) -> int:
        """Thousandths of cards that somebody holds who is not leaving."""
        held = (self._fleet.ledger[uid].requirement for uid in uids if not self._leaves(uid))
        return sum(self._fleet.resources(asked).gpu_milli for asked in held)

    def _leaves(self, uid: str) -> bool:
        return self._fleet.ledger[uid].state is AllocationState.RELEASING


class _Order(_Round):
    """A filling that finds room for everybody."""

    def _grant(self, leaf: Leaf) -> Code | None:
        self._go(leaf, {})
        return None


def fit(fleet: Fleet, rules: Rules, unit: Unit, now: float) -> dict[str, Choice] | Misfit:
    """Return where all of a unit go on the books as they are, near those of its gang that have their places."""
    gang = unit.requests[0].claim.gang
    there = fleet.gangs.get(gang.key, ()) if gang is not None else ()
    beside = {fleet.ledger[uid].node for uid in there if uid in fleet.ledger}
    return fit_together(fleet, rules, by_size(fleet, unit.requests), now, neighbours=beside)


class _Numbers:
    """Numbers of what is asked: equal ones have the same. What is asked by many is compared once."""

    def __init__(self) -> None:
        self._of: dict[ResourceRequirement, int] = {}
        self._known: dict[int, int] = {}

    def of(self, asked: ResourceRequirement) -> int:
        """Return the number of one that lives as long as these."""
        number = self._known.get(id(asked))
        if number is None:
            number = self._known[id(asked)] = self._of.setdefault(asked, len(self._of))
        return number


def _shape_of(rules: Rules, unit: Unit, numbered: _Numbers) -> object:
    """Return what decides whether there is room for a unit; its namespace does where quotas bind that."""

    def decides(request: Request) -> object:
        claim, gang = request.claim, request.claim.gang
        namespace = claim.namespace if rules.quotas.levels(claim.namespace) else ""
        near = gang and (gang.domain, gang.within)
        return numbered.of(request.requirement), request.strategy, namespace, claim.promise, claim.priority, near

    if len(unit.requests) == 1:
        return decides(unit.requests[0])
    return tuple((what, len([*alike])) for what, alike in groupby(unit.requests, decides))


def _capped(amount: Resources) -> Vector:
    return (min(amount.cpu_milli, MOST), min(amount.memory_bytes, MOST), min(amount.gpu_milli, MOST))
