"""Room that is kept for nominated requests and for sessions: what others, who come after them, find beside it.

A request is nominated when somebody gives way to it. Until it is placed or gone its room is charged
whenever a request that comes after it is judged, per card; afterwards the books are as before.
Places that are promised to sessions are charged before any request is judged. What those who leave
for such a place still hold of it is not charged twice. Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from ullage.core.books.fleet import Fleet, Usage
from ullage.core.books.trial import trial
from ullage.core.placing.feasibility import quota_allows
from ullage.core.placing.inherited import Spare, charge_beyond
from ullage.core.placing.selection import Candidates, Choice, Refusal, Rules, choose, find, refusals_on
from ullage.core.verdict.counted import amounts_on
from ullage.core.verdict.filters import CARD, EXCLUSION, Stage, charge_on, charges_on
from ullage.core.verdict.zones import placement_on
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection

NOMINATED_TTL_S = 1800.0
"""How long room is kept for a request that nobody asks for again."""


@dataclass(frozen=True, slots=True)
class Promised:
    """Places that one session or request is promised, and those in the ledger who leave for it."""

    places: tuple[Allocation, ...]
    leaving: tuple[str, ...] = ()


Ahead = Nomination | Promised
"""Whoever comes before a request."""


@dataclass(frozen=True, slots=True)
class Nominations:
    """The requests that room is kept for, one entry per uid; those that are placed by now count no more.

    `sessions` are places that sessions wait for: no request gets them.
    """

    entries: tuple[Nomination, ...] = ()
    sessions: tuple[Promised, ...] = ()

    def __bool__(self) -> bool:
        """Whether room is kept for anybody."""
        return bool(self.entries or self.sessions)

    def with_(self, nomination: Nomination) -> Nominations:
        """These and another one, in place of one with its uid."""
        return replace(self, entries=(*self.without(nomination.request.uid).entries, nomination))

    def without(self, *uids: str) -> Nominations:
        """These without the requests that are placed, or gone."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.request.uid not in uids))

    def of(self, uid: str) -> Nomination | None:
        """The entry of a request."""
        return next((entry for entry in self.entries if entry.request.uid == uid), None)

    def waiting(self, fleet: Fleet) -> list[Nomination]:
        """Those that are not placed, the first to be served first."""
        found = (e for e in self.entries if e.request.uid not in fleet.ledger or self.moving(fleet, e.request.uid))
        return sorted(found, key=lambda entry: _rank(entry.request.claim, entry.request.uid))

    def moving(self, fleet: Fleet, uid: str) -> bool:
        """Whether a request leaves its place for one that is held for it."""
        entry, known = self.of(uid), fleet.ledger.get(uid)
        return entry is not None and entry.hold and known is not None and known.state is AllocationState.RELEASING

    def lapsed(self, now: float) -> tuple[str, ...]:
        """Requests that nobody asked for again within `NOMINATED_TTL_S`."""
        return tuple(entry.request.uid for entry in self.entries if entry.since + NOMINATED_TTL_S <= now)

    def before(self, fleet: Fleet, request: Request) -> list[Ahead]:
        """Those whose room this request must leave alone: sessions, and whoever others gave way to.

        Of the other requests those of higher priority, and those of its gang that are equal to it. Of those that are
        `first_come` also whoever is equal to it and was nominated before it.
        """
        if not self:
            return []
        earlier = {entry.request.uid for entry in takewhile(lambda e: e.request.uid != request.uid, self.entries)}
        entries = (
            entry
            for entry in self.waiting(fleet)
            if entry.request.uid != request.uid
            and (entry.keeps_all_out or _comes_before(entry, request.claim, earlier=entry.request.uid in earlier))
        )
        return [*self.sessions, *entries]

    def all(self, fleet: Fleet) -> list[Ahead]:
        """Everybody whom room is kept for."""
        return [*self.sessions, *self.waiting(fleet)]

    def owed(self, uids: Collection[str], fleet: Fleet | None = None) -> bool:
        """Whether others gave way to any of these; with `fleet` only on nodes that take work."""
        nodes = {entry.node for entry in self.entries if entry.owed and entry.request.uid in uids}
        if fleet is None:
            return bool(nodes)
        return any(node in fleet.row_of and fleet.schedulable[fleet.row_of[node]] for node in nodes)


NO_NOMINATIONS = Nominations()


@contextmanager
def kept(fleet: Fleet, ahead: Sequence[Ahead]) -> Iterator[None]:
    """The books as those must see them who come after these: with their room charged.

    What is kept counts in no quota, unless others gave way to it: then it does in that of its namespace, or the quota
    could refuse the winner. Nobody can evict what is kept. All is taken back at the end.
    """
    if not ahead:
        yield
        return
    mark = fleet.checkpoint()
    try:
        found, spare = [_enter(fleet, each) for each in ahead], Spare()
        if any(uid in fleet.ledger for each in found for uid in each.leaving):
            fleet.rollback(mark)
            mark = fleet.checkpoint()
            for each in _each_once(found):
                charge_beyond(fleet, each.places, each.leaving, spare)
        counted = [(each.namespace, each.usage) for each in found if each.namespace]
        with _with_slots(fleet, spare.slots), _counted(fleet, counted + spare.usage):
            yield
    finally:
        fleet.rollback(mark)


@contextmanager
def kept_from_sessions(fleet: Fleet, nominations: Nominations, cap: int) -> Iterator[None]:
    """The books as sessions see them: with the room of requests charged, and a worker of each below the `cap`.

    A `cap` below 0 is none: nodes say themselves how many workers they take.
    """
    waiting = nominations.waiting(fleet)
    rows = {fleet.row_of[entry.node] for entry in waiting if entry.owed and entry.node in fleet.row_of}
    with kept(fleet, waiting):
        left = {row: max(0, cap - fleet.workers(row)) for row in rows if cap >= 0}
        over = {row: min(0, most - fleet.slots_free.item(row)) for row, most in left.items()}
        with _with_slots(fleet, over):
            yield


@contextmanager
def _with_slots(fleet: Fleet, more: Mapping[int, int]) -> Iterator[None]:
    """Have nodes, which changed in the caller's trial, take so many allocations more."""
    for row, slots in more.items():
        fleet.slots_free[row] += slots
    try:
        yield
    finally:
        for row, slots in more.items():
            fleet.slots_free[row] -= slots


# --- beside them ---


def quota_allows_beside(fleet: Fleet, rules: Rules, request: Request, units: int, nominations: Nominations) -> bool:
    """`quota_allows` beside nominated requests: what others gave way to counts in the quota of its namespace."""
    if not rules.quotas.levels(request.claim.namespace):
        return True
    with kept(fleet, nominations.before(fleet, request)):
        return quota_allows(fleet, rules, request, units)


def find_beside(
    fleet: Fleet, rules: Rules, request: Request, nominations: Nominations, cards: Sequence[int] | None = None
) -> Candidates:
    """`find` beside nominated requests; what only they stand in the way of is `reserved-for-nominated`.

    A request that does not fit without them either is refused for the reasons that hold then.
    """
    ahead, free = nominations.before(fleet, request), find(fleet, rules, request, cards)
    if not ahead or not free.by_node:
        return free
    with kept(fleet, ahead):
        found = find(fleet, rules, request, cards)
    stages = [_nominated(stage, alone) for stage, alone in zip(found.stages, free.stages, strict=True)]
    return replace(found, stages=tuple(stages), curable=True)


def choose_beside(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | Refusal:
    """`choose` beside nominated requests; a refusal is that of `find_beside`."""
    ahead = nominations.before(fleet, request)
    if not ahead:
        return choose(fleet, rules, request)
    with kept(fleet, ahead):
        chosen = choose(fleet, rules, request)
    if isinstance(chosen, Choice):
        return chosen
    return refusal_beside(find_beside(fleet, rules, request, nominations))


def choose_held(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | None:
    """The place that is held for the request, if it is free; None too if none is."""
    entry = nominations.of(request.uid) if nominations.entries else None
    return choose_kept(fleet, rules, request, nominations) if entry is not None and entry.hold else None


def choose_kept(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | None:
    """The cards that are kept for the request, if they are free; None too if none are."""
    entry = nominations.of(request.uid)
    if entry is None or len(entry.gpus) != request.requirement.gpu_count:
        return None
    cards = [fleet.card_of.get(uuid) for uuid in entry.gpus]
    known = [card for card in cards if card is not None and fleet.nodes[int(fleet.card_row[card])].name == entry.node]
    if len(known) != len(cards) or refusals_beside(fleet, rules, request, nominations, known):
        return None
    with kept(fleet, nominations.before(fleet, request)):
        return Choice(entry.node, entry.gpus, charges_on(fleet, known, request.requirement))


def refusal_beside(found: Candidates) -> Refusal:
    """Why there is none of the candidates: nominated requests first, if any of them stands in the way."""
    told = (rejection for stage in found.stages for rejection in stage.removed if rejection.code is Code.NOMINATED)
    others = (rejection for rejection in found.refusals if rejection.code is not Code.NOMINATED)
    return replace(found.refusal, rejections=(*told, *others))


def refusals_beside(
    fleet: Fleet, rules: Rules, request: Request, nominations: Nominations, cards: Sequence[int]
) -> tuple[Rejection, ...]:
    """`refusals_on` beside nominated requests: what speaks against exactly these cards of one node."""
    ahead, against = nominations.before(fleet, request), refusals_on(fleet, rules, request, cards)
    if against or not ahead:
        return against
    with kept(fleet, ahead):
        beside = refusals_on(fleet, rules, request, cards)
    return tuple(_reserved(rejection) for rejection in beside)


def _nominated(stage: Stage, alone: Stage) -> Stage:
    """A stage beside nominated requests, where `alone` is what it keeps without them."""
    free = frozenset(alone.kept)
    if not free:
        return stage
    removed = (_reserved(rejection) if rejection.gpu in free else rejection for rejection in stage.removed)
    return replace(stage, removed=tuple(removed))


def _reserved(rejection: Rejection) -> Rejection:
    return replace(rejection, code=Code.NOMINATED, cure=Cure.CAPACITY)


# --- what is kept ---


def let_leave(fleet: Fleet, row: int) -> int:
    """Release those who leave a node anyway, within the caller's trial; how many they are."""
    node = fleet.nodes[row].name
    leaving = [uid for uid in sorted(fleet.leaving) if fleet.ledger[uid].node == node]
    for uid in leaving:
        fleet.release(uid)
    return len(leaving)


def _charge(fleet: Fleet, places: Iterable[Allocation]) -> None:
    for place in places:
        fleet.charge(place, force=True)


class _Kept(NamedTuple):
    """What is kept for one: its places, who leaves for them, and what that counts in the quota of a namespace.

    Without a namespace it counts in none.
    """

    places: tuple[Allocation, ...]
    leaving: tuple[str, ...]
    namespace: str = ""
    usage: Usage = Usage()


def _enter(fleet: Fleet, ahead: Ahead) -> _Kept:
    """Charge what is kept for one, within the caller's trial."""
    if isinstance(ahead, Promised):
        there = tuple(place for place in ahead.places if fleet.card_of.keys() >= set(place.gpus))
        found = _Kept(there, ahead.leaving)
    else:
        keep = _keep(fleet, ahead)
        found = _Kept(() if keep is None else (keep,), tuple(_leaving_for(fleet, ahead)))
        if keep is not None and ahead.owed:
            found = found._replace(namespace=ahead.request.claim.namespace, usage=_usage_beyond(fleet, ahead, keep))
    _charge(fleet, found.places)
    return found


def _leaving_for(fleet: Fleet, nomination: Nomination) -> Iterator[str]:
    """Yield who leaves for a request: its victims, it itself if it moves, and whoever moves off whole cards of its.

    Where a place is held on a part of a card it is free there already, and waits for nobody.
    """
    yield from (victim.uid for victim in nomination.victims)
    if nomination.hold and nomination.owed:
        whole = nomination.gpus if nomination.request.requirement.whole else ()
        holders = fleet.card_holders(fleet.card_of[uuid] for uuid in whole if uuid in fleet.card_of)
        yield from (uid for uid in (nomination.request.uid, *holders) if uid in fleet.leaving)


def _each_once(found: Sequence[_Kept]) -> list[_Kept]:
    """Have each who leaves do so for the first of those that count on it."""
    seen = set[str]()
    once = []
    for each in found:
        once.append(each._replace(leaving=tuple(uid for uid in dict.fromkeys(each.leaving) if uid not in seen)))
        seen.update(each.leaving)
    return once


def _usage_beyond(fleet: Fleet, nomination: Nomination, keep: Allocation) -> Usage:
    """What a request will count in the quota of its namespace, less what victims count there, or it itself."""
    claim = nomination.request.claim
    usage = fleet.usage_of(replace(keep, claim=claim))
    leaving = (nomination.request.uid, *(victim.uid for victim in nomination.victims))
    for held in (fleet.ledger[uid] for uid in leaving if uid in fleet.ledger):
        if held.claim is not None and held.claim.namespace == claim.namespace:
            usage = usage.plus(fleet.usage_of(held), -1)
    return Usage(*(max(0, amount) for amount in usage))


@contextmanager
def _counted(fleet: Fleet, more: Sequence[tuple[str, Usage]]) -> Iterator[None]:
    """Have quotas of namespaces count so much more."""
    if not more:
        yield
        return
    before = dict(fleet.usage)
    for namespace, usage in more:
        fleet.usage[namespace] = fleet.usage.get(namespace, Usage()).plus(usage)
    try:
        yield
    finally:
        fleet.usage.clear()
        fleet.usage.update(before)


def _keep(fleet: Fleet, nomination: Nomination) -> Allocation | None:
    """The entry that keeps the room of a nominated request; None if its node has nothing for it."""
    request, row = nomination.request, fleet.row_of.get(nomination.node)
    if row is None:
        return None
    here = {fleet.cards[card].uuid for card in fleet.cards_on(row)}
    if nomination.gpus and here.issuperset(nomination.gpus):
        gpus = nomination.gpus
        charges = tuple(
            charge.on(gpu) for gpu, charge in zip(fleet.gpus(gpus), nomination.charges, strict=bool(nomination.charges))
        )
    else:
        gpus, charges = _best_fit(fleet, row, request)
    if not gpus:
        return None
    # Its limit is promised too; of no namespace, so that it counts in no quota here.
    claim = None if request.claim.limit is None else Claim(namespace="", limit=request.claim.limit)
    uid, asked = f"{request.uid} at its next place" if request.uid in fleet.ledger else request.uid, request.requirement
    with trial(fleet) if fleet.leaving else nullcontext():  # what it is to have in zones is with those who leave
        let_leave(fleet, row)
        placement = placement_on(fleet, asked, nomination.node, [fleet.card_of[uuid] for uuid in gpus])
    return Allocation(uid, nomination.node, asked, gpus, charges=charges, claim=claim, placement=placement)


def _best_fit(fleet: Fleet, row: int, request: Request) -> tuple[tuple[str, ...], tuple[Charge, ...]]:
    """Cards of a node where least is left beside the request, counting those who leave as gone.

    If they are fewer than asked, those with the most room stand in for the others.
    """
    asked = request.requirement
    with trial(fleet):
        let_leave(fleet, row)
        cards = [card for card in fleet.cards_on(row) if EXCLUSION.first(fleet, card, asked) is None]
        fits = {card for card in cards if CARD.first(fleet, card, asked) is None}
        left = {card: _left_beside(fleet, card, request) for card in cards}
        order = sorted(cards, key=lambda c: (c not in fits, left[c] if c in fits else -left[c], fleet.cards[c].uuid))
        picked = [card for card in order if card in fits or asked.cards.isolation is not Isolation.PARTITIONED]
        picked = picked[: asked.gpu_count]
        charges = () if asked.whole else tuple(charge_on(fleet, card, asked) for card in picked)
    return fleet.uuids(picked), charges


def _left_beside(fleet: Fleet, card: int, request: Request) -> float:
    """What of a card is left beside the request: the sum of both fractions; below 0 if it does not fit."""
    (compute, vram), _ = amounts_on(fleet, card, request)
    compute_left = (int(fleet.compute_free[card]) - compute) / max(1, int(fleet.compute_total[card]))
    return compute_left + (int(fleet.vram_free[card]) - vram) / max(1, int(fleet.vram_total[card]))


def _comes_before(entry: Nomination, other: Claim, *, earlier: bool) -> bool:
    claim = entry.request.claim
    if claim.priority != other.priority:
        return claim.priority > other.priority
    if entry.first_come and earlier:
        return True
    return claim.gang is not None and other.gang is not None and claim.gang.key == other.gang.key


def _rank(claim: Claim, uid: str) -> tuple[int, float, str]:
    return -claim.priority, claim.created_at, uid
