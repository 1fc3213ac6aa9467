"""What must not happen to requests on a random day: the oracle of `tests/service/request_days.py`.

It reads events and books only. An eviction is a debt to its winner: the winner gets its cards once the victims have
left, and nobody evicts it for the protected time. Excused are winners that were cancelled, ended, or lost their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

from tests.lab import check_books
from tests.service.days.tally import Counts

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.protection import Protection
from ullage.core.evicting.victim_search import locks_of, without_locked
from ullage.core.evicting.victims import Cost, budgets_of, cost_of
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Refusal
from ullage.core.placing.feasibility import summable
from ullage.core.placing.reserving import reserving
from ullage.core.sharing.world import ExecutorPhase
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.event import Event
from ullage.model.nomination import Nomination

if TYPE_CHECKING:
    from tests.service.request_days import RequestDay

Found = Mapping[str, Sequence[str]]
"""Cards by node."""

_SETS = 300
"""Sets of victims that are looked at on a node, at most."""

_ORDERS = 64
"""Sets of winners that may come before others, at most."""

_BOOKS_EVERY = 40
"""Steps between two looks at all columns."""


@dataclass
class Outcome(Counts):
    """What came of the requests of some days."""

    days: int = 0
    steps: int = 0
    asked: int = 0
    placed: int = 0
    evictions: int = 0
    winners: int = 0
    gang_winners: int = 0
    restarts: int = 0
    excused: int = 0
    promises: int = 0
    longest_wait_s: float = 0.0
    violations: list[str] = field(default_factory=list)


@dataclass
class Debt:
    """What a winner is owed: since when, by whom, and where its room is."""

    since: float
    victims: set[str] = field(default_factory=set)
    node: str = ""
    paid_at: float | None = None


class RequestWatch:
    """Looks at a service after every step."""

    def __init__(self, day: RequestDay, outcome: Outcome) -> None:
        self._day, self._outcome = day, outcome
        self._seen = 0
        self._heard = 0
        self._debts: dict[str, Debt] = {}
        self._won: dict[str, float] = {}
        self._lost_at: dict[str, float] = {}
        self._changed_at = -1.0
        self._kept: set[str] = set()

    @property
    def _now(self) -> float:
        return self._day.agenda.now

    def fail(self, text: str) -> None:
        self._outcome.violations.append(f"day {self._day.seed} at {self._now:.2f}: {text}")

    def rules_changed(self) -> None:
        """Limits were changed by other hands: a winner may wait for them."""
        self._changed_at = self._now

    def changed_its_mind(self, uid: str) -> None:
        """An owner asks for something else now: what it was owed is not what it wants."""
        self._debts.pop(uid, None)

    def unread(self) -> list[Event]:
        """Events that owners have not heard of yet."""
        news = [event for event in self._day.service.events.recent if event.number > self._heard]
        self._heard = news[-1].number if news else self._heard
        return news

    def look(self) -> None:
        self._outcome.steps += 1
        self._follow_events()
        self._look_at_books()
        self._who_is_owed()
        self._kept = {each.request.uid for each in self._day.service.state.allocator.nominations.entries}

    # --- events ---

    def _follow_events(self) -> None:
        news = [event for event in self._day.service.events.recent if event.number > self._seen]
        for event in news:
            self._seen = event.number
            uid = str(event.data.get("uid", ""))
            if event.kind == "allocation.preempted":
                self._evicted(event)
            elif event.kind == "allocation.nominated" and uid in self._debts:
                self._debts[uid].node = str(event.data["node"])
            elif event.kind == "allocation.bound":
                self._placed(uid)
            elif event.kind == "allocation.freed":
                self._won.pop(uid, None)
            elif event.kind in ("node.cordoned", "node.unknown", "node.not-ready"):
                self._lost_at[str(event.data["node"])] = event.at

    def _evicted(self, event: Event) -> None:
        victim, winner = str(event.data["uid"]), str(event.data["claimant"])
        self._outcome.evictions += 1
        if self._won.get(victim, -1.0) > self._now:
            self.fail(
                f"{victim} was evicted for {winner}: others gave way to it, until {self._won[victim]:.2f} it stays"
            )
        claim, own = self._day.claim_of(victim), self._day.claim_of(winner)
        if claim.protected_until > self._now or claim.priority >= own.priority:
            self.fail(f"{victim} may not be evicted for {winner}")
        debt = self._debts.get(winner)
        if debt is not None and debt.since < self._now:
            if not self._is_excused(winner, debt):
                self.fail(f"{winner} evicts again; those who left since {debt.since:.2f} left in vain")
            self._outcome.excused += 1
            debt = None
        if debt is None:
            debt = self._debts[winner] = Debt(self._now, node=str(event.data["node"]))
        debt.victims.add(victim)

    def _placed(self, uid: str) -> None:
        """A request has its cards. Members for which room was kept win together, whichever of them others left for."""
        self._outcome.placed += 1
        ledger, members = self._day.service.state.fleet.ledger, self._day.gang_of(uid)
        winners = [each for each in members if each in self._debts or each in self._kept]
        owed = [debt for each in members if (debt := self._debts.pop(each, None)) is not None]
        if not owed:
            return
        self._outcome.winners += 1
        self._outcome.gang_winners += len(members) > 1
        self._won |= {each: self._now + self._day.policy.protected_s for each in winners if each in ledger}
        paid = [debt.paid_at for debt in owed if debt.paid_at is not None]
        if paid:
            self._outcome.longest_wait_s = max(self._outcome.longest_wait_s, self._now - max(paid))

    # --- books ---

    def _look_at_books(self) -> None:
        state = self._day.service.state
        fleet = state.fleet
        for name in ("compute_free", "vram_free", "cpu_free", "memory_free"):
            if (getattr(fleet, name) < 0).any():
                self.fail(f"{name} is below zero")
        for uid, held in fleet.ledger.items():
            owned = uid in state.executors if held.of_session else self._day.owns(uid)
            if not owned:
                self.fail(f"{uid} holds cards and has no owner")
        if self._outcome.steps % _BOOKS_EVERY == 0:
            check_books(self._day.service)

    # --- debts ---

    def _who_is_owed(self) -> None:
        allocator = self._day.service.state.allocator
        for winner, debt in list(self._debts.items()):
            if debt.paid_at is None and not any(victim in allocator.fleet.ledger for victim in debt.victims):
                debt.paid_at = self._now
            nominated = allocator.nominations.of(winner) is not None
            if self._is_excused(winner, debt):
                del self._debts[winner]
                self._outcome.excused += 1
            elif not nominated:
                del self._debts[winner]
                self.fail(f"no room is kept for {winner} any more, for which {sorted(debt.victims)} left")
            elif debt.paid_at is not None and not self._could_start(winner):
                del self._debts[winner]
                self.fail(f"{sorted(debt.victims)} left for {winner}, which finds no room")

    def _could_start(self, winner: str) -> bool:
        """Whether a winner gets its cards when it asks; a gang whose victims have all left has them by itself."""
        debts = [self._debts.get(member) for member in self._day.gang_of(winner)]
        if len(debts) > 1:
            return any(debt is not None and debt.paid_at is None for debt in debts)
        found = self._day.service.state.allocator.simulate(self._day.request_of(winner)).outcome
        return not isinstance(found, Refusal)

    def _is_excused(self, winner: str, debt: Debt) -> bool:
        """Whether a winner does not come, or what it was to have was changed by other hands."""
        members = self._day.gang_of(winner)
        if any(self._day.has_left(member) for member in members):
            return True
        entries = map(self._day.service.state.allocator.nominations.of, members)
        nodes = {debt.node, *(entry.node for entry in entries if entry is not None)}
        lost = any(self._lost_at.get(node, -1.0) >= debt.since for node in nodes)
        return lost or self._changed_at >= debt.since

    # --- who goes ---

    def judge(self, request: Request, found: Preemption) -> None:
        """Look at the victims before they are notified: each is needed, and no other few would be cheaper."""
        state = self._day.service.state
        fleet, allocator = state.fleet, state.allocator
        if self._fits_as_it_is(request):
            self.fail(f"{request.uid} fits without {found.uids}")
        with reserving(fleet, allocator.nominations.before(fleet, request)):
            for spared in found.uids:
                if self._fits_without(request, found.choice.node, [uid for uid in found.uids if uid != spared]):
                    self.fail(f"{request.uid} fits although {spared} stays; {found.uids} were to go")
            if found.cost is not None and summable(allocator.rules, request) and not allocator.rules.quotas.quotas:
                cheaper = self._cheaper(request, found.cost)
                if cheaper is not None:
                    self.fail(f"{request.uid} fits without {cheaper}, which is cheaper than {found.uids}")

    def _fits_without(self, request: Request, node: str, uids: Iterable[str]) -> bool:
        """Whether a request fits on a node without these, who are there: victims elsewhere may free its quota too.

        A dynamic card keeps its isolation even if all its users were to go: nobody leaves it for another one.
        """
        allocator = self._day.service.state.allocator
        fleet = allocator.fleet
        cards, _ = without_locked(fleet, fleet.cards_on(fleet.row_of[node]), locks_of(fleet, request))
        with trial(fleet):
            for uid in uids:
                fleet.release(uid)
            return bool(find(fleet, allocator.rules, request, cards).by_node)

    def _cheaper(self, request: Request, cost: Cost) -> tuple[str, ...] | None:
        """A cheaper set of up to three on one node, if there is one."""
        allocator = self._day.service.state.allocator
        fleet, rules = allocator.fleet, allocator.rules
        budgets = budgets_of(fleet, rules.min_available)
        for node in fleet.nodes:
            there = [a for a in fleet.ledger.values() if a.node == node.name and a.claim is not None]
            able = [a for a in there if Protection.against(rules, request, self._now).shield(a) is None]
            sets = (chosen for size in (1, 2, 3) for chosen in combinations(able, size))
            for chosen in islice(sets, _SETS):
                if cost_of(budgets, self._now, node.name, chosen) < cost:
                    uids = tuple(each.id for each in chosen)
                    if self._fits_without(request, node.name, uids):
                        return uids
        return None

    def _fits_as_it_is(self, request: Request) -> bool:
        """Whether cards do for it now, once everybody has left who leaves, and in between, whoever leaves first."""
        fleet, rules = self._day.service.state.fleet, self._day.service.state.allocator.rules
        now = find(fleet, rules, request).by_node
        if not now:
            return False
        then = [self._fits_at_last(request), *self._fits_meanwhile(request)]
        return any(
            len(set(cards).intersection(*(found.get(node, ()) for found in then))) >= request.requirement.gpu_count
            for node, cards in now.items()
        )

    def _fits_at_last(self, request: Request) -> Found:
        """Where it fits when all who leave have left, and all have come for whom they do."""
        allocator = self._day.service.state.allocator
        fleet = allocator.fleet
        with trial(fleet):
            self._let_go(fleet)
            for place in self._promised_places():
                fleet.charge(replace(place, id=f"promised/{place.id}"), force=True)
            with reserving(
                fleet, [each for each in allocator.nominations.waiting(fleet) if each.request.uid != request.uid]
            ):
                return find(fleet, allocator.rules, request).by_node

    def _fits_meanwhile(self, request: Request) -> Iterator[Found]:
        """Yield where it fits when some winners have come, and only their victims have left.

        A winner whose victims have left waits for nobody else: what others still hold may be what the request counts
        on.
        """
        allocator = self._day.service.state.allocator
        fleet = allocator.fleet
        ahead = [each for each in allocator.nominations.before(fleet, request) if isinstance(each, Nomination)]
        some = (chosen for size in range(1, len(ahead) + 1) for chosen in combinations(ahead, size))
        for winners in islice(some, _ORDERS):
            with trial(fleet):
                for uid in {victim.uid for winner in winners for victim in winner.victims} & fleet.leaving:
                    fleet.release(uid)
                with reserving(fleet, winners):
                    yield find(fleet, allocator.rules, request).by_node

    def _let_go(self, fleet: Fleet) -> None:
        """Release all who leave for somebody."""
        state = self._day.service.state
        victims = {victim.uid for each in state.allocator.nominations.entries for victim in each.victims}
        executors = {
            each.id for each in state.executors.values() if each.phase is ExecutorPhase.ENDING or each.eviction
        }
        for uid, held in list(fleet.ledger.items()):
            if uid in executors or (uid in victims and held.state is AllocationState.RELEASING):
                fleet.release(uid)

    def _promised_places(self) -> list[Allocation]:
        promises = self._day.service.state.promises.values()
        return [place for promise in promises for place in promise.places]
