"""One gang at one moment: whether it gives up, what it reserves, and who gives way to it.

Only if all members that are required fit are they reserved, in one step. Otherwise nothing is held for the gang but the
room that others leave for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from ullage.core.admitting.gang_state import BACKOFF_S, MAX_BACKOFF_S, GangPhase, GangState
from ullage.core.admitting.quorum import Quorum, late_units
from ullage.core.admitting.wake import Tried
from ullage.core.allocator import FleetAllocator
from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.victims import EvictionContext, budgets_of
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit, by_size, fit_as_kept
from ullage.core.placing.feasibility import runs
from ullage.core.placing.nomination import NOMINATED_TTL_S, Nominations
from ullage.core.placing.subgroups import fit_gang, nodes_by_subgroup
from ullage.core.verdict.sentences import CURES
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Request
from ullage.model.nomination import Nomination
from ullage.model.rejection import Code, Cure, Rejection


def _refusal(code: Code, needed: int = 0, had: int = 0, cure: Cure | None = None) -> Refusal:
    return Refusal((Rejection(code, cure or CURES[code], needed, had),))


def forget(allocator: FleetAllocator, uids: Collection[str], now: float) -> tuple[str, ...]:
    """Give back what these requests have reserved. Return those that had something reserved."""
    return tuple(uid for uid in sorted(uids) if allocator.forget(uid, now) is not None)


@dataclass(slots=True)
class GangStep:
    """One gang at one moment; `held` is what it has in the ledger, by uid. With `commit` it is bound at once."""

    gang: GangState
    allocator: FleetAllocator
    now: float
    held: dict[str, Allocation]
    commit: bool
    evicted: list[Allocation] = field(default_factory=list)
    nominated: list[Nomination] = field(default_factory=list)

    # --- who there is ---

    def _waiting(self) -> list[Request]:
        return [request for uid, request in self.gang.members.items() if uid not in self.held]

    def _reserved(self) -> list[str]:
        members = self.gang.members
        return [uid for uid, a in self.held.items() if a.state is AllocationState.ASSUMED and uid in members]

    def _running(self) -> list[str]:
        return [uid for uid, a in self.held.items() if a.state is AllocationState.BOUND and a.claim is not None]

    def _going(self) -> list[str]:
        return [*self._running(), *self._reserved()]

    def _quorum(self, going: Iterable[str]) -> Quorum:
        fleet, claims = self.allocator.fleet, (self.held[uid].claim for uid in going)
        gangs = [claim.gang for claim in claims if claim is not None and claim.gang is not None]
        return Quorum(self.gang.claim, gangs, self._waiting(), lambda each: fleet.resources(each.requirement).gpu_milli)

    def _suffices(self, going: Sequence[str]) -> bool:
        """Return whether these are the required members."""
        claim = self.gang.claim
        return len(going) >= claim.required and (not self.gang.divided or self._quorum(going).complete)

    def _lack(self) -> Refusal | None:
        """Return what it lacks although all members that wait may start; None if they suffice."""
        claim, going = self.gang.claim, self._going()
        if self.gang.divided:
            lack = self._quorum(going).lack
            return None if lack is None else lack.refusal
        present = len(going) + len(self._waiting())
        return None if present >= claim.required else _refusal(Code.GANG_INCOMPLETE, claim.required, present)

    def _satisfied(self) -> bool:
        return self._suffices(self._running())

    # --- giving up ---

    def give_up(self) -> tuple[str, ...]:
        """End a back-off that is over, or a wait that lost its quorum or took too long; what was given back."""
        gang = self.gang
        gang.leaving.clear()
        if not gang.members or (gang.retry_at is not None and self.now < gang.retry_at):
            return ()
        if gang.retry_at is not None:
            gang.retry_at, gang.since, gang.quorate, gang.tried = None, None, False, None
        if self._satisfied() or not (self._waiting() or self._reserved()):
            gang.since, gang.quorate = None, False
            return ()
        gang.since = self.now if gang.since is None else gang.since
        if gang.quorate and self._lack() is not None:
            return self._back_off(GangPhase.FAILED)
        if self.allocator.nominations.owed(gang.members, self.allocator.fleet):
            gang.since = self.now  # others leave for it, and do not leave in vain
        untried = gang.quorate and gang.tried is None  # since a restart: it is tried before it is given up
        if gang.expires_at is not None and self.now >= gang.expires_at and not untried:
            return self._back_off(GangPhase.TIMED_OUT)
        if not self._suffices(self._going()):
            return self._give_back()  # a member left: what the others reserved is only a part
        return ()

    def _give_back(self) -> tuple[str, ...]:
        forgotten = forget(self.allocator, self._reserved(), self.now)
        for uid in forgotten:
            del self.held[uid]
        return forgotten

    def _keep_no_room(self) -> None:
        """Reserve nothing more. Victims that are leaving for it still leave, and their room is open to all."""
        self.gang.renew_at = None
        for uid in self.gang.members:
            self.allocator.withdraw(uid)

    def _back_off(self, phase: GangPhase) -> tuple[str, ...]:
        gang, forgotten = self.gang, self._give_back()
        self._keep_no_room()
        gang.phase, gang.retry_at = phase, self.now + gang.backoff_s
        gang.backoff_s = min(2 * gang.backoff_s, MAX_BACKOFF_S)
        return forgotten

    # --- placing ---

    def place(self) -> dict[str, Allocation]:
        """Reserve cards for the waiting members if they may start now. Return what was reserved."""
        gang, waiting = self.gang, self._waiting()
        gang.answers |= {uid: self.held[uid] for uid in gang.members if uid in self.held}
        if gang.retry_at is not None:
            return self._refuse(waiting, Code.BACKOFF)
        if self._satisfied():
            gang.phase = GangPhase.RUNNING
            return self._place_late(waiting)
        if self._reserved():
            gang.phase = GangPhase.SCHEDULING
            return self._refuse(waiting, Code.GANG_ROOM)
        lack = self._lack()
        if lack is not None or not waiting:
            gang.phase = GangPhase.PENDING
            return {} if lack is None else self._answer(waiting, lack)
        gang.quorate, gang.phase = True, GangPhase.WAITING
        return self._place_whole(waiting, gang.claim.required - len(self._running()))

    def _place_whole(self, waiting: list[Request], needed: int) -> dict[str, Allocation]:
        """Place all waiting members; if they do not fit, the smallest that suffice."""
        plan = self._plan(waiting, needed) if self._is_new(waiting) else None
        if isinstance(plan, dict):
            return self._take_whole(waiting, plan)
        awaited = self._awaited(waiting)
        if awaited:
            return self._refuse(waiting, Code.EVICTING, awaited)
        if plan is not None and self.gang.claim.preempt and not self.gang.divided:
            return self._preempt(waiting, needed, plan)
        return {} if plan is None else self._does_not_fit(waiting, plan)

    def _take_whole(self, waiting: list[Request], plan: dict[str, Choice]) -> dict[str, Allocation]:
        self.gang.phase = GangPhase.SCHEDULING
        reserved = self._take([(request, plan[request.uid]) for request in waiting if request.uid in plan])
        self._keep_no_room()
        self._refuse(self._waiting(), Code.GANG_ROOM)
        return reserved

    def _plan(self, waiting: list[Request], needed: int) -> dict[str, Choice] | Misfit:
        if self.gang.divided:
            quorum = self._quorum(self._going())
            plan = self._fit(quorum.every())
            return plan if isinstance(plan, dict) else quorum.fit_least(self._fit)
        sized = by_size(self.allocator.fleet, waiting)
        plan = self._fit(sized)
        if isinstance(plan, Misfit) and needed < len(sized):
            plan = self._fit(sized[-needed:])
        return plan if isinstance(plan, dict) else self._fit_as_kept(waiting, needed) or plan

    def _fit(self, requests: Sequence[Request]) -> dict[str, Choice] | Misfit:
        books, others = self.allocator, self._kept_for_others()
        neighbours = nodes_by_subgroup((allocation.claim, allocation.node) for allocation in self.held.values())
        return fit_gang(
            books.fleet,
            books.rules,
            requests,
            self.now,
            nominations=others,
            neighbours=neighbours,
            divided=self.gang.divided,
        )

    def _fit_as_kept(self, waiting: list[Request], needed: int) -> dict[str, Choice] | None:
        """Place members where others left for them: put elsewhere, one can take up what only another can use."""
        books = self.allocator
        owed = [request for request in waiting if books.nominations.of(request.uid) is not None]
        if len(owed) < needed:
            return None
        return fit_as_kept(books.fleet, books.rules, owed, self.now, nominations=books.nominations)

    def _kept_for_others(self) -> Nominations:
        return self.allocator.nominations.without(*self.gang.members)

    def _does_not_fit(self, waiting: list[Request], misfit: Misfit) -> dict[str, Allocation]:
        first = misfit.refusal.rejections[0]
        if first.code in (Code.GANG_ROOM, Code.GANG_DOMAIN):  # of all of them together
            return self._answer(waiting, Refusal((first,)))
        self._refuse(waiting, Code.GANG_ROOM, len(waiting), misfit.placed)
        self.gang.answers[misfit.uid] = misfit.refusal
        return {}

    # --- others give way ---

    def _awaited(self, waiting: list[Request]) -> int:
        """Return how many victims of the waiting members are still leaving. Their room stays reserved."""
        nominations, ledger = self.allocator.nominations, self.allocator.fleet.ledger
        uids = {request.uid for request in waiting} if nominations.entries else frozenset()
        own = [entry for entry in nominations.entries if entry.request.uid in uids]
        victims = {victim.uid for entry in own for victim in entry.victims}
        known = [ledger[uid] for uid in victims if uid in ledger]
        leaving = sum(allocation.state is AllocationState.RELEASING for allocation in known)
        if leaving and (self.gang.renew_at is None or self.now >= self.gang.renew_at):
            self._keep_room([replace(entry, since=self.now) for entry in own])
        return leaving

    def _keep_room(self, entries: Iterable[Nomination]) -> None:
        for entry in entries:
            self.allocator.nominate(entry)
            self.nominated.append(entry)
        self.gang.renew_at = self.now + NOMINATED_TTL_S / 2

    def _preempt(self, waiting: list[Request], needed: int, misfit: Misfit) -> dict[str, Allocation]:
        """Let others leave for as many members as are required, or nobody."""
        allocator = self.allocator
        requests = by_size(allocator.fleet, waiting)[-needed:]
        budgets = budgets_of(allocator.fleet, allocator.rules.min_available)
        nominations = self._kept_for_others()
        context = EvictionContext(allocator.fleet, allocator.rules, self.now, budgets, nominations=nominations)
        found = preempt_together(context, requests)
        if isinstance(found, Misfit):
            return self._does_not_fit(waiting, misfit)
        if not any(each.victims for each in found.values()):
            return self._take_whole(waiting, {uid: each.choice for uid, each in found.items()})
        self._keep_no_room()
        for uid in dict.fromkeys(chain.from_iterable(each.uids for each in found.values())):
            leaving = allocator.release(uid)
            assert leaving is not None, "a victim is in the ledger"
            self.evicted.append(leaving)
        kept = (found[request.uid].nomination(request, self.now) for request in requests)
        self._keep_room(replace(entry, owed=True) for entry in kept)
        return self._refuse(waiting, Code.EVICTING, len(self.evicted))

    def _place_late(self, waiting: list[Request]) -> dict[str, Allocation]:
        """Place members of a running gang in turn. The refusal of a member holds for all equal ones."""
        reserved: dict[str, Allocation] = {}
        if not waiting or not self._is_new(waiting):
            return reserved
        nominations = self.allocator.nominations
        for equal in self._late(waiting):
            refusal: Refusal | None = None
            for members in equal:
                if refusal is None or any(nominations.of(each.uid) is not None for each in members):  # room may be kept
                    found = self._fit(members)
                    if not isinstance(found, Misfit):
                        reserved |= self._take([(each, found[each.uid]) for each in members])
                        continue
                    refusal = found.refusal
                self.gang.answers |= {each.uid: refusal for each in members}
        return reserved

    def _late(self, waiting: list[Request]) -> Iterable[list[list[Request]]]:
        """Return members that start together once the gang runs: each by itself, or a whole subgroup; equal ones."""
        if self.gang.divided:
            return late_units(lambda: self._quorum(self._going()))
        return ([[request] for request in run] for run in runs(waiting))

    def _is_new(self, waiting: list[Request]) -> bool:
        """Return whether anything changed since the last trial, which would else fail again."""
        allocator = self.allocator
        uids = tuple(request.uid for request in waiting)
        trial = Tried(allocator.version, allocator.fleet, allocator.rules, uids)
        known, self.gang.tried = self.gang.tried, trial
        return not trial.same(known)

    def _take(self, plan: Sequence[tuple[Request, Choice]]) -> dict[str, Allocation]:
        """Reserve all places of the plan. The books did not change since it was made."""
        books, state = self.allocator, AllocationState.BOUND if self.commit else AllocationState.ASSUMED
        if books.nominations.owed(self.gang.members):
            until = self.now + books.rules.protected_s
            plan = [(replace(each, claim=each.claim.protected(until)), choice) for each, choice in plan]
        taken = {request.uid: books.take(request, choice, self.now, state) for request, choice in plan}
        self.held |= taken
        self.gang.answers |= taken
        if self.commit:
            self._settle()
        return taken

    def _refuse(
        self, waiting: Iterable[Request], code: Code, needed: int = 0, had: int = 0, cure: Cure | None = None
    ) -> dict[str, Allocation]:
        return self._answer(waiting, _refusal(code, needed, had, cure))

    def _answer(self, waiting: Iterable[Request], refusal: Refusal) -> dict[str, Allocation]:
        self.gang.answers |= {request.uid: refusal for request in waiting}
        return {}

    def bind(self) -> dict[str, Allocation]:
        """Bind all reservations and return them."""
        bound = {uid: self.allocator.commit(uid, self.now) for uid in self._reserved()}
        if bound:
            self.held |= bound
            self.gang.answers |= bound
            self._settle()
        return bound

    def _settle(self) -> None:
        """End the wait, because the required members are bound."""
        gang = self.gang
        gang.phase, gang.since, gang.quorate, gang.backoff_s = GangPhase.RUNNING, None, False, BACKOFF_S
