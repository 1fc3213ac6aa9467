"""Room that is kept for nominated requests: what others, who come after them, find beside it.

A request is nominated when somebody gives way to it. Until it is placed or gone its room is charged
whenever a request that comes after it is judged, per card; afterwards the books are as before.
Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile

from ullage.core.counted import amounts_on
from ullage.core.filters import CARD, EXCLUSION, Stage, charge_on, charges_on
from ullage.core.fleet import Fleet
from ullage.core.selection import Candidates, Choice, Refusal, Rules, choose, find, refusals_on
from ullage.core.topology.verdict import placement_on
from ullage.core.trial import trial
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection

NOMINATED_TTL_S = 1800.0
"""How long room is kept for a request that nobody asks for again."""


@dataclass(frozen=True, slots=True)
class Nominations:
    """The requests that room is kept for, one entry per uid; those that are placed by now count no more."""

    entries: tuple[Nomination, ...] = ()

    def with_(self, nomination: Nomination) -> Nominations:
        """These and another one, in place of one with its uid."""
        return Nominations((*self.without(nomination.request.uid).entries, nomination))

    def without(self, *uids: str) -> Nominations:
        """These without the requests that are placed, or gone."""
        return Nominations(tuple(entry for entry in self.entries if entry.request.uid not in uids))

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

    def before(self, fleet: Fleet, request: Request) -> list[Nomination]:
        """Those whose room this request must leave alone: of higher priority, or of its gang and equal to it.

        Of those that are `first_come` also whoever is equal to it and was nominated before it.
        """
        if not self.entries:
            return []
        earlier = {entry.request.uid for entry in takewhile(lambda e: e.request.uid != request.uid, self.entries)}
        return [
            entry
            for entry in self.waiting(fleet)
            if entry.request.uid != request.uid
            and (entry.hold or _comes_before(entry, request.claim, earlier=entry.request.uid in earlier))
        ]


NO_NOMINATIONS = Nominations()


@contextmanager
def kept(fleet: Fleet, ahead: Sequence[Nomination]) -> Iterator[None]:
    """The books as those must see them who come after these: with their room charged.

    What is kept counts in no quota, and nobody can evict it. All is taken back at the end.
    """
    if not ahead:
        yield
        return
    with trial(fleet):
        for nomination in ahead:
            keep = _keep(fleet, nomination)
            if keep is not None:
                fleet.charge(keep, force=True)
        yield


# --- beside them ---


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
    if entry is None or not entry.hold or len(entry.gpus) != request.requirement.gpu_count:
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


def _keep(fleet: Fleet, nomination: Nomination) -> Allocation | None:
    """The entry that keeps the room of a nominated request; None if its node has nothing for it."""
    request, row = nomination.request, fleet.row_of.get(nomination.node)
    if row is None:
        return None
    here = {fleet.cards[card].uuid for card in fleet.cards_on(row)}
    if nomination.gpus and here.issuperset(nomination.gpus):
        gpus, charges = nomination.gpus, nomination.charges
    else:
        gpus, charges = _best_fit(fleet, row, request)
    if not gpus:
        return None
    # Its limit is promised too; of no namespace, so that it counts in no quota.
    claim = None if request.claim.limit is None else Claim(namespace="", limit=request.claim.limit)
    uid, asked = f"{request.uid} at its next place" if request.uid in fleet.ledger else request.uid, request.requirement
    with trial(fleet):  # what it is to have in zones is with those who leave for it
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
