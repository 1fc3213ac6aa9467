"""The order in which gated requests are admitted: those that may go now, each with its place.

The order is that of sessions: progressive filling over the tree of queues (`core/sharing/shares.py`). Guarantees come
first, then the smallest dominant share; inside a queue priority, then age. A unit is one request, or all that a gang
needs. It is admitted only if it fits whole, and one that does not fit holds up no other unit.

A unit that has waited too long at its turn, and could be placed if others left, gets a reservation: on the nodes where
the least is missing, for one unit of each priority. So smaller units cannot pass it for ever, and still go where they
do not use that room.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import compress, groupby

from ullage.core.admitting.quorum import Quorum
from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.kernel.queues import MOST
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, by_size, enter
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.policy import Order
from ullage.core.placing.reserving import reserving
from ullage.core.placing.rules import Rules
from ullage.core.placing.subgroups import fit_gang, nodes_by_subgroup
from ullage.core.sharing.entitlement import shortage
from ullage.core.sharing.reach import limit_of
from ullage.core.sharing.shares import Leaf, ShareTree, Vector, dominant_share
from ullage.core.sharing.world import Demand
from ullage.core.verdict.cards import refusal_of
from ullage.model.allocation import AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.nomination import Nomination
from ullage.model.queue import ROOT, Limit, Queue
from ullage.model.queue_bounds import upwards
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

Held = Mapping[tuple[str, Resources], int]
"""How many of each amount each queue holds."""

Running = Mapping[str, Sequence[tuple[GangClaim, str]]]
"""The members of each gang that have their cards, by key: their claim and their node."""

_HELD_BACK = Refusal((Rejection(Code.RESERVED, Cure.CAPACITY),))
_OVER_LIMIT = Refusal((Rejection(Code.QUEUE_LIMIT, Cure.QUOTA),))
_TOO_LARGE = Refusal((Rejection(Code.TOO_LARGE, Cure.NODE_CHANGE),))


@dataclass(frozen=True, slots=True)
class Unit:
    """Requests that are admitted together or not at all. `since` is when the wait began, in seconds of any clock.

    A unit is `begun` if others of its gang were admitted: it does not wait for another turn. With a `quorum`, others
    of the gang may be admitted in place of some of the requests, which are the smallest that suffice.
    """

    key: str
    queue: str
    requests: tuple[Request, ...]
    since: float
    begun: bool = False
    quorum: Quorum | None = field(default=None, compare=False)

    def with_requests(self, changed: Callable[[Request], Request]) -> Unit:
        """Return the same unit with changed requests."""
        quorum = None if self.quorum is None else self.quorum.with_requests(changed)
        return replace(self, requests=tuple(map(changed, self.requests)), quorum=quorum)

    @property
    def candidates(self) -> Sequence[Request]:
        """The requests of which those that suffice are admitted."""
        return self.requests if self.quorum is None else self.quorum.waiting

    @property
    def priority(self) -> int:
        """The highest priority of its requests."""
        return max(request.claim.priority for request in self.requests)

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(request.uid for request in self.requests)

    @property
    def alone(self) -> Request | None:
        """The only request, if it is of no gang."""
        first, *_ = self.requests
        return first if first.claim.gang is None else None


@dataclass(slots=True)
class Turns:
    """The decision: the admitted units in their order with their places, and the refusals of the others, by key.

    Units after the first `most` requests have no entry. `reserved` is room that is reserved for waiting units, on the
    cards that have it now (on some nodes none yet). `shares` is the dominant share of each queue afterwards, not
    divided by its weight. `due` is when the next unit will have waited too long.
    """

    granted: list[tuple[Unit, dict[str, Choice]]] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)
    reserved: dict[str, list[Nomination]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    due: float | None = None


@dataclass(frozen=True, slots=True)
class AdmissionBoard:
    """The facts of a decision, which leaves the books as they were.

    `held` is what queues hold in the books, including what is being released. `promised` are places that were granted
    and are not taken yet, by queue: they count as held, in queues and quotas. `nominations` reserve room for others.
    `before` are the nodes with reservations of the last decision. `running` are members of gangs that the ledger does
    not have as such.
    """

    fleet: Fleet
    rules: Rules
    queues: Sequence[Queue]
    held: Held
    promised: Sequence[tuple[str, Nomination]] = ()
    nominations: Nominations = NO_NOMINATIONS
    before: frozenset[str] = frozenset()
    running: Running = field(default_factory=dict)


def next_turns(
    board: AdmissionBoard, units: Iterable[Unit], now: float, *, reserve_after_s: float, most: int | None = None
) -> Turns:
    """Return the units to admit now: `most` requests at most, and at least one unit."""
    with ExitStack() as stack:
        fleet = board.fleet
        stack.enter_context(trial(fleet))
        stack.enter_context(reserving(fleet, board.nominations.waiting(fleet)))
        promised = [each for _, each in board.promised]
        enter(fleet, [each.request for each in promised], map(_choice_of, promised), now)
        return _Round(board, units, now, stack, reserve_after_s=reserve_after_s, most=most).run()


def in_order(board: AdmissionBoard, units: Iterable[Unit], now: float) -> list[Unit]:
    """Return units in the order of admission, as if all found room; units that a limit stops come last, by age."""
    waiting = list(units)
    with ExitStack() as stack:
        turns = _Order(board, waiting, now, stack).run()
    position = {unit.key: number for number, (unit, _) in enumerate(turns.granted)}
    return sorted(waiting, key=lambda unit: (position.get(unit.key, len(position)), -unit.priority, *_age(unit)))


def may_hold(board: AdmissionBoard, queue: str, requests: Sequence[Request], now: float) -> bool:
    """Return whether the limits of a queue, and of those above it, allow these requests beside what they hold."""
    with ExitStack() as stack:
        return _Round(board, (), now, stack).within_limits(queue, requests)


def _age(unit: Unit) -> tuple[float, str, str]:
    first, *_ = unit.requests
    return unit.since, first.claim.pod, unit.key


def _choice_of(promised: Nomination) -> Choice:
    return Choice(promised.node, promised.gpus, promised.charges)


class _Round:
    """One filling; `stack` undoes at its end what was done to the books."""

    def __init__(
        self,
        board: AdmissionBoard,
        units: Iterable[Unit],
        now: float,
        stack: ExitStack,
        *,
        reserve_after_s: float = 0.0,
        most: int | None = None,
    ) -> None:
        self._board, self._fleet, self._now, self._stack = board, board.fleet, now, stack
        self._reserve_after_s, self._left = reserve_after_s, most
        self._turns = Turns()
        self._why: dict[object, Refusal] = {}
        self._reserving: dict[int, list[str]] = {}
        """Uids with a reservation, by priority: one unit of each."""
        self._waiting: dict[Leaf, deque[Unit]] = {}
        self._count(units)
        leaves = [*self._waiting, *self._held()]
        self._queues = {queue.name: queue for queue in self._named(leaves)}
        self._tree = ShareTree(self._fleet.total, self._queues.values(), leaves, Order.FIFO)

    def run(self) -> Turns:
        for leaf in [leaf for leaf, waiting in self._waiting.items() if next(iter(waiting)).begun]:
            while self._waiting[leaf] and self._tree.give(leaf, self._grant, same_shape=True) is None:
                pass
        self._tree.fill_guarantees(self._grant, same_shape=True)
        self._tree.fill(self._grant, same_shape=True)
        refused = self._turns.refused
        for leaf, waiting in self._waiting.items():
            reason = self._reason(leaf)
            if reason is not None:
                refused.update((unit.key, reason) for unit in waiting if unit.key not in refused)
        self._turns.shares = self._shares()
        return self._turns

    def _reason(self, leaf: Leaf) -> Refusal | None:
        """Return why the units of a leaf that were not tried are refused: a limit, or the refusal of an equal unit."""
        code = leaf.stopped
        if code in (Code.QUEUE_LIMIT, Code.APPLICATION_LIMIT):
            above = limit_of(self._queues, leaf.queue, Resources(*leaf.unit))
            return Refusal((above or Rejection(code, Cure.QUOTA),))
        return None if code in (None, Code.STARTING) else self._why.get(leaf.shape)

    # --- the tree ---

    def _count(self, units: Iterable[Unit]) -> None:
        """Make one leaf of equal units, the oldest first."""
        found: dict[tuple[str, int, bool, object], list[Unit]] = {}
        numbered = _Numbers()
        ordered = sorted(units, key=_age)
        numbers = {unit.key: number for number, unit in enumerate(ordered)}
        for unit in ordered:
            shape = _shape_of(self._board.rules, unit, numbered)
            found.setdefault((unit.queue, unit.priority, unit.begun, shape), []).append(unit)
        self._numbers = numbers
        for place, ((queue, priority, _, shape), equal) in enumerate(found.items()):
            oldest = next(iter(equal))
            leaf = Leaf(
                f"unit/{place}",
                queue,
                self._vector(oldest.requests),
                priority=priority,
                number=numbers[oldest.key],
                target=len(equal),
                shape=shape,
                apart=True,
            )
            self._waiting[leaf] = deque(equal)

    def _held(self) -> list[Leaf]:
        """Return what each queue holds, in the books or by promise."""
        held = Counter(self._board.held)
        held.update((queue, self._fleet.resources(each.request.requirement)) for queue, each in self._board.promised)
        return [
            Leaf(f"held/{place}", queue, _capped(amount), held=count, target=count, shape="held")
            for place, ((queue, amount), count) in enumerate(held.items())
        ]

    def _named(self, leaves: Iterable[Leaf]) -> list[Queue]:
        """Return the configured queues, and those that are only named: of weight 1, below the root."""
        known = {queue.name: queue for queue in self._board.queues}
        named = {leaf.queue for leaf in leaves} - known.keys() - {ROOT}
        return [*known.values(), *map(Queue, sorted(named))]

    def _vector(self, requests: Iterable[Request]) -> Vector:
        total = Resources()
        for request in requests:
            total += self._fleet.resources(request.requirement)
        return _capped(total)

    def _shares(self) -> dict[str, float]:
        usage = {name: Resources(*self._tree.usage(name)) for name in self._queues}
        return {name: dominant_share(held, self._fleet.total) for name, held in usage.items()}

    # --- one unit ---

    def _grant(self, leaf: Leaf) -> Code | None:
        if self._left is not None and self._left <= 0:
            return Code.STARTING  # the next round continues
        unit = next(iter(self._waiting[leaf]))
        found = self._fit(unit)
        if isinstance(found, Misfit):
            return self._refuse(leaf, unit, found.refusal)
        placed = [request for request in unit.candidates if request.uid in found]
        enter(self._fleet, placed, [found[request.uid] for request in placed], self._now)
        self._admit(leaf, found)
        if found.keys() != set(unit.uids):
            self._left = 0  # the tree has the amounts of the unit; the next round has these
        return None

    def _admit(self, leaf: Leaf, found: dict[str, Choice]) -> None:
        """Admit the first unit of a leaf."""
        waiting = self._waiting[leaf]
        unit = waiting.popleft()
        self._turns.granted.append((unit, found))
        if self._left is not None:
            self._left -= len(unit.requests)
        if waiting:
            leaf.number = self._numbers[next(iter(waiting)).key]

    def _fit(self, unit: Unit) -> dict[str, Choice] | Misfit:
        running, allowed = self._board.running, self.within_limits
        return fit(self._fleet, self._board.rules, unit, self._now, running=running, allowed=allowed)

    def within_limits(self, queue: str, requests: Sequence[Request]) -> bool:
        """Return whether a queue and those above it may hold these requests too."""
        amount, usage = Resources(*self._vector(requests)), self._tree.usage
        above = upwards(self._queues, queue)
        return all(each.limit.broken_by(Resources(*usage(each.name)) + amount) == Limit() for each in above)

    def _refuse(self, leaf: Leaf, unit: Unit, refusal: Refusal) -> Code:
        """Record the refusal for people, and return the reason for the tree: missing room, or another one."""
        of_room = not refusal.rejections or refusal.rejections[0].cure in (Cure.CAPACITY, Cure.NODE_CHANGE)
        if of_room and refusal.curable:
            refusal = self._look_ahead(unit, self._short_of(unit, refusal))
        self._why[leaf.shape] = self._turns.refused[unit.key] = refusal
        return Code.GPU if of_room else refusal.code

    def _short_of(self, unit: Unit, refusal: Refusal) -> Refusal:
        """Return the refusal, or what the fleet as a whole lacks if the refusal names one card or one node only."""
        first = refusal.rejections[0] if refusal.rejections else None
        if first is not None and first.gpu is None and first.node is None:
            return refusal
        code = shortage(self._fleet, Demand(unit.key, 0, unit.requests[0].requirement))
        return Refusal((Rejection(code, Cure.CAPACITY),))

    def _look_ahead(self, unit: Unit, refusal: Refusal) -> Refusal:
        """Reserve room for a unit that has waited too long, if any room could do. Return why it waits."""
        if any(self._reserving.values()) and self._fits_without_reserves(unit):
            refusal = _HELD_BACK
        if unit.priority in self._reserving:
            return refusal
        due = unit.since + self._reserve_after_s
        if due > self._now:
            self._turns.due = due if self._turns.due is None else min(self._turns.due, due)
            return refusal
        if isinstance(
            fit(self._fleet.emptied(), self._board.rules, unit, self._now, running=self._board.running), Misfit
        ):
            return _TOO_LARGE
        nodes = self._nearest(unit)
        if nodes is not None:
            placed = [each for each in unit.candidates if each.uid in nodes]
            entries = [Nomination(each, nodes[each.uid], self._now, hold=True) for each in placed]
            self._stack.enter_context(reserving(self._fleet, entries))
            self._reserving[unit.priority] = [uid for uid in nodes if uid in self._fleet.ledger]
            self._turns.reserved[unit.key] = [self._free_part(entry) for entry in entries]
        return refusal

    def _free_part(self, entry: Nomination) -> Nomination:
        """Return the reservation on those of its cards that have room now."""
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
            for uid in (uid for uids in self._reserving.values() for uid in uids):
                self._fleet.release(uid)
            return isinstance(self._fit(unit), dict)

    def _nearest(self, unit: Unit) -> dict[str, str] | None:
        """Return a node for each request if as few nodes as possible were cleared, the idlest first."""
        holders = self._holders()
        order = sorted(holders, key=lambda node: (self._busy(holders[node]), node not in self._board.before, node))
        leaving = [uid for uids in holders.values() for uid in uids if self._leaves(uid)]

        def cleared(count: int) -> dict[str, str] | None:
            with trial(self._fleet):
                for uid in {*leaving, *(uid for node in order[:count] for uid in holders[node])}:
                    self._fleet.release(uid)
                found = self._fit(unit)
            return None if isinstance(found, Misfit) else {uid: choice.node for uid, choice in found.items()}

        low, high = -1, 1  # up to `low` cleared nodes it does not fit; beyond `high` is unknown
        while high < len(order) and cleared(high) is None:
            low, high = high, 2 * high
        high = min(high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cleared(middle) is None else (low, middle)
        return cleared(high)

    def _holders(self) -> dict[str, list[str]]:
        """Return the holders on each node, without reservations."""
        found: dict[str, list[str]] = {}
        reserved = {uid for uids in self._reserving.values() for uid in uids}
        for uid, allocation in self._fleet.ledger.items():
            if uid not in reserved and allocation.node in self._fleet.row_of:
                found.setdefault(allocation.node, []).append(uid)
        return found

    def _busy(self, uids: Iterable[str]) -> int:
        """Return the thousandths of cards that are held and not being released."""
        held = (self._fleet.ledger[uid].requirement for uid in uids if not self._leaves(uid))
        return sum(self._fleet.resources(asked).gpu_milli for asked in held)

    def _leaves(self, uid: str) -> bool:
        return self._fleet.ledger[uid].state is AllocationState.RELEASING


class _Order(_Round):
    """A filling that finds room for every unit."""

    def _grant(self, leaf: Leaf) -> Code | None:
        self._admit(leaf, {})
        return None


def fit(
    fleet: Fleet,
    rules: Rules,
    unit: Unit,
    now: float,
    *,
    running: Running,
    allowed: Callable[[str, Sequence[Request]], bool] = lambda _queue, _requests: True,
) -> dict[str, Choice] | Misfit:
    """Return the places of a unit on the present books, near the members of its gang that have theirs.

    Others of its gang take the place of some of its requests if they are `allowed` to.
    """
    gang = next(iter(unit.requests)).claim.gang
    members: list[tuple[Claim | None, str]] = []
    if gang is not None:
        there = (fleet.ledger[uid] for uid in fleet.gangs.get(gang.key, ()) if uid in fleet.ledger)
        members += [(held.claim, held.node) for held in there]
        members += [(Claim(gang=each), node) for each, node in running.get(gang.key, ())]
    neighbours = nodes_by_subgroup(members)

    def place(requests: Sequence[Request]) -> dict[str, Choice] | Misfit:
        sized, divided = by_size(fleet, requests), unit.quorum is not None
        if divided and not allowed(unit.queue, requests):
            return Misfit(next(iter(sized)).uid, _OVER_LIMIT, 0)
        return fit_gang(fleet, rules, sized, now, neighbours=neighbours, divided=divided)

    return place(unit.requests) if unit.quorum is None else unit.quorum.fit_least(place)


class _Numbers:
    """Numbers of requirements: equal ones have the same number. A requirement of many requests is compared once."""

    def __init__(self) -> None:
        self._of: dict[ResourceRequirement, int] = {}
        self._known: dict[int, int] = {}

    def of(self, asked: ResourceRequirement) -> int:
        """Return the number of a requirement, which must live as long as this object."""
        number = self._known.get(id(asked))
        if number is None:
            number = self._known[id(asked)] = self._of.setdefault(asked, len(self._of))
        return number


def _shape_of(rules: Rules, unit: Unit, numbered: _Numbers) -> object:
    """Return what decides whether there is room for a unit; its namespace is part of it if it has quotas.

    Where others of its gang have their places, and levels decide, so is its gang.
    """
    gang = next(iter(unit.requests)).claim.gang
    near_others = gang is not None and (gang.innermost is not None or gang.divided)
    placed = near_others and (unit.begun or len(unit.requests) == 1 or unit.quorum is not None)

    def decides(request: Request) -> object:
        claim, gang = request.claim, request.claim.gang
        namespace = claim.quota_name if rules.quotas.levels(claim.quota_name) else ""
        near = gang and (gang.domain, gang.within, gang.subgroups, gang.key if placed else "")
        return numbered.of(request.requirement), request.strategy, namespace, claim.counted_limit, claim.priority, near

    if len(unit.requests) == 1:
        return decides(unit.requests[0])
    return tuple((what, len([*equal])) for what, equal in groupby(unit.requests, decides))


def _capped(amount: Resources) -> Vector:
    return (min(amount.cpu_milli, MOST), min(amount.memory_bytes, MOST), min(amount.gpu_milli, MOST))
